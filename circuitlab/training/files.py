"""Files of a run: written whole or not at all, in a folder that one process trains in at a time."""

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
    """`files.write_whole` in a folder that only one process writes: the next write replaces what a killed one left."""
    files.write_whole(path, data, previous, durable, beside(path))


def beside(path: Path) -> Path:
    """The temporary path that a file of a run is first written to."""
    return path.with_name(path.name + ".new")


class Lock:
    """A lock on a run's folder, held until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Lock:
        """Raises `BadInput` where another process holds the lock, `BadMachine` where the file cannot be created."""
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
        """The error of a lock that could not be taken; closes the file, so that nothing stays locked."""
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
    """The id of the process that trains in a folder now, None if none does (whatever the file says), 0 if it is unknown."""
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
    """Make `path` a hard link to `source`, or a copy where links are not possible. Raises `BadMachine`."""
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
