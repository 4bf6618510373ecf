"""The dialog of the settings: a field for each, built from its declaration."""

from __future__ import annotations

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QDialogButtonBox, QFormLayout, QPushButton, QVBoxLayout, QWidget

from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.form import Field, Form
from circuitlab.gui.widgets.labels import paragraph
from circuitlab.gui.work.settings import SETTINGS, Setting, Settings


def _field(setting: Setting) -> Field:
    kind, choices, limits = type(setting.default), {choice: choice for choice in setting.choices}, (setting.low, setting.high)
    step = 0.1 if kind is float else None
    return Field(setting.name, setting.title, kind, setting.tip, choices, *limits, step, unit=setting.unit, lowest=setting.zero)


class SettingsDialog(Dialog):
    """Every setting with its tip below it; a change takes effect at once."""

    usual = (520, 0)

    def __init__(self, settings: Settings, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Settings")
        self.settings = settings
        self.form = Form(map(_field, SETTINGS), self)
        self.form.show_values({setting.name: settings[setting.name] for setting in SETTINGS})
        self.form.changed.connect(self._field_changed)
        self.fields = self.form.widgets
        layout = QFormLayout()
        layout.setHorizontalSpacing(16)
        layout.setVerticalSpacing(4)
        for setting in SETTINGS:
            layout.addRow(setting.title, self.fields[setting.name])
            note = paragraph(self, "caption", selectable=False)
            note.setText(setting.tip + (" · from the next start" if setting.later else ""))
            note.setAlignment(Qt.AlignmentFlag.AlignTop)  # beside its field, where Qt leaves room for a second line
            note.setContentsMargins(0, 0, 0, 4)
            layout.addRow("", note)
        settings.changed.connect(self._setting_changed)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close, self)
        buttons.rejected.connect(self.accept)
        defaults = QPushButton("Defaults", self)
        defaults.clicked.connect(self.restore)
        buttons.addButton(defaults, QDialogButtonBox.ButtonRole.ResetRole)
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(16)
        box.addLayout(layout)
        box.addWidget(buttons)

    @Slot(str)
    def _field_changed(self, name: str) -> None:
        """Set this setting and no other: others may have been changed elsewhere meanwhile."""
        self.settings.set(name, self.form.value(name))

    @Slot(str)
    def _setting_changed(self, name: str) -> None:
        """Show a setting that was changed, here or by a command."""
        self.form.show_values({name: self.settings[name]})

    @Slot()
    def restore(self) -> None:
        """Set every setting to its default."""
        for setting in SETTINGS:
            self.settings.reset(setting.name)
