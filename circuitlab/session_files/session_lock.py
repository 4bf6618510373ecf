"""Who has a session file open: a lock beside it that ends with its process. The second window is told by whom, and since when."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from circuitlab.disk.file_lock import FileLock, locked
from circuitlab.errors import BadInput


def session_lock(path: Path) -> FileLock:
    """The lock of a session file: a hidden file beside it, or beside the file that a link leads to."""
    real = Path(os.path.realpath(path))
    return FileLock(real.with_name(f".{real.name}.lock"), platform.node())


@contextmanager
def replacing(path: Path) -> Iterator[None]:
    """Inside, no window opens the file that is going to be replaced. Raises `BadInput` where one has it open.

    A file that cannot be locked needs no lock: nobody can write beside it.
    """
    open_there = lambda holder: BadInput(
        f"{path.name} is open in a window and was not replaced.",
        expected="a file that no window has open",
        got=holder,
        remedy="Name another file, or close it there first.",
    )
    with locked(session_lock(path), open_there, remove=True):
        yield
