"""The settings as a form: one field each, from what is declared of it."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import (
    QComboBox,
    QDialogButtonBox,
    QDoubleSpinBox,
    QFormLayout,
    QPushButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.work.settings import SETTINGS, Setting, Settings


class SettingsDialog(Dialog):
    """Every setting with its tip; a change acts at once."""

    def __init__(self, settings: Settings, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Settings")
        self.settings = settings
        self.fields: dict[str, QWidget] = {}
        form = QFormLayout()
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        for setting in SETTINGS:
            field = self._field(setting)
            field.setObjectName(setting.name)
            field.setToolTip(tip_of(setting.tip))
            field.setAccessibleName(setting.title)
            self.fields[setting.name] = field
            form.addRow(setting.title, field)
            note = PlainLabel(setting.tip + (" · from the next start" if setting.later else ""), self)
            note.setTextFormat(Qt.TextFormat.PlainText)
            note.setProperty("role", "caption")
            form.addRow("", note)
        settings.changed.connect(self._follow)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close, self)
        buttons.rejected.connect(self.accept)
        defaults = QPushButton("Defaults", self)
        defaults.clicked.connect(self.restore)
        buttons.addButton(defaults, QDialogButtonBox.ButtonRole.ResetRole)
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(16)
        box.addLayout(form)
        box.addWidget(buttons)

    def _field(self, setting: Setting) -> QWidget:
        value = self.settings[setting.name]
        if setting.choices:
            combo = QComboBox(self)
            combo.addItems(setting.choices)
            combo.setCurrentText(str(value))
            combo.currentTextChanged.connect(self._moved)
            return combo
        spin: QSpinBox | QDoubleSpinBox
        if isinstance(setting.default, int):
            spin = QSpinBox(self)
            spin.setRange(int(setting.low), int(setting.high))
            spin.setValue(int(value))
        else:
            spin = QDoubleSpinBox(self)
            spin.setRange(setting.low, setting.high)
            spin.setSingleStep(0.1)
            spin.setValue(float(value))
        spin.setSuffix(setting.unit)
        spin.setSpecialValueText(setting.zero)
        spin.setKeyboardTracking(False)
        spin.valueChanged.connect(self._moved)
        return spin

    @Slot()
    def _moved(self, *_: object) -> None:
        """The field that was moved, and no other: one may have been changed elsewhere meanwhile."""
        field = self.sender()
        if isinstance(field, QComboBox):
            self.settings.set(field.objectName(), field.currentText())
        elif isinstance(field, (QSpinBox, QDoubleSpinBox)):
            self.settings.set(field.objectName(), field.value())

    @Slot(str)
    def _follow(self, name: str) -> None:
        """Changed, here or by a command."""
        self._show(name, self.settings[name])

    def _show(self, name: str, value: Any) -> None:
        field = self.fields[name]
        if isinstance(field, QComboBox):
            field.setCurrentText(str(value))
        elif isinstance(field, (QSpinBox, QDoubleSpinBox)):
            field.setValue(value)

    @Slot()
    def restore(self) -> None:
        """Every setting as at the first start."""
        for setting in SETTINGS:
            self._show(setting.name, setting.default)
