"""Files that are being written beside those they will replace, and what is left of them where a process was killed.

Their names are random, so that two who write the same file do not meet. Who is killed can remove nothing; the next one who writes
into the folder does. A lock says which of them somebody still writes: it ends with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from circuitlab.disk.file_lock import HELD

_NAME = re.compile(r"\.[0-9a-f]{12}\.new")
_LONG_AGO = 24 * 3600  # seconds without a change, after which a file is abandoned where there are no locks to say so
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@contextlib.contextmanager
def unfinished_file(folder: Path) -> Iterator[Path]:
    """A new empty file in a folder, locked while the block runs; those of killed processes are removed from there first.

    Raises `OSError` where no file can be made.
    """
    remove_abandoned(folder)
    path, descriptor = _new_file(folder)
    while not _mine(path, descriptor):  # somebody took it for an abandoned one, in the moment before it was locked
        os.close(descriptor)
        path, descriptor = _new_file(folder)
    if sys.platform == "win32":
        os.close(descriptor)  # Windows renames no open file, and removes none
        yield path
        return
    try:
        yield path
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def unfinished_link(source: Path, folder: Path) -> Iterator[Path]:
    """A second name of a file, in another folder of its disk, locked while the block runs.

    Raises `OSError` where there are no links.
    """
    with source.open("rb") as file:
        with contextlib.suppress(BlockingIOError):  # whoever has locked the file keeps its names from being removed, too
            _locked(file.fileno(), shared=True)
        path = _new_name(folder)
        os.link(source, path)
        try:
            yield path
        finally:
            with contextlib.suppress(OSError):
                path.unlink()  # gone already where it has become the other name


def is_unfinished(name: str) -> bool:
    """Whether files have such a name while they are being written."""
    return _NAME.fullmatch(name) is not None


def remove_abandoned(folder: Path) -> None:
    """Remove from a folder the unfinished files that nobody writes any more."""
    names = list[str]()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names += [entry.name for entry in entries if is_unfinished(entry.name) and entry.is_file(follow_symlinks=False)]
    for name in names:
        with contextlib.suppress(OSError):
            _remove_if_abandoned(folder / name)


def _remove_if_abandoned(path: Path) -> None:
    """Raises `OSError` where somebody writes it, or it cannot be removed."""
    descriptor = os.open(path, _FLAGS)
    try:
        abandoned = _locked(descriptor) or time.time() - os.fstat(descriptor).st_mtime > _LONG_AGO
        if abandoned and sys.platform != "win32":
            path.unlink()  # while it is locked, so that nobody begins with it
    finally:
        os.close(descriptor)
    if abandoned and sys.platform == "win32":
        path.unlink()


def _new_name(folder: Path) -> Path:
    return folder / f".{secrets.token_hex(6)}.new"


def _new_file(folder: Path) -> tuple[Path, int]:
    path = _new_name(folder)
    return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)


def _mine(path: Path, descriptor: int) -> bool:
    """Lock a new file; False if another has it, or removed it before."""
    try:
        _locked(descriptor)
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _locked(descriptor: int, shared: bool = False) -> bool:
    """Lock an open file without waiting; False where there are no locks. Raises `BlockingIOError` where another has it."""
    if sys.platform == "win32":
        return False  # its locks keep the holder itself from writing through a second descriptor
    import fcntl

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in HELD:
            raise BlockingIOError(error.errno, error.strerror) from error
        return False
    return True
