"""The dialog for an exported figure's size, type, caption and ink, and the file that remembers the last choice."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QSize, Qt, Slot
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDialogButtonBox,
    QFormLayout,
    QHBoxLayout,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from circuitlab.draw.export.pictures import Preview
from circuitlab.draw.look.paper import LIMITS, PRESETS, Paper
from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.errors import UsageError
from circuitlab.gui.pictures.paper_preview import PaperPreview
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.form import Field, Form
from circuitlab.gui.work.settings import settings_file

log = logging.getLogger("circuitlab.paper")

OTHER = "other"
_CHOICES = {
    "caption": {"short": "three lines", "full": "all of it", "none": "none"},
    "ink": {"colour": "colour", "grey": "grey, negative values marked"},
    "text": {
        "auto": "outlines in SVG, fonts in PDF",
        "fonts": "fonts: it can be searched",
        "outlines": "outlines: it looks the same everywhere",
    },
}
_TITLES = {
    "width_mm": "Width",
    "height_mm": "Height",
    "font_pt": "Type",
    "caption": "Caption",
    "ink": "Ink",
    "text": "Text",
    "dpi": "Dots an inch",
}
_TIPS = {
    "height_mm": "0: as high as the content needs",
    "font_pt": "Axes, legends, captions and tables; titles are larger",
    "caption": "The description inside the file always has the whole caption",
    "ink": "In either, series differ in dashes and shapes",
    "text": "Text of SVG and PDF",
    "dpi": "Of a PNG",
}


def _field(name: str) -> Field:
    low, high, unit = LIMITS.get(name, (0.0, 0.0, ""))
    field = Field(name, _TITLES[name], float, _TIPS.get(name, ""), _CHOICES.get(name, {}), low, high, decimals=1, live=True)
    if name == "dpi":
        return replace(field, kind=int)
    return replace(field, unit=f" {unit}", **({"low": 0.0, "lowest": "fits the content"} if name == "height_mm" else {}))


def load_paper(remember: bool) -> Paper:
    """The paper of the last export; the default if that is not a valid one, or if `remember` is False."""
    if not remember:
        return Paper()
    file = settings_file()
    texts = {name: str(value) for name in _TITLES if (value := file.value(f"paper/{name}")) not in (None, "")}
    try:
        values: dict[str, Any] = {n: v if n in _CHOICES else int(v) if n == "dpi" else float(v) for n, v in texts.items()}
        return Paper(**values)
    except (UsageError, ValueError) as error:
        log.warning("the saved paper is not used: %s", error)
        return Paper()


def save_paper(paper: Paper) -> None:
    """Save a paper for the next export and the next start."""
    file = settings_file()
    for name in _TITLES:
        value = getattr(paper, name)
        file.setValue(f"paper/{name}", "" if value is None else value)


class PaperDialog(Dialog):
    """Asks for a `paper`, and accepts only a valid one.

    `part`: which part of the figure is visible, "" for all of it. `subject`: what is exported, in a few words. `check` raises
    `UsageError` for a paper on which the figure cannot be read. `draw(paper, whole, room, ratio)` gives the page in so many px.
    `usual`: what *Defaults* brings back.
    """

    def __init__(
        self,
        paper: Paper,
        parent: QWidget | None = None,
        part: str = "",
        subject: str = "",
        check: Callable[[Paper], None] = lambda paper: None,
        draw: Callable[[Paper, bool, QSize, float], Preview] | None = None,
        usual: Paper | None = None,
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Export picture")
        self.paper, self._check, self._usual = paper, check, usual or Paper()
        self.subject = PlainLabel(self)
        self.subject.setText(subject)
        self.subject.setWordWrap(True)
        self.subject.setVisible(bool(subject))
        self.form = Form(map(_field, _TITLES), self)
        self.fields = self.form.widgets
        self.preset = QComboBox(self)
        self.preset.setObjectName("preset")
        self.preset.setAccessibleName("Size")
        for name, width in PRESETS.items():
            self.preset.addItem(f"{name}, {width:g} mm", width)
        self.preset.addItem(OTHER, 0.0)
        form = QFormLayout()
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        form.addRow("Size", self.preset)
        for name, title in _TITLES.items():
            form.addRow(title, self.fields[name])
        self.part = QCheckBox("Only the visible part", self)
        self.part.setToolTip(tip_of(part))
        self.part.setChecked(bool(part))
        self.part.setVisible(bool(part))
        if part:
            form.addRow("Part", self.part)
        self.problem = PlainLabel(self)
        self.problem.setTextFormat(Qt.TextFormat.PlainText)
        self.problem.setWordWrap(True)
        self.problem.hide()
        self.preview: PaperPreview | None = None
        if draw is not None:
            page = lambda paper, room, ratio: draw(paper, not self.part.isChecked(), room, ratio)
            self.preview = PaperPreview(self.chosen, page, self)
            self.form.changed.connect(self.preview.refresh)
            self.preset.activated.connect(self.preview.refresh)
            self.part.toggled.connect(self.preview.refresh)
        self._lay_out(form)
        self._show(paper)
        self.preset.activated.connect(self._preset_chosen)
        self.fields["width_mm"].valueChanged.connect(self._show_preset)

    def _lay_out(self, form: QFormLayout) -> None:
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel, self)
        self.primary = QPushButton("Choose a file…", self)
        self.primary.clicked.connect(self.accept)
        defaults = QPushButton("Defaults", self)
        defaults.clicked.connect(self.restore)
        buttons.addButton(self.primary, QDialogButtonBox.ButtonRole.ApplyRole)
        buttons.addButton(defaults, QDialogButtonBox.ButtonRole.ResetRole)
        buttons.rejected.connect(self.reject)
        beside, box = QHBoxLayout(self), QVBoxLayout()
        beside.setContentsMargins(24, 16, 24, 16)
        beside.setSpacing(24)
        box.setSpacing(16)
        box.addWidget(self.subject)
        box.addLayout(form)
        box.addWidget(self.problem)
        box.addStretch(1)
        box.addWidget(buttons)
        beside.addLayout(box)
        if self.preview is not None:
            beside.addWidget(self.preview, 1)

    def _show(self, paper: Paper) -> None:
        self.form.show_values({name: getattr(paper, name) or 0 for name in self.fields})
        self._show_preset()

    @Slot()
    def _show_preset(self, *_: object) -> None:
        """Show the preset of this width, or “other”."""
        index = self.preset.findData(self.fields["width_mm"].value())
        self.preset.setCurrentIndex(index if index >= 0 else self.preset.count() - 1)

    @Slot(int)
    def _preset_chosen(self, index: int) -> None:
        if self.preset.itemData(index):
            self.fields["width_mm"].setValue(self.preset.itemData(index))

    @Slot()
    def restore(self) -> None:
        """Show the default paper."""
        self._show(self._usual)
        if self.preview is not None:
            self.preview.refresh()

    def chosen(self) -> Paper:
        """The paper that the fields say. Raises `UsageError`."""
        values = self.form.values()
        return replace(Paper(), **{**values, "height_mm": values["height_mm"] or None})

    @Slot()
    def accept(self) -> None:
        """Accept a valid paper; otherwise show the reason."""
        try:
            paper = self.chosen()
            self._check(paper)
        except UsageError as error:
            self.problem.setText(f"{error.what} Expected: {error.expected}.")
            self.problem.show()
            return
        self.paper = paper
        super().accept()
