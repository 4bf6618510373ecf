"""Files of a run: written whole or not at all, and a folder that one process trains in at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from circuitlab import files
from circuitlab.errors import BadInput, BadMachine
from circuitlab.files import unwritable, writing

_HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # what systems say of a lock that another process has


def write_whole(path: Path, data: bytes | Callable[[IO[bytes]], Any], previous: Path | None = None, durable: bool = True) -> None:
    """`files.write_whole` in a folder that one process writes in: what a kill leaves is written over by the next."""
    files.write_whole(path, data, previous, durable, beside(path))


def beside(path: Path) -> Path:
    """Where a file of a run is written first."""
    return path.with_name(path.name + ".new")


class Lock:
    """A folder that one process trains in: held until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Lock:
        """Raises `BadInput` where another process holds it, `BadMachine` where it cannot be made."""
        try:
            self._file = self._path.open("a+b")
        except OSError as error:
            raise unwritable(self._path, error) from error
        try:
            _take(self._file)
            self._file.truncate(0)
            self._file.write(f" {os.getpid()}\n".encode())
            self._file.flush()
        except OSError as error:
            raise self._refused(self._file, error) from error
        return self

    def _refused(self, file: IO[bytes], error: OSError) -> BadInput | BadMachine:
        """Why it was not had; the file closed, so that it is not held either."""
        with contextlib.suppress(OSError):  # what could not be written is tried once more
            file.seek(1)
        holder = file.read(20).decode("ascii", "replace").strip() if error.errno in _HELD else ""
        with contextlib.suppress(OSError):
            file.close()
        self._file = None
        if error.errno not in _HELD:  # a disk without locks, or a full one
            return unwritable(self._path, error)
        return BadInput(
            "Another process is training in this folder.",
            expected="one process for each output folder",
            got=f"process {holder or '(unknown)'} in {self._path.parent.parent}",
            remedy="Wait for it, stop it, or choose another folder with --out.",
        )

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()  # which gives the lock back


def holder_of(folder: Path) -> int | None:
    """The process that trains in a folder now, None where none does, whatever the file says; 0 where it is not known which."""
    path = folder / "lock"
    try:
        with path.open("r+b") as file:
            try:
                _take(file)
                return None
            except OSError as error:
                if error.errno not in _HELD:
                    return None
                file.seek(1)
                pid = file.read(20).decode("ascii", "replace").strip()
                return int(pid) if pid.isdecimal() and int(pid) > 1 else 0
    except OSError:
        return None


def _take(file: IO[bytes]) -> None:
    """Lock the first byte of an open file, without waiting. Raises OSError where another process has it."""
    if sys.platform == "win32":
        import msvcrt

        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def linked(source: Path, path: Path) -> None:
    """The file `source` as `path` too: a hard link, else a copy. Raises `BadMachine`."""
    fresh = beside(path)
    with writing(path):
        if path.exists() and path.samefile(source):
            return
        fresh.unlink(missing_ok=True)
        try:
            os.link(source, fresh)
        except OSError:  # another disk, or one without links
            shutil.copyfile(source, fresh)
        os.replace(fresh, path)
