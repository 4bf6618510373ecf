"""Text of folders, tokenizers, files and errors is shown as it is: Qt takes `<b>` in labels, tips and boxes for markup otherwise.

Labels are `PlainLabel`, tips go through `tip_of`, boxes are `PlainBox`; a test holds the package to it.
"""

from __future__ import annotations

from html import escape

from PySide6.QtCore import QEvent
from PySide6.QtGui import QColor, QShowEvent, Qt
from PySide6.QtWidgets import QLabel, QMessageBox, QWidget


class PlainLabel(QLabel):
    """A label that never interprets markup."""

    def __init__(self, text: str | QWidget | None = None, parent: QWidget | None = None) -> None:
        words, owner = (text, parent) if isinstance(text, str) else ("", parent or text)
        super().__init__(words, owner)
        self.setTextFormat(Qt.TextFormat.PlainText)


class InkLabel(PlainLabel):
    """A plain label in a colour of its own, also where it comes under another style sheet, by which Qt takes back its palette."""

    _ink: QColor | None = None

    def set_ink(self, colour: QColor) -> None:
        """Write in this colour."""
        self._ink = colour
        self._write()

    def _write(self) -> None:
        ink = self.palette()
        if self._ink is not None and ink.color(self.foregroundRole()) != self._ink:
            ink.setColor(self.foregroundRole(), self._ink)
            self.setPalette(ink)

    def changeEvent(self, event: QEvent) -> None:
        """See the class."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:
            self._write()


class PlainBox(QMessageBox):
    """A message box that never interprets markup."""

    def showEvent(self, event: QShowEvent) -> None:
        """By now the label of the informative text exists."""
        for label in self.findChildren(QLabel):
            label.setTextFormat(Qt.TextFormat.PlainText)
        super().showEvent(event)


def question(parent: QWidget | None, title: str, text: str) -> PlainBox:
    """A yes-or-no box; Enter and Esc mean no."""
    yes, no = QMessageBox.StandardButton.Yes, QMessageBox.StandardButton.No
    box = PlainBox(QMessageBox.Icon.Question, title, text, yes | no, parent)
    box.setDefaultButton(no)
    return box


def confirmed(parent: QWidget | None, title: str, text: str) -> bool:
    """Whether the person answers yes."""
    box = question(parent, title, text)
    answer = box.exec()
    box.deleteLater()
    return answer == QMessageBox.StandardButton.Yes


def plain_tip(text: str) -> str:
    """Text for a tool tip that shows exactly these characters, spaces too."""
    return f"<p style='white-space:pre-wrap'>{escape(text)}</p>" if text else ""


def tip_of(text: str) -> str:
    """Text for a tool tip that shows exactly these characters, escaped only where Qt would take it for markup."""
    return plain_tip(text) if Qt.mightBeRichText(text) else text
