"""“Get checkpoints…”: what is fetched, from where and to where; then its progress, with stop and resume; or from a file."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QComboBox, QFormLayout, QWidget

from circuitlab.gui.shell.fetch_dialog import FetchDialog, from_home
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.model.archives.getting import Progress, get, part_of
from circuitlab.model.archives.index import Archive
from circuitlab.model.archives.offering import all_obtainable, reloaded


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


class GetDialog(FetchDialog):
    """The dialog. `got()`: checkpoints are here that were not, and models that are open know of them."""

    usual = (560, 0)
    got = Signal()

    def __init__(self, context: AppContext, parent: QWidget | None = None) -> None:
        super().__init__(context, "Get checkpoints", "Download", parent)
        self.store = context.engine.store
        self.models = QComboBox(self)
        self.models.setAccessibleName("Model")
        self.models.currentIndexChanged.connect(self._chosen)
        form = QFormLayout()
        form.setHorizontalSpacing(16)
        form.addRow("Model", self.models)
        self.lay_out(form, self.about)
        self.refresh()

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
        self.primary = self.go if archive is not None and archive.url else self.file
        self.refresh()

    # -- getting ------------------------------------------------------------------------------------------------------

    @Slot()
    def get(self) -> None:
        """Download them, from where an earlier attempt stopped."""
        self._get("")

    @Slot()
    def ask_file(self) -> None:
        """Ask for the archive's file, and take them from it."""
        if self.archive is not None and (path := self.ask_for(self.archive.zip.name, "Archives (*.zip)")):
            self._get(path)

    def _get(self, source: str) -> None:
        archive, store = self.archive, self.store
        if archive is None:
            return

        def work(job: Job, report: Callable[[Progress], None]) -> None:
            get(archive, source, report, job.cancelled.is_set)
            reloaded(archive, store.sources, store.reload)

        self.fetch(f"get the checkpoints of {archive.model}", work)

    def arrived(self, value: object) -> None:
        """Say so, and close."""
        self.status.setText("")
        self.refresh()
        self.got.emit()
        self.accept()

    def kept(self) -> int:
        """Of the archive that is chosen."""
        part = None if self.archive is None else part_of(self.archive)
        return part.stat().st_size if part is not None and part.is_file() else 0

    def refresh(self) -> None:
        """Enable what can be done now."""
        super().refresh()
        busy = self.busy
        self.models.setEnabled(not busy)
        self.go.setEnabled(self.archive is not None and bool(self.archive.url) and not busy)
        self.file.setEnabled(self.archive is not None and not busy)
