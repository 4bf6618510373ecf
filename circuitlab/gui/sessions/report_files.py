"""The report of a session, written from its window: computed on the slow lane, drawn here a figure at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QFileDialog, QWidget

from circuitlab.counting import number_of
from circuitlab.disk.files import write_whole
from circuitlab.disk.formats import REPORTS
from circuitlab.errors import Cancelled, CircuitLabError, titled
from circuitlab.figures.contracts.panel import view_types
from circuitlab.gui.sessions.controller import SessionController
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.drawer import Drawer
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.report.content import Report, refuse_empty, report_of
from circuitlab.report.report_files import REPORT_PAPER, writer_of
from circuitlab.story.arrangements import FRONTS

LANE = "slow"
TITLE, NOT_WRITTEN = "Write a report", "The report cannot be written"
ASIDES = {"": False, " with asides": True}
KINDS = {f"{kind.kind}{words} (*{kind.suffix})": asides for words, asides in ASIDES.items() for kind in REPORTS}


@dataclass(frozen=True)
class _Written:
    """What was written where."""

    path: Path
    report: Report


class ReportFiles(QObject):
    """`ask()` asks for a file. Computing, drawing and writing is one job, which can be cancelled; the file is replaced whole."""

    def __init__(self, context: AppContext, sessions: SessionController, window: QWidget) -> None:
        super().__init__(window)
        self.context, self.sessions, self._window = context, sessions, window
        self._views = view_types()
        self.drawer = Drawer(self)
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)

    def ask(self) -> None:
        """Ask for a file and write the report to it: of the story, or without steps of what the window shows."""
        suggested = self.context.exports.suggest(f"{self.sessions.name or 'report'}{REPORTS[0].suffix}")
        name, kind = QFileDialog.getSaveFileName(self._window, TITLE, suggested, ";;".join(KINDS))
        if name:
            path = Path(name) if Path(name).suffix else Path(name).with_name(f"{Path(name).name}{_suffix(kind)}")
            self.context.exports.used(path)
            self.write(path, KINDS.get(kind, False))

    def write(self, path: Path, asides: bool = False) -> None:
        """Write the report; one that is being written is given up. `asides`: with the speaker's own words."""
        try:
            with titled(NOT_WRITTEN):
                writer = writer_of(path)
        except CircuitLabError as error:
            self.context.failed.emit(error)
            return
        self.context.before_export()
        changed = self.context.changed_remarks(self.context.document.recorded)
        capture, engine, runner, views = self.sessions.capture(), self.context.engine, self.context.runner, self._views
        source, stand_ins = "" if self.sessions.path is None else self.sessions.path.name, tuple(self.context.stand_ins.values())

        def work(job: Job) -> _Written:
            ctx = runner.ctx(job)
            with titled(NOT_WRITTEN):
                session = capture.in_window(engine.store, views)
                report = report_of(session, engine, FRONTS, ctx, source, stand_ins=stand_ins, changed=changed)
                refuse_empty(report)
                total = 2 * sum(len(section.figures) for section in report.sections)
                parts = self.drawer.parts(lambda: writer(report, asides, REPORT_PAPER), total, ctx)
                write_whole(path.absolute(), b"".join(parts), named=True)
            return _Written(path, report)

        runner.do(self._slot, f"report {path.name}", work, LANE)

    @Slot(object)
    def _finished(self, written: _Written) -> None:
        lacking = sum(bool(section.lacking) for section in written.report.sections)
        more = f" {number_of(lacking, 'step')} could not be shown whole; it says why." if lacking else ""
        self.context.message.emit(f"Written: {written.path}.{more}")

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        if isinstance(error, Cancelled):
            self.context.message.emit("There is no report: it was cancelled.")
        else:
            self.context.failed.emit(error)

    def stop(self) -> None:
        """Leave the report that is being drawn: the window is closed."""
        self.drawer.stop()


def _suffix(kind: str) -> str:
    """The suffix of a kind of file, as the dialog names it."""
    return next((one.suffix for one in REPORTS if f"*{one.suffix})" in kind), REPORTS[0].suffix)
