"""The table of a sweep, drawn: values along the training, or in each prompt. What is drawn is what stands in its files.

One page serves both, and is a dialog of its own rather than a page of the panels *Training* and *Prompt sets*: these draw answers
of the State, with its model, its prompt and its reference; a folder of tables is none of that, and has models of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QUrl, Slot
from PySide6.QtGui import QCloseEvent, QDesktopServices
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.figures.marks import Figure, empty
from circuitlab.gui.pictures.picture_export import PictureExport
from circuitlab.gui.sweeping.pictures import along_figure, prompts_figure
from circuitlab.gui.widgets.buttons import push
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.form import Field, Form
from circuitlab.gui.widgets.labels import ShortLabel
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.own_process import in_words
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.sweep.reading import Chosen, SweepTable

ALONG, BY_PROMPT = "along the training", "by prompt"
READING = "The tables are being read."


T = TypeVar("T")


class SweepTableDialog(Dialog):
    """The tables in a folder. They are read on the file thread; *Read again* reads what a running sweep has written since."""

    usual = (900, 680)

    def __init__(self, folder: Path, context: AppContext, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(f"Sweep: {folder.name}")
        self.context, self.folder = context, folder
        self.table: SweepTable | None = None
        self.view = FigureView(parent=self)
        self.pictures = PictureExport(self.view, context, self, folder.name, self.subject)
        self.where = ShortLabel(self, "caption", fills=True)
        self.where.setText(str(folder))
        self.again = push(self, "Read again", self.read)
        self.show_folder = push(self, "Show folder", self._show_folder)
        self.copy = push(self, "Copy image", self.pictures.copy)
        self.export = push(self, "Export picture…", self.pictures.ask)
        self.shut = push(self, "Close", self.close)
        self._choice = QHBoxLayout()
        self.form: Form | None = None
        self._lay_out()
        self._show(empty(READING, ""))
        self._tables = WorkSlot(self, finished=self._read, failed=self._failed)
        self._figure = WorkSlot(self, finished=self._drawn, failed=self._failed)
        context.theme_changed.connect(self.view.set_theme)
        self.view.set_theme(context.theme)
        self.read()

    def _lay_out(self) -> None:
        buttons = QHBoxLayout()
        buttons.addWidget(self.again)
        buttons.addWidget(self.show_folder)
        buttons.addWidget(self.copy)
        buttons.addWidget(self.export)
        buttons.addStretch(1)
        buttons.addWidget(self.shut)
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(8)
        box.addWidget(self.where)
        self._choice.setSpacing(8)
        box.addLayout(self._choice)
        box.addWidget(self.view, 1)
        box.addLayout(buttons)

    def subject(self) -> str:
        """What the figure shows, in words: the sweep, and what is chosen of it."""
        chosen = "" if self.form is None else Chosen(*self.form.value("chosen")).words()
        return ", ".join(filter(None, (f"sweep {self.folder.name}", chosen)))

    def _show(self, figure: Figure) -> None:
        self.view.show_figure(figure)
        for button in (self.copy, self.export):
            button.setEnabled(bool(figure.grid))

    @Slot()
    def read(self) -> None:
        """Read the tables, on the file thread."""
        folder = self.folder
        self.context.runner.do(self._tables, f"read the tables of {folder.name}", lambda job: _told(lambda: SweepTable(folder)))

    @Slot(object)
    def _read(self, value: object) -> None:
        if isinstance(value, CircuitLabError):
            self._show(empty(" ".join(in_words(str(value)).split("\n")), ""))
            return
        assert isinstance(value, SweepTable)
        self.table = value
        if not value.choices:
            self._show(empty("No cell of this sweep has a number yet.", ""))
            return
        if self.form is None:
            self._offer(value)
        self.draw()

    def _offer(self, table: SweepTable) -> None:
        """The fields by which one chooses what is drawn."""
        steps = {step: f"step {int(step):,}" if step else "final weights" for step in table.steps()}
        choices = {chosen: chosen.words() for chosen in table.choices}
        fields = (
            Field("chosen", "Show", choices=choices),
            Field("page", "Page", choices={ALONG: ALONG, BY_PROMPT: BY_PROMPT}),
            Field("step", "Step", choices=steps, tip="Of the table of means, and of the values by prompt"),
        )
        self.form = Form(fields, self)
        for field in fields:
            self._choice.addWidget(PlainLabel(field.label, self))
            self._choice.addWidget(self.form.widgets[field.name])
        self._choice.addStretch(1)
        along = len([step for step in steps if step]) > 1
        self.form.show_values({"step": table.steps()[-1], "page": ALONG if along else BY_PROMPT})
        self.form.changed.connect(self.draw)

    @Slot()
    def draw(self, *_: object) -> None:
        """Draw what is chosen; the tables are searched on the file thread."""
        if self.table is None or self.form is None:
            return
        values, table = self.form.values(), self.table
        chosen, step, page = Chosen(*values["chosen"]), values["step"], values["page"]

        def work(job: Job) -> Figure | CircuitLabError:
            if page == ALONG:
                return _told(lambda: along_figure(table, chosen, table.along_training(chosen), step))
            return _told(lambda: prompts_figure(table, chosen, table.by_prompt(chosen, step), step))

        self.context.runner.do(self._figure, f"draw {chosen.words()}", work)

    @Slot(object)
    def _drawn(self, figure: object) -> None:
        if isinstance(figure, Figure):
            self._show(figure)
        else:
            self._show(empty(" ".join(in_words(str(figure)).split("\n")), ""))

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, Cancelled):
            self._show(empty(reason(error), ""))

    @Slot()
    def _show_folder(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(self.folder)))

    def closeEvent(self, event: QCloseEvent) -> None:
        """Nobody waits for a figure any more."""
        for slot in (self._tables, self._figure):
            self.context.runner.cancel_slot(slot)
        super().closeEvent(event)


def _told(work: Callable[[], T]) -> T | CircuitLabError:
    """What the work gives, or its error where it is one that a person can meet: it is expected here and is not logged."""
    try:
        return work()
    except CircuitLabError as error:
        return error
