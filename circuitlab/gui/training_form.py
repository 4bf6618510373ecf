"""What to train on what: a recipe, texts with their shares, a folder, and what else can be chosen; checked while it is filled in.

The check reads the recipe and the text on the file thread; its words, or the error's, stand under the fields.
"""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import (
    QComboBox,
    QFileDialog,
    QFormLayout,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QLineEdit,
    QPushButton,
    QSpinBox,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)

from circuitlab.errors import Cancelled, CircuitLabError
from circuitlab.gui.bench import Bench
from circuitlab.gui.runner import Job
from circuitlab.gui.training_job import DEVICES, Checked, TrainingJob, check, in_words
from circuitlab.paths import model_dir, shipped_models
from circuitlab.training.recipe_titles import shipped_titles

SLOT = "training-check"
FIRST = "Add the text to train on: files, or folders with .txt, .md and .py files in them."
PAUSE = 300  # ms after the last change before it is checked
SHOWN = 5  # texts that are seen at once, at the least
LIBRARY = "stdlib"
LIBRARY_WORDS = "Python’s standard library"
TEXTS = "Text (*.txt *.md *.py);;All files (*)"


class TrainingForm(QWidget):
    """See the module. `checked_changed()`: `checked` is now the job that can start, or None."""

    checked_changed = Signal()

    def __init__(self, bench: Bench, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.bench, self.runner = bench, bench.runner
        self.checked: Checked | None = None
        self._filled_out = ""
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(PAUSE)
        self._pause.timeout.connect(self.check)
        self._make_choices()
        self._make_text()
        self._lay_out()
        self.runner.finished.connect(self._finished)
        self.runner.failed.connect(self._failed)
        self._suggest()

    # -- what it is made of -------------------------------------------------------------------------------------------

    def _make_choices(self) -> None:
        self.recipe = QComboBox(self)
        self.recipe.setAccessibleName("Recipe")
        for name, title in shipped_titles().items():
            self.recipe.addItem(f"{name}: {title}", name)
        self.recipe.currentIndexChanged.connect(self._suggest)
        self.recipe_file = self._button("Recipe file…", self._browse_recipe)
        self.out = QLineEdit(self)
        self.out.setAccessibleName("Folder of the run")
        self.out.textChanged.connect(self._moved)
        self.out_browse = self._button("Choose…", self._browse_out)
        self.tokenizer = QComboBox(self)
        self.tokenizer.setAccessibleName("Tokenizer")
        self.tokenizer.setToolTip("Models of one tokenizer can be compared token by token")
        self.tokenizer.addItem("trained on the text", "")
        for name in shipped_models():
            if (file := model_dir(name) / "tokenizer.json").is_file():
                self.tokenizer.addItem(f"that of {name}", str(file))
        self.tokenizer.currentIndexChanged.connect(self._moved)
        self.seed = self._spin("Seed", -1, 2**31 - 1, -1, "the recipe’s", "Another seed makes another model")
        self.threads = self._spin("Threads", 1, 256, 1, "", "One thread gives bit-equal results each time")
        self.device = QComboBox(self)
        self.device.setAccessibleName("Device")
        self.device.addItems(DEVICES)
        self.device.setToolTip("auto: CUDA where there is one, else the CPU")
        self.device.currentIndexChanged.connect(self._moved)
        self.said = QLabel(self)
        self.said.setTextFormat(Qt.TextFormat.PlainText)
        self.said.setWordWrap(True)
        self.said.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.said.setMinimumHeight(5 * self.fontMetrics().lineSpacing())
        self.said.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)

    def _spin(self, name: str, low: int, high: int, value: int, special: str, tip: str) -> QSpinBox:
        made = QSpinBox(self)
        made.setAccessibleName(name)
        made.setRange(low, high)
        made.setValue(value)
        made.setSpecialValueText(special)
        made.setToolTip(tip)
        made.valueChanged.connect(self._moved)
        return made

    def _button(self, text: str, slot: object) -> QPushButton:
        made = QPushButton(text, self)
        made.setAutoDefault(False)
        made.clicked.connect(slot)  # type: ignore[arg-type]
        return made

    def _make_text(self) -> None:
        self.text = QTableWidget(0, 2, self)
        self.text.setAccessibleName("Texts")
        self.text.setHorizontalHeaderLabels(["text", "share"])
        shares = self.text.horizontalHeaderItem(1)
        assert shares is not None
        shares.setToolTip("Part of the training sequences, 0 to 1; empty: an equal part of what the others leave")
        self.text.verticalHeader().setVisible(False)
        self.text.setSelectionBehavior(QTableWidget.SelectionBehavior.SelectRows)
        self.text.setShowGrid(False)
        header = self.text.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        header.setSectionResizeMode(1, QHeaderView.ResizeMode.Fixed)
        header.resizeSection(1, 72)
        header.setHighlightSections(False)
        for i, left in ((0, Qt.AlignmentFlag.AlignLeft), (1, Qt.AlignmentFlag.AlignRight)):
            item = self.text.horizontalHeaderItem(i)
            assert item is not None
            item.setTextAlignment(left | Qt.AlignmentFlag.AlignVCenter)
        self.text.verticalHeader().setDefaultSectionSize(24)
        self.text.setMinimumHeight(SHOWN * 24 + 34)
        self.text.itemChanged.connect(self._moved)
        self.add_files = self._button("Files…", self._browse_files)
        self.add_folder = self._button("Folder…", self._browse_folder)
        self.add_library = self._button("Python’s library", self._add_library)
        self.remove = self._button("Remove", self._remove)

    def _lay_out(self) -> None:
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        form.addRow("Recipe", _row(self.recipe, self.recipe_file, stretch=0))
        side = QVBoxLayout()
        side.setSpacing(6)
        for button in (self.add_files, self.add_folder, self.add_library, self.remove):
            side.addWidget(button)
        side.addStretch(1)
        texts = QHBoxLayout()
        texts.setSpacing(8)
        texts.addWidget(self.text, 1)
        texts.addLayout(side)
        form.addRow("Text", texts)
        form.addRow("Folder of the run", _row(self.out, self.out_browse, stretch=0))
        form.addRow("Tokenizer", self.tokenizer)
        more = _row(self.seed)
        for name, field in (("Device", self.device), ("Threads", self.threads)):
            more.addSpacing(16)
            more.addWidget(QLabel(name, self))
            more.addWidget(field)
        more.addStretch(1)
        form.addRow("Seed", more)
        form.addRow("", self.said)

    # -- what it says -------------------------------------------------------------------------------------------------

    def job(self) -> TrainingJob:
        """What the fields say."""
        rows = range(self.text.rowCount())
        cell = lambda row, column: item.text().strip() if (item := self.text.item(row, column)) is not None else ""
        name = lambda row: LIBRARY if cell(row, 0) == LIBRARY_WORDS else cell(row, 0)
        return TrainingJob(
            recipe=str(self.recipe.currentData() or ""),
            text=tuple((name(row), cell(row, 1)) for row in rows),
            out=self.out.text().strip(),
            tokenizer=str(self.tokenizer.currentData() or ""),
            seed=None if self.seed.value() < 0 else self.seed.value(),
            device=self.device.currentText(),
            threads=self.threads.value(),
        )

    def add_text(self, name: str, share: str = "") -> None:
        """One more text, each only once."""
        name = LIBRARY_WORDS if name == LIBRARY else name
        if self.text.findItems(name, Qt.MatchFlag.MatchExactly):
            return
        self.text.blockSignals(True)
        row = self.text.rowCount()
        self.text.insertRow(row)
        path, part = QTableWidgetItem(name), QTableWidgetItem(share)
        path.setFlags(path.flags() & ~Qt.ItemFlag.ItemIsEditable)
        path.setToolTip(name)
        part.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.text.setItem(row, 0, path)
        self.text.setItem(row, 1, part)
        self.text.blockSignals(False)
        self._moved()

    def choose_recipe(self, path: str) -> None:
        """A recipe of one's own, or a shipped one by its name."""
        at = self.recipe.findData(path)
        if at < 0:
            self.recipe.addItem(f"{Path(path).name}: a file of {Path(path).parent}", path)
            at = self.recipe.count() - 1
        self.recipe.setCurrentIndex(at)

    # -- what it does -------------------------------------------------------------------------------------------------

    @Slot()
    def check(self) -> None:
        """On the file thread; the newest wish wins."""
        job = self.job()

        def work(_: Job) -> Checked | CircuitLabError:
            try:
                return check(job)
            except CircuitLabError as error:  # an answer to a question, not a fault to be logged
                return error

        self.runner.do(SLOT, "check what is to be trained", work)

    @Slot()
    def _moved(self, *_: object) -> None:
        if self.checked is not None:
            self.checked = None
            self.checked_changed.emit()
        self._pause.start()

    @Slot()
    def _suggest(self, *_: object) -> None:
        """A folder of the recipe's name, where the person has not chosen one."""
        if self.out.text() == self._filled_out:
            self._filled_out = str(Path.home() / "circuitlab-runs" / Path(str(self.recipe.currentData() or "run")).stem)
            self.out.setText(self._filled_out)
        self._moved()

    def leave(self) -> None:
        """Nobody looks any more."""
        self._pause.stop()

    @Slot(str, object)
    def _finished(self, slot: str, value: object) -> None:
        if slot != SLOT:
            return
        if isinstance(value, CircuitLabError):
            begun = bool(self.text.rowCount())  # nobody is told off before there was anything to do
            self._say(in_words(str(value)) if begun else FIRST, begun)
        elif isinstance(value, Checked) and value.job == self.job():
            self.checked = value
            self._say(value.words(), False)
            self.checked_changed.emit()

    @Slot(str, object)
    def _failed(self, slot: str, error: object) -> None:
        if slot == SLOT and not isinstance(error, Cancelled):
            self._say(f"{type(error).__name__}: {error}", True)

    def _say(self, words: str, wrong: bool) -> None:
        self.said.setText(words)
        self.said.setProperty("role", "warning" if wrong else "")
        self.said.style().unpolish(self.said)
        self.said.style().polish(self.said)

    @Slot()
    def _browse_recipe(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Choose a recipe", "", "Recipes (*.toml)")
        if path:
            self.choose_recipe(path)

    @Slot()
    def _browse_files(self) -> None:
        paths, _ = QFileDialog.getOpenFileNames(self, "Add texts", "", TEXTS)
        for path in paths:
            self.add_text(path)

    @Slot()
    def _browse_folder(self) -> None:
        path = QFileDialog.getExistingDirectory(self, "Add a folder: its .txt, .md and .py files")
        if path:
            self.add_text(path)

    @Slot()
    def _add_library(self) -> None:
        self.add_text(LIBRARY)

    @Slot()
    def _remove(self) -> None:
        rows = sorted({index.row() for index in self.text.selectedIndexes()}, reverse=True)
        for row in rows or ([self.text.rowCount() - 1] if self.text.rowCount() else []):
            self.text.removeRow(row)
        self._moved()

    @Slot()
    def _browse_out(self) -> None:
        path = QFileDialog.getExistingDirectory(self, "Folder of the run", str(Path(self.out.text()).parent))
        if path:
            self.out.setText(path)


def _row(*widgets: QWidget, stretch: int = -1) -> QHBoxLayout:
    """Widgets side by side; the one at `stretch` takes what is left."""
    made = QHBoxLayout()
    made.setSpacing(8)
    for i, widget in enumerate(widgets):
        made.addWidget(widget, 1 if i == stretch else 0)
    return made
