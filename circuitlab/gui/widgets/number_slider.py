"""Controls that Qt has no single widget for: a number with a slider, and a row of buttons of which one is down."""

from __future__ import annotations

import math

from PySide6.QtCore import QSignalBlocker, QSize, Qt, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QComboBox, QDoubleSpinBox, QHBoxLayout, QSlider, QSpinBox, QToolButton, QWidget

STEPS = 1000  # positions of a slider


class NumberSlider(QWidget):
    """A slider with its number; the slider is logarithmic if its limits are more than a factor of 50 apart.

    `step`: the distance between the numbers it can have; `typed`: the limits of what may be typed, if wider than the slider's.
    """

    changed = Signal()

    def __init__(
        self,
        low: float,
        high: float,
        whole: bool,
        parent: QWidget | None = None,
        step: float | None = None,
        typed: tuple[float, float] | None = None,
    ) -> None:
        super().__init__(parent)
        self._low, self._high, self._log = low, high, low > 0 and high / low > 50
        self._step = step or (1 if whole else (high - low) / 100)
        self._rounded = math.nan, math.nan  # the value last set, and the number as the field rounded it
        self.slider = QSlider(Qt.Orientation.Horizontal, self)
        self.slider.setRange(0, STEPS)
        self.slider.setFixedWidth(64)
        self.number: QSpinBox | QDoubleSpinBox
        least, most = typed or (low, high)
        if whole:
            self.number = QSpinBox(self)
            self.number.setRange(int(least), int(most))
            self.number.setSingleStep(int(self._step))
        else:
            self.number = QDoubleSpinBox(self)
            if step is not None:
                self.number.setDecimals(max(0, math.ceil(-math.log10(step))))
            self.number.setRange(least, most)
            self.number.setSingleStep(self._step)
        self.number.setKeyboardTracking(False)
        self._lay_out()
        self.slider.valueChanged.connect(self._slider_moved)
        self.slider.sliderReleased.connect(self._move_slider_to_number)
        self.number.valueChanged.connect(self._number_changed)

    def _lay_out(self) -> None:
        if self.number.maximum() > 2 * self._high:  # not as wide as the largest number that may be typed
            decimals = self.number.decimals() if isinstance(self.number, QDoubleSpinBox) else 0
            digits = f"{self._high:.0f}8" + ("." + "8" * decimals if decimals else "")
            self.number.setFixedWidth(self.number.fontMetrics().horizontalAdvance(digits) + 26)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        row.addWidget(self.slider)
        row.addWidget(self.number)

    def value(self) -> int | float:
        """The number."""
        return self.number.value()

    def set_value(self, value: float) -> None:
        """Show a number, without a signal."""
        with QSignalBlocker(self.number), QSignalBlocker(self.slider):
            present = self.number.value()
            if value != present and (value, present) != self._rounded:  # else it would be painted again for nothing
                if isinstance(self.number, QSpinBox):
                    self.number.setValue(round(value))
                else:
                    self.number.setValue(value)
                self._rounded = value, self.number.value()
            if not self.slider.isSliderDown():  # a slider that is being dragged stays under the pointer
                self.slider.setValue(self._slider_position(value))

    def _slider_position(self, value: float) -> int:
        value = min(max(value, self._low), self._high)
        if self._log:
            return round(STEPS * math.log(value / self._low) / math.log(self._high / self._low))
        return round(STEPS * (value - self._low) / (self._high - self._low))

    @Slot(int)
    def _slider_moved(self, position: int) -> None:
        part = position / STEPS
        value = self._low * (self._high / self._low) ** part if self._log else self._low + part * (self._high - self._low)
        before = self.number.value()
        with QSignalBlocker(self.number):
            if isinstance(self.number, QSpinBox):
                self.number.setValue(round(self._low + round((value - self._low) / self._step) * self._step))
            else:
                self.number.setValue(value)
        if self.number.value() != before:
            self.changed.emit()

    @Slot()
    def _move_slider_to_number(self) -> None:
        with QSignalBlocker(self.slider):
            self.slider.setValue(self._slider_position(float(self.number.value())))

    @Slot()
    def _number_changed(self, *_: object) -> None:
        self._move_slider_to_number()
        self.changed.emit()


class Choices(QWidget):
    """Buttons side by side, one of them down, for the pages of a panel; a drop-down if there is no room for all of them."""

    changed = Signal()

    def __init__(self, choices: tuple[str, ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._choices = choices
        self._group = QButtonGroup(self)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        for i, choice in enumerate(choices):
            button = QToolButton(self)
            button.setText(choice)
            button.setCheckable(True)
            button.setProperty("role", "page")
            self._group.addButton(button, i)
            row.addWidget(button)
        self.list = QComboBox(self)
        self.list.setAccessibleName("Page")
        self.list.addItems(choices)
        self.list.activated.connect(self._list_activated)
        self.list.hide()
        row.addWidget(self.list, 0, Qt.AlignmentFlag.AlignLeft)
        self._group.idClicked.connect(self._clicked)

    def sizeHint(self) -> QSize:
        """The size of all buttons."""
        sizes = [button.sizeHint() for button in self._group.buttons()]
        return QSize(sum(size.width() for size in sizes), max(size.height() for size in sizes))

    def minimumSizeHint(self) -> QSize:
        """The width of the drop-down."""
        return QSize(min(self.list.sizeHint().width(), self.sizeHint().width()), self.sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Show the buttons, or the drop-down if they do not fit."""
        super().resizeEvent(event)
        squeezed = self.width() < self.sizeHint().width()
        if squeezed == self.list.isHidden():
            for button in self._group.buttons():
                button.setVisible(not squeezed)
            self.list.setVisible(squeezed)

    def value(self) -> str:
        """The choice whose button is down."""
        return self._choices[max(self._group.checkedId(), 0)]

    def set_value(self, choice: str) -> None:
        """Show a choice, without a signal."""
        self._group.button(self._choices.index(choice)).setChecked(True)
        self.list.setCurrentIndex(self._choices.index(choice))

    def button(self, choice: str) -> QToolButton:
        """The button of a choice."""
        button = self._group.button(self._choices.index(choice))
        assert isinstance(button, QToolButton)
        return button

    @Slot(int)
    def _clicked(self, index: int) -> None:
        self.list.setCurrentIndex(index)
        self.changed.emit()

    @Slot(int)
    def _list_activated(self, index: int) -> None:
        self._group.button(index).setChecked(True)
        self.changed.emit()
