"""Locks on files that end with their process, however it ends: one training per folder, one window per session file."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # what systems say of a lock that another process has
_ATTEMPTS = 20  # a lock file may be removed by its last holder between opening and locking it


@dataclass(frozen=True)
class Holder:
    """Who has a lock. `pid`: the process, 0 if unknown; `note`: what it wrote beside that; `since`: seconds since the epoch."""

    pid: int = 0
    note: str = ""
    since: float = 0.0


class FileLock:
    """An exclusive lock on a file of its own; the file holds the holder's process id and `note`, one line.

    The first byte is what is locked: Windows lets nobody read a locked one. The lock belongs to this object: another one in the
    same process does not get it either.
    """

    def __init__(self, path: Path, note: str = "") -> None:
        self.path, self.note = path, note
        self._file: IO[bytes] | None = None

    @property
    def held(self) -> bool:
        """Whether this object has the lock."""
        return self._file is not None

    def take(self) -> Holder | None:
        """Take the lock: None if it is had now, otherwise who has it.

        Raises `OSError` where the file cannot be opened or written, or the disk has no locks; nothing is locked then.
        """
        for _ in range(_ATTEMPTS):
            file = self.path.open("a+b")
            try:
                _take(file)
                if not _still_there(file, self.path):
                    file.close()
                    continue
                file.truncate(0)
                file.write(f" {os.getpid()}{' ' if self.note else ''}{self.note}\n".encode())
                file.flush()
            except OSError as error:
                holder = _holder(file) if error.errno in HELD else None
                with contextlib.suppress(OSError):  # what could not be written is tried once more
                    file.close()
                if holder is None:
                    raise
                return holder
            self._file = file
            return None
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    def release(self, remove: bool = False) -> None:
        """Give the lock back; `remove`: its file goes, too."""
        file, self._file = self._file, None
        if file is None:
            return
        with contextlib.suppress(OSError):
            if remove and os.name != "nt":
                self.path.unlink(missing_ok=True)  # while it is locked, so that nobody else's is removed
            file.close()
            if remove and os.name == "nt":
                self.path.unlink(missing_ok=True)  # fails where another has opened it meanwhile


def holder_of(path: Path) -> Holder | None:
    """Who has the lock on a file now, None if nobody does (whatever the file says) or it cannot be found out."""
    try:
        with path.open("r+b") as file:
            try:
                _take(file)
            except OSError as error:
                return _holder(file) if error.errno in HELD else None
    except OSError:
        pass
    return None


def _holder(file: IO[bytes]) -> Holder:
    """What the file of a lock says of its holder."""
    with contextlib.suppress(OSError):
        file.seek(1)
        pid, _, note = file.read(200).decode("utf-8", "replace").strip().partition(" ")
        return Holder(int(pid) if pid.isdecimal() and int(pid) > 1 else 0, note, os.fstat(file.fileno()).st_mtime)
    return Holder()


def _still_there(file: IO[bytes], path: Path) -> bool:
    """Whether the opened file is the one that the path names: a lock on one that has been removed protects nothing."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _take(file: IO[bytes]) -> None:
    """Lock the first byte of an open file, without waiting. Raises OSError where another process has it."""
    if sys.platform == "win32":
        import msvcrt

        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
