"""A dialog that fetches something: progress, Stop and Close, a file instead of the network; the next attempt goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from circuitlab.errors import Cancelled
from circuitlab.gui.widgets.buttons import push
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.labels import paragraph
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.archives.getting import Progress
from circuitlab.model.archives.index import size_words

RESUMES = "Download goes on from there."
_SHARES = 1000


def from_home(path: Path) -> str:
    """A path as it is read: from home where it is there."""
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


class FetchDialog(Dialog):
    """What dialogs that fetch share. One of them makes its choices, and then calls `lay_out`.

    Closed, it is only hidden, and what it does goes on; it is listed in the Jobs panel.
    """

    def __init__(self, context: AppContext, title: str, button: str, parent: QWidget | None) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self.runner = context.runner
        self.slot = WorkSlot(self, finished=self._finished, failed=self._failed)
        self.about, self.status = paragraph(self), paragraph(self)
        self.status.setMinimumHeight(4 * self.fontMetrics().lineSpacing())
        self.status.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.bar = QProgressBar(self)
        self.bar.setRange(0, _SHARES)
        self.bar.setTextVisible(False)
        self.shut = push(self, "Close", self.close)
        self.stop = push(self, "Stop", self.cancel)
        self.file: QPushButton = push(self, "From a file…", self.ask_file)
        self.go: QPushButton = push(self, button, self.get)
        self.runner.jobs_changed.connect(self._show_progress)

    def lay_out(self, *parts: QWidget | QLayout) -> None:
        """The choices and what is said of them, then progress and buttons."""
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        for button in (self.shut, self.stop, self.file, self.go):
            buttons.addWidget(button)
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(12)
        for part in (*parts, self.bar, self.status, buttons):
            box.addWidget(part) if isinstance(part, QWidget) else box.addLayout(part)

    @property
    def busy(self) -> bool:
        """Whether something is being fetched now."""
        return self.runner.is_busy(self.slot)

    @Slot()
    def get(self) -> None:
        """Fetch what is chosen, from where an earlier attempt stopped."""
        raise NotImplementedError

    @Slot()
    def ask_file(self) -> None:
        """Ask for a file that has it, and take it from there."""
        raise NotImplementedError

    def ask_for(self, name: str, kinds: str) -> str:
        """The path of a file of this name, wherever a person has it; "" for none."""
        return QFileDialog.getOpenFileName(self, f"Where is {name}?", name, f"{kinds};;All files (*)")[0]

    @Slot()
    def cancel(self) -> None:
        """Stop; what has been downloaded stays for the next attempt."""
        self.runner.cancel_slot(self.slot)
        self.refresh()

    def fetch(self, title: str, work: Callable[[Job, Callable[[Progress], None]], object]) -> None:
        """Run `work` with a function that takes its progress; what it returns comes to `arrived`."""

        def job_of(job: Job) -> object:
            def report(progress: Progress) -> None:
                share = _SHARES * progress.done // max(1, progress.total)
                self.runner.report_progress(job, share, _SHARES, f"{progress.file}: {progress}")

            return work(job, report)

        self.bar.setValue(0)
        self.status.setText("")
        self.runner.do(self.slot, title, job_of, "net")
        self.refresh()

    def arrived(self, value: object) -> None:
        """What was fetched is here."""
        raise NotImplementedError

    def kept(self) -> int:
        """Bytes that an attempt which has just ended leaves for the next one."""
        raise NotImplementedError

    def stopped(self, kept: str) -> str:
        """What is said when it was stopped, `kept` what is there of it in words, "" for nothing."""
        return f"Stopped. {kept} are kept, and {RESUMES}" if kept else "Stopped."

    def why(self, error: object) -> str:
        """What is said of a failure."""
        return str(error)

    def refresh(self) -> None:
        """Enable what can be done now."""
        self.stop.setEnabled(self.busy)
        self.bar.setVisible(self.busy)

    @Slot(object)
    def _finished(self, value: object) -> None:
        self.arrived(value)

    @Slot(object)
    def _failed(self, error: object) -> None:
        self.refresh()
        have = self.kept()
        self.status.setText(self.stopped(size_words(have) if have else "") if isinstance(error, Cancelled) else self.why(error))

    @Slot()
    def _show_progress(self) -> None:
        job = self.runner.job_of(self.slot)
        if job is not None and job.total and self.isVisible():
            self.bar.setValue(job.done)
            self.status.setText("Stopping…" if job.cancelled.is_set() else job.text)
