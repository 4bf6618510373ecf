"""What a sweep has done so far: a line for each finished cell, appended and put on the disk, never changed.

A process that is killed loses at most what it had not yet put on the disk. A last line that was torn is cut off before the next
one is written; a line that cannot be read is one of a cell that was not computed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from circuitlab.disk.files import writing
from circuitlab.disk.json_types import JsonDict
from circuitlab.disk.own_files import open_own

NAME = "journal.jsonl"
EVERY = 2.0  # s between two waits for the disk, while lines come faster

Line = JsonDict  # a finished cell as plain values: `work.Outcome.line`


class Journal:
    """The journal of a folder, open to be written: one process has it. Later lines of a cell stand for earlier ones."""

    def __init__(self, folder: Path) -> None:
        """Raises `BadMachine` where it cannot be written."""
        self.path = folder / NAME
        self._places: dict[str, tuple[int, int]] = {}  # of the last line of each cell: where it begins, its bytes
        self.status: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        with writing(self.path):
            self._file = open_own(self.path)
            self._cut()
        self._waited = time.monotonic()

    def _cut(self) -> None:
        """Take in what is there, and cut off a line that was torn."""
        self._file.seek(0)
        end = 0
        for raw in self._file:
            if not raw.endswith(b"\n"):
                break
            line = parsed(raw)
            if line is not None:
                self._take(line, end, len(raw))
            end += len(raw)
        self._file.truncate(end)
        self._end = end

    def _take(self, line: Line, start: int, size: int) -> None:
        self._places[line["cell"]] = start, size
        self.status[line["cell"]] = line["status"]
        self.seconds[line["cell"]] = line.get("seconds", 0.0)

    def append(self, line: Line) -> None:
        """Write the line of a finished cell: whole, or to be cut off. Raises `BadMachine` where the disk is full."""
        raw = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"
        with writing(self.path):
            self._write(raw)
            if time.monotonic() - self._waited >= EVERY:
                self.wait()
        self._take(line, self._end, len(raw))
        self._end += len(raw)

    def _write(self, raw: bytes) -> None:
        self._file.write(raw)
        self._file.flush()

    def wait(self) -> None:
        """Wait until all of it is on the disk."""
        with writing(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._waited = time.monotonic()

    def close(self) -> None:
        """Put it on the disk and close it."""
        self.wait()
        self._file.close()

    def line(self, cell: str) -> Line | None:
        """The line of a cell, None if it is not finished."""
        if cell not in self._places:
            return None
        start, size = self._places[cell]
        return parsed(os.pread(self._file.fileno(), size, start))


def parsed(raw: bytes) -> Line | None:
    """A line of a journal, None if it cannot be read."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(line, Mapping) and isinstance(line.get("cell"), str) and isinstance(line.get("status"), str)
    return dict(line) if whole else None


def lines_in(folder: Path) -> Iterator[Line]:
    """The lines of a journal that somebody else may be writing. Raises `OSError`."""
    with (folder / NAME).open("rb") as file:
        for raw in file:
            if raw.endswith(b"\n") and (line := parsed(raw)) is not None:
                yield line
