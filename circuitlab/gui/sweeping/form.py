"""The fields of a sweep that is declared from a panel: over which training steps and prompts, and where to."""

from __future__ import annotations

import os
from pathlib import Path

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QFileDialog, QFormLayout, QHBoxLayout, QLineEdit, QWidget

from circuitlab.disk.paths import resource
from circuitlab.gui.sweeping.job import FILE, SweepJob
from circuitlab.gui.widgets.buttons import push
from circuitlab.gui.widgets.form import Field, FileLine, Form
from circuitlab.gui.work.settings import Settings
from circuitlab.sweep.declaring import Asked
from circuitlab.sweep.spec import ALL, FINAL

WITHOUT_TEXT = "It reads the weights alone: the same for every prompt"


class SweepForm(QWidget):
    """The form. `asked`: what is asked; `steps`: the training steps of the model's checkpoints. `changed()`: another job."""

    changed = Signal()

    def __init__(self, asked: Asked, steps: tuple[int, ...], settings: Settings, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._asked, self._steps, self._settings = asked, steps, settings
        self.form = Form(self._fields(), self)
        self.fields = self.form.widgets
        self.out: QLineEdit = self.fields["out"]
        self.form.show_values({"out": str(_new_folder(asked)), "plain": True, "checkpoint": ALL if steps else FINAL})
        self._lay_out()
        self._show_those_that_apply()
        self.form.changed.connect(self._changed)

    def _checkpoints(self) -> dict[str, str]:
        if not self._steps:
            return {FINAL: "the final weights; the model has no checkpoints"}
        n, at = len(self._steps), self._asked.model.checkpoint
        this = {"this": f"step {self._steps[at]:,}, which is open"} if at is not None else {}
        return {
            ALL: f"all {n:,}, and the final weights",
            "every": "every n-th, and the final weights",
            FINAL: "the final weights",
        } | this

    def _fields(self) -> tuple[Field, ...]:
        sets = sorted(path.stem for path in resource("prompts").glob("*.tsv"))
        prompts = {"": "this text"} | {name: f"prompt set: {name.replace('_', ' ')}" for name in sets} | {FILE: "a file…"}
        most, further = max(2, len(self._steps)), "So many checkpoints further each time"
        every = Field("every", "Every n-th", int, further, {}, 2, most, prefix="n = ", live=True)
        a_file = "A prompt a line; a .tsv has an answer after a tab, which is then what is measured"
        workers = "Processes that answer it, which share the memory budget"
        return (
            Field("checkpoint", "Checkpoints", choices=self._checkpoints()),
            every,
            Field("prompts", "Prompts", choices=prompts, tip="" if self._asked.reads_text else WITHOUT_TEXT),
            Field("file", "File", style="file", tip=a_file, live=True),
            Field(
                "most", "At most", int, "So many of them, from the first on", {}, 0, 1_000_000, lowest="all of them", live=True
            ),
            Field("plain", "The unmodified model, too", bool, "Rows without the interventions, to compare with"),
            Field("out", "Folder", tip="Its declaration, its tables and its journal are written there", live=True),
            Field("workers", "Processes", int, workers, {}, 1, os.cpu_count() or 1, live=True),
        )

    def _lay_out(self) -> None:
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        row = lambda *names: _row(*(self.fields[name] for name in names))
        form.addRow("Checkpoints", row("checkpoint", "every"))
        form.addRow("Prompts", row("prompts", "file", "most"))
        form.addRow("", self.fields["plain"])
        where = QHBoxLayout()
        where.setSpacing(8)
        where.addWidget(self.out, 1)
        where.addWidget(push(self, "Choose…", self._browse))
        form.addRow("Folder", where)
        form.addRow("Processes", row("workers"))
        form.setRowVisible(2, self._asked.edited)

    def _show_those_that_apply(self) -> None:
        self.fields["every"].setVisible(self.form.value("checkpoint") == "every")
        self.fields["prompts"].setEnabled(self._asked.reads_text)
        self.fields["file"].setVisible(self.form.value("prompts") == FILE)
        self.fields["most"].setVisible(bool(self.form.value("prompts")))

    def job(self) -> SweepJob:
        """What the fields say."""
        values, settings = self.form.values(), self._settings
        return SweepJob(self._asked, self._steps, memory=settings["memory"], device=settings["device"], **values)

    @Slot(str)
    def _changed(self, name: str) -> None:
        self._show_those_that_apply()
        self.changed.emit()

    @Slot()
    def _browse(self) -> None:
        path = QFileDialog.getExistingDirectory(self, "Folder of the sweep", str(Path(self.out.text()).parent))
        if path:
            self.out.setText(path)


def _new_folder(asked: Asked) -> Path:
    """A folder that does not exist yet, called after what is asked."""
    words = f"{asked.title} {asked.model.named(1)}".lower()
    name = "-".join("".join(c if c.isalnum() else " " for c in words).split())
    home = Path.home() / "circuitlab-runs"
    return next(home / one for i in range(1, 10_000) if not (home / (one := name if i == 1 else f"{name}-{i}")).exists())


def _row(*widgets: QWidget) -> QHBoxLayout:
    row = QHBoxLayout()
    row.setSpacing(8)
    for widget in widgets:
        row.addWidget(widget, 4 if isinstance(widget, FileLine) else 0)
    row.addStretch(1)
    return row
