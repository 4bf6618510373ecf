"""The hub: found in the cache, downloaded, stopped, taken up again, and every refusal in plain words."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
import torch

from circuitlab.disk.file_lock import FileLock
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadMachine, BadModel, Cancelled, SeveralModels, UsageError
from circuitlab.model.forward import logits
from circuitlab.model.loading import open_model
from circuitlab.model.sources import hub_transfer
from circuitlab.model.sources.hub import HubName, in_cache, is_path, looks_like_a_name, snapshot
from circuitlab.model.sources.hub_forms import gguf_models, matching
from tests.hub_server import COMMIT, Hub, reached, redirected
from tests.models import CONFIGS, directory
from tests.patience import SECONDS

pytest.importorskip("huggingface_hub")

from circuitlab.model.sources.hub_download import Progress, fetch, plan, revisions

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
    with pytest.raises(BadModel, match="damaged in transit"):
        fetch(plan(NAME), lambda p: None)
    assert snapshot(NAME) is None
    hub.damage = False
    assert fetch(plan(NAME), lambda p: None).is_dir()


def test_a_swapped_configuration_is_refused(hub: Hub) -> None:
    """Of the same length, under the name of the file that is listed: git's hash, which names small files, tells them apart."""
    config = (hub.repos[NAME.repo] / "config.json").read_bytes()
    at = config.index(b'"n_layers": ') + len(b'"n_layers": ')
    hub.swapped["config.json"] = config[:at] + b"9" + config[at + 1 :]
    with pytest.raises(BadModel, match="damaged in transit"):
        fetch(plan(NAME), lambda p: None)
    assert snapshot(NAME) is None and not list(NAME.folder.rglob("config.json"))
    hub.swapped.clear()
    assert (fetch(plan(NAME), lambda p: None) / "config.json").read_bytes() == config


def test_a_file_under_another_hash_than_the_list_has_is_refused(hub: Hub) -> None:
    what = plan(NAME)
    assert all(len(file.etag) in (40, 64) for file in what.files)
    swapped = replace(what, files=tuple(replace(f, etag="a" * 40 if f.name == "config.json" else f.etag) for f in what.files))
    with pytest.raises(BadModel, match="than it lists"):
        fetch(swapped, lambda p: None)
    assert not list(NAME.folder.rglob("*config.json*"))


def test_git_names_a_blob_as_the_check_does(hub: Hub, tmp_path: Path) -> None:
    """The hash of `hello` in git, which any repository has."""
    from circuitlab.model.sources.hub_transfer import _check
    from circuitlab.model.sources.transfer_meter import Meter

    (part := tmp_path / "part").write_bytes(b"hello\n")
    _check(part, "ce013625030ba8dba906f756967f9e9ca394464a", Meter(6, lambda p: None, lambda: False))
    with pytest.raises(BadModel):
        _check(part, "f572d396fae9206628714fb2ce00f72e94f2258f", Meter(6, lambda p: None, lambda: False))  # its bare sha1


def test_two_downloads_at_once_receive_a_file_once(hub: Hub) -> None:
    """The second waits for the first, then finds the file; no byte of the large one comes twice."""
    hub.wait = threading.Event()
    what, began, done = plan(NAME), threading.Event(), list[Path]()
    small = sum(f.size for f in what.files if f.size < 2**14)

    def say(p: Progress) -> None:
        if p.done > small:
            began.set()

    first = threading.Thread(target=lambda: done.append(fetch(what, say)))
    first.start()
    assert began.wait(60)
    asked = threading.Event()
    second = threading.Thread(target=lambda: done.append(fetch(what, lambda p: None, lambda: asked.set() or False)))
    second.start()
    assert asked.wait(60)
    hub.wait.set()
    for one in (first, second):
        one.join(60)
    assert len(done) == 2 and done[0] == done[1]
    original = hub.repos[NAME.repo] / "model.safetensors"
    assert (done[0] / "model.safetensors").read_bytes() == original.read_bytes()
    assert sum(method == "GET" and path.endswith("model.safetensors") for method, path, _ in hub.log) == 1
    assert not list((NAME.folder / "blobs").glob("*.circuitlab*"))


@pytest.mark.parametrize("what", ["revisions", "plan", "fetch"])
def test_a_silent_hub_keeps_nobody_who_no_longer_waits(hub: Hub, what: str) -> None:
    planned, ended, given_up = plan(NAME), list[BaseException](), threading.Event()
    ask = {
        "revisions": lambda: revisions(NAME.repo, given_up.is_set),
        "plan": lambda: plan(NAME, given_up.is_set),
        "fetch": lambda: fetch(planned, lambda p: None, given_up.is_set),
    }[what]
    hub.log.clear()
    hub.silent = threading.Event()

    def work() -> None:
        try:
            ask()
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while not hub.log:
        thread.join(0.01)
    given_up.set()
    thread.join(SECONDS)
    try:
        assert [type(error) for error in ended] == [Cancelled], "while nothing has been answered"
    finally:
        hub.silent.set()


@pytest.mark.parametrize("damage", ["empty", "twice", "another"])
def test_what_is_there_is_checked_before_it_counts(hub: Hub, damage: str) -> None:
    good = fetch(plan(NAME), lambda p: None) / "model.safetensors"
    data, blob = good.read_bytes(), good.resolve()
    blob.write_bytes({"empty": b"", "twice": data * 2, "another": data[:-1] + bytes([data[-1] ^ 1])}[damage])
    assert (fetch(plan(NAME), lambda p: None) / "model.safetensors").read_bytes() == data
    assert not list(NAME.folder.rglob("*circuitlab*"))


def test_two_downloads_on_a_disk_without_locks_leave_a_whole_file(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(lock: FileLock) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(FileLock, "take", none)
    what, together, done = plan(NAME), threading.Barrier(2), list[Path]()
    large = max(f.size for f in what.files)

    def work() -> None:
        met = [False]

        def say(p: Progress) -> None:
            if p.file == "model.safetensors" and p.done > what.total - large and not met[0]:
                met[0] = True  # both are in the midst of it
                together.wait(SECONDS)

        done.append(fetch(what, say))

    both = [threading.Thread(target=work) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(SECONDS)
    assert len(done) == 2
    assert (done[0] / "model.safetensors").read_bytes() == (hub.repos[NAME.repo] / "model.safetensors").read_bytes()
    assert not list(NAME.folder.rglob("*circuitlab*"))


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EACCES, "cannot be written to"), (errno.ENOSPC, "disk is full"), (errno.EIO, "could not be written")],
)
def test_what_the_disk_refuses_is_not_said_of_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch, number: int, words: str) -> None:
    def refused(path: Path, append: bool = True) -> IO[bytes]:
        raise OSError(number, os.strerror(number), str(path))

    what = plan(NAME)
    monkeypatch.setattr(hub_transfer, "open_own", refused)
    with pytest.raises(BadMachine, match=words) as caught:
        fetch(what, lambda p: None)
    assert "hub" not in caught.value.what and os.strerror(number) in caught.value.got


def _files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


@pytest.mark.parametrize("honest", [0, 2, 3])
@pytest.mark.parametrize("etag", ["../../../x", "..", "a" * 39, "g" * 40, "a" * 65, "", "../" + "a" * 40])
def test_an_etag_that_is_no_hash_never_becomes_a_path(hub: Hub, tmp_path: Path, etag: str, honest: int) -> None:
    """Also where the server was honest at first, and says another at a later file."""
    before = _files(hub.repos[NAME.repo])
    hub.etag, hub.honest = etag or '""', honest
    try:
        fetch(plan(NAME), lambda p: None)
    except BadModel as refused:
        assert "not a hash" in refused.what
    else:
        assert honest == 3, "three files, each asked about once"
    kept = tmp_path / "cache" / "models--somebody--small"
    assert _files(hub.repos[NAME.repo]) == before
    assert {f.name for f in tmp_path.iterdir()} <= {"repo", "cache"}
    assert {f.name for f in kept.parent.glob("*")} <= {kept.name}
    assert {f.name for f in kept.glob("*")} <= {"blobs", "refs", "snapshots"}
    assert all(len(f.name) in (40, 64) for f in (kept / "blobs").glob("*"))


def test_a_commit_and_a_name_of_a_shard_never_become_a_path(hub: Hub, tmp_path: Path) -> None:
    hub.commit = "../../x"
    with pytest.raises(BadModel, match="not a hash"):
        plan(NAME)
    assert not any(is_path(n) for n in ("model-/../x.safetensors", "..", ".x", "a\\b", "/x", "a\nb", "C:x", ""))
    assert all(is_path(n) for n in ("model-00001-of-00002.safetensors", "pytorch_model.bin", "config.json"))
    assert not (tmp_path / "cache").exists()


def test_a_stream_without_end_is_taken_to_the_announced_size(hub: Hub) -> None:
    hub.endless = True
    with pytest.raises(BadModel, match=r"more of model\.safetensors than it announced"):
        fetch(plan(NAME), lambda p: None)
    size = (hub.repos[NAME.repo] / "model.safetensors").stat().st_size
    kept = sum(f.stat().st_size for f in NAME.folder.rglob("*") if f.is_file() and not f.is_symlink())
    assert kept < size, "what came is dropped"
    assert hub.sent < 32 * 2**20, "and the connection closed: of 64 MiB a few that lay in buffers were sent"
    hub.endless = False
    assert fetch(plan(NAME), lambda p: None).is_dir()


def test_what_comes_packed_is_not_inflated(hub: Hub) -> None:
    hub.packed = True
    with pytest.raises(BadMachine, match="compressed"):
        fetch(plan(NAME), lambda p: None)
    assert all(f.stat().st_size < 2**16 for f in NAME.folder.rglob("*") if f.is_file())


def test_a_part_longer_than_its_file_is_dropped(hub: Hub) -> None:
    hub.wait = threading.Event()
    seen: list[int] = []
    what = plan(NAME)
    small = sum(f.size for f in what.files if f.size < 2**14)
    with pytest.raises(Cancelled):
        fetch(what, lambda p: seen.append(p.done), cancelled=lambda: _stop(hub, seen, small))
    (part,) = (NAME.folder / "blobs").glob("*.circuitlab-part")
    part.write_bytes(bytes(10 * 2**20))
    hub.wait = None
    progress: list[Progress] = []
    folder = fetch(what, progress.append)
    original = hub.repos[NAME.repo] / "model.safetensors"
    assert (folder / "model.safetensors").read_bytes() == original.read_bytes()
    assert progress[-1].done == progress[-1].total and not part.exists()


def test_sizes_that_contradict_each_other_are_refused(hub: Hub) -> None:
    what = plan(NAME)
    wrong = replace(what, files=tuple(replace(f, size=f.size + 1) for f in what.files))
    with pytest.raises(BadModel, match="how long"):
        fetch(wrong, lambda p: None)


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


def test_the_token_goes_to_the_hub_and_not_to_the_host_that_keeps_large_files(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_person")
    with redirected(hub) as other:
        folder = fetch(plan(NAME), lambda p: None)
        assert ("GET", "model.safetensors") in [(method, path.split("/")[-1]) for method, path, _ in other.log]
        assert set(other.tokens) == {""} and "Bearer hf_of_a_person" in hub.tokens
    assert (folder / "model.safetensors").read_bytes() == (hub.repos[NAME.repo] / "model.safetensors").read_bytes()


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
    result = fetch(plan(NAME), lambda p: None)
    (result / "model-00002-of-00002.safetensors").unlink()
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
    from circuitlab.cli.parser import main

    assert main(["info", "somebody/small"]) == 0
    out, err = capsys.readouterr()
    assert "3 files" in err
    assert "MiB" in err
    assert "d_model" in out
    assert main(["info", "somebody/small"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["info", "nobody/nothing"]) == 3


# -- GGUF models ------------------------------------------------------------------------------------------------------


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a repository of three GGUF models, one of them in two parts in a folder, and one with a single model."""
    pytest.importorskip("gguf")
    from tests.gguf_files import small, split

    many, one = tmp_path / "many", tmp_path / "one"
    for made in (many / "F32", one):
        made.mkdir(parents=True)
    small(one / "small-F32.gguf")
    for name in ("small.Q4_K_M.gguf", "small.UD-Q4_K_M.gguf", "mmproj-F16.gguf"):
        (many / name).write_bytes((one / "small-F32.gguf").read_bytes())
    split(one / "small-F32.gguf", [many / "F32" / f"small-F32-0000{i}-of-00002.gguf" for i in (1, 2)])
    (many / "config.json").write_text("{}")
    repos = {"somebody/many": many, "somebody/one": one}
    with reached(Hub(repos), tmp_path / "cache", monkeypatch) as served:
        yield served


def test_a_repository_of_one_gguf_model_opens_by_its_name(packed: Hub) -> None:
    name = HubName("somebody/one")
    assert snapshot(name) is None
    what = plan(name)
    assert str(what.name) == "somebody/one:small-F32.gguf" and [f.name for f in what.files] == ["small-F32.gguf"]
    file = fetch(what, lambda p: None)
    assert file.name == "small-F32.gguf" and file.read_bytes() == (packed.repos[name.repo] / file.name).read_bytes()
    packed.log.clear()
    opened = ModelStore().open(reference("somebody/one"))
    assert opened.ref.source == "hub:somebody/one:small-F32.gguf", "one model has one name"
    assert opened.ref == reference("hub:somebody/one:f32")
    assert opened.opened.weights.config == open_model(packed.repos[name.repo] / file.name).weights.config and not packed.log


def test_of_several_models_one_is_named(packed: Hub) -> None:
    with pytest.raises(SeveralModels) as caught:
        plan(HubName("somebody/many"))
    assert set(caught.value.models) == {"Q4_K_M", "UD-Q4_K_M", "F32"}, "what is beside a model is none"
    said = str(caught.value)
    assert "somebody/many holds 3 models." in said and "MiB, small.UD-Q4_K_M.gguf" in said and "and 1 more part" in said
    assert [f.name for f in plan(HubName.parse("somebody/many:q4_k_m")).files] == ["small.Q4_K_M.gguf"]
    assert [f.name for f in plan(HubName.parse("somebody/many:small.UD-Q4_K_M.gguf")).files] == ["small.UD-Q4_K_M.gguf"]
    for none in ("Q4_K", "Q8_0", "another.gguf"):
        with pytest.raises(BadModel, match=f"has no model {none}") as refused:
            plan(HubName.parse(f"somebody/many:{none}"))
        assert "Q4_K_M" in refused.value.expected


def test_all_parts_are_fetched_and_one_that_lacks_is_not_there(packed: Hub, tmp_path: Path) -> None:
    name = HubName.parse("somebody/many@main:F32")
    what = plan(name)
    assert [f.name for f in what.files] == [f"F32/small-F32-0000{i}-of-00002.gguf" for i in (1, 2)]
    first = fetch(what, lambda p: None)
    assert snapshot(name) == first and first.parent.name == "F32"
    opened = ModelStore().open(reference(str(name)))
    whole, ids = open_model(packed.repos["somebody/one"] / "small-F32.gguf"), torch.tensor([[3, 1, 4, 1, 5]])
    assert torch.equal(logits(opened.opened.weights, ids), logits(whole.weights, ids))
    first.with_name("small-F32-00002-of-00002.gguf").unlink()
    assert snapshot(name) is None
    with pytest.raises(BadModel, match="has not been downloaded"):
        in_cache(name)


def test_what_the_cache_has_is_told_apart_without_the_hub(packed: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = HubName("somebody/many")
    fetch(plan(replace(bare, form="Q4_K_M")), lambda p: None)
    assert reference("somebody/many").source == "hub:somebody/many:small.Q4_K_M.gguf"
    fetch(plan(replace(bare, form="UD-Q4_K_M")), lambda p: None)
    assert snapshot(bare) is None
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for ask in (in_cache, plan):
        with pytest.raises(SeveralModels) as caught:
            ask(bare)
        assert set(caught.value.models) == {"Q4_K_M", "UD-Q4_K_M"}
    assert snapshot(replace(bare, form="q4_k_m")) is not None


def test_a_swapped_gguf_file_is_refused(packed: Hub) -> None:
    packed.damage = True
    with pytest.raises(BadModel, match="damaged in transit"):
        fetch(plan(HubName("somebody/one")), lambda p: None)
    assert snapshot(HubName("somebody/one")) is None


@pytest.mark.parametrize("form", ["", "../x.gguf", "/x.gguf", "a//b.gguf", "K_M", "latest", "a/b/c/d.gguf", "Q4_K_M:"])
def test_what_names_no_form_is_refused(form: str) -> None:
    with pytest.raises(UsageError, match="names no model of a/b"):
        HubName.parse(f"a/b:{form}")


@pytest.mark.parametrize(
    ("file", "tag", "found"),
    [
        ("m-Q4_K_M.gguf", "q4_k_m", True), ("m_Q4_K_M-00001-of-00001.gguf", "Q4_K_M", True), ("m.Q8_0_L.gguf", "Q8_0", False),
        ("m-IQ4_NL.gguf", "Q4_NL", False), ("m-BF16.gguf", "F16", False), ("m-fp16.gguf", "fp16", True),
    ],
)  # fmt: skip
def test_a_quantisation_is_a_whole_word_of_a_name(file: str, tag: str, found: bool) -> None:
    assert bool(matching(gguf_models({file: 1}), tag)) is found


# -- TransformerLens' own models --------------------------------------------------------------------------------------


@pytest.fixture
def lens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a model as TransformerLens' author has them, and the repository of the tokenizer that it names."""
    from tests.hooked_models import letters, own_form

    (names := tmp_path / "letters").mkdir()
    letters(names)
    model = own_form(tmp_path / "attn", "attention", tokenizer_name="somebody/letters")
    (model / "checkpoints").mkdir()
    (model / "checkpoints" / "attn_64.pth").write_bytes(b"not needed")
    with reached(Hub({"somebody/attn": model, "somebody/letters": names}), tmp_path / "cache", monkeypatch) as served:
        yield served


def test_a_model_of_transformer_lens_comes_with_the_tokenizer_that_it_names(lens: Hub) -> None:
    name, said = HubName("somebody/attn"), list[Progress]()
    what = plan(name)
    assert [f.name for f in what.files] == ["config.json", "model_final.pth"]
    fetch(what, said.append)
    assert said[-1].done == said[-1].total > what.total, "with the tokenizer"
    lens.log.clear()
    opened = ModelStore().open(reference("somebody/attn")).opened
    assert opened.family == "TransformerLens" and opened.weights.config.prepend_bos
    assert opened.weights.tokenizer is not None and opened.weights.tokenizer.encode("cab", bos=True) == (16, 2, 0, 1)
    assert not lens.log


def test_a_model_whose_tokenizer_is_gone_opens_without_it(lens: Hub) -> None:
    del lens.repos["somebody/letters"]
    fetch(plan(HubName("somebody/attn")), lambda p: None)
    opened = ModelStore().open(reference("somebody/attn")).opened
    assert opened.weights.tokenizer is None
    assert any("names somebody/letters" in note for note in opened.notes)
