"""Files of a run: written whole or not at all, in a folder that one process trains in at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from circuitlab import file_lock, files
from circuitlab.errors import BadInput
from circuitlab.file_lock import FileLock
from circuitlab.files import unwritable


def write_whole(path: Path, data: bytes | Callable[[IO[bytes]], Any], previous: Path | None = None, durable: bool = True) -> None:
    """`files.write_whole` in a folder that only one process writes to: the next write replaces the remains of a killed one."""
    files.write_whole(path, data, previous, durable, beside(path))


def beside(path: Path) -> Path:
    """The temporary path that a file of a run is first written to."""
    return path.with_name(path.name + ".new")


class Lock:
    """A lock on a run's folder, held until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._lock = FileLock(folder / "lock")

    def __enter__(self) -> Lock:
        """Raises `BadInput` where another process holds the lock, `BadMachine` where the file cannot be created."""
        try:
            holder = self._lock.take()
        except OSError as error:  # a disk without locks, or a full one
            raise unwritable(self._lock.path, error) from error
        if holder is not None:
            raise BadInput(
                "Another process is training in this folder.",
                expected="one process for each output folder",
                got=f"process {holder.pid or '(unknown)'} in {self._lock.path.parent.parent}",
                remedy="Wait for it, stop it, or choose another folder with --out.",
            )
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def holder_of(folder: Path) -> int | None:
    """The id of the process that trains in a folder now, None if none does (whatever the file says), 0 if it is unknown."""
    holder = file_lock.holder_of(folder / "lock")
    return None if holder is None else holder.pid


def linked(source: Path, path: Path) -> None:
    """`files.linked` in a folder that only one process writes to."""
    files.linked(source, path, beside(path))
