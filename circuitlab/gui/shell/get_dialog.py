"""“Get checkpoints…”: what is fetched, from where and to where; then its progress, with stop and resume; or from a file."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QComboBox, QFileDialog, QFormLayout, QHBoxLayout, QProgressBar, QVBoxLayout, QWidget

from circuitlab.errors import Cancelled
from circuitlab.gui.widgets.buttons import push
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.labels import paragraph
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.archives.getting import Outcome, Progress, get, part_of
from circuitlab.model.archives.index import Archive, size_words
from circuitlab.model.archives.offering import all_obtainable, reloaded

RESUMES = "Download goes on from there."


def _about(archive: Archive) -> tuple[str, str, str]:
    """What is fetched, from where, to where."""
    source = (
        f"They come from {archive.address}."
        if archive.url
        else f"No address is known from which this version could fetch them: take the file {archive.zip.name} from where"
        " CircuitLab came from."
    )
    place = f"They go to {from_home(archive.fetched_folder.parent)}, are verified, and come to the slider together."
    return f"Its training: {archive.words}.", source, place


def from_home(path: Path) -> str:
    """A path as it is read: from home where it is there."""
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


class GetDialog(Dialog):
    """The dialog. `got()`: checkpoints are here that were not, and models that are open know of them.

    Closed, it is only hidden, and what it does goes on; it is listed in the Jobs panel.
    """

    usual = (560, 0)
    got = Signal()

    def __init__(self, context: AppContext, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Get checkpoints")
        self.runner, self.store = context.runner, context.engine.store
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)
        self._make()
        self._lay_out()
        self.runner.jobs_changed.connect(self._show_progress)
        self._refresh()

    def _make(self) -> None:
        self.models = QComboBox(self)
        self.models.setAccessibleName("Model")
        self.models.currentIndexChanged.connect(self._chosen)
        self.about = paragraph(self)
        self.status = paragraph(self)
        self.status.setMinimumHeight(4 * self.fontMetrics().lineSpacing())
        self.status.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.bar = QProgressBar(self)
        self.bar.setRange(0, 1000)
        self.bar.setTextVisible(False)
        self.shut = push(self, "Close", self.close)
        self.stop = push(self, "Stop", self.cancel)
        self.file = push(self, "From a file…", self.ask_file)
        self.download = push(self, "Download", self.fetch)

    def _lay_out(self) -> None:
        form = QFormLayout()
        form.setHorizontalSpacing(16)
        form.addRow("Model", self.models)
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        for button in (self.shut, self.stop, self.file, self.download):
            buttons.addWidget(button)
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(12)
        box.addLayout(form)
        for widget in (self.about, self.bar, self.status):
            box.addWidget(widget)
        box.addLayout(buttons)

    # -- which --------------------------------------------------------------------------------------------------------

    def offer(self, archive: Archive | None) -> None:
        """List the models whose checkpoints are lacking, with this one chosen, unless some are being got now."""
        if not self.busy:
            before = archive or self.archive
            self.models.blockSignals(True)
            self.models.clear()
            for one in all_obtainable():
                self.models.addItem(one.model, one)
            self.models.setCurrentIndex(max(0, self.models.findText(before.model if before is not None else "")))
            self.models.blockSignals(False)
            self._chosen()

    @property
    def archive(self) -> Archive | None:
        """The archive that is chosen."""
        return self.models.currentData()

    @Slot()
    def _chosen(self) -> None:
        archive = self.archive
        self.status.setText("")
        self.about.setText("" if archive is None else "\n\n".join(_about(archive)))
        self.primary = self.download if archive is not None and archive.url else self.file
        self._refresh()

    @property
    def busy(self) -> bool:
        """Whether it is getting some now."""
        return self.runner.is_busy(self._slot)

    # -- getting ------------------------------------------------------------------------------------------------------

    @Slot()
    def fetch(self) -> None:
        """Download them, from where an earlier attempt stopped."""
        self._get("")

    @Slot()
    def ask_file(self) -> None:
        """Ask for the archive's file, and take them from it."""
        if self.archive is None:
            return
        name = self.archive.zip.name
        path, _ = QFileDialog.getOpenFileName(self, f"Where is {name}?", name, "Archives (*.zip);;All files (*)")
        if path:
            self._get(path)

    @Slot()
    def cancel(self) -> None:
        """Stop; what has been downloaded stays for the next attempt."""
        self.runner.cancel_slot(self._slot)
        self._refresh()

    def _get(self, source: str) -> None:
        archive, store = self.archive, self.store
        if archive is None:
            return

        def work(job: Job) -> Outcome:
            def report(progress: Progress) -> None:
                share = 1000 * progress.done // max(1, progress.total)
                self.runner.report_progress(job, share, 1000, f"{progress.file}: {progress}")

            outcome = get(archive, source, report, job.cancelled.is_set)
            reloaded(archive, store.sources, store.reload)
            return outcome

        self.status.setText("")
        self.runner.do(self._slot, f"get the checkpoints of {archive.model}", work, "net")
        self._refresh()

    # -- answers ------------------------------------------------------------------------------------------------------

    @Slot(object)
    def _finished(self, outcome: Outcome) -> None:
        self.status.setText("")
        self._refresh()
        self.got.emit()
        self.accept()

    @Slot(object)
    def _failed(self, error: object) -> None:
        part = None if self.archive is None else part_of(self.archive)
        kept = "" if part is None or not part.is_file() else f" {size_words(part.stat().st_size)} are kept, and {RESUMES}"
        self.status.setText(f"Stopped.{kept}" if isinstance(error, Cancelled) else str(error))
        self._refresh()

    @Slot()
    def _show_progress(self) -> None:
        job = self.runner.job_of(self._slot)
        if job is not None and job.total and self.isVisible():
            self.bar.setValue(job.done)
            self.status.setText("Stopping…" if job.cancelled.is_set() else job.text)

    def _refresh(self) -> None:
        busy = self.busy
        self.models.setEnabled(not busy)
        self.download.setEnabled(self.archive is not None and bool(self.archive.url) and not busy)
        self.file.setEnabled(self.archive is not None and not busy)
        self.stop.setEnabled(busy)
        self.bar.setVisible(busy)
