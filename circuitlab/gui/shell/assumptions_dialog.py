"""“What was assumed…”: what no file of the model states, why the loader chose its value, and how to correct it.

A row is one assumption: a choice or a text, and the reason. “Open again with these” reads the files once more; an error is shown
in place, and the open model stays. A model that cannot be opened without such a choice opens this dialog too.
"""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QFormLayout, QHBoxLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from circuitlab.draw.pointing.focus_order import chain_as_read
from circuitlab.engine.store import OpenModel
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.gui.shell.opening import Opening, assumptions_asked
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.form import Field, Form
from circuitlab.gui.widgets.labels import paragraph
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.loading.assumptions import YOUR_CHOICE, Assumption
from circuitlab.model.subject import ModelRef


def _field(row: Assumption) -> Field:
    choices = {choice: choice for choice in (*row.choices, row.value)} if row.choices else {}
    style = "free" if row.free else ""
    return Field(row.name, row.name.replace("_", " "), choices=choices, placeholder="not given yet", style=style)


class AssumptionsDialog(Dialog):
    """See the module. `fields` are the widgets by the names of the assumptions."""

    def __init__(self, opening: Opening, ref: ModelRef, rows: tuple[Assumption, ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("What was assumed")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.opening, self.runner, self.ref = opening, opening.context.runner, ref
        self._requested_ref = ref  # the model as last requested, open or not
        self._lay_out()
        self.show_rows(rows)
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)
        self.usual = (560, min(160 + 64 * len(rows), 640))

    def _lay_out(self) -> None:
        self.intro = paragraph(self, selectable=False)
        self.message = paragraph(self)
        self.area = QScrollArea(self)
        self.area.setWidgetResizable(True)
        self.area.setAccessibleName("What was assumed")
        self.area.setFrameShape(QScrollArea.Shape.NoFrame)
        self.again = QPushButton("Open again with these", self)
        self.again.clicked.connect(self.open_again)
        self.reset = QPushButton("Discard my choices", self)
        self.reset.setToolTip("Open again without any of your choices")
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
        box.addWidget(self.message)
        box.addLayout(buttons)

    def show_rows(self, rows: tuple[Assumption, ...]) -> None:
        """One row per assumption; the fields show the present values."""
        self._present_values = {row.name: row.value for row in rows}
        inside = QWidget(self.area)
        self.form = Form(map(_field, rows), inside)
        self.form.show_values(self._present_values)
        self.fields = self.form.widgets
        layout = QFormLayout(inside)
        layout.setContentsMargins(0, 0, 8, 0)
        layout.setHorizontalSpacing(16)
        layout.setVerticalSpacing(4)
        for row in rows:
            field = self.fields[row.name]
            field.setEnabled(row.free or len(row.choices) != 1)
            layout.addRow(row.name.replace("_", " "), field)
            reason_label = paragraph(inside, "caption", selectable=False)
            reason_label.setText(row.why)
            reason_label.setContentsMargins(0, 0, 0, 8)
            layout.addRow("", reason_label)
        self.area.setWidget(inside)
        self.intro.setText(f"No file of {self.ref.name} states the following, on which every number depends.")
        self.reset.setEnabled(bool(self.ref.assume))
        if self.isVisible():
            chain_as_read(self)

    def values(self) -> dict[str, str]:
        """The values in the fields."""
        return {name: value.strip() for name, value in self.form.values().items()}

    @Slot()
    def open_again(self) -> None:
        """Open the model again with the earlier choices and those that differ now."""
        values = self.values()
        changed = {name: value for name, value in values.items() if value != self._present_values[name] and value}
        if not changed:
            self.message.setText("Nothing has changed: these values are in use.")
            return
        before = {name: value for name, value in self.ref.assume if name in values}
        self._open(replace(self.ref, assume=tuple(sorted((before | changed).items()))))

    @Slot()
    def open_plain(self) -> None:
        """Open the model again without any of the user's choices."""
        self._open(replace(self.ref, assume=()))

    def _open(self, ref: ModelRef) -> None:
        self._requested_ref = ref
        self.message.setText(f"Opening {ref.name}…")
        self.again.setEnabled(False)
        self.runner.do(self._slot, f"open {ref.name}", self.opening.reader(ref))

    @Slot(object)
    def _finished(self, value: OpenModel) -> None:
        self.ref = value.ref
        self.opening.adopt(value, None)
        self.show_rows(value.opened.assumptions)
        choices = ", ".join(f"{name} {text}" for name, text in value.ref.assume)
        self.message.setText(f"Open, with your choices: {choices}." if choices else "Open, without any choice of yours.")
        self.again.setEnabled(True)

    @Slot(object)
    def _failed(self, error: object) -> None:
        self.again.setEnabled(True)
        ref = self._requested_ref
        if isinstance(error, CircuitLabError) and (rows := questions(ref, error))[len(ref.assume) :]:
            self.ref = ref  # one choice is settled, and the next is needed
            self.show_rows(rows)
        self.message.setText("Cancelled." if isinstance(error, Cancelled) else plain(error))


def plain(error: object) -> str:
    """An error as the dialog shows it: without the remedy of the command line where the dialog has a field for it."""
    if not isinstance(error, CircuitLabError):
        return reason(error)
    parts = [error.what, f"Expected: {error.expected}" if error.expected else "", f"Got: {error.got}" if error.got else ""]
    return "\n".join(p for p in (*parts, "" if assumptions_asked(error) else error.remedy) if p)


def questions(ref: ModelRef, error: CircuitLabError) -> tuple[Assumption, ...]:
    """The choices so far for a model that could not be opened, and what its error asks for, as rows."""
    chosen = tuple(Assumption(name, value, (), YOUR_CHOICE) for name, value in ref.assume)
    names = {name for name, _ in ref.assume}
    needed = ((name, choices) for name, choices in assumptions_asked(error).items() if name not in names)
    return (*chosen, *(Assumption(name, "", choices, error.expected) for name, choices in needed))
