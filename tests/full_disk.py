"""A disk without room for one file, of which the system itself says so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from circuitlab.disk import files
from circuitlab.disk.own_files import fresh_file


@contextlib.contextmanager
def no_room_for(path: Path) -> Iterator[None]:
    """Inside, what is written to this temporary path goes to a device that is full."""

    def fresh(at: Path) -> IO[bytes]:
        if at != path:
            return fresh_file(at)
        at.unlink(missing_ok=True)
        at.symlink_to("/dev/full")
        return at.open("r+b")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "fresh_file", fresh)
        yield
