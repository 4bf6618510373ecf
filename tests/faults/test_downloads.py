"""A download that is killed at each of its calls: what is there afterwards is whole, and the next one completes it."""

from __future__ import annotations

import errno
import hashlib
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub")
if sys.platform == "win32":
    pytest.skip("needs a POSIX system: processes that are killed", allow_module_level=True)

from circuitlab.model.sources.hub import HubName, snapshot
from circuitlab.model.sources.hub_download import bring, fetch, plan, plan_of_files
from tests.faults.calls import ENDED, KILLED, SAID, outcome, walk
from tests.hub_server import Hub, reached
from tests.models import CONFIGS, directory

NAME = HubName("somebody/small")


@pytest.mark.slow
@pytest.mark.parametrize("fault", [0, errno.ENOSPC, errno.EIO])
def test_files_that_are_brought_are_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    source, cache = directory(tmp_path / "brought", CONFIGS["gpt2"]), tmp_path / "cache"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    known = {"model.safetensors": hashlib.sha256((source / "model.safetensors").read_bytes()).hexdigest()}
    act = lambda: bring(plan_of_files(NAME, source, known, 10**6), source, lambda progress: None, alone=True)
    calls = 0
    for call, how in walk(act, cache, fault, lambda: shutil.rmtree(cache, ignore_errors=True)):
        calls = call
        assert how in ((SAID, ENDED) if fault else (KILLED,))
        for file in NAME.folder.glob("snapshots/*/*"):
            assert file.suffix == ".circuitlab-part" or file.read_bytes() == (source / file.name).read_bytes(), file.name
        assert outcome(act, cache, 10_000, 0) == (ENDED, False) and snapshot(NAME) is not None, f"after call {call}"
        links = [link for link in NAME.folder.glob("snapshots/main/*") if link.suffix != ".circuitlab-part"]
        stored = {one.name for one in (NAME.folder / "blobs").iterdir()}
        assert stored == {link.resolve().name for link in links}, f"nothing else stays after call {call}"
    assert calls > 10


@pytest.mark.slow
def test_a_download_that_is_killed_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that asks the hub is a process of its own: connections are not shared."""
    source, cache = directory(tmp_path / "repo", CONFIGS["gpt2"]), tmp_path / "cache"
    get = lambda: fetch(plan(NAME), lambda progress: None)

    def whole() -> bool:
        """Whether the model is there; what is there under a file's name is that file."""
        for file in NAME.folder.glob("snapshots/*/*"):
            assert file.suffix == ".circuitlab-part" or file.read_bytes() == (source / file.name).read_bytes(), file.name
        return snapshot(NAME) is not None

    with reached(Hub({NAME.repo: source}), cache, monkeypatch):
        calls = 0
        for call, how in walk(get, cache, 0, lambda: shutil.rmtree(cache, ignore_errors=True)):
            calls = call
            assert how == KILLED
            whole()
            assert outcome(get, cache, 10_000, 0) == (ENDED, False) and whole(), f"after a kill at call {call}"
    print(f"a download kill {calls} calls: each time the next one completed it")
    assert calls > 10
