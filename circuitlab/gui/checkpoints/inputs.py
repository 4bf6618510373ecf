"""What somebody does with keyboard and mouse while a film plays."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QGuiApplication, QKeyEvent, QMouseEvent, QWindow
from PySide6.QtWidgets import QApplication

BUTTON = "film.play"  # the name of a button that plays and stops it
# These stop it themselves.
ABOUT_IT = ("checkpoints.play", BUTTON)
_MODIFIERS = {Qt.Key.Key_Control, Qt.Key.Key_Shift, Qt.Key.Key_Alt, Qt.Key.Key_AltGr, Qt.Key.Key_Meta}
_POINTING = (QEvent.Type.MouseButtonPress, QEvent.Type.MouseButtonDblClick, QEvent.Type.Wheel, QEvent.Type.TouchBegin)


class Inputs(QObject):
    """`happened()`: a key that is no shortcut, a button of the mouse or its wheel, while it watches.

    It watches native windows: a filter on the application would see widgets that are still being made.
    """

    happened = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._windows: list[QWindow] = []

    def watch(self, on: bool) -> None:
        """Begin or end to watch the windows that are there."""
        for window in self._windows:
            window.removeEventFilter(self)
        self._windows = QGuiApplication.topLevelWindows() if on else []
        for window in self._windows:
            window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Every event goes on to where it belongs."""
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if event.key() not in _MODIFIERS:
                self.happened.emit()
        elif event.type() in _POINTING and _name_under(watched, event) not in ABOUT_IT:
            self.happened.emit()
        return False


def _name_under(watched: QObject, event: QEvent) -> str:
    """The name of the widget that a press in a native window is on, "" where there is none."""
    top = next((w for w in QApplication.topLevelWidgets() if w.windowHandle() is watched), None)
    under = top.childAt(event.position().toPoint()) if top is not None and isinstance(event, QMouseEvent) else None
    return "" if under is None else under.objectName()
