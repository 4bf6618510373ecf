"""Offering sessions of windows that did not end in order: at the start, on demand, and where a file has a newer copy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QWidget

from circuitlab.errors import Cancelled
from circuitlab.gui.sessions.autosave import Autosave
from circuitlab.gui.sessions.controller import SessionController
from circuitlab.gui.sessions.recovery_dialog import RecoveryDialog
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.session_files.last import offer_last
from circuitlab.session_files.orphans import Orphan, Recoverable, newer_copy, orphans

START, ASKED, FILE = "start", "asked", "file"  # why it is looked: closed sessions are offered to those who ask for them alone


class Recovering(QObject):
    """See the module. `dialog`: the one that is open."""

    def __init__(self, sessions: SessionController, autosave: Autosave, window: QWidget) -> None:
        super().__init__(window)
        self.sessions, self.autosave, self.window = sessions, autosave, window
        self.dialog: RecoveryDialog | None = None
        self._slot = WorkSlot(self, finished=self._offer, failed=self._failed)
        sessions.opened.connect(self._opened)

    @property
    def waiting(self) -> bool:
        """Whether the recovery folder is being read."""
        return self.sessions.context.runner.is_busy(self._slot)

    def look(self, why: str = ASKED) -> None:
        """Read the recovery folder, and offer what lies in it."""
        if self.dialog is None and not (self.waiting and why == FILE):
            self._slot.role = why
            seen = self.autosave.stamp

            def work(job: Job) -> Recoverable:
                damaged = offer_last(seen) if why == ASKED else ()
                recoverable = orphans(stopped=job.cancelled.is_set)
                return replace(recoverable, damaged=(*damaged, *recoverable.damaged))

            self.sessions.context.runner.do(self._slot, "look for sessions to recover", work)

    @Slot()
    def _opened(self) -> None:
        """A file may have a copy that was autosaved after it was saved."""
        if self.sessions.path is not None and self.autosave.remember:
            self.look(FILE)

    @Slot(object, object)
    def _offer(self, recoverable: Recoverable, why: str) -> None:
        path, orphans = self.sessions.path if why == FILE else None, recoverable.orphans
        if path is not None:
            newer = newer_copy(orphans, path)
            orphans = (newer,) if newer is not None else ()
        elif why != ASKED:
            orphans = tuple(orphan for orphan in orphans if why == START and not orphan.closed)
        if orphans or recoverable.damaged:
            self._show(Recoverable(orphans, recoverable.damaged), path)
        elif why == ASKED:
            self.sessions.context.message.emit("There is nothing to recover.")

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, Cancelled):
            self.sessions.context.failed.emit(error)

    def _show(self, offered: Recoverable, path: Path | None) -> None:
        file = path if offered.orphans else None
        self.dialog = dialog = RecoveryDialog(offered.orphans, offered.damaged, file, self.window)
        dialog.recovers.connect(self.recover)
        dialog.thrown_away.connect(lambda orphan: orphan.discard())
        dialog.finished.connect(self._closed)
        dialog.open()

    @Slot()
    def _closed(self) -> None:
        self.dialog = None

    @Slot(object, int)
    def recover(self, orphan: Orphan, copy: int = 0) -> None:
        """Put a session in place of the present one, whose unsaved changes are asked about first."""
        claim = orphan.claim()
        if claim is None:
            self.sessions.context.message.emit(f"“{orphan.title}” has been recovered in another window.")
            return
        of = orphan.of if orphan.of is not None and orphan.of.parent.is_dir() else None
        adopt = lambda: self.autosave.adopt(orphan, claim)
        self.sessions.recover(lambda: orphan.read(copy), of, orphan.folder if of is None else of.parent, adopt, claim.release)
