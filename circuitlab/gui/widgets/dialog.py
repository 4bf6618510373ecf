"""What all dialogs share: Enter in a field presses only the main button, Tab goes in reading order, none exceeds the screen."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QKeyEvent, QShowEvent
from PySide6.QtWidgets import QDialog, QPushButton, QWidget

from circuitlab.draw.look.theme import NORMAL
from circuitlab.draw.pointing.focus_order import chain_as_read

FRAME = QSize(16, 48)  # px that desktops put around a window, at most


def room_for(window: QWidget) -> QSize:
    """The size in px of the largest window, without its frame, on the screen where `window` is."""
    return window.screen().availableGeometry().size() - FRAME


class Dialog(QDialog):
    """A dialog in which Enter presses the button with the keyboard focus, else `primary`, or no button if that is None.

    Qt makes the first button of a dialog its default one, whatever it does. `usual`: width and height in px at text size 1 when
    it opens, if its contents ask for less and the screen has room.
    """

    primary: QPushButton | None = None
    usual = (0, 0)
    _fitted = 0.0  # the text size for which the dialog was last sized; the user may have resized it since

    def setVisible(self, visible: bool) -> None:
        """Give the dialog the size that its text needs, no larger than the screen."""
        scale = self.fontInfo().pixelSize() / NORMAL
        if visible and not self.isVisible() and scale != self._fitted:
            self._fitted = scale
            self.resize(self._natural_size(scale).boundedTo(room_for(self)))
        super().setVisible(visible)

    def _natural_size(self, scale: float) -> QSize:
        """The size in px at this text size, with all lines of texts that wrap."""
        self.ensurePolished()
        usual = QSize(round(self.usual[0] * scale), round(self.usual[1] * scale))
        size, layout = usual.expandedTo(self.sizeHint()), self.layout()
        if layout is None or not layout.hasHeightForWidth():
            return size
        wide = min(max(size.width(), layout.totalMinimumSize().width()), room_for(self).width())
        return QSize(wide, max(usual.height(), layout.totalHeightForWidth(wide)))

    def showEvent(self, event: QShowEvent) -> None:
        """Set the default button and the Tab order when shown: buttons may have been added since the dialog was built."""
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
