"""A pointer that rests over a window is hidden until it moves."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, QTimer, Slot
from PySide6.QtGui import QCursor, QGuiApplication
from PySide6.QtWidgets import QWidget

RESTS = 3000  # ms without a move


class RestingPointer(QObject):
    """Hides the pointer of the application while it rests over the window of `target`; told of its moves.

    Parts of a window have pointers of their own, so that one for the window would not do.
    """

    def __init__(self, target: QWidget) -> None:
        super().__init__(target)
        self.target = target
        self.hidden = False
        self.timer = QTimer(self)
        self.timer.setSingleShot(True)
        self.timer.setInterval(RESTS)
        self.timer.timeout.connect(self._hide)

    def begin(self) -> None:
        """The window has come up, perhaps under the pointer."""
        if self.target.window().geometry().contains(QCursor.pos()):
            self.moved()

    def moved(self) -> None:
        """Show it, and hide it when it rests again."""
        self._show()
        self.timer.start()

    def left(self) -> None:
        """Show it: it is over something else, or the window has gone."""
        self.timer.stop()
        self._show()

    @Slot()
    def _hide(self) -> None:
        if not self.hidden and self.target.isVisible():
            self.hidden = True
            QGuiApplication.setOverrideCursor(Qt.CursorShape.BlankCursor)

    def _show(self) -> None:
        if self.hidden:
            self.hidden = False
            QGuiApplication.restoreOverrideCursor()
