"""Files that a session, a lesson or a setting names: regular ones, read no further than their size says.

A device has no end, and what the system makes up (`/proc`) none that its size tells; a file with a hole may be larger than any
memory. On Windows looking for `\\\\host\\share` logs in there with the person's name.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from circuitlab.disk.files import opened
from circuitlab.errors import Cancelled

Stamp = tuple[int, int, int, int]
NO_FILE: Stamp = (0, 0, 0, 0)
PIECE = 2**22  # bytes that are read between two looks whether somebody still waits


def stamp_of(stat: os.stat_result) -> Stamp:
    """(size in bytes, mtime in ns, ctime in ns, inode) of a file, which as long as they are equal is taken to hold the same.

    Size and mtime alone would not tell what was copied over it with its times, or written within a tick of the disk's clock.
    """
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def stamp_at(path: Path) -> Stamp:
    """`stamp_of` the file that is at a path now, `NO_FILE` without one."""
    try:
        return stamp_of(path.stat())
    except OSError:
        return NO_FILE


def on_another_machine(path: str | os.PathLike[str]) -> bool:
    """Whether a path begins as those of other machines, and of devices, do on Windows: with two slashes, either way."""
    return os.fspath(path)[:2].replace("\\", "/") == "//"


def opened_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """A regular file, open to be read. Raises `OSError`. Whoever was not given the path by the person asks first whether it is
    `on_another_machine`."""
    file = opened(Path(path)) if os.path.isfile(path) or not os.path.exists(path) else None
    if file is None or not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise OSError(errno.EINVAL, "It is a folder, a pipe or a device, not a file")
    return file


def pieces(file: IO[bytes], stopped: Callable[[], bool] = lambda: False, size: int = PIECE) -> Iterator[bytes]:
    """The bytes of an open file up to the size that it has now. Raises `OSError`, and `Cancelled` once `stopped()`."""
    left = os.fstat(file.fileno()).st_size
    while left > 0 and (piece := file.read(min(left, size))):
        if stopped():
            raise Cancelled
        left -= len(piece)
        yield piece


def sha256_of(paths: Iterable[Path], stopped: Callable[[], bool] = lambda: False) -> str:
    """The hash of the bytes of files in their order. Raises `OSError`, and `Cancelled` once `stopped()`."""
    digest = hashlib.sha256()
    for path in paths:
        with opened_regular(path) as file:
            for piece in pieces(file, stopped):
                digest.update(piece)
    return digest.hexdigest()
