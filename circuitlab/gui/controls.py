"""Controls made from the fields of a panel's view: a check box, a drop-down, a number, a text."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args, get_origin, get_type_hints

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QCheckBox, QComboBox, QDoubleSpinBox, QHBoxLayout, QLabel, QLineEdit, QSpinBox, QWidget

from circuitlab.gui.flow import FlowLayout


class Controls(QWidget):
    """One row of controls; `changed(view)` when the person has moved one."""

    changed = Signal(object)

    def __init__(self, view_type: type[Any], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._type, self._view = view_type, view_type()
        self._widgets: dict[str, QWidget] = {}
        self._only_when: list[tuple[QWidget, str]] = []
        self._filling = False
        box = FlowLayout(self)
        hints = get_type_hints(view_type)
        for field in dataclasses.fields(view_type):
            if field.metadata.get("hidden"):
                continue
            widget = self._made(field, hints[field.name])
            widget.setToolTip(field.metadata.get("tip", ""))
            widget.setObjectName(field.name)
            widget.setAccessibleName(field.metadata.get("label", field.name))
            self._widgets[field.name] = widget
            shown = widget if isinstance(widget, QCheckBox) else self._labelled(field, widget)
            box.addWidget(shown)
            if field.metadata.get("when"):
                self._only_when.append((shown, field.metadata["when"]))

    def _labelled(self, field: Any, widget: QWidget) -> QWidget:
        """Label and widget that stay together when the row wraps."""
        holder = QWidget(self)
        row = QHBoxLayout(holder)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        row.addWidget(QLabel(field.metadata.get("label", field.name), holder))
        row.addWidget(widget)
        return holder

    def _made(self, field: Any, kind: Any) -> QWidget:
        meta = field.metadata
        if kind is bool:
            box = QCheckBox(meta.get("label", field.name), self)
            box.toggled.connect(self._moved)
            return box
        if get_origin(kind) is Literal:
            combo = QComboBox(self)
            for choice in get_args(kind):
                combo.addItem(str(choice).replace("_", " "), choice)
            combo.currentIndexChanged.connect(self._moved)
            return combo
        if kind in (int, float):
            low, high = meta.get("low"), meta.get("high")
            least, most = (-1e6 if low is None else low), (1e6 if high is None else high)
            if kind is int:
                spin: QSpinBox | QDoubleSpinBox = QSpinBox(self)
                spin.setRange(int(least), int(most))
            else:
                spin = QDoubleSpinBox(self)
                spin.setRange(float(least), float(most))
            spin.setKeyboardTracking(False)
            spin.valueChanged.connect(self._moved)
            return spin
        line = QLineEdit(self)
        line.editingFinished.connect(self._moved)
        return line

    def show_view(self, view: Any) -> None:
        """Take the values of a view, without telling anybody."""
        self._filling, self._view = True, view
        for name, widget in self._widgets.items():
            value = getattr(view, name)
            if isinstance(widget, QCheckBox):
                widget.setChecked(value)
            elif isinstance(widget, QComboBox):
                widget.setCurrentIndex(widget.findData(value))
            elif isinstance(widget, (QSpinBox, QDoubleSpinBox)):
                widget.setValue(value)
            elif isinstance(widget, QLineEdit):
                widget.setText(value)
        for shown, when in self._only_when:
            shown.setVisible(bool(getattr(view, when)))
        self._filling = False

    @Slot()
    def _moved(self, *_: object) -> None:
        if self._filling:
            return
        values = {}
        for name, widget in self._widgets.items():
            if isinstance(widget, QCheckBox):
                values[name] = widget.isChecked()
            elif isinstance(widget, QComboBox):
                values[name] = widget.currentData()
            elif isinstance(widget, (QSpinBox, QDoubleSpinBox)):
                values[name] = widget.value()
            elif isinstance(widget, QLineEdit):
                values[name] = widget.text()
        self._view = dataclasses.replace(self._view, **values)
        self.changed.emit(self._view)
