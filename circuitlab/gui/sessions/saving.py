"""Saves on the file thread, one after the other in the order in which they were asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.errors import Cancelled, titled
from circuitlab.gui.sessions.file_work import Capture, ChangedFile, Version, save_file
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.session_files.results import SessionFile
from circuitlab.session_files.work import Work
from circuitlab.story.setup import Views

Act = Callable[[], object]


@dataclass(frozen=True, eq=False)
class Save:
    """One save: the work that it writes, of which session of the window, where, and what follows.

    `then()` once it is on disk, `otherwise()` where that failed. `version`: what its file held when the window read or wrote it.
    """

    path: Path
    work: Work
    of: object
    then: Act | None = None
    otherwise: Act | None = None
    version: Version = field(default_factory=Version)


class Saves(QObject):
    """`written(Save, SessionFile)`: it is on disk. A save that fails is reported, and what was to follow it does not."""

    written = Signal(object, object)

    def __init__(self, context: AppContext, views: Views, parent: QObject) -> None:
        super().__init__(parent)
        self.context, self._views = context, views
        self._slots: list[WorkSlot] = []
        self._asks: dict[WorkSlot, Callable[[ChangedFile], object]] = {}

    @property
    def busy(self) -> bool:
        """Whether a save is under way."""
        return bool(self._slots)

    def add(self, save: Save, capture: Capture, ask: Callable[[ChangedFile], object]) -> None:
        """Write what was captured, after every save that is under way. `ask`: what is done where another program has changed the
        file; nothing is written then, and nothing follows."""
        engine, views = self.context.engine, self._views

        def work(job: Job) -> SessionFile:
            with titled("The session cannot be saved"):
                return save_file(capture.file(engine, views), save.path, save.version)

        slot = WorkSlot(self, save, finished=self._finished, failed=self._failed)
        self._slots.append(slot)
        self._asks[slot] = ask
        self.context.runner.do(slot, f"save {save.path.name}", work)

    def after(self, act: Act) -> None:
        """Do this once every save is on disk; now if there is none."""
        if not self._slots:
            act()
            return
        last = self._slots[-1]
        before = last.role.then  # type: ignore[attr-defined]
        last.role = replace(last.role, then=act if before is None else lambda: (before(), act()))  # type: ignore[type-var]

    @Slot(object, object)
    def _finished(self, file: SessionFile, save: Save) -> None:
        self._end(save)
        self.written.emit(save, file)
        if save.then is not None:
            self.after(save.then)

    @Slot(object, object)
    def _failed(self, error: BaseException, save: Save) -> None:
        ask = self._end(save)
        if isinstance(error, ChangedFile):
            ask(error)
            return
        if isinstance(error, Cancelled):
            self.context.message.emit(f"{save.path.name} was not saved: saving was cancelled.")
        else:
            self.context.failed.emit(error)
        if save.otherwise is not None:
            save.otherwise()

    def _end(self, save: Save) -> Callable[[ChangedFile], object]:
        """It is over; what was to be asked."""
        slot = next(slot for slot in self._slots if slot.role is save)
        self._slots.remove(slot)
        slot.deleteLater()
        return self._asks.pop(slot)
