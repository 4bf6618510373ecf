"""Which parameter of the constructed model plays, from which value to which: the fields of a film and of a step of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.figures.panels.laboratory.parameters import LaboratoryView
from circuitlab.gui.widgets.flow import FlowLayout
from circuitlab.gui.widgets.form import Field, Form, declared_fields
from circuitlab.model.constructed import RopeInduction
from circuitlab.story.film import PARAMETERS, sweep_of
from circuitlab.story.setup import Play, Sweep

NO_FILM = ""
DECIMALS = 3
TIP = "A film: when the step is shown, this parameter of the model plays from the first value to the second"


def sliders() -> dict[str, Field]:
    """The parameters that have a slider, by name."""
    numbers = {f.name for f in fields(RopeInduction) if type(f.default) in (int, float)}
    return {f.name: f for f in declared_fields(LaboratoryView) if f.style == "slider" and f.name in numbers}


def slider_names() -> dict[str, str]:
    """What the parameters are called in a list."""
    return {name: field.label if field.label == name else f"{field.label} ({name})" for name, field in sliders().items()}


def slider_ends(name: str) -> dict[str, float]:
    """The ends of a slider, as those of a film."""
    field = sliders()[name]
    return {"first": float(field.low or 0), "last": float(field.high or 1)}


class SweepFields(QWidget):
    """`chosen(play)`: the person has chosen what a step plays, a `Sweep`, None for no film."""

    chosen = Signal(object)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        names = {NO_FILM: "no film", **slider_names()}
        parameter = Field("parameter", "The parameter that plays", choices=names, tip=TIP)
        labels = {"first": "The film begins at", "last": "The film ends at"}
        self.form = Form((parameter, *(Field(end, label, float, TIP, decimals=DECIMALS) for end, label in labels.items())), self)
        self.form.changed.connect(self._changed)
        row = FlowLayout(self, 6)
        row.setContentsMargins(4, 0, 4, 0)
        for text, widget in zip(("Play", "from", "to"), self.form.widgets.values(), strict=True):
            row.addWidget(PlainLabel(text, self))
            row.addWidget(widget)
        self._play: Sweep | None = None
        self.show_sweep(None)

    def show_sweep(self, play: Play | None) -> None:
        """Show what a step plays."""
        self._play = play if isinstance(play, Sweep) else None
        self.form.show_values({"parameter": NO_FILM if self._play is None else self._play.name})
        if self._play is not None:
            self._show_ends(self._play.name, {"first": self._play.first, "last": self._play.last})
        for end in ("first", "last"):
            self.form.widgets[end].setEnabled(self._play is not None)

    def _show_ends(self, name: str, ends: Mapping[str, float]) -> None:
        """Show them, those of whole numbers as such."""
        for end in ends:
            self.form.widgets[end].setDecimals(0 if PARAMETERS[name] is int else DECIMALS)
        self.form.show_values(ends)

    @Slot(str)
    def _changed(self, changed: str) -> None:
        chosen: str | None = self.form.value("parameter")
        if chosen == NO_FILM:
            self.chosen.emit(None)
            return
        name = chosen or (self._play.name if self._play is not None else "")  # None: one of a file, which has no slider
        if self._play is None or name != self._play.name:
            ends = slider_ends(name)
            self._show_ends(name, ends)
            self.chosen.emit(sweep_of(name, [PARAMETERS[name](end) for end in ends.values()]))
        elif changed != "parameter":  # the other end stays as it was said, which may have more digits than are shown
            self.chosen.emit(replace(self._play, **{changed: PARAMETERS[name](self.form.value(changed))}))
