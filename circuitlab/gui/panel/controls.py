"""The controls of a panel, made from the fields of its view."""

from __future__ import annotations

import dataclasses
from typing import Any

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QWidget

from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.figures.contracts.panel import Facts
from circuitlab.gui.widgets.flow import FlowLayout
from circuitlab.gui.widgets.form import Form, declared_fields
from circuitlab.gui.widgets.number_slider import Choices, NumberSlider
from circuitlab.gui.widgets.one_row import OneRow


def _applies(meta: Any, view: Any, facts: Facts | None) -> bool:
    """Whether a control has a meaning on this view of this model."""
    if facts is not None and meta.get("only") and not meta["only"](facts):
        return False
    if meta.get("also") and not meta["also"](view):
        return False
    when, values = meta.get("when"), meta.get("values", ())
    return not when or (getattr(view, when) in values if values else bool(getattr(view, when)))


class Controls(QWidget):
    """One row of controls, or several where it `wraps`; `changed(view)` when the person has moved one.

    A control that has not been moved keeps the value it was given, of which it may show fewer digits. `burst` counts the times
    that a slider was taken hold of: what is changed under one count is one change.
    """

    changed = Signal(object)

    def __init__(self, view_type: type[Any], parent: QWidget | None = None, wraps: bool = False) -> None:
        super().__init__(parent)
        self._view = view_type()
        self._sometimes: list[tuple[QWidget, Any]] = []
        self.burst = 0
        box = FlowLayout(self) if wraps else OneRow(self)
        metadata = {field.name: field.metadata for field in dataclasses.fields(view_type)}
        fields = tuple(declared_fields(view_type))
        self.form = Form(fields, self)
        self.form.changed.connect(self._moved)
        for field in fields:
            widget = self.form.widgets[field.name]
            if isinstance(widget, NumberSlider):
                widget.slider.sliderPressed.connect(self._taken)
            shown = widget if isinstance(widget, (QCheckBox, Choices)) else self._labelled(field.label, widget)
            box.addWidget(shown)
            if any(metadata[field.name].get(key) for key in ("when", "only", "also")):
                self._sometimes.append((shown, metadata[field.name]))

    def _labelled(self, label: str, widget: QWidget) -> QWidget:
        """Label and widget that stay together when the row wraps."""
        holder = QWidget(self)
        row = QHBoxLayout(holder)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        if label:
            row.addWidget(PlainLabel(label, holder))
        row.addWidget(widget)
        return holder

    def show_view(self, view: Any, facts: Facts | None = None) -> None:
        """Take the values of a view, without a signal; `facts` of the model say which controls have a meaning."""
        self._view = view
        self.form.show_values({name: getattr(view, name) for name in self.form.widgets})
        for shown, meta in self._sometimes:
            shown.setVisible(_applies(meta, view, facts))

    @Slot()
    def _taken(self) -> None:
        self.burst += 1

    @Slot(str)
    def _moved(self, name: str) -> None:
        self._view = dataclasses.replace(self._view, **{name: self.form.value(name)})
        self.changed.emit(self._view)
