"""The form of a training job: recipe, texts with their shares, folder and further choices, checked as they are entered.

The check reads the recipe and the text on the file thread; its summary or error is shown below the fields.
"""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QComboBox, QFileDialog, QFormLayout, QHBoxLayout, QLineEdit, QSpinBox, QWidget

from circuitlab.disk.paths import model_dir, shipped_models, shipped_recipes
from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.draw.look.style_rules import set_role
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.gui.training.job import DEVICES, CheckedJob, TrainingJob, check
from circuitlab.gui.training.texts import TrainingTexts
from circuitlab.gui.widgets.buttons import push
from circuitlab.gui.widgets.form import Field, Form
from circuitlab.gui.widgets.labels import paragraph
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.own_process import in_words
from circuitlab.gui.work.work_slot import WorkSlot

FIRST = "Add the text to train on: files, or folders with .txt, .md and .py files in them."
ONE_TOKENIZER = "Models of one tokenizer can be compared token by token"
SEED, SEEDS = -1, 2**31 - 1  # the recipe's own, and the largest
PAUSE = 300  # ms after the last change before it is checked


class TrainingForm(QWidget):
    """The form. `checked_changed()`: `checked` is now the job that can start, or None."""

    checked_changed = Signal()

    def __init__(self, context: AppContext, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.context, self.runner = context, context.runner
        self.checked: CheckedJob | None = None
        self._filled_out = ""
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(PAUSE)
        self._pause.timeout.connect(self.check)
        self._make_widgets()
        self._lay_out()
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)
        self._suggest()

    # -- fields -------------------------------------------------------------------------------------------------

    def _fields(self) -> tuple[Field, ...]:
        tokenizers = {str(file): f"that of {name}" for name in shipped_models() if (file := _tokenizer(name)).is_file()}
        return (
            Field("recipe", "Recipe", choices={name: f"{name}: {title}" for name, title in shipped_recipes().items()}),
            Field("out", "Folder of the run", live=True),
            Field("tokenizer", "Tokenizer", str, ONE_TOKENIZER, {"": "trained on the text"} | tokenizers),
            Field("seed", "Seed", int, "Another seed makes another model", {}, SEED, SEEDS, lowest="the recipe’s", live=True),
            Field("threads", "Threads", int, "One thread gives bit-equal results each time", {}, 1, 256, live=True),
            Field("device", "Device", str, "auto: CUDA where there is one, else the CPU", {name: name for name in DEVICES}),
        )

    def _make_widgets(self) -> None:
        self.fields = Form(self._fields(), self)
        self.fields.show_values({"seed": SEED})
        self.fields.changed.connect(self._field_changed)
        self.recipe: QComboBox = self.fields.widgets["recipe"]
        self.recipe.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.recipe.setMinimumContentsLength(24)
        self.recipe_file = push(self, "Recipe file…", self._browse_recipe)
        self.out: QLineEdit = self.fields.widgets["out"]
        self.out_browse = push(self, "Choose…", self._browse_out)
        self.seed: QSpinBox = self.fields.widgets["seed"]
        self.texts = TrainingTexts(self)
        self.texts.changed.connect(self._schedule_check)
        self.message = paragraph(self)
        self.message.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.message.setMinimumHeight(5 * self.fontMetrics().lineSpacing())

    def _lay_out(self) -> None:
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        form.addRow("Recipe", _row(self.recipe, self.recipe_file, stretch=0))
        form.addRow("Text", self.texts)
        form.addRow("Folder of the run", _row(self.out, self.out_browse, stretch=0))
        form.addRow("Tokenizer", self.fields.widgets["tokenizer"])
        more = _row(self.seed)
        for label, name in (("Device", "device"), ("Threads", "threads")):
            more.addSpacing(16)
            more.addWidget(PlainLabel(label, self))
            more.addWidget(self.fields.widgets[name])
        more.addStretch(1)
        form.addRow("Seed", more)
        form.addRow("", self.message)

    # -- values ------------------------------------------------------------------------------------------------------

    def job(self) -> TrainingJob:
        """The job that the fields describe."""
        values = self.fields.values()
        seed = None if values["seed"] == SEED else values["seed"]
        return TrainingJob(text=self.texts.texts(), **(values | {"out": values["out"].strip(), "seed": seed}))

    def show_job(self, job: TrainingJob) -> None:
        """Fill the fields in as they were, and check them."""
        self.choose_recipe(job.recipe)
        seed = SEED if job.seed is None else job.seed
        self.fields.show_values(
            {"out": job.out, "tokenizer": job.tokenizer, "seed": seed, "threads": job.threads, "device": job.device}
        )
        for name, share in job.text:
            self.texts.add(name, share)
        self._schedule_check()

    def choose_recipe(self, path: str) -> None:
        """Select a recipe: a file, or a shipped recipe by its name."""
        index = self.recipe.findData(path)
        if index < 0:
            self.recipe.addItem(f"{Path(path).name}: a file of {Path(path).parent}", path)
            index = self.recipe.count() - 1
        self.recipe.setCurrentIndex(index)

    # -- checking ----------------------------------------------------------------------------------------------------

    @Slot()
    def check(self) -> None:
        """Check the job on the file thread; only the newest check counts."""
        job = self.job()

        def work(_: Job) -> CheckedJob | CircuitLabError:
            try:
                return check(job)
            except CircuitLabError as error:  # incomplete input is expected here and is not logged
                return error

        self.runner.do(self._slot, "check the training job", work)

    @Slot()
    def _schedule_check(self) -> None:
        if self.checked is not None:
            self.checked = None
            self.checked_changed.emit()
        self._pause.start()

    @Slot(str)
    def _field_changed(self, name: str) -> None:
        if name == "recipe":
            self._suggest()
        else:
            self._schedule_check()

    def _suggest(self) -> None:
        """Suggest a folder named after the recipe, unless the user has chosen one."""
        if self.out.text() == self._filled_out:
            self._filled_out = str(Path.home() / "circuitlab-runs" / Path(str(self.recipe.currentData() or "run")).stem)
            self.out.setText(self._filled_out)
        self._schedule_check()

    def leave(self) -> None:
        """Cancel the pending check: the dialog is closed."""
        self._pause.stop()

    @Slot(object)
    def _finished(self, value: object) -> None:
        if isinstance(value, CircuitLabError):
            begun = bool(self.texts.texts())  # no warning before anything has been entered
            self._show_message(in_words(str(value)) if begun else FIRST, begun)
        elif isinstance(value, CheckedJob) and value.job == self.job():
            self.checked = value
            self._show_message(value.words(), False)
            self.checked_changed.emit()

    @Slot(object)
    def _failed(self, error: object) -> None:
        if not isinstance(error, Cancelled):
            self._show_message(reason(error), True)

    def _show_message(self, text: str, wrong: bool) -> None:
        self.message.setText(text)
        set_role(self.message, "warning" if wrong else "")

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


def _tokenizer(model: str) -> Path:
    return model_dir(model) / "tokenizer.json"


def _row(*widgets: QWidget, stretch: int = -1) -> QHBoxLayout:
    """Widgets side by side; the one at `stretch` takes what is left."""
    row = QHBoxLayout()
    row.setSpacing(8)
    for i, widget in enumerate(widgets):
        row.addWidget(widget, 1 if i == stretch else 0)
    return row
