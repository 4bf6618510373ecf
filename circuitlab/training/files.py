"""Files of a run: written whole or not at all, in a folder that one process trains in at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from circuitlab.disk import file_lock, files
from circuitlab.disk.file_lock import FileLock, locked
from circuitlab.disk.files import unwritable
from circuitlab.errors import BadInput


def write_whole(
    path: Path, data: bytes | Callable[[IO[bytes]], object], previous: Path | None = None, durable: bool = True
) -> None:
    """`files.write_whole` in a folder that only one process writes to: the next write replaces the remains of a killed one."""
    files.write_whole(path, data, previous, durable, beside(path))


def beside(path: Path) -> Path:
    """The temporary path that a file of a run is first written to."""
    return path.with_name(path.name + ".new")


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Inside, no other process trains in a run's folder; the lock ends with this one, however that ends.

    Raises `BadInput` where another process does, `BadMachine` where the file of the lock cannot be created.
    """
    lock = FileLock(folder / "lock")
    training = lambda holder: BadInput(
        "Another process is training in this folder.",
        expected="one process for each output folder",
        got=f"{holder} in {folder.parent}",
        remedy="Wait for it, stop it, or choose another folder with --out.",
    )
    with locked(lock, training, partial(unwritable, lock.path)):  # a disk without locks, or a full one
        yield


def holder_of(folder: Path) -> int | None:
    """The id of the process that trains in a folder now, None if none does (whatever the file says), 0 if it is unknown."""
    holder = file_lock.holder_of(folder / "lock")
    return None if holder is None else holder.pid


def linked(source: Path, path: Path) -> None:
    """`files.linked` in a folder that only one process writes to."""
    files.linked(source, path, beside(path))
