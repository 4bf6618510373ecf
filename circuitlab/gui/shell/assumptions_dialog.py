"""“What was assumed…”: what no file of the model says, why the reader chose what it chose, and how to correct it.

A row is one assumption: a choice or a text, and the reason. “Open again with these” reads the files once more; an error is said
in place, and the model that is open stays. A model that cannot be opened before something is said is asked about here too.
"""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QFormLayout, QHBoxLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from circuitlab.draw.pointing.focus_order import chain_as_read
from circuitlab.engine.store import OpenModel
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.gui.shell.opening import Opening, asked_of
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.form import Field, Form
from circuitlab.gui.widgets.labels import words
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.loading.assumptions import Assumption
from circuitlab.model.subject import ModelRef


def _field(row: Assumption) -> Field:
    choices = {choice: choice for choice in (*row.choices, row.value)} if row.choices else {}
    style = "free" if row.free else ""
    return Field(row.name, row.name.replace("_", " "), choices=choices, placeholder="not said yet", style=style)


class AssumptionsDialog(Dialog):
    """See the module. `fields` are the widgets by the names of the assumptions."""

    def __init__(self, opening: Opening, ref: ModelRef, rows: tuple[Assumption, ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("What was assumed")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.opening, self.runner, self.ref = opening, opening.context.runner, ref
        self._trying = ref
        self._lay_out()
        self.show_rows(rows)
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)
        self.usual = (560, min(160 + 64 * len(rows), 640))

    def _lay_out(self) -> None:
        self.intro = words(self, selectable=False)
        self.said = words(self)
        self.area = QScrollArea(self)
        self.area.setWidgetResizable(True)
        self.area.setAccessibleName("What was assumed")
        self.area.setFrameShape(QScrollArea.Shape.NoFrame)
        self.again = QPushButton("Open again with these", self)
        self.again.clicked.connect(self.open_again)
        self.reset = QPushButton("Forget what was said", self)
        self.reset.setToolTip("Open again as the files are read without a word from you")
        self.reset.clicked.connect(self.open_plain)
        self.shut = QPushButton("Close", self)
        self.shut.clicked.connect(self.close)
        buttons = QHBoxLayout()
        buttons.addWidget(self.reset)
        buttons.addStretch(1)
        for button in (self.shut, self.again):
            buttons.addWidget(button)
        self.primary = self.again
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(12)
        box.addWidget(self.intro)
        box.addWidget(self.area, 1)
        box.addWidget(self.said)
        box.addLayout(buttons)

    def show_rows(self, rows: tuple[Assumption, ...]) -> None:
        """One row an assumption; the fields hold what is assumed now."""
        self._shown = {row.name: row.value for row in rows}
        inside = QWidget(self.area)
        self.form = Form(map(_field, rows), inside)
        self.form.show_values(self._shown)
        self.fields = self.form.widgets
        layout = QFormLayout(inside)
        layout.setContentsMargins(0, 0, 8, 0)
        layout.setHorizontalSpacing(16)
        layout.setVerticalSpacing(4)
        for row in rows:
            field = self.fields[row.name]
            field.setEnabled(row.free or len(row.choices) != 1)
            layout.addRow(row.name.replace("_", " "), field)
            why = words(inside, "caption", selectable=False)
            why.setText(row.why)
            why.setContentsMargins(0, 0, 0, 8)
            layout.addRow("", why)
        self.area.setWidget(inside)
        self.intro.setText(f"No file of {self.ref.name} says the following. It decides what every number means.")
        self.reset.setEnabled(bool(self.ref.assume))
        if self.isVisible():
            chain_as_read(self)

    def values(self) -> dict[str, str]:
        """What stands in the fields."""
        return {name: value.strip() for name, value in self.form.values().items()}

    @Slot()
    def open_again(self) -> None:
        """With what was said before and what is another value now."""
        values = self.values()
        changed = {name: value for name, value in values.items() if value != self._shown[name] and value}
        if not changed:
            self.said.setText("Nothing is changed: these are in force.")
            return
        before = {name: value for name, value in self.ref.assume if name in values}
        self._open(replace(self.ref, assume=tuple(sorted((before | changed).items()))))

    @Slot()
    def open_plain(self) -> None:
        """Without anything said."""
        self._open(replace(self.ref, assume=()))

    def _open(self, ref: ModelRef) -> None:
        self._trying = ref
        self.said.setText(f"Opening {ref.name}…")
        self.again.setEnabled(False)
        self.runner.do(self._slot, f"open {ref.name}", self.opening.reader(ref))

    @Slot(object)
    def _finished(self, value: OpenModel) -> None:
        self.ref = value.ref
        self.opening.adopt(value, None)
        self.show_rows(value.opened.assumptions)
        said = ", ".join(f"{name} {text}" for name, text in value.ref.assume)
        self.said.setText(f"Open, with {said} as you said." if said else "Open, with nothing said.")
        self.again.setEnabled(True)

    @Slot(object)
    def _failed(self, error: object) -> None:
        self.again.setEnabled(True)
        if isinstance(error, CircuitLabError) and (rows := questions(self._trying, error))[len(self._trying.assume) :]:
            self.ref = self._trying  # one thing has been settled, and the next is asked for
            self.show_rows(rows)
        self.said.setText("Cancelled." if isinstance(error, Cancelled) else plain(error))


def plain(error: object) -> str:
    """An error in the words of a window: what a command line would be told to do is a field here."""
    if not isinstance(error, CircuitLabError):
        return reason(error)
    parts = [error.what, f"Expected: {error.expected}" if error.expected else "", f"Got: {error.got}" if error.got else ""]
    return "\n".join(p for p in (*parts, "" if asked_of(error) else error.remedy) if p)


def questions(ref: ModelRef, error: CircuitLabError) -> tuple[Assumption, ...]:
    """What has been said of a model that could not be opened, and what its error asks for, as rows."""
    said = tuple(Assumption(name, value, (), "as you said") for name, value in ref.assume)
    known = {name for name, _ in ref.assume}
    asked = tuple(Assumption(name, "", choices, error.expected) for name, choices in asked_of(error).items() if name not in known)
    return (*said, *asked)
