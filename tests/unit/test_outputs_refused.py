"""An output that cannot be written is refused before anything is read or computed for it, and nothing is left behind."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path

import pytest

from circuitlab.cli.parser import main
from circuitlab.disk.files import need_folder, need_writable
from circuitlab.errors import BadMachine, UsageError

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: links, pipes")

# None of the inputs exists: an error about one of them would say that the output was looked at too late.
FILES = {
    "compute token_loss no-such-model --tokens 1,2 --csv OUT": ".csv",
    "compute token_loss no-such-model --tokens 1,2 --json OUT": ".json",
    "figure attention no-such-model --tokens 1,2 -o OUT": ".svg",
    "figure --at none.circuitlab#1 -o OUT": ".pdf",
    "film none.circuitlab#1 -o OUT": ".webp",
    "report none.circuitlab -o OUT": ".html",
    "sheet none.circuitlab#1 -o OUT": ".pdf",
    "session none.circuitlab --markdown OUT": ".md",
    "session none.circuitlab --results -o OUT": ".circuitlab",
    "session none.md -o OUT": ".circuitlab",
}
FOLDERS = (
    "sheet none.circuitlab -o OUT/",
    "import none.pt --map none.toml --output OUT",
    "train no-such-recipe --text none.txt --out OUT",
)
PLACES = {  # how the place is called, and what is said of it
    "file/out": "file is in the way",
    "loop": "leads back to itself",
    "dangling": "folder does not exist|file is in the way",
    "n" * 300: "too long",
    "folder": "folder is in the way|A folder gets every step|needs a file|becomes a session",
    "/proc/out": "cannot be written to",
    "none/out": "folder does not exist",
}


def _obstacles(folder: Path, monkeypatch: pytest.MonkeyPatch, suffix: str = "") -> None:
    """Put all that can be in the way into a folder, which is the current one then."""
    (folder / "file").write_bytes(b"x")
    (folder / f"folder{suffix}").mkdir()
    (folder / f"loop{suffix}").symlink_to(f"loop{suffix}")
    (folder / f"dangling{suffix}").symlink_to(folder / "none" / "out")
    monkeypatch.chdir(folder)


def _everything(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def _refused(command: str, out: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([word.replace("OUT", out) for word in command.split()]) in (UsageError.exit_code, BadMachine.exit_code)
    error = capsys.readouterr().err
    assert "expected:" in error and "got:" in error and "do:" in error
    return error


@POSIX
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", FILES)
def test_a_file_is_refused_before_the_work(
    command: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _obstacles(tmp_path, monkeypatch, FILES[command])
    before = _everything(tmp_path)
    assert re.search(PLACES[place], _refused(command, place + FILES[command], capsys)) and _everything(tmp_path) == before


@POSIX
@pytest.mark.parametrize("place", ["file/out", "file", "loop", "dangling", "n" * 300, "/proc/out"])
@pytest.mark.parametrize("command", FOLDERS)
def test_a_folder_is_refused_before_the_work(
    command: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _obstacles(tmp_path, monkeypatch)
    before = _everything(tmp_path)
    assert re.search(r"could not be written|not a path", _refused(command, place, capsys))
    assert _everything(tmp_path) == before


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EIO])
def test_what_the_system_says_of_a_disk_is_heard(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(BadMachine, match="could not be written"):
            need_writable(tmp_path / "a.csv")
        with pytest.raises(BadMachine, match="could not be written"):
            need_folder(tmp_path / "a" / "b")
    assert not _everything(tmp_path)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800"])
def test_a_name_that_no_file_can_have_is_refused(name: str, tmp_path: Path) -> None:
    for check in (need_writable, need_folder):
        with pytest.raises(BadMachine, match="cannot have such a name"):
            check(tmp_path / name)


def test_a_good_place_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x")
    need_writable(tmp_path / "a.csv", tmp_path / "b.csv")
    need_folder(tmp_path / "c" / "d")
    need_folder(tmp_path)
    assert _everything(tmp_path) == ["a.csv"] and (tmp_path / "a.csv").read_bytes() == b"x"


@POSIX
def test_a_pipe_is_not_opened_before_there_is_something_to_write(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    need_writable(pipe)
    assert os.read(reader, 1) == b"" and _everything(tmp_path) == ["pipe"]
    os.close(reader)
