"""Whatever leaves the program is there whole or not at all, and nothing in the package writes in another way."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import pytest

import circuitlab
from circuitlab.disk import files
from circuitlab.disk.files import read_at_most, whole, write_whole
from circuitlab.errors import BadMachine
from tests.conftest import ROOT
from tests.killing import killed_before
from tests.models import directory
from tests.patience import SECONDS

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: a limit of file sizes")
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def test_what_breaks_off_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write_whole(path, b"old")
    (tmp_path / "a.csv.new").write_bytes(b"somebody's own")

    def breaks(file: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(path, breaks)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a.csv": b"old", "a.csv.new": b"somebody's own"}
    write_whole(path, b"new", previous=tmp_path / "before")
    assert (path.read_bytes(), (tmp_path / "before").read_bytes()) == (b"new", b"old")


@POSIX
def test_the_disk_has_a_file_before_it_takes_the_place_of_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is flushed is told apart by its inode: the new file first, then the folder that names it."""
    happened, flush, replace = list[object](), os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda opened: (happened.append(os.fstat(opened).st_ino), flush(opened)))
    monkeypatch.setattr(os, "replace", lambda a, b: (happened.append("replaced"), replace(a, b)))
    write_whole(tmp_path / "a.csv", b"new")
    assert happened == [(tmp_path / "a.csv").stat().st_ino, "replaced", tmp_path.stat().st_ino]


@POSIX
@pytest.mark.parametrize("fresh", [None, "mine.new"])
def test_a_previous_file_that_cannot_be_kept_leaves_nothing_beside(tmp_path: Path, fresh: str | None) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    (tmp_path / "a.json~").mkdir()
    with pytest.raises(BadMachine):
        write_whole(path, b"new", tmp_path / "a.json~", fresh=None if fresh is None else tmp_path / fresh)
    assert path.read_bytes() == b"old" and sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.json~"]


def test_a_pipe_is_not_read_as_nobody_may_ever_write_to_it(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"):
        read_at_most(pipe, 10)


@POSIX
def test_a_link_stays_a_link_rights_stay_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real", tmp_path / "link", tmp_path / "pipe"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_whole(link, b"new", named=True)
    assert link.is_symlink() and real.read_bytes() == b"new" and real.stat().st_mode & 0o777 == 0o640
    os.mkfifo(pipe)
    came: list[bytes] = []
    reader = threading.Thread(target=lambda: came.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"through", named=True)
    reader.join(30)
    assert came == [b"through"] and sorted(p.name for p in tmp_path.iterdir()) == ["link", "pipe", "real"]


@POSIX
def test_a_pipe_that_nobody_reads_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_READER_WITHIN", 0.05)
    os.mkfifo(pipe := tmp_path / "a.svg")
    reader = threading.Timer(20, pipe.read_bytes)  # where the test fails it does not wait for ever
    reader.start()
    with pytest.raises(BadMachine, match="reads the pipe"):
        write_whole(pipe, b"data", named=True)
    assert reader.is_alive(), "before anybody reads it"
    reader.cancel()
    reader.join()
    assert list(tmp_path.iterdir()) == [pipe] and pipe.is_fifo()
    write_whole(Path("/dev/null"), b"data", named=True)
    assert Path("/dev/null").is_char_device()


@POSIX
@pytest.mark.parametrize("target", ["-", "/dev/stdout"])
def test_standard_output_into_a_pipe_is_written_to(tmp_path: Path, target: str) -> None:
    done = _started(
        ["compute", "token_loss", str(directory(tmp_path / "m")), "--tokens", "1,2", "--csv", target], subprocess.PIPE
    )
    assert done.returncode == 0 and b"loss" in done.stdout and not done.stderr


@POSIX
@pytest.mark.parametrize("previous", [None, "before"])
def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path, previous: str | None) -> None:
    path, call, left = tmp_path / "a", 0, 0
    path.write_bytes(b"old")
    before = {"previous": None if previous is None else tmp_path / previous}
    while killed_before(call := call + 1, lambda: write_whole(path, b"new", **before)):
        left += len(list(tmp_path.glob(".*.new")))
        write_whole(tmp_path / "b", b"another")
        assert not list(tmp_path.glob(".*.new"))
    assert left, "no kill left anything"


@POSIX
def test_what_somebody_writes_is_not_removed_by_another(tmp_path: Path) -> None:
    """The one process is in the middle of a file while the other one writes, keeps a version and writes again."""
    others = [tmp_path / name for name in (".notes.new", "0123456789ab.new", ".0123456789ab.new.txt")]
    for own in others:
        own.write_bytes(b"somebody's own")
    (tmp_path / ".00000000000a.new").symlink_to(others[0])
    (tmp_path / ".00000000000b.new").mkdir()
    ready, go_on = tmp_path / "ready", tmp_path / "go on"
    child = os.fork()
    if not child:

        def wait(file: IO[bytes]) -> None:
            ready.touch()
            while not go_on.exists():
                time.sleep(0.01)
            file.write(b"whole")

        try:
            write_whole(tmp_path / "slow", wait)
        finally:
            os._exit(0)
    while not ready.exists():
        time.sleep(0.01)
    for data in (b"1", b"2"):
        write_whole(tmp_path / "quick", data, previous=tmp_path / "before")
    go_on.touch()
    assert os.waitpid(child, 0)[1] == 0
    names = {p.name for p in tmp_path.iterdir()} - {"ready", "go on"}
    assert (tmp_path / "slow").read_bytes() == b"whole"
    assert names == {"slow", "quick", "before", ".00000000000a.new", ".00000000000b.new", *(own.name for own in others)}


def test_two_that_write_one_file_leave_one_of_the_two(tmp_path: Path) -> None:
    path, both = tmp_path / "a", threading.Barrier(2)

    def write(data: bytes) -> None:
        with whole(path) as fresh:
            fresh.write_bytes(data)
            both.wait(SECONDS)

    threads = [threading.Thread(target=write, args=(data * 5000,)) for data in (b"1", b"2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in (b"1" * 5000, b"2" * 5000) and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "words"), [("no/such/a.csv", "folder does not exist"), ("folder", "folder is in"), ("file/a", "file is in")]
)
def test_a_place_that_cannot_be_written_is_said(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(BadMachine, match=words):
        write_whole(tmp_path / name, b"data")
    assert (tmp_path / "file").read_bytes() == b"x"


# What writes otherwise, and why it may: a log grows, a lock and a download go on where they were, a pipe to nowhere.
_OTHERWISE = {
    "disk/files.py",
    "disk/file_lock.py",
    "cli/parser.py",
    "model/sources/hub_download.py",
    "model/sources/hub_transfer.py",
    "model/importing/streamed.py",
    "model/catalogue/getting.py",  # what pip says, in a folder that goes away
    "model/archives/transfer.py",  # appends to what a later attempt goes on with
    "model/archives/unpacking.py",  # into a folder that is put in place as a whole
    "training/archiving.py",  # a member of a zip
    "unforeseen.py",  # appends to the log
}
_WRITERS = {"write_text", "write_bytes", "savez", "savez_compressed"}


def _writes(tree: ast.AST) -> list[int]:
    """Lines of calls that put bytes into a file by its name."""
    result = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        modes = [a.value for a in (*node.args, *(k.value for k in node.keywords)) if isinstance(a, ast.Constant)]
        opened = name == "open" and any(isinstance(m, str) and len(m) < 4 and set("wax+") & set(m) for m in modes)
        renamed = name == "replace" and isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "os"
        if name in _WRITERS or opened or renamed:
            result.append(node.lineno)
    return result


def test_nothing_in_the_package_writes_past_the_one_writer() -> None:
    package = Path(circuitlab.__file__).parent
    wrong = {}
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(package).as_posix()
        text = file.read_text(encoding="utf-8")
        into_memory = lambda line: "savez" in line and ("io.BytesIO()" in text or "write_whole" in line)  # noqa: B023
        lines = [n for n in _writes(ast.parse(text)) if not into_memory(text.splitlines()[n - 1])]
        if lines and name not in _OTHERWISE:
            wrong[name] = lines
    assert not wrong


def _started(words: list[str], stdout: object, size: int | None = None) -> subprocess.CompletedProcess[bytes]:
    def limited() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (size or 0, size or 0))

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "circuitlab", *words]
    before = None if size is None else limited
    return subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, env=environment, preexec_fn=before, timeout=SECONDS)  # type: ignore[call-overload]


@FULL
@pytest.mark.parametrize("words", [["analyses"], ["compute", "token_loss", "M", "--tokens", "1,2", "--csv", "-"]])
def test_a_full_disk_under_the_output_is_said(tmp_path: Path, words: list[str]) -> None:
    model = str(directory(tmp_path / "m"))
    with open("/dev/full", "wb") as full:
        done = _started([model if w == "M" else w for w in words], full)
    assert done.returncode == 3
    assert b"could not be written" in done.stderr and b"No space left" in done.stderr and b"Traceback" not in done.stderr


@POSIX
def test_a_table_that_finds_no_room_leaves_the_good_one(tmp_path: Path) -> None:
    model, out = str(directory(tmp_path / "m")), tmp_path / "a.csv"
    out.write_bytes(b"the good one")
    ask = ["compute", "attention", model, "--tokens", ",".join(map(str, range(1, 40))), "--csv", str(out)]
    done = _started(ask, subprocess.DEVNULL, 4096)
    assert done.returncode == 3 and b"The disk is full" in done.stderr
    assert out.read_bytes() == b"the good one" and sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "m"]
