"""What to train on what: a recipe, texts with their shares, a folder, and what else can be chosen; checked while it is filled in.

The check reads the recipe and the text on the file thread; its words, or the error's, stand under the fields.
"""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QComboBox, QFileDialog, QFormLayout, QHBoxLayout, QLineEdit, QSpinBox, QWidget

from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.gui.training.job import DEVICES, Checked, TrainingJob, check, in_words
from circuitlab.gui.training.texts import TrainingTexts
from circuitlab.gui.widgets.buttons import push
from circuitlab.gui.widgets.labels import words
from circuitlab.gui.work.bench import Bench
from circuitlab.gui.work.job import Job
from circuitlab.paths import model_dir, shipped_models, shipped_recipes

SLOT = "training-check"
FIRST = "Add the text to train on: files, or folders with .txt, .md and .py files in them."
PAUSE = 300  # ms after the last change before it is checked


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
        self.texts = TrainingTexts(self)
        self.texts.changed.connect(self._moved)
        self._lay_out()
        self.runner.finished.connect(self._finished)
        self.runner.failed.connect(self._failed)
        self._suggest()

    # -- what it is made of -------------------------------------------------------------------------------------------

    def _make_choices(self) -> None:
        self.recipe = QComboBox(self)
        self.recipe.setAccessibleName("Recipe")
        self.recipe.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.recipe.setMinimumContentsLength(24)
        for name, title in shipped_recipes().items():
            self.recipe.addItem(f"{name}: {title}", name)
        self.recipe.currentIndexChanged.connect(self._suggest)
        self.recipe_file = push(self, "Recipe file…", self._browse_recipe)
        self.out = QLineEdit(self)
        self.out.setAccessibleName("Folder of the run")
        self.out.textChanged.connect(self._moved)
        self.out_browse = push(self, "Choose…", self._browse_out)
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
        self.said = words(self)
        self.said.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.said.setMinimumHeight(5 * self.fontMetrics().lineSpacing())

    def _spin(self, name: str, low: int, high: int, value: int, special: str, tip: str) -> QSpinBox:
        made = QSpinBox(self)
        made.setAccessibleName(name)
        made.setRange(low, high)
        made.setValue(value)
        made.setSpecialValueText(special)
        made.setToolTip(tip_of(tip))
        made.valueChanged.connect(self._moved)
        return made

    def _lay_out(self) -> None:
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        form.addRow("Recipe", _row(self.recipe, self.recipe_file, stretch=0))
        form.addRow("Text", self.texts)
        form.addRow("Folder of the run", _row(self.out, self.out_browse, stretch=0))
        form.addRow("Tokenizer", self.tokenizer)
        more = _row(self.seed)
        for name, field in (("Device", self.device), ("Threads", self.threads)):
            more.addSpacing(16)
            more.addWidget(PlainLabel(name, self))
            more.addWidget(field)
        more.addStretch(1)
        form.addRow("Seed", more)
        form.addRow("", self.said)

    # -- what it says -------------------------------------------------------------------------------------------------

    def job(self) -> TrainingJob:
        """What the fields say."""
        return TrainingJob(
            recipe=str(self.recipe.currentData() or ""),
            text=self.texts.texts(),
            out=self.out.text().strip(),
            tokenizer=str(self.tokenizer.currentData() or ""),
            seed=None if self.seed.value() < 0 else self.seed.value(),
            device=self.device.currentText(),
            threads=self.threads.value(),
        )

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
            begun = bool(self.texts.texts())  # nobody is told off before there was anything to do
            self._say(in_words(str(value)) if begun else FIRST, begun)
        elif isinstance(value, Checked) and value.job == self.job():
            self.checked = value
            self._say(value.words(), False)
            self.checked_changed.emit()

    @Slot(str, object)
    def _failed(self, slot: str, error: object) -> None:
        if slot == SLOT and not isinstance(error, Cancelled):
            self._say(reason(error), True)

    def _say(self, said: str, wrong: bool) -> None:
        self.said.setText(said)
        self.said.setProperty("role", "warning" if wrong else "")
        self.said.style().unpolish(self.said)
        self.said.style().polish(self.said)

    @Slot()
    def _browse_recipe(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Choose a recipe", "", "Recipes (*.toml)")
        if path:
            self.choose_recipe(path)

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
