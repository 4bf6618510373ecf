"""The pointer over a widget, sent to its own window with its own buttons.

`QTest.mouseMove` of a widget sets the screen's cursor, and the move goes to whatever window lies on top there: one that an
earlier test left open takes it. It also carries the button that the last click of any test pressed, and then it is a drag.
A move made here goes to one window, with no button or the left one, and brings Enter and Leave with it.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QApplication, QWidget

LEFT, UP = Qt.MouseButton.LeftButton, Qt.MouseButton.NoButton
Type = QEvent.Type


def move(widget: QWidget, point: QPoint) -> None:
    """The pointer comes to `point` (pixels of `widget`), no button pressed."""
    _send(widget, Type.MouseMove, point, UP, UP)


def drag(widget: QWidget, *points: QPoint) -> None:
    """The left button goes down at the first of `points` (pixels of `widget`), over the others, and up at the last."""
    _send(widget, Type.MouseButtonPress, points[0], LEFT, LEFT)
    for point in points[1:]:
        _send(widget, Type.MouseMove, point, UP, LEFT)
    _send(widget, Type.MouseButtonRelease, points[-1], LEFT, UP)


def _send(widget: QWidget, kind: QEvent.Type, point: QPoint, button: Qt.MouseButton, held: Qt.MouseButton) -> None:
    inside, anywhere = QPointF(widget.mapTo(widget.window(), point)), QPointF(widget.mapToGlobal(point))
    event = QMouseEvent(kind, inside, anywhere, button, held, Qt.KeyboardModifier.NoModifier)
    QApplication.sendEvent(widget.window().windowHandle(), event)
