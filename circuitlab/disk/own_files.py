"""Files whose names the program makes from another's: locks, journals, logs, temporary ones. No link is followed at such a name.

A person names a file, and a link there leads to where they want it. At a name that they never gave, a link comes from whoever
packed the folder, and would lead what is written to any file of theirs. It is removed and replaced by a file, as is everything
else there that is not a plain file with this one name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import IO

_ATTEMPTS = 20  # somebody else may remove or make the file between two looks
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def plain_stat(path: Path) -> os.stat_result | None:
    """What the system says of a plain file, None where there is none: also for a link to one. Raises `OSError`."""
    try:
        result = os.lstat(path)
    except FileNotFoundError:
        return None
    return result if stat.S_ISREG(result.st_mode) else None


def fresh_file(path: Path) -> IO[bytes]:
    """A new file, open to be written; whatever was at this name is removed. Raises `OSError`, also where a folder is there."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        with contextlib.suppress(FileExistsError):
            return os.fdopen(os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666), "wb")
    raise _busy()


def open_own(path: Path, append: bool = True) -> IO[bytes]:
    """The file at this name, open to be read and written; made where it is not there, and in place of what is no plain file with
    this one name. `append`: everything is written at its end, else where one is, unbuffered. Raises `OSError`.
    """
    for _ in range(_ATTEMPTS):
        if _is_foreign(path):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        try:
            descriptor = os.open(path, _FLAGS | os.O_CREAT | (os.O_APPEND if append else 0), 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EMLINK):  # a link, or a socket, since it was looked at
                continue
            raise
        if _alone(descriptor):
            return os.fdopen(descriptor, "a+b") if append else os.fdopen(descriptor, "r+b", buffering=0)
        os.close(descriptor)
    raise _busy()


def open_plain(path: Path) -> IO[bytes] | None:
    """The file at this name as it is, open to be read and written; None where no plain file is. Raises `OSError`."""
    if plain_stat(path) is None:
        return None
    descriptor = os.open(path, _FLAGS)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "r+b")
    os.close(descriptor)
    return None


def _is_foreign(path: Path) -> bool:
    """Whether something is there that is no folder, and no plain file with this one name."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return not stat.S_ISDIR(found.st_mode) and (not stat.S_ISREG(found.st_mode) or found.st_nlink > 1)


def _alone(descriptor: int) -> bool:
    """Whether an open file is a plain one, with one name at most."""
    found = os.fstat(descriptor)
    return stat.S_ISREG(found.st_mode) and found.st_nlink <= 1


def _busy() -> OSError:
    return OSError(errno.EBUSY, os.strerror(errno.EBUSY))
