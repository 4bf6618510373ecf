"""Controls made from the fields of a panel's view: a check box, a drop-down, a number, a text."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args, get_origin, get_type_hints

from PySide6.QtCore import QSize, Signal, Slot
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QFileDialog,
    QHBoxLayout,
    QLineEdit,
    QSpinBox,
    QStyle,
    QWidget,
)

from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.figures.contracts.panel import Facts
from circuitlab.gui.widgets.flow import FlowLayout
from circuitlab.gui.widgets.number_slider import Choices, NumberSlider
from circuitlab.gui.widgets.one_row import OneRow


def _applies(meta: Any, view: Any, facts: Facts | None) -> bool:
    """Whether a control has something to say on this view of this model."""
    if facts is not None and meta.get("only") and not meta["only"](facts):
        return False
    if meta.get("also") and not meta["also"](view):
        return False
    when, values = meta.get("when"), meta.get("values", ())
    return not when or (getattr(view, when) in values if values else bool(getattr(view, when)))


LINE = 270  # px of a text: some names of models


class TextLine(QLineEdit):
    """A text, as wide as there is room for."""

    def sizeHint(self) -> QSize:
        """Some words."""
        return QSize(LINE, super().sizeHint().height())


class FileLine(QLineEdit):
    """The path of a file, typed or chosen in a dialog."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setPlaceholderText("Path of a text file")
        self.setMinimumWidth(180)
        browse = self.addAction(
            self.style().standardIcon(QStyle.StandardPixmap.SP_DirOpenIcon), self.ActionPosition.TrailingPosition
        )
        browse.setToolTip("Choose a file")
        browse.triggered.connect(self._browse)

    @Slot()
    def _browse(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Choose a text file", self.text())
        if path:
            self.setText(path)
            self.editingFinished.emit()


class Controls(QWidget):
    """One row of controls, or several where it `wraps`; `changed(view)` when the person has moved one.

    A control that has not been moved keeps the value it was given, of which it may show fewer digits. `burst` counts the times
    that a slider was taken hold of: what is changed under one count is one change.
    """

    changed = Signal(object)

    def __init__(self, view_type: type[Any], parent: QWidget | None = None, wraps: bool = False) -> None:
        super().__init__(parent)
        self._type, self._view = view_type, view_type()
        self._widgets: dict[str, QWidget] = {}
        self._sometimes: list[tuple[QWidget, Any]] = []
        self._filling = False
        self._given: dict[str, Any] = {}  # what each control showed when it was filled
        self.burst = 0
        box = FlowLayout(self) if wraps else OneRow(self)
        hints = get_type_hints(view_type)
        for field in dataclasses.fields(view_type):
            if field.metadata.get("hidden"):
                continue
            widget = self._made(field, hints[field.name])
            widget.setToolTip(tip_of(field.metadata.get("tip", "")))
            widget.setObjectName(field.name)
            widget.setAccessibleName(field.metadata.get("label", field.name))
            self._widgets[field.name] = widget
            shown = widget if isinstance(widget, (QCheckBox, Choices)) else self._labelled(field, widget)
            box.addWidget(shown)
            if any(field.metadata.get(key) for key in ("when", "only", "also")):
                self._sometimes.append((shown, field.metadata))

    def _labelled(self, field: Any, widget: QWidget) -> QWidget:
        """Label and widget that stay together when the row wraps."""
        holder = QWidget(self)
        row = QHBoxLayout(holder)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        if label := field.metadata.get("label", field.name):
            row.addWidget(PlainLabel(label, holder))
        row.addWidget(widget)
        return holder

    def _made(self, field: Any, kind: Any) -> QWidget:
        meta = field.metadata
        if kind is bool:
            box = QCheckBox(meta.get("label", field.name), self)
            box.toggled.connect(self._moved)
            return box
        if get_origin(kind) is Literal and meta.get("kind") == "tabs":
            pages = Choices(get_args(kind), self)
            pages.changed.connect(self._moved)
            return pages
        if get_origin(kind) is Literal:
            combo = QComboBox(self)
            for choice in get_args(kind):
                combo.addItem(str(choice).replace("_", " "), choice)
            combo.currentIndexChanged.connect(self._moved)
            return combo
        if kind in (int, float):
            low, high = meta.get("low"), meta.get("high")
            if meta.get("kind") == "slider" and low is not None and high is not None:
                slider = NumberSlider(low, high, kind is int, self, meta.get("step"), meta.get("typed"))
                slider.changed.connect(self._moved)
                slider.slider.sliderPressed.connect(self._taken)
                return slider
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
        line = FileLine(self) if meta.get("kind") == "file" else TextLine(self)
        line.editingFinished.connect(self._moved)
        if not isinstance(line, FileLine):
            line.setPlaceholderText(str(meta.get("tip", "")).partition("empty: ")[2])
        return line

    def show_view(self, view: Any, facts: Facts | None = None) -> None:
        """Take the values of a view, without telling anybody; `facts` of the model say which controls have a meaning."""
        self._filling, self._view = True, view
        for name, widget in self._widgets.items():
            value = getattr(view, name)
            if isinstance(widget, QCheckBox):
                widget.setChecked(value)
            elif isinstance(widget, QComboBox):
                widget.setCurrentIndex(widget.findData(value))
            elif isinstance(widget, (QSpinBox, QDoubleSpinBox)):
                if widget.value() != value:  # else it would be painted again for nothing
                    widget.setValue(value)
            elif isinstance(widget, QLineEdit):
                if widget.text() != value:
                    widget.setText(value)
                    widget.setCursorPosition(0)  # a long text is read from its beginning
            elif isinstance(widget, (NumberSlider, Choices)):
                widget.set_value(value)
        self._given = {name: _value(widget) for name, widget in self._widgets.items()}
        for shown, meta in self._sometimes:
            shown.setVisible(_applies(meta, view, facts))
        self._filling = False

    @Slot()
    def _taken(self) -> None:
        self.burst += 1

    @Slot()
    def _moved(self, *_: object) -> None:
        if self._filling:
            return
        values = {name: _value(widget) for name, widget in self._widgets.items()}
        moved = {name: value for name, value in values.items() if name not in self._given or value != self._given[name]}
        self._given = values
        if not moved:
            return
        self._view = dataclasses.replace(self._view, **moved)
        self.changed.emit(self._view)


def _value(widget: QWidget) -> Any:
    """What a control shows."""
    if isinstance(widget, QCheckBox):
        return widget.isChecked()
    if isinstance(widget, QComboBox):
        return widget.currentData()
    if isinstance(widget, QLineEdit):
        return widget.text()
    assert isinstance(widget, (QSpinBox, QDoubleSpinBox, NumberSlider, Choices))
    return widget.value()
