"""Where a sweep writes: the journal of a folder and, beside it, archives of the arrays that are kept. One process has a folder.

Arrays go into archives of many cells, each written whole before the journal names it: a line never speaks of arrays that a killed
process did not finish.
"""

from __future__ import annotations

import contextlib
import io
import platform
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from circuitlab.disk.file_lock import FileLock, locked
from circuitlab.disk.files import made_folder, write_whole, writing
from circuitlab.disk.unfinished_files import is_unfinished
from circuitlab.errors import BadMachine, UsageError, cause
from circuitlab.sweep.journal import NAME, Journal
from circuitlab.sweep.work import Outcome

ARRAYS, LOCK, PLAN = "arrays", ".lock", "plan.json"
SPEC, LOG = "spec.toml", "sweep.log"  # the declaration as it was read; what a process said that nobody watches
MOST_CELLS, MOST_BYTES, MOST_SECONDS = 256, 64 << 20, 2.0  # of one archive: what a killed process may lose
_DATE = (1980, 1, 1, 0, 0, 0)  # of all members, so that equal arrays make equal archives


def need_own(folder: Path, declared: str = "") -> None:
    """Raise `UsageError` for a folder with other things in it than a sweep; one that holds only the text that is `declared`, the
    file of what its process says, and what one that was killed had begun to write, is that of a sweep which is about to begin.
    """
    names = sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
    others = [name for name in names if name not in (LOCK, LOG) and not is_unfinished(name)]
    begins = others == [SPEC] and (folder / SPEC).read_bytes() == declared.encode("utf-8", "backslashreplace")
    if others and not begins and not {NAME, PLAN} & set(others):
        raise UsageError(
            "The folder holds other things than a sweep.",
            expected="an empty folder, a new one, or that of a sweep",
            got=f"{folder} with {others[0]}",
            remedy="Choose another folder.",
        )


@contextlib.contextmanager
def own_folder(folder: Path, declared: str = "") -> Iterator[None]:
    """Inside, nobody else writes to the folder of a sweep, which is made if it is not there.

    Raises `UsageError` for a folder with other things in it (`need_own`) and where another process is at work, `BadMachine`.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        need_own(folder, declared)
    held = lambda holder: UsageError(
        "This sweep is being worked on already.",
        expected="one process for a folder",
        got=f"{folder}, in use by {holder}",
        remedy="Wait for it; `circuitlab sweep FOLDER --status` says how far it is.",
    )
    unlockable = lambda error: BadMachine(
        "The folder cannot be locked.", expected="a disk with locks", got=cause(error), remedy="Choose another folder."
    )
    with locked(FileLock(folder / LOCK, platform.node()), held, unlockable):
        yield


class Record:
    """The journal of a folder, and the archives of arrays. Used as a context: at its end all of it is on the disk."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder)
        self._folder = folder / ARRAYS
        self._waiting: list[Outcome] = []
        self._since = time.monotonic()
        self._number = max((int(p.stem) for p in self._folder.glob("*.zip") if p.stem.isdecimal()), default=0)

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            self.journal.close()

    def add(self, outcome: Outcome) -> None:
        """Write a finished cell. Raises `BadMachine`."""
        if not outcome.arrays:
            self.journal.append(outcome.line)
            return
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(outcome)
        size = sum(len(one.arrays) for one in self._waiting)
        late = time.monotonic() - self._since >= MOST_SECONDS
        if late or len(self._waiting) >= MOST_CELLS or size >= MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write an archive of what waits, then the lines that name it."""
        if not self._waiting:
            return
        made_folder(self._folder, within=self._folder.parent)
        name = f"{self._number + 1:06d}.zip"
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
            for one in self._waiting:
                archive.writestr(zipfile.ZipInfo(f"{one.line['cell']}.npz", _DATE), one.arrays)
        write_whole(self._folder / name, out.getvalue())
        self._number += 1
        for one in self._waiting:
            self.journal.append({**one.line, "arrays": f"{ARRAYS}/{name}"})
        self._waiting.clear()
