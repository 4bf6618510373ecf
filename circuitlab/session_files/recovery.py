"""What a window autosaves: written while it works, removed when it ends in order. See `recovery_files` for the files.

A recovery file that has been offered (`orphans`) stays until the recovered session has been autosaved by the window that took it.
"""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

from circuitlab.disk.file_lock import FileLock
from circuitlab.disk.files import linked, made_folder, moved, write_whole
from circuitlab.disk.paths import state_home
from circuitlab.session_files.orphans import Orphan
from circuitlab.session_files.recovery_files import (
    GENERATIONS,
    copy_path,
    discard_files,
    lock_path,
    marked_bytes,
    recovery_folder,
    written_at,
)
from circuitlab.session_files.session import Session

SPACING = 60.0  # s between generations


class Recovery:
    """The recovery file of one session in a window. Used by one thread at a time."""

    def __init__(self, folder: Path | None = None, spacing: float = SPACING) -> None:
        self.folder, self.spacing = folder or recovery_folder(), spacing
        self.id = uuid.uuid4().hex
        self._lock = FileLock(lock_path(self.folder, self.id))

    @property
    def path(self) -> Path:
        """The newest generation."""
        return copy_path(self.folder, self.id, 0)

    def write(self, session: Session, of: Path | None, closed: bool = False) -> None:
        """Autosave a session; `of` is the file it belongs to. Raises `BadMachine`; what was written before is intact then."""
        made_folder(state_home(), private=True)
        made_folder(self.folder, private=True)
        if not self._lock.held:
            with contextlib.suppress(OSError):  # a disk without locks: the process and the boot tell whether it is gone
                self._lock.take()
        data = marked_bytes(session, self.folder, of, **({"closed": True} if closed else {}))
        self._shift()
        write_whole(self.path, data, fresh=self._fresh)

    @property
    def _fresh(self) -> Path:
        """The temporary path; no other process writes there."""
        return self.folder / f"{self.id}.new"

    def _copy(self, generation: int) -> Path:
        return copy_path(self.folder, self.id, generation)

    def _shift(self) -> None:
        """Keep the newest generation as an earlier one, unless there is one that is hardly older."""
        if not self.path.exists():
            return
        before = self._copy(1)
        if before.exists():
            if abs(written_at(self.path) - written_at(before)) < self.spacing:
                return
            for generation in range(GENERATIONS - 1, 1, -1):
                if self._copy(generation - 1).exists():
                    moved(self._copy(generation - 1), self._copy(generation))
        linked(self.path, before, self._fresh)

    def adopt(self, orphan: Orphan, claim: FileLock | None) -> None:
        """Take over the copies of a recovered session as earlier generations, once it has been written anew.

        Raises `BadMachine`; what could not be taken over stays where it is, and is offered again.
        """
        for generation, copy in enumerate(orphan.copies, 1):
            if generation < GENERATIONS:
                moved(copy, self._copy(generation))
        orphan.discard(claim)

    def remove(self) -> None:
        """The session has ended in order."""
        discard_files(self.folder, self.id)
        self._lock.release(remove=True)

    def leave(self) -> None:
        """What was written is to be offered, although this process goes on: the file of the lock says so by being there."""
        self._lock.release()
