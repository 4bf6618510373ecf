"""Autosave: unsaved work is written to the window's recovery file within two seconds, and that file goes when the work is saved.

The session is captured on the GUI thread and written on the file thread, one writing at a time. The timer is not started again by
each change: while somebody types or drags for long, no more than two seconds are ever unwritten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from circuitlab.disk.file_lock import FileLock
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.session_files.last import Stamp, keep_last, need_room_for_last
from circuitlab.session_files.orphans import Orphan
from circuitlab.session_files.recovery import Recovery
from circuitlab.session_files.session import Session
from circuitlab.session_files.work import Work
from circuitlab.story.setup import Setup, placed

log = logging.getLogger("circuitlab.autosave")
INTERVAL = 1500  # ms from a change to its writing, which takes its time, too
RETRY = 10_000  # ms after a writing that failed
MakeSession = Callable[[], Session]


class Sessions(Protocol):
    """What is autosaved: the `SessionController`."""

    changed: Any
    opened: Any
    context: AppContext
    path: Path | None
    saved: Session
    cannot_keep: Callable[[], str]

    @property
    def work(self) -> Work: ...

    @property
    def dirty(self) -> bool: ...

    def session_maker(self) -> MakeSession: ...

    def layout_words(self) -> tuple[Setup, str]: ...


@dataclass(frozen=True)
class _Writing:
    """One writing. `work`: what it writes, None where it removes the file; `ended`: files of ended sessions, removed too."""

    work: Work | None
    recovery: Recovery
    adopts: tuple[Orphan, FileLock | None] | None = None
    ended: tuple[Recovery, ...] = ()


@dataclass
class _Own:
    """The recovery file of the present session. `work`: as it was written last, None before; `session`: what that gave.

    `touched`: something may have been written.
    """

    recovery: Recovery = field(default_factory=Recovery)
    work: Work | None = None
    session: Session | None = None
    adopts: tuple[Orphan, FileLock | None] | None = None
    touched: bool = False


class Autosave(QObject):
    """See the module. `written()`: the recovery file has been written, or is gone because there is nothing unsaved.

    `failing(why)`: the work cannot be autosaved, from now on until it comes with "".

    `remember` False: nothing is written (pictures, tests).
    """

    written = Signal()
    failing = Signal(str)

    def __init__(self, sessions: Sessions, remember: bool, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.sessions, self.context, self.remember = sessions, sessions.context, remember
        self.timer = QTimer(self)
        self.timer.setSingleShot(True)
        self.timer.timeout.connect(self.write)
        self._own = _Own()
        self._ended: list[Recovery] = []  # of sessions that were left in order, to be removed
        self.problem = ""  # why the work cannot be autosaved
        self.stamp: Stamp | None = None  # of the session that this window came back to
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)
        if remember:
            sessions.cannot_keep = self.cannot_keep
            self.context.document.history_changed.connect(self._changed)
            self.context.document.work_changed.connect(self._changed)
            sessions.changed.connect(self._changed)
            sessions.opened.connect(self._opened)

    @property
    def waiting(self) -> bool:
        """Whether something is to be written, or is being written."""
        return self.timer.isActive() or self.context.runner.is_busy(self._slot)

    @property
    def _up_to_date(self) -> bool:
        own = self._own
        return (own.work == self.sessions.work if self.sessions.dirty else not own.touched) and not self._ended

    @Slot()
    def _changed(self) -> None:
        if not self.waiting and not self._up_to_date:
            self.timer.start(INTERVAL)

    @Slot()
    def _opened(self) -> None:
        """Another session: the last one was saved, or given up."""
        self._leave()
        self._changed()

    def _leave(self) -> None:
        own, self._own = self._own, _Own()
        if own.touched:
            self._ended.append(own.recovery)
        if own.adopts is not None and own.adopts[1] is not None:  # not written anew: it is offered again
            own.adopts[1].release()

    def adopt(self, orphan: Orphan, claim: FileLock | None) -> None:
        """The present session is recovered from this one: write it at once, and take over its copies when that is done."""
        self._own.adopts = (orphan, claim)
        self.write()

    def came_back(self, stamp: Stamp | None) -> None:
        """The present session is the one that the last window was left with, which stays where it is until this one ends."""
        self.stamp, self._own.work = stamp, self.sessions.work
        self.timer.stop()

    @Slot()
    def write(self) -> None:
        """Write what is not written yet, or remove what is saved; once it is done, if something is being written."""
        if not self.remember or self.context.runner.is_busy(self._slot) or (self._up_to_date and self._own.adopts is None):
            return
        own, dirty, path = self._own, self.sessions.dirty, self.sessions.path
        make_session = self.sessions.session_maker() if dirty else None
        self.timer.stop()  # which the end of typing may have started
        writing = _Writing(self.sessions.work if dirty else None, own.recovery, own.adopts, tuple(self._ended))
        self._slot.role, own.touched = writing, own.touched or dirty

        def work(job: Job) -> Session | None:
            for recovery in writing.ended:
                recovery.remove()
            if make_session is None:  # it is saved, what it was recovered from, too
                writing.recovery.remove()
                if writing.adopts is not None:
                    writing.adopts[0].discard(writing.adopts[1])
                return None
            session = make_session()
            writing.recovery.write(session, path)
            if writing.adopts is not None:
                writing.recovery.adopt(*writing.adopts)
            return session

        self.context.runner.do(self._slot, "autosave", work)

    @Slot(object, object)
    def _finished(self, session: Session | None, writing: _Writing) -> None:
        self._ended = [recovery for recovery in self._ended if recovery not in writing.ended]
        if writing.recovery is self._own.recovery:
            self._own.work, self._own.session, self._own.touched = writing.work, session, session is not None
            if writing.adopts is not None:
                self._own.adopts = None
        if self.problem:
            self.problem = ""
            self.failing.emit("")
            self.context.message.emit("The session is autosaved again.")
        self._changed()
        if self._own.adopts is not None:
            self.write()  # recovered while another session was being written
        self.written.emit()

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        self.timer.start(INTERVAL if isinstance(error, Cancelled) else RETRY)
        if not isinstance(error, Cancelled) and self.problem != reason(error):
            self.problem = reason(error)
            self.failing.emit(self.problem)

    # -- the end of the window ----------------------------------------------------------------------------------------------

    def cannot_keep(self) -> str:
        """Why what is unsaved could not be kept for the next start, "" where it can be."""
        if self.problem:
            return self.problem
        try:
            need_room_for_last()
        except CircuitLabError as error:
            return reason(error)
        return ""

    def last_session(self) -> MakeSession | None:
        """The session that the next start comes back to, to be made once the workers have stopped; None if none is kept.

        Of a session with a file, that is the file: what was not saved of it was given up.
        """
        self.timer.stop()
        if not self.remember:
            return None
        layout, docks = self.sessions.layout_words()
        arranged = lambda session: replace(session, docks=docks, now=placed(session.now, layout))
        if self.sessions.path is not None:
            return lambda: arranged(self.sessions.saved)
        own = self._own
        if own.session is not None and own.work == self.sessions.work:
            written = own.session
            return lambda: arranged(written)
        return self.sessions.session_maker()

    def unsaved(self) -> MakeSession | None:
        """What is not saved of a session with a file, to be made once the workers have stopped; None if there is nothing."""
        return self.sessions.session_maker() if self.remember and self.sessions.path is not None and self.sessions.dirty else None

    def end(self, session: MakeSession | None, unsaved: MakeSession | None = None) -> None:
        """The window ends in order, its workers have stopped: keep `last_session`, remove the recovery file.

        `unsaved`: it stays, with this, as nobody was asked whether it is given up.
        """
        if session is None:
            return
        path = self.sessions.path
        try:
            keep_last(session(), path, path is None and self.sessions.dirty, self.stamp)
        except Exception as error:  # whatever it is, the window closes
            log.warning("the session is not kept for the next start: %s", error, exc_info=not isinstance(error, CircuitLabError))
            if path is None:
                return  # the recovery file is all that is left of it
        if unsaved is not None:
            self._keep(unsaved, path)
        self._leave()
        for recovery in self._ended:
            recovery.remove()

    def _keep(self, unsaved: MakeSession, path: Path | None) -> None:
        """Leave the recovery file with this in it; where it cannot be written, as it was written last."""
        recovery = self._own.recovery
        try:
            recovery.write(unsaved(), path)
        except Exception as error:  # whatever it is, the window closes
            log.warning("the session is kept as it was: %s", error, exc_info=not isinstance(error, CircuitLabError))
        recovery.leave()
        self._own.touched = False  # it stays
