"""Folders that are being filled beside the place where they will be put as a whole, and what is left of them where a process was
killed.

As with unfinished files, names are random, and who is killed can remove nothing: the next one that fills a folder there does. A
lock beside the folder, taken before it is made and given back after it is gone, says that somebody still fills it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from circuitlab.disk.file_lock import FileLock

STAGING = ".new-"
_NAME = re.compile(rf"({re.escape(STAGING)}\w+)(\.lock)?", re.ASCII)


@contextlib.contextmanager
def unfinished_folder(parent: Path) -> Iterator[Path]:
    """A new empty folder in `parent`, which is there; gone after the block unless it was renamed, and those of killed processes
    are removed before.

    Raises `OSError` where none can be made. Where nothing can be locked it is made without a lock, and stays if it is killed.
    """
    remove_abandoned_folders(parent)
    path = parent / f"{STAGING}{secrets.token_hex(6)}"
    lock = _lock_of(path)
    with contextlib.suppress(OSError):
        lock.take()
    try:
        path.mkdir()
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        lock.release(remove=True)


def remove_abandoned_folders(parent: Path) -> None:
    """Remove from a folder what killed processes were filling there, and nobody fills any more."""
    names = set[str]()
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        names = {result[1] for entry in entries if (result := _NAME.fullmatch(entry.name)) is not None}
    for name in sorted(names):
        lock = _lock_of(parent / name)
        with contextlib.suppress(OSError):
            if lock.take() is None:
                shutil.rmtree(parent / name, ignore_errors=True)
                lock.release(remove=True)


def _lock_of(path: Path) -> FileLock:
    """Other machines may fill folders there, too."""
    return FileLock(path.with_name(f"{path.name}.lock"), platform.node())
