"""Every writer × {no room, an error of the disk, no right, killed} at each of its calls, and killed in the middle of a write."""

from __future__ import annotations

import errno
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("needs a POSIX system: processes that are killed", allow_module_level=True)

from circuitlab.disk.paths import state_home
from tests.faults.calls import ENDED, KILLED, SAID, cut, cuts, outcome, walk
from tests.faults.writers import WRITERS, Writer
from tests.unit.test_files import _OTHERWISE

FAULTS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EACCES": errno.EACCES, "kill": 0}
ROOM = 5000  # bytes, less than any writer writes
_RECOVERY = re.compile(r"[0-9a-f]{32}\.")
BYTES = pytest.mark.parametrize(  # those that put bytes into a file
    "writer", [w for w in WRITERS if w.name not in ("a second name", "another name")], ids=lambda w: w.name
)

# What else writes past `disk/files.py`, and where it is walked or killed; `test_all_writers_are_walked` holds both complete.
ELSEWHERE = {
    "disk/files.py": "here",
    "disk/file_lock.py": "here, with an autosave",
    "cli/parser.py": "a pipe to nowhere, no file",
    "model/sources/hub_download.py": "tests/faults/test_downloads.py",
    "model/sources/hub_transfer.py": "tests/faults/test_downloads.py",
    "model/importing/streamed.py": "tests/faults/test_folders.py",
    "model/catalogue/getting.py": "what pip says, in a folder that goes away",
    "model/archives/transfer.py": "tests/faults/test_folders.py",
    "model/archives/unpacking.py": "tests/faults/test_folders.py",
    "training/archiving.py": "a member of a zip that is written whole",
    "unforeseen.py": "a log, of which a line may be lost",
}


def test_all_writers_are_walked() -> None:
    assert set(ELSEWHERE) == _OTHERWISE
    assert len({writer.name for writer in WRITERS}) == len(WRITERS)


def _folder(writer: Writer, tmp_path: Path) -> Path:
    return state_home() if writer.modules == ("session_files/last.py",) else tmp_path / "folder"


def _names(folder: Path) -> list[str]:
    """Without locks, those of the dead being held by nobody, and recovery files, whose names are random: `found` reads them."""
    return [path.name for path in folder.rglob("*") if path.suffix != ".lock" and not _RECOVERY.match(path.name)]


def _litter(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.suffix in (".new", ".room"))


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_what_is_there_is_whole_whatever_fails(writer: Writer, fault: str, tmp_path: Path) -> None:
    folder = _folder(writer, tmp_path)

    def prepare() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        writer.before(folder)
        assert writer.found(folder) == "old"

    prepare()
    writer.write(folder)  # what is imported late is
    assert writer.found(folder) == "new"
    table: Counter[str] = Counter()
    calls = 0
    for call, how in walk(lambda: writer.write(folder), folder, FAULTS[fault], prepare):
        calls = call
        litter, result = _litter(folder), writer.found(folder)
        where = f"{writer.name}, {fault} at call {call}: {how}, {result}, {litter}"
        assert how in (SAID, ENDED, KILLED), where
        assert result in ("old", "new"), where
        assert how != ENDED or result == "new", f"{where}: it was said to be written"
        assert how == KILLED or len(litter) <= 1, where
        table[f"{how}, {result}"] += 1
        writer.write(folder)  # and the next one succeeds
        assert writer.found(folder) == "new", where
    assert calls
    print(f"{writer.name:28} {fault:7} {calls:3} calls: {', '.join(f'{n} × {how}' for how, n in sorted(table.items()))}")


@pytest.mark.slow
@BYTES
def test_what_is_there_is_whole_when_a_write_is_cut(writer: Writer, tmp_path: Path) -> None:
    """And what the killed one left is no file of anybody's, and goes with the next write."""
    folder = _folder(writer, tmp_path)

    def prepare() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        writer.before(folder)

    prepare()
    writer.write(folder)
    written = _names(folder)
    table: Counter[str] = Counter()
    for at in cuts(path.stat().st_size for path in folder.rglob("*") if path.is_file()):
        prepare()
        before = _names(folder)
        how, result = cut(lambda: writer.write(folder), at), writer.found(folder)
        where = f"{writer.name}, cut at {at} bytes: {how}, {result}, {_litter(folder)}"
        assert how in (KILLED, ENDED), where
        assert result in ("old", "new"), where
        assert how != ENDED or result == "new", f"{where}: it was said to be written"
        assert set(_names(folder)) <= {*before, *written, *_litter(folder)}, where
        table[f"{how}, {result}"] += 1
        writer.write(folder)
        left = [name for name in _litter(folder) if not _RECOVERY.match(name)]  # those go with age: `orphans`
        assert (writer.found(folder), left) == ("new", []), where
    assert table[f"{KILLED}, old"]
    print(f"{writer.name:28} cut     {table.total():3} sizes: {', '.join(f'{n} × {how}' for how, n in sorted(table.items()))}")


@pytest.mark.slow
@BYTES
def test_a_file_that_finds_no_room_for_its_bytes_is_said(writer: Writer, tmp_path: Path) -> None:
    """Of which the system itself says so, at the write."""
    folder = _folder(writer, tmp_path)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    writer.before(folder)
    how, _ = outcome(lambda: writer.write(folder), folder, 0, 0, room=ROOM)
    assert (how, writer.found(folder), _litter(folder)) == (SAID, "old", [])
    print(f"{writer.name:28} no room for its bytes: {how}, old")
