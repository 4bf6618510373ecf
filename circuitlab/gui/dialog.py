"""What all dialogs share: Enter in a field presses nothing but the button that the dialog is for; Tab goes as one reads."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent, QShowEvent
from PySide6.QtWidgets import QDialog, QPushButton

from circuitlab.draw.focus_order import chain_as_read


class Dialog(QDialog):
    """A dialog whose Enter key presses `primary`, or no button at all; the button that has the keyboard is pressed by it.

    Qt makes the first button of a dialog its default one, whatever it does.
    """

    primary: QPushButton | None = None

    def showEvent(self, event: QShowEvent) -> None:
        """Buttons may have been added since it was made."""
        super().showEvent(event)
        for button in self.findChildren(QPushButton):
            button.setAutoDefault(False)
            button.setDefault(button is self.primary)
        chain_as_read(self)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter on a button presses that button."""
        focused = self.focusWidget()
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and isinstance(focused, QPushButton):
            focused.click()
            event.accept()
        else:
            super().keyPressEvent(event)
