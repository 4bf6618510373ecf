"""The hub: found in the cache, downloaded, stopped, taken up again, and every refusal in plain words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadMachine, BadModel, Cancelled, UsageError
from circuitlab.model.hub import HubName, looks_like_a_name, snapshot
from circuitlab.model.loading import open_model
from tests.hub_server import COMMIT, Hub, reached
from tests.models import CONFIGS, directory

pytest.importorskip("huggingface_hub")

from circuitlab.model.hub_download import Progress, fetch, plan, revisions

NAME = HubName("somebody/small")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one model, and an empty cache."""
    path = directory(tmp_path / "repo", CONFIGS["gpt2"])
    (path / "README.md").write_text("not needed")
    with reached(Hub({NAME.repo: path}, revisions=("step512", "main", "step64")), tmp_path / "cache", monkeypatch) as made:
        yield made


def test_a_model_is_downloaded_opened_and_then_there(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Progress] = []
    what = plan(NAME)
    assert {f.name for f in what.files} == {"config.json", "tokenizer.json", "model.safetensors"}
    folder = fetch(what, said.append)
    assert said[-1].done == said[-1].total == what.total
    assert [p.done for p in said] == sorted(p.done for p in said)
    original = hub.repos[NAME.repo]
    assert (folder / "model.safetensors").read_bytes() == (original / "model.safetensors").read_bytes()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.log.clear()
    opened = ModelStore().open(reference("somebody/small"))
    assert opened.opened.weights.config == open_model(original).weights.config
    assert opened.ref.name == "small"
    assert not hub.log, "an open from the cache asks nobody"


def test_what_is_there_is_not_asked_for_again(hub: Hub) -> None:
    fetch(plan(NAME), lambda p: None)
    hub.log.clear()
    fetch(plan(NAME), lambda p: None)
    assert all("/resolve/" not in path for _, path, _ in hub.log)


def test_revisions_come_in_the_order_of_their_numbers(hub: Hub) -> None:
    assert revisions(NAME.repo) == ("main", "step64", "step512")


def test_a_revision_is_remembered_by_its_name(hub: Hub) -> None:
    name = HubName(NAME.repo, "step64")
    fetch(plan(name), lambda p: None)
    assert snapshot(name) == name.folder / "snapshots" / COMMIT
    assert snapshot(HubName(NAME.repo, "step512")) is None


def test_a_cancelled_download_goes_on_where_it_stopped(hub: Hub) -> None:
    hub.wait = threading.Event()
    seen: list[int] = []

    def say(p: Progress) -> None:
        seen.append(p.done)

    what = plan(NAME)
    small = sum(f.size for f in what.files if f.size < 2**14)
    with pytest.raises(Cancelled):
        fetch(what, say, cancelled=lambda: _stop(hub, seen, small))
    hub.wait = None
    assert snapshot(NAME) is None
    parts = list((NAME.folder / "blobs").glob("*.circuitlab-part"))
    assert len(parts) == 1
    kept = parts[0].stat().st_size
    assert kept > 0
    hub.log.clear()
    folder = fetch(what, lambda p: None)
    assert any(asked == f"bytes={kept}-" for method, _, asked in hub.log if method == "GET"), hub.log
    original = hub.repos[NAME.repo] / "model.safetensors"
    assert (folder / "model.safetensors").read_bytes() == original.read_bytes()


def _stop(hub: Hub, seen: list[int], small: int) -> bool:
    """Once a block of the large file has come: the server is let go on, and nobody wants it any more."""
    if seen and seen[-1] > small:
        assert hub.wait is not None
        hub.wait.set()
        return True
    return False


def test_a_cut_connection_is_taken_up_again(hub: Hub) -> None:
    hub.cut_after = 1 << 15
    folder = fetch(plan(NAME), lambda p: None)
    original = hub.repos[NAME.repo] / "model.safetensors"
    assert (folder / "model.safetensors").read_bytes() == original.read_bytes()
    assert any(asked.startswith("bytes=") for _, _, asked in hub.log)


def test_a_file_that_was_damaged_on_its_way_does_not_count(hub: Hub) -> None:
    hub.damage = True
    with pytest.raises(BadModel, match="damaged on its way"):
        fetch(plan(NAME), lambda p: None)
    assert snapshot(NAME) is None
    hub.damage = False
    assert fetch(plan(NAME), lambda p: None).is_dir()


def test_models_that_are_not_there_are_refused_in_words(hub: Hub) -> None:
    with pytest.raises(BadModel, match="not on the hub, or is private"):
        plan(HubName("nobody/nothing"))
    with pytest.raises(BadModel, match="no revision step7"):
        plan(HubName(NAME.repo, "step7"))
    with pytest.raises(BadModel, match="has not been downloaded"):
        ModelStore().open(reference("somebody/other"))
    (hub.repos[NAME.repo] / "model.safetensors").unlink()
    with pytest.raises(BadModel, match="holds no model"):
        plan(NAME)


def test_a_gated_model_says_what_to_do(hub: Hub) -> None:
    hub.gated = frozenset({NAME.repo})
    with pytest.raises(BadModel, match="gated") as caught:
        fetch(plan(NAME), lambda p: None)
    assert "auth login" in caught.value.remedy


def test_without_a_hub_the_error_says_so(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(BadMachine, match="cannot be reached"):
        plan(NAME)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(BadMachine, match="offline"):
        plan(NAME)


def test_sharded_models_are_whole_only_with_all_shards(hub: Hub) -> None:
    import json

    folder = hub.repos[NAME.repo]
    for i in (1, 2):
        (folder / f"model-0000{i}-of-00002.safetensors").write_bytes(bytes(LARGE_FILE + i))
    (folder / "model.safetensors").unlink()
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    found = fetch(plan(NAME), lambda p: None)
    (found / "model-00002-of-00002.safetensors").unlink()
    assert snapshot(NAME) is None


LARGE_FILE = 6000


@pytest.mark.parametrize("text", ["a/../b", "/abs", "a//b", "a/b@../x", "a b/c", "a/b@", "https://x/y", "", "hub:"])
def test_names_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        HubName.parse(text)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("gpt2", False), ("a/b", True), ("EleutherAI/pythia-70m@step1000", True), ("./x", False), ("a/b/c", False), ("/a/b", False)],
)
def test_words_that_may_name_a_model_of_the_hub(text: str, is_one: bool) -> None:
    assert looks_like_a_name(text) is is_one


def test_a_path_comes_before_a_name_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory(tmp_path / "somebody" / "small")
    monkeypatch.chdir(tmp_path)
    assert reference("somebody/small").source.startswith("file:")
    assert reference("somebody/large").source == "hub:somebody/large"
    assert reference("hub:somebody/small@step3").source == "hub:somebody/small@step3"


def test_a_command_downloads_first_and_says_how_far_it_is(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    from circuitlab.cli import main

    assert main(["info", "somebody/small"]) == 0
    out, err = capsys.readouterr()
    assert "3 files" in err
    assert "MiB" in err
    assert "d_model" in out
    assert main(["info", "somebody/small"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["info", "nobody/nothing"]) == 3
