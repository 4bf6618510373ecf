"""The controls of a panel, built from the fields of its view."""

from __future__ import annotations

import dataclasses
from typing import Any

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QHBoxLayout, QWidget

from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.figures.contracts.panel import Facts
from circuitlab.gui.widgets.flow import FlowLayout
from circuitlab.gui.widgets.form import Field, Form, declared_fields
from circuitlab.gui.widgets.number_slider import NumberSlider
from circuitlab.gui.widgets.one_row import OneRow


def _applies(meta: Any, view: Any, facts: Facts | None) -> bool:
    """Whether a control has a meaning in this view of this model."""
    if facts is not None and meta.get("only") and not meta["only"](facts):
        return False
    if meta.get("also") and not meta["also"](view):
        return False
    when, values = meta.get("when"), meta.get("values", ())
    return not when or (getattr(view, when) in values if values else bool(getattr(view, when)))


def _speaks(field: Field) -> bool:
    """Whether the widget of a field has its words itself."""
    return field.kind is bool or field.style == "tabs"


class _Labelled(QWidget):
    """A label and a widget, which stay together when the row wraps."""

    def __init__(self, label: str, parent: QWidget) -> None:
        super().__init__(parent)
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(6)
        if label:
            self._row.addWidget(PlainLabel(label, self))

    def holding(self, widget: QWidget) -> _Labelled:
        """This, with the widget, which was made in it, beside the label."""
        self._row.addWidget(widget)
        return self


class Controls(QWidget):
    """One row of controls, or several if it `wraps`. `changed(view)`: the user has changed one.

    A control that the user has not changed keeps its exact value, of which it may show fewer digits. `burst` counts how often a
    slider has been pressed: all changes at one count are one step of undo.
    """

    changed = Signal(object)

    def __init__(self, view_type: type[Any], parent: QWidget | None = None, wraps: bool = False) -> None:
        super().__init__(parent)
        self._usual = self._view = view_type()
        self._controls: dict[str, QWidget] = {}
        self._conditional: list[tuple[QWidget, object]] = []  # with the metadata of its field, which says when it applies
        self.burst = 0
        box = self._box = FlowLayout(self) if wraps else OneRow(self)
        metadata = {field.name: field.metadata for field in dataclasses.fields(view_type)}
        fields = tuple(declared_fields(view_type))
        holders = {field.name: box.holder() for field in fields} if isinstance(box, OneRow) else {}
        labelled = {f.name: _Labelled(f.label, holders.get(f.name, self)) for f in fields if not _speaks(f)}
        self.form = Form(fields, self, {**holders, **labelled})
        self.form.changed.connect(self._field_changed)
        for field in fields:
            widget = self.form.widgets[field.name]
            if isinstance(widget, NumberSlider):
                widget.slider.sliderPressed.connect(self._slider_pressed)
            control = widget if field.name not in labelled else labelled[field.name].holding(widget)
            self._controls[field.name] = control
            if isinstance(box, OneRow):
                box.add(holders[field.name], control)
            else:
                box.addWidget(control)
            if any(metadata[field.name].get(key) for key in ("when", "only", "also")):
                self._conditional.append((control, metadata[field.name]))

    def show_view(self, view: Any, facts: Facts | None = None) -> None:
        """Show the values of a view, without a signal, in the controls that have a meaning for a model of these `facts`."""
        self._view = view
        self.form.show_values({name: getattr(view, name) for name in self.form.widgets})
        for control, meta in self._conditional:
            control.setVisible(_applies(meta, view, facts))
        if isinstance(self._box, OneRow):
            changed = {name for name in self._controls if getattr(view, name) != getattr(self._usual, name)}
            self._box.mark_unusual([self._controls[name] for name in changed])

    @Slot()
    def _slider_pressed(self) -> None:
        self.burst += 1

    @Slot(str)
    def _field_changed(self, name: str) -> None:
        self._view = dataclasses.replace(self._view, **{name: self.form.value(name)})
        self.changed.emit(self._view)
