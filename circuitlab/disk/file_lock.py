"""Locks on files that end with their process, however it ends: one training per folder, one window per session file, one download
of an archive.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from circuitlab.disk.own_files import open_own, open_plain, plain_stat
from circuitlab.errors import CircuitLabError

HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # what systems say of a lock that another process has
_ATTEMPTS = 20  # a lock file may be removed by its last holder between opening and locking it


@dataclass(frozen=True)
class Holder:
    """Who has a lock. `pid`: the process, 0 if unknown; `machine`: its name, "" if unknown; `since`: seconds since the epoch."""

    pid: int = 0
    machine: str = ""
    since: float = 0.0

    def words(self) -> str:
        """For a sentence: the process, and its machine where it is another one."""
        process = f"process {self.pid}" if self.pid else "an unknown process"
        return f"{process} on {self.machine}" if self.machine not in ("", platform.node()) else process


class FileLock:
    """An exclusive lock on a file of its own, which holds one line: the holder's process id and, where other machines reach the
    file too, the name of its `machine`.

    The first byte is what is locked: Windows lets nobody read a locked one. The lock belongs to this object: another one in the
    same process does not get it either.
    """

    def __init__(self, path: Path, machine: str = "") -> None:
        self.path, self.machine = path, machine
        self._file: IO[bytes] | None = None

    @property
    def held(self) -> bool:
        """Whether this object has the lock."""
        return self._file is not None

    def take(self) -> Holder | None:
        """Take the lock: None if it is had now, otherwise who has it.

        Raises `OSError` where the file cannot be opened or written, or the disk has no locks; nothing is locked then.
        """
        result = plain_stat(self.path)
        if result is not None and result.st_nlink > 1 and (holder := holder_of(self.path)) is not None:
            return holder  # of a file with a second name, as backups make, which is replaced where nobody holds it
        for _ in range(_ATTEMPTS):
            file = open_own(self.path)
            try:
                _take(file)
                if not _still_there(file, self.path):
                    file.close()
                    continue
                file.truncate(0)
                file.write(f" {os.getpid()}{' ' if self.machine else ''}{self.machine}\n".encode())
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


@contextlib.contextmanager
def locked(
    lock: FileLock,
    held: Callable[[str], CircuitLabError],
    unlockable: Callable[[OSError], CircuitLabError] | None = None,
    remove: bool = False,
) -> Iterator[None]:
    """Inside, nobody else has the lock; `remove`: its file goes at the end.

    Raises what `held` makes of the words on its holder where there is one, and what `unlockable` makes of the system's error
    where nothing can be locked. Without `unlockable` the block then runs without a lock.
    """
    try:
        holder = lock.take()
    except OSError as error:
        if unlockable is not None:
            raise unlockable(error) from error
        holder = None
    if holder is not None:
        raise held(holder.words())
    try:
        yield
    finally:
        lock.release(remove)


@contextlib.contextmanager
def waited(lock: FileLock, held: Callable[[str], CircuitLabError], most: float) -> Iterator[None]:
    """Inside, nobody else has the lock, whose file stays; another one is waited for, `most` seconds.

    Raises what `held` makes of the words on its holder. Where nothing can be locked the block runs without a lock.
    """
    until = time.monotonic() + most
    with contextlib.suppress(OSError):
        while (holder := lock.take()) is not None:
            if time.monotonic() > until:
                raise held(holder.words())
            time.sleep(0.02)
    try:
        yield
    finally:
        lock.release()


def holder_of(path: Path) -> Holder | None:
    """Who has the lock on a file now, None if nobody does (whatever the file says) or it cannot be found out."""
    try:
        with contextlib.ExitStack() as stack:
            if (file := open_plain(path)) is None:
                return None
            try:
                _take(stack.enter_context(file))
            except OSError as error:
                return _holder(file) if error.errno in HELD else None
    except OSError:
        pass
    return None


def _holder(file: IO[bytes]) -> Holder:
    """What the file of a lock says of its holder."""
    with contextlib.suppress(OSError):
        file.seek(1)
        pid, _, machine = file.read(200).decode("utf-8", "replace").strip().partition(" ")
        return Holder(int(pid) if pid.isdecimal() and int(pid) > 1 else 0, machine, os.fstat(file.fileno()).st_mtime)
    return Holder()


def _still_there(file: IO[bytes], path: Path) -> bool:
    """Whether the opened file is the one that the path names: a lock on one that has been removed protects nothing."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
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
