"""Asks for the messages that become a prompt in the form that the model was trained on."""

from __future__ import annotations

from PySide6.QtWidgets import QCheckBox, QDialogButtonBox, QFormLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.model.text.chat_template import Message

LINES = 4  # of the person's message that are in sight


class ChatDialog(Dialog):
    """`messages` and `answers` are what was written; `text`: what the person's message begins as."""

    usual = (480, 0)

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("As a chat message")
        self.system, self.user = (self._field(name, lines) for name, lines in (("System", 2), ("User", LINES)))
        self.system.setPlaceholderText("Left out if empty: some templates then say something of their own.")
        self.user.setPlainText(text)
        self.ends = QCheckBox("End where the model’s answer begins", self)
        self.ends.setChecked(True)
        self.primary = QPushButton("Use as the prompt", self)
        self.primary.clicked.connect(self.accept)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel, self)
        buttons.addButton(self.primary, QDialogButtonBox.ButtonRole.ApplyRole)
        buttons.rejected.connect(self.reject)
        form, box = QFormLayout(), QVBoxLayout(self)
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        form.addRow("System", self.system)
        form.addRow("User", self.user)
        form.addRow("", self.ends)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(16)
        box.addLayout(form)
        box.addWidget(buttons)
        self.user.setFocus()

    def _field(self, name: str, lines: int) -> QPlainTextEdit:
        field = QPlainTextEdit(self)
        field.setAccessibleName(f"{name} message")
        field.setTabChangesFocus(True)
        field.setFixedHeight((lines + 1) * field.fontMetrics().lineSpacing())
        return field

    @property
    def messages(self) -> tuple[Message, ...]:
        """Those that were written, in their order."""
        system, user = self.system.toPlainText(), self.user.toPlainText()
        return (*([Message("system", system)] if system else []), Message("user", user))

    @property
    def answers(self) -> bool:
        """Whether the text ends where the model's answer begins."""
        return self.ends.isChecked()
