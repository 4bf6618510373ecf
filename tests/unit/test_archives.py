"""Archives of checkpoints: made, listed, fetched from a server on loopback, taken from files; nothing is ever half there."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from circuitlab.__main__ import main
from circuitlab.disk import paths
from circuitlab.disk.file_lock import FileLock
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadInput, BadMachine, BadModel, Cancelled, CircuitLabError, UsageError
from circuitlab.model.archives import index
from circuitlab.model.archives.address import need_address
from circuitlab.model.archives.getting import Progress, check, get, part_of
from circuitlab.model.archives.index import archive_of, archives, find_archive
from circuitlab.model.records.series import series_of
from circuitlab.model.sources.transfer_meter import Meter
from circuitlab.story.resolver import nearest
from circuitlab.training.archiving import archived, checkpoints_in
from tests.archive_server import Web, serving
from tests.shipped_archives import NAME, OTHER, STEPS, Installed, install

ROOT = Path(__file__).resolve().parents[2]
ABOUT = {"size": 3, "sha256": "0" * 64}
ENTRY = ABOUT | {"file": "a.zip", "checkpoints": {"step-0.safetensors": ABOUT}}  # nothing is wrong with it


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return install(tmp_path, monkeypatch)


@pytest.fixture
def web(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A server that has the archives, at the address that the list names; nobody waits between attempts."""
    monkeypatch.setattr(Meter, "wait", lambda self, seconds: None)
    with serving(Web(installed.zips)) as served:
        installed.address(served.url + "/v1")
        yield served


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _refused(kind: type[CircuitLabError], act: Callable[[], object]) -> CircuitLabError:
    """The error of an attempt, which leaves everything as it was but for a part of a download."""
    home = paths.data_home()
    without_parts = lambda: {name: data for name, data in _tree(home).items() if not name.endswith(".part")}
    before = without_parts()
    with pytest.raises(kind) as raised:
        act()
    assert raised.value.remedy
    assert without_parts() == before
    assert not list(home.rglob(".new-*"))
    return raised.value


def _same_as_in_the_checkout(installed: Installed) -> bool:
    own = installed.checkout / NAME / "checkpoints"
    there = installed.archive.fetched_folder / "checkpoints"
    return _tree(own) == _tree(there) and len(_tree(own)) == len(STEPS)


# -- got -------------------------------------------------------------------------------------------------------------------


def test_fetched_found_and_opened(installed: Installed, web: Web) -> None:
    folder = installed.models / NAME
    assert series_of(folder) == () and len(installed.archive.lacking) == len(STEPS)
    seen: list[Progress] = []
    assert get(installed.archive, "", seen.append).fetched
    assert _same_as_in_the_checkout(installed)
    assert seen[0].total == installed.zip.stat().st_size and seen[-1].done == seen[-1].total
    assert [step for step, _ in series_of(folder)] == list(STEPS)
    assert web.log == [(f"v1/{installed.zip.name}", "")]
    names = {p.name for p in installed.archive.fetched_folder.parent.iterdir()}
    assert names == {installed.archive.fetched_folder.name}, "neither part nor lock stays"
    opened, ours = (ModelStore().open(reference(f"builtin:{NAME}")).opened.steps for _ in range(2))
    assert opened == ours == tuple(STEPS)
    store = ModelStore()
    for place in (f"builtin:{NAME}", f"file:{folder}"):
        hashes = [store.sha256(store.open(_at(reference(place), i)).ref) for i in range(len(STEPS))]
        files = sorted((installed.checkout / NAME / "checkpoints").iterdir())
        assert hashes == [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    assert series_of(installed.models / OTHER) == ()


def _at(ref, checkpoint):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return replace(ref, checkpoint=checkpoint)


def test_the_second_time_nothing_is_fetched(installed: Installed, web: Web) -> None:
    get(installed.archive)
    web.log.clear()
    outcome = get(installed.archive)
    assert (outcome.fetched, outcome.folder) == (False, installed.archive.fetched_folder / "checkpoints")
    assert not web.log


def test_in_a_checkout_nothing_is_fetched(installed: Installed, web: Web) -> None:
    shutil.copytree(installed.checkout / NAME, installed.models / NAME, dirs_exist_ok=True)
    assert not get(installed.archive).fetched and not web.log
    assert not paths.data_home().exists()
    assert [file.parent.parent for _, file in series_of(installed.models / NAME)] == [installed.models / NAME] * len(STEPS)


@pytest.mark.parametrize("place", ["file", "folder", "~", "address"])
def test_from_a_place(installed: Installed, web: Web, home: Path, place: str) -> None:
    installed.address("")
    shutil.copy(installed.zip, home)
    sources = {"file": str(installed.zip), "folder": str(installed.zips), "~": f"~/{installed.zip.name}"}
    assert get(installed.archive, sources.get(place, f"{web.url}/{installed.zip.name}")).fetched
    assert _same_as_in_the_checkout(installed)
    assert bool(web.log) == (place == "address")


def test_other_checkpoints_of_the_model_are_not_taken_for_these(installed: Installed) -> None:
    get(installed.archive, str(installed.zips))
    before = installed.archive.fetched_folder
    (installed.checkout / NAME / "checkpoints" / "step-000064.safetensors").unlink()
    installed.make_again()  # the next version has a shorter series
    assert series_of(installed.models / NAME) == () and installed.archive.fetched_folder != before
    assert get(installed.archive, str(installed.zips)).fetched
    assert [step for step, _ in series_of(installed.models / NAME)] == [0, 128]
    assert before.is_dir(), "the version before still finds its own"


# -- resumed ---------------------------------------------------------------------------------------------------------------


def test_a_broken_connection_is_taken_up_where_it_ended(installed: Installed, web: Web) -> None:
    web.cut_after, web.cuts = 8192, 2
    assert get(installed.archive).fetched and _same_as_in_the_checkout(installed)
    assert [asked for _, asked in web.log] == ["", "bytes=8192-", "bytes=16384-"]
    assert web.sent == installed.zip.stat().st_size


def test_a_stopped_download_is_taken_up_by_the_next(installed: Installed, web: Web) -> None:
    for stop in (Cancelled, KeyboardInterrupt):
        part_size = part_of(installed.archive).stat().st_size if part_of(installed.archive).exists() else 0

        def tick(progress: Progress, stop: type[BaseException] = stop, most: int = part_size + 8000) -> None:
            if progress.done > most:
                raise stop

        with pytest.raises(stop):
            get(installed.archive, "", tick)
        assert part_of(installed.archive).stat().st_size > part_size
        assert installed.archive.lacking and not installed.archive.fetched_folder.exists()
    part = part_of(installed.archive)
    assert part.read_bytes() == installed.zip.read_bytes()[: (size := part.stat().st_size)]
    web.log.clear()
    assert get(installed.archive).fetched and _same_as_in_the_checkout(installed)
    assert web.log[0][1] == f"bytes={size}-"
    assert not part.exists()


def test_a_server_without_ranges_sends_the_whole_again(installed: Installed, web: Web) -> None:
    part = part_of(installed.archive)
    part.parent.mkdir(parents=True)
    part.write_bytes(installed.zip.read_bytes()[:10000])
    web.ranges = False
    assert get(installed.archive).fetched and _same_as_in_the_checkout(installed)


@pytest.mark.parametrize("silent", [False, True])
def test_a_page_in_place_of_the_rest_leaves_what_was_kept(installed: Installed, web: Web, silent: bool) -> None:
    """As a network that asks for a login sends it, with its length and without."""
    whole, part = installed.zip.read_bytes(), part_of(installed.archive)
    part.parent.mkdir(parents=True)
    part.write_bytes(whole[:10000])
    installed.zip.write_bytes(b"Login")
    web.ranges, web.silent = False, silent
    _refused(BadMachine, lambda: get(installed.archive))
    assert part.read_bytes() == whole[:10000]
    installed.zip.write_bytes(whole)
    web.silent = False
    assert get(installed.archive).fetched and _same_as_in_the_checkout(installed)


def test_what_differs_from_the_whole_that_is_sent_again_is_replaced(installed: Installed, web: Web) -> None:
    part = part_of(installed.archive)
    part.parent.mkdir(parents=True)
    part.write_bytes(installed.zip.read_bytes()[:5000] + bytes(5000))
    web.ranges = False
    assert get(installed.archive).fetched and _same_as_in_the_checkout(installed)


@pytest.mark.parametrize("what", ["longer", "no zip", "other bytes"])
def test_a_part_of_something_else_is_not_believed(installed: Installed, web: Web, what: str) -> None:
    part = part_of(installed.archive)
    part.parent.mkdir(parents=True)
    start = b"" if what == "no zip" else installed.zip.read_bytes()[:4]
    part.write_bytes(start + bytes(installed.zip.stat().st_size + 1 if what == "longer" else 9000))
    if what == "other bytes":
        _refused(BadInput, lambda: get(installed.archive))
        assert not part.exists(), "its rest is not asked for again"
    assert get(installed.archive).fetched and _same_as_in_the_checkout(installed)


def test_a_connection_that_always_breaks_is_given_up_and_the_part_stays(installed: Installed, web: Web) -> None:
    web.cut_after, web.lies, web.ranges = 4096, None, False  # it begins anew each time and never gets further
    error = _refused(BadMachine, lambda: get(installed.archive))
    assert "--from" in error.remedy and len(web.log) < 20


# -- refused ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("over", ["the web", "a file"])
def test_a_flipped_byte_is_refused(installed: Installed, web: Web, there: bool, over: str) -> None:
    """With nothing there before, and with a damaged series there, which stays what it was."""
    if there:
        get(installed.archive)
        file = installed.archive.fetched_folder / "checkpoints" / "step-000064.safetensors"
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    size = installed.zip.stat().st_size
    for place in (4, size // 2, size - 1):
        web.flip = place if over == "the web" else -1
        data = bytearray(installed.zip.read_bytes())
        data[place] ^= 1
        (bad := installed.zips / "bad.zip").write_bytes(data)
        _refused(BadInput, lambda: get(installed.archive, "" if over == "the web" else str(bad)))
        assert not part_of(installed.archive).exists()
    web.flip = -1
    assert get(installed.archive).fetched and _same_as_in_the_checkout(installed)


@pytest.mark.parametrize("what", ["truncated", "longer", "packed", "no length"])
def test_a_server_with_another_file(installed: Installed, web: Web, what: str) -> None:
    size = installed.zip.stat().st_size
    if what == "packed":
        web.packed = True
    elif what == "no length":
        web.silent = True
        installed.zip.write_bytes(installed.zip.read_bytes()[:-100])
    else:
        data = installed.zip.read_bytes()
        installed.zip.write_bytes(data[: size // 2] if what == "truncated" else data + b"more")
    error = _refused(BadMachine, lambda: get(installed.archive))
    part = part_of(installed.archive)
    if what == "no length":
        assert part.stat().st_size == size - 100
        web.silent, web.cut_after = False, 0
        _refused(BadMachine, lambda: get(installed.archive))
    else:
        assert f"{size:,}" in error.expected and not part.exists(), "it is known before a byte is read"


PAGE = b"<!DOCTYPE html><title>Login</title><body>Who are you?"


@pytest.mark.parametrize("length", ["silent", "its own", "that of the archive", "longer than the archive"])
def test_a_page_in_place_of_the_archive_leaves_nothing(installed: Installed, web: Web, length: str) -> None:
    """As a network that asks for a login answers everything: the next attempt is one from the beginning."""
    size = installed.zip.stat().st_size
    web.page, web.silent = PAGE, length == "silent"
    web.page += b" " * {"that of the archive": size - len(PAGE), "longer than the archive": size}.get(length, 0)
    error = _refused(BadMachine, lambda: get(installed.archive))
    assert len(web.log) == 1 and not part_of(installed.archive).exists()
    assert ("text/html" in error.got and "<!DOCTYPE html>" in error.got) or f"{len(web.page)}" in error.got
    web.page, web.silent = b"", False
    assert get(installed.archive).fetched and _same_as_in_the_checkout(installed)


def test_what_goes_on_behind_the_end_is_another_file(installed: Installed, web: Web) -> None:
    web.page, web.silent = installed.zip.read_bytes() + b"more", True
    _refused(BadMachine, lambda: get(installed.archive))
    assert len(web.log) == 1 and not part_of(installed.archive).exists()


@pytest.mark.parametrize(("status", "attempts"), [(404, 1), (403, 1), (416, 1), (503, 5), (500, 5)])
def test_a_server_that_does_not_send(installed: Installed, web: Web, status: int, attempts: int) -> None:
    web.status = status
    _refused(BadMachine, lambda: get(installed.archive))
    assert len(web.log) == attempts and not part_of(installed.archive).exists()


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/x", "https://host.invalid/x"])
def test_a_server_that_is_not_there(installed: Installed, web: Web, address: str) -> None:
    installed.address(address)
    assert "--from" in _refused(BadMachine, lambda: get(installed.archive)).remedy


NO_ADDRESS = [
    "http://",
    "https:///x.zip",
    "http://[bad",
    "http://[::1",
    "http://a..b/x",
    f"http://{'a' * 64}.org/x",
    "http://127.0.0.1:9/é",
    "http://h:port/x",
    "http://h:99999/x",
    "http://h/a b",
    "http://h/a\nb",
    "http://me:secret@h/x",
    "ftp://x/y",
    "file:///etc/passwd",
]


@pytest.mark.parametrize("address", NO_ADDRESS)
def test_what_is_no_address(installed: Installed, web: Web, address: str) -> None:
    """Nothing is asked, and of a server that sends on to it not a second time."""
    _refused(UsageError, lambda: get(installed.archive, address))
    if address != "http://" and address.isascii() and address.isprintable() and " " not in address:
        web.sends_on = address
        _refused(BadMachine, lambda: get(installed.archive))
        assert len(web.log) == 1


@pytest.mark.parametrize("address", ["http://[::1]:80/x", "https://example.org", "http://bücher.example:8000/a%20b?c=d#e"])
def test_what_is_an_address(address: str) -> None:
    need_address(address)


def test_a_server_may_send_on(installed: Installed, web: Web) -> None:
    with serving(Web(installed.zips, sends_on=f"{web.url}/v1/{installed.archive.zip.name}")) as first:
        assert get(installed.archive, first.url).fetched


@pytest.mark.parametrize("file", ["~nobody-has-this-name/x", "x" * 5000])
def test_a_path_that_the_system_refuses(installed: Installed, file: str) -> None:
    error = _refused(BadInput, lambda: get(installed.archive, file))
    assert len(str(error)) < 1000


def test_without_an_address(installed: Installed) -> None:
    error = _refused(BadMachine, lambda: get(installed.archive))
    assert "No address is known" in error.what and "--from" in error.remedy


@pytest.mark.parametrize("what", ["missing", "truncated", "folder without it", "pipe", "text"])
def test_a_file_that_is_not_the_archive(installed: Installed, tmp_path: Path, what: str) -> None:
    file = tmp_path / "some.zip"
    if what == "truncated":
        file.write_bytes(installed.zip.read_bytes()[:-1])
    elif what == "folder without it":
        file.mkdir()
    elif what == "pipe":
        os.mkfifo(file)
    elif what == "text":
        file.write_text("a page that says 404")
    _refused(BadInput, lambda: get(installed.archive, str(file)))


def _hostile(what: str, installed: Installed) -> dict[str, object]:
    """A list of archives whose hashes are those of a zip that no maker of ours would write."""
    data, path = json.loads((installed.models / "archives.json").read_text()), installed.zip
    with zipfile.ZipFile(path) as before:
        files = {info.filename: before.read(info) for info in before.infolist()}
    first = min(files)
    kinds = dict.fromkeys(files, (stat.S_IFREG | 420, zipfile.ZIP_STORED))
    if what in ("../../escaped", "/tmp/escaped", f"{NAME}/checkpoints/../../../escaped", "C:\\escaped"):
        files[what] = files.pop(first)
    elif what == "symlink":
        kinds[first] = (stat.S_IFLNK | 0o777, zipfile.ZIP_STORED)
    elif what == "compressed":
        kinds[first] = (stat.S_IFREG, zipfile.ZIP_DEFLATED)
    elif what == "one more":
        files[f"{NAME}/checkpoints/step-000999.safetensors"] = b"more"
    elif what == "one less":
        del files[first]
    elif what == "other contents":
        files[first] = bytes(len(files[first]))
    elif what == "longer":
        files[first] += b"more"
    with zipfile.ZipFile(path, "w") as members:
        for name, contents in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = kinds.get(name, kinds[min(kinds)])[0] << 16, kinds.get(name, (0, 0))[1]
            members.writestr(info, contents)
        if what == "twice":
            with pytest.warns(UserWarning, match="Duplicate"):
                members.writestr(first, files[first])
    if what == "cut directory":
        path.write_bytes(path.read_bytes()[:-30])
    data["archives"][NAME] |= {"size": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    (installed.models / "archives.json").write_text(json.dumps(data))
    return data


@pytest.mark.parametrize(
    "what",
    [
        "../../escaped",
        "/tmp/escaped",
        f"{NAME}/checkpoints/../../../escaped",
        "C:\\escaped",
        "symlink",
        "compressed",
        "one more",
        "one less",
        "other contents",
        "longer",
        "twice",
        "cut directory",
    ],
)
def test_a_hostile_zip_whose_hash_is_listed(installed: Installed, tmp_path: Path, home: Path, what: str) -> None:
    _hostile(what, installed)
    before = set(tmp_path.rglob("*"))
    _refused(BadInput, lambda: get(installed.archive, str(installed.zips)))
    assert not list(home.rglob("*escaped*")) and set(tmp_path.rglob("*")) == before
    assert series_of(installed.models / NAME) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"format": "circuitlab-archives-9"},
        {"address": 3},
        {"archives": [0]},
        {"archives": {NAME: ENTRY | {"checkpoints": {}}}},
        {"archives": {NAME: ENTRY | {"file": "../a.zip"}}},
        {"archives": {NAME: ENTRY | {"checkpoints": {"../x.safetensors": ABOUT}}}},
        {"archives": {NAME: ENTRY | {"size": True}}},
        {"archives": {NAME: ENTRY | {"sha256": "0" * 63}}},
        {"archives": {"../up": ENTRY}},
        None,
    ],
)
def test_a_damaged_list(installed: Installed, change: dict[str, object] | None) -> None:
    path = installed.models / "archives.json"
    data = json.loads(path.read_text())
    path.write_text("{" if change is None else json.dumps(data | change))
    with pytest.raises(BadModel, match="list of archives is damaged"):
        archives()
    path.write_text(json.dumps(data | {"archives": {NAME: ENTRY}}))
    assert set(archives()) == {NAME}


def test_without_a_list_all_is_as_before(installed: Installed) -> None:
    (installed.models / "archives.json").unlink()
    assert archives() == {} and archive_of(installed.models / NAME) is None and series_of(installed.models / NAME) == ()
    with pytest.raises(UsageError):
        find_archive(NAME)


# -- the disk --------------------------------------------------------------------------------------------------------------


def test_a_disk_without_room(installed: Installed, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    archive = installed.archive
    room = archive.zip.size + archive.nbytes + 2**20
    for free, source in ((room - 1, ""), (archive.nbytes + 2**20 - 1, str(installed.zips))):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage._replace(free=free))
        assert "no room" in _refused(BadMachine, lambda: get(archive, source)).what  # noqa: B023
    assert not web.log, "it is known before a byte is asked for"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=room))
    assert get(archive).fetched


@pytest.mark.parametrize("there", [False, True])
def test_a_disk_that_becomes_full(installed: Installed, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    if there:
        get(installed.archive, str(installed.zips))
        (installed.archive.fetched_folder / "checkpoints" / "step-000000.safetensors").write_bytes(b"damaged")

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", full)
    error = _refused(BadMachine, lambda: get(installed.archive, str(installed.zips)))
    assert "full" in error.what and len(calls) == 2
    assert get(installed.archive, str(installed.zips)).fetched and _same_as_in_the_checkout(installed)


def test_a_swap_that_fails_leaves_what_was_there(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    get(installed.archive, str(installed.zips))
    (installed.archive.fetched_folder / "checkpoints" / "step-000000.safetensors").write_bytes(b"damaged")
    rename, calls = os.rename, []

    def renamed(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise PermissionError(errno.EACCES, "used by another program")
        rename(source, target)

    monkeypatch.setattr(os, "rename", renamed)
    _refused(BadMachine, lambda: get(installed.archive, str(installed.zips)))
    assert len(calls) == 3
    monkeypatch.setattr(os, "rename", rename)
    assert get(installed.archive, str(installed.zips)).fetched and _same_as_in_the_checkout(installed)


def test_a_folder_that_cannot_be_written(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    home = paths.data_home()
    home.parent.mkdir(parents=True, exist_ok=True)
    home.write_text("a file is in the way")
    with pytest.raises(BadMachine):
        get(installed.archive, str(installed.zips))
    home.unlink()

    def read_only(self: Path, *args: object, **more: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(BadMachine, match="cannot be written"):
        get(installed.archive, str(installed.zips))
    assert not home.exists()


def test_two_at_once(installed: Installed) -> None:
    folder = installed.archive.fetched_folder.parent
    folder.mkdir(parents=True)
    lock = FileLock(folder / f"{installed.archive.fetched_folder.name}.lock")
    assert lock.take() is None
    assert "already" in _refused(BadMachine, lambda: get(installed.archive, str(installed.zips))).what
    lock.release(remove=True)
    assert get(installed.archive, str(installed.zips)).fetched


def test_what_a_killed_one_left_is_swept(installed: Installed) -> None:
    left = installed.archive.fetched_folder.parent / ".new-0123456789ab" / "checkpoints"
    left.mkdir(parents=True)
    (left / "step-000000.safetensors").write_bytes(b"half")
    get(installed.archive, str(installed.zips))
    assert not left.parent.exists() and _same_as_in_the_checkout(installed)


# -- damaged later ---------------------------------------------------------------------------------------------------------


def test_a_checkpoint_damaged_later_is_seen_and_replaced(installed: Installed) -> None:
    get(installed.archive, str(installed.zips))
    file = installed.archive.fetched_folder / "checkpoints" / "step-000128.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert check(installed.archive) == (file,)
    assert get(installed.archive, str(installed.zips)).fetched
    assert check(installed.archive) == () and _same_as_in_the_checkout(installed)


def test_a_damaged_shipped_checkpoint_is_not_replaced(installed: Installed, web: Web) -> None:
    shutil.copytree(installed.checkout / NAME, installed.models / NAME, dirs_exist_ok=True)
    (installed.models / NAME / "checkpoints" / "step-000000.safetensors").write_bytes(b"edited")
    with pytest.raises(BadModel, match="differ from the list"):
        get(installed.archive)
    assert not web.log and (installed.models / NAME / "checkpoints" / "step-000000.safetensors").read_bytes() == b"edited"


# -- said ------------------------------------------------------------------------------------------------------------------


def test_a_panel_of_python_or_a_lesson_that_lacks_one_names_the_command(installed: Installed) -> None:
    import circuitlab.api as lab

    command = f"circuitlab get {NAME}"
    model = lab.open(NAME)
    with pytest.raises(BadModel) as raised:
        model.at_step(64)
    assert command in raised.value.remedy and "not on this machine" in raised.value.what
    with pytest.raises(BadModel) as asked:
        nearest(reference(f"builtin:{NAME}"), (), 64)
    assert command in asked.value.remedy
    with pytest.raises(BadModel) as opened:
        ModelStore().open(_at(reference(f"builtin:{NAME}"), 1))
    assert command in opened.value.remedy
    get(installed.archive, str(installed.zips))
    with pytest.raises(BadInput) as after:
        nearest(reference(f"builtin:{NAME}"), (), 64)
    assert command not in after.value.remedy
    assert lab.open(NAME).steps == tuple(STEPS), "opened again it has what came meanwhile"


def test_the_command(installed: Installed, web: Web, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out) if row["kind"] == "checkpoints"}
    assert set(rows) == {NAME, OTHER} and rows[NAME]["here"] == 0 and rows[NAME]["checkpoints"] == len(STEPS)
    assert rows[NAME]["url"] == f"{web.url}/v1/{installed.zip.name}"
    assert main(["get", NAME, "--check"]) == 0 and not installed.archive.fetched_folder.exists()
    assert main(["get", NAME]) == 0
    assert str(installed.archive.fetched_folder) in capsys.readouterr().out
    assert main(["get", NAME]) == 0 and "already here" in capsys.readouterr().out
    file = installed.archive.fetched_folder / "checkpoints" / "step-000064.safetensors"
    file.write_bytes(b"damaged")
    assert main(["get", "--check"]) == 3
    assert str(file) in capsys.readouterr().err
    assert main(["get", NAME]) == 0 and main(["get", "--check"]) == 0
    assert main(["get"]) == 0 and f"{NAME:<7}    3 of   3 here" in capsys.readouterr().out
    for words in (["nothing"], [NAME, "--list"], ["--from", "x"], [NAME, "--check", "--from", "x"]):
        assert main(["get", *words]) == 2


def test_an_interrupt_says_what_is_kept(
    installed: Installed, web: Web, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Meter, n: int, moved: bool = True) -> None:
        self.done += n
        if self.done > 9000:
            raise KeyboardInterrupt

    monkeypatch.setattr(Meter, "add", interrupt)
    assert main(["get", NAME]) == 130
    kept = part_of(installed.archive).stat().st_size
    assert kept > 9000 and f"{-(-kept // 1024)} KiB are kept" in capsys.readouterr().err


# -- made ------------------------------------------------------------------------------------------------------------------


def test_an_archive_is_read_by_others_and_is_the_same_each_time(installed: Installed, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()
    for file in checkpoints_in(installed.checkout / NAME):
        os.utime(file, (10**9, 10**9))
    archived(installed.checkout / NAME, again)
    assert (again / installed.zip.name).read_bytes() == installed.zip.read_bytes()
    if unzip := shutil.which("unzip"):
        subprocess.run([unzip, "-q", installed.zip, "-d", installed.models], check=True)
    else:
        shutil.unpack_archive(installed.zip, installed.models)
    assert not installed.archive.lacking and check(installed.archive) == (), "unpacked by hand it is found, too"


def test_the_shipped_list_is_that_of_the_shipped_checkpoints(tmp_path: Path) -> None:
    """`make archives` has been run since the models changed: all sizes and hashes, and the bytes of the smallest archive."""
    models = ROOT / "models"
    series = {folder.name: checkpoints_in(folder) for folder in models.iterdir() if checkpoints_in(folder)}
    assert set(archives()) == set(series)
    for name, files in series.items():
        archive = archives()[name]
        listed = [(one.name, one.size) for one in archive.checkpoints]
        assert listed == [(file.name, file.stat().st_size) for file in files]
        assert check(archive) == ()
    smallest = min(archives().values(), key=lambda one: one.zip.size)
    entry = archived(models / smallest.model, tmp_path)
    assert (entry["sha256"], entry["size"], entry["file"]) == (smallest.zip.sha256, smallest.zip.size, smallest.zip.name)


def test_every_archive_has_a_name_and_a_folder_of_its_own() -> None:
    every = list(archives().values())
    assert len({one.zip.name for one in every}) == len({one.fetched_folder for one in every}) == len(every)
    assert all(one.nbytes <= one.zip.size <= index.LARGEST for one in every)
