"""Files of a run: written whole or not at all, and a folder that one process trains in at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from circuitlab.errors import BadInput, BadMachine

_SAID = (  # error numbers: what happened, what to do
    ((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), ("The disk is full", "Free space")),
    ((errno.EACCES, errno.EPERM, errno.EROFS), ("The folder cannot be written to", "Choose another folder or change its rights")),
    ((errno.ENOTDIR, errno.EEXIST), ("A file is in the way of a folder", "Choose another folder, or take the file away")),
)
_OTHERWISE = ("A file could not be written", "Mend that")
_HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # what systems say of a lock that another process has


def write_whole(path: Path, data: bytes | Callable[[IO[bytes]], Any], previous: Path | None = None, durable: bool = True) -> None:
    """Write beside, then replace; what was there is kept as `previous` where that is named.

    `data`: the bytes, or what writes them to an open file. `durable`: not before the disk has them. Raises `BadMachine` where the
    disk is full or cannot be written; the old file is then as it was.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        with fresh.open("wb") as file:
            data(file) if callable(data) else file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if previous is not None and path.is_file():
            os.replace(path, previous)
        os.replace(fresh, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise unwritable(path, error) from error


def made_folder(path: Path) -> None:
    """Make a folder, and those above it. Raises `BadMachine`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> BadMachine:
    """The error of a file that could not be written."""
    what, remedy = next((said for numbers, said in _SAID if error.errno in numbers), _OTHERWISE)
    return BadMachine(
        f"{what}: {path.name} could not be written.",
        expected=f"a writable disk with room at {path.parent}",
        got=error.strerror or str(error),
        remedy=f"{remedy}; the same command then goes on from what was saved last.",
    )


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


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever goes wrong with the disk while a library writes to `path` is a `BadMachine`."""
    try:
        yield
    except SafetensorError as error:  # its own words around what the operating system said
        code = re.search(r"os error (\d+)", str(error))
        raise unwritable(path, OSError(int(code[1]) if code else errno.EIO, str(error))) from error
    except OSError as error:
        raise unwritable(path, error) from error


def linked(source: Path, path: Path) -> None:
    """The file `source` as `path` too: a hard link, else a copy. Raises `BadMachine`."""
    fresh = path.with_name(path.name + ".new")
    with writing(path):
        if path.exists() and path.samefile(source):
            return
        fresh.unlink(missing_ok=True)
        try:
            os.link(source, fresh)
        except OSError:  # another disk, or one without links
            shutil.copyfile(source, fresh)
        os.replace(fresh, path)
