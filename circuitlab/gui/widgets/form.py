"""Forms built from declared fields: a check box, a drop-down, a number, a line of text for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from PySide6.QtCore import QObject, QSize, Signal, Slot
from PySide6.QtWidgets import QCheckBox, QComboBox, QDoubleSpinBox, QFileDialog, QLineEdit, QSpinBox, QStyle, QWidget

from circuitlab.draw.look.plain_text import tip_of
from circuitlab.gui.widgets.number_slider import Choices, NumberSlider

TEXT_WIDTH = 270  # px of a line of text: long enough for the names of some models
NO_LIMIT = 1e6


@dataclass(frozen=True)
class Field:
    """One value of a form. `kind`: bool, int, float, str or a Literal.

    `choices`: the values and the text of each. `low` and `high` bound a number, None: a million either way; `step` is what an
    arrow or a slider adds; `prefix` and `unit` stand before and after the number; `lowest` is shown in place of the lowest one.
    `style`: "slider", a number with a slider, beside which a number within `typed` may be typed; "tabs", choices as buttons;
    "free", choices or any other text; "file", a path; "models", a list of models. `live`: the value changes with each keystroke
    instead of on Enter.
    """

    name: str
    label: str
    kind: Any = str
    tip: str = ""
    choices: Mapping[Any, str] = dataclasses.field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    step: float | None = None
    typed: tuple[float, float] | None = None
    decimals: int = 2
    prefix: str = ""
    unit: str = ""
    lowest: str = ""
    placeholder: str = ""
    style: Literal["", "slider", "tabs", "free", "file", "models"] = ""
    live: bool = False


def declared_fields(view_type: type[Any]) -> Iterator[Field]:
    """The fields of a dataclass that `control(...)` declares, without the hidden ones."""
    kinds = get_type_hints(view_type)
    for field in dataclasses.fields(view_type):
        meta, kind = field.metadata, kinds[field.name]
        if meta.get("hidden"):
            continue
        values = get_args(kind) if get_origin(kind) is Literal else ()
        choices = {value: str(value).replace("_", " ") for value in values}
        label, tip, style = meta.get("label", field.name), meta.get("tip", ""), meta.get("kind", "")
        low, high, step, typed = (meta.get(key) for key in ("low", "high", "step", "typed"))
        placeholder = tip.partition("empty: ")[2]
        yield Field(field.name, label, kind, tip, choices, low, high, step, typed, placeholder=placeholder, style=style)


class TextLine(QLineEdit):
    """A text field that takes the width available."""

    def sizeHint(self) -> QSize:
        """A width for some words."""
        return QSize(TEXT_WIDTH, super().sizeHint().height())


class FileLine(QLineEdit):
    """The path of a file, typed or chosen in a dialog."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setMinimumWidth(180)
        folder = self.style().standardIcon(QStyle.StandardPixmap.SP_DirOpenIcon)
        browse = self.addAction(folder, self.ActionPosition.TrailingPosition)
        browse.setToolTip("Choose a file")
        browse.triggered.connect(self._browse)

    @Slot()
    def _browse(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Choose a text file", self.text())
        if path:
            self.setText(path)
            self.editingFinished.emit()


class Form(QObject):
    """The widgets of the fields by name, laid out by their owner. `changed(name)`: the user has set another value.

    `places`: in which widgets those of fields are made, by name; the others are made in `parent`.
    """

    changed = Signal(str)

    def __init__(self, fields: Iterable[Field], parent: QWidget, places: Mapping[str, QWidget] = MappingProxyType({})) -> None:
        super().__init__(parent)
        self.widgets: dict[str, Any] = {}
        self._showing = False
        for field in fields:
            widget = self.widgets[field.name] = _widget(field, places.get(field.name, parent))
            widget.setObjectName(field.name)
            widget.setAccessibleName(field.label)
            widget.setToolTip(tip_of(field.tip))
            _change_signal(widget, field.live).connect(self._changed)
        self._last_values = self.values()  # as last shown or reported

    def value(self, name: str) -> Any:
        """The value that a field shows."""
        widget = self.widgets[name]
        if isinstance(widget, QCheckBox):
            return widget.isChecked()
        if isinstance(widget, QComboBox):
            return widget.currentText() if widget.isEditable() else widget.currentData()
        return widget.text() if isinstance(widget, QLineEdit) else widget.value()

    def values(self) -> dict[str, Any]:
        """The values of all fields by name."""
        return {name: self.value(name) for name in self.widgets}

    def show_values(self, values: Mapping[str, object]) -> None:
        """Show values by name, without a signal. A field that shows its value already is not painted again."""
        self._showing = True
        try:
            for name, value in values.items():
                self._show(name, value)
                self._last_values[name] = self.value(name)  # a number may have been rounded
        finally:
            self._showing = False

    def offer_choices(self, name: str, choices: Mapping[str, str]) -> None:
        """Put other choices into a drop-down, without a signal. The text of a "free" one stays."""
        combo, text = self.widgets[name], self.value(name)
        self._showing = True
        try:
            combo.clear()
            _add_choices(combo, choices)
            combo.setCurrentText(text)
            self._last_values[name] = self.value(name)
        finally:
            self._showing = False

    def _show(self, name: str, value: Any) -> None:
        widget = self.widgets[name]
        if isinstance(widget, (NumberSlider, Choices)):
            widget.set_value(value)
        elif self.value(name) == value:
            return
        elif isinstance(widget, QCheckBox):
            widget.setChecked(value)
        elif isinstance(widget, QComboBox):
            widget.setCurrentIndex(widget.findData(value))
        elif isinstance(widget, QLineEdit):
            widget.setText(value)
            widget.setCursorPosition(0)  # a long text is read from its beginning
        else:
            widget.setValue(value)

    @Slot()
    def _changed(self, *_: object) -> None:
        widget = self.sender()
        name = next(name for name, field in self.widgets.items() if field is widget)
        if not self._showing and (value := self.value(name)) != self._last_values[name]:
            self._last_values[name] = value
            self.changed.emit(name)


def _widget(field: Field, parent: QWidget) -> QWidget:
    if field.kind is bool:
        return QCheckBox(field.label, parent)
    if field.style == "tabs":
        return Choices(tuple(field.choices), parent)
    if field.choices:
        return _drop_down(field, parent)
    if field.kind in (int, float):
        return _number(field, parent)
    line = FileLine(parent) if field.style == "file" else TextLine(parent)
    line.setPlaceholderText("Path of a text file" if field.style == "file" else field.placeholder)
    return line


def _drop_down(field: Field, parent: QWidget) -> QComboBox:
    combo = QComboBox(parent)
    _add_choices(combo, field.choices)
    if field.style == "free":
        combo.setEditable(True)
        combo.lineEdit().setAccessibleName(field.label)  # type: ignore[union-attr]
    return combo


def _add_choices(combo: QComboBox, choices: Mapping[Any, str]) -> None:
    for value, text in choices.items():
        combo.addItem(text, value)


def _number(field: Field, parent: QWidget) -> QWidget:
    whole = field.kind is int
    if field.style == "slider" and field.low is not None and field.high is not None:
        return NumberSlider(field.low, field.high, whole, parent, field.step, field.typed)
    low, high = -NO_LIMIT if field.low is None else field.low, NO_LIMIT if field.high is None else field.high
    spin = QSpinBox(parent) if whole else QDoubleSpinBox(parent)
    if isinstance(spin, QSpinBox):
        spin.setRange(int(low), int(high))
    else:
        spin.setDecimals(field.decimals)
        spin.setRange(low, high)
        spin.setSingleStep(field.step or 1.0)
    spin.setPrefix(field.prefix)
    spin.setSuffix(field.unit)
    spin.setSpecialValueText(field.lowest)
    spin.setKeyboardTracking(field.live)
    return spin


def _change_signal(widget: Any, live: bool) -> Any:
    """The signal that a widget emits when its value changes."""
    if isinstance(widget, QCheckBox):
        return widget.toggled
    if isinstance(widget, QComboBox):
        return widget.currentTextChanged if widget.isEditable() else widget.currentIndexChanged
    if isinstance(widget, QLineEdit):
        return widget.textChanged if live else widget.editingFinished
    return widget.changed if isinstance(widget, (NumberSlider, Choices)) else widget.valueChanged
