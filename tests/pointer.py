"""The pointer over a widget, sent to its own window.

`QTest.mouseMove` of a widget sets the screen's cursor, and the move goes to whatever window lies on top there: one that an
earlier test left open takes it. A move sent to the widget's window goes nowhere else, and brings Enter and Leave with it.
"""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

LEFT, NONE = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier


def move(widget: QWidget, point: QPoint) -> None:
    """The pointer comes to `point` (pixels of `widget`) from elsewhere: one that stands there already would not move."""
    QTest.mouseMove(widget.window().windowHandle(), _in_window(widget, point + QPoint(1, 1)))
    QTest.mouseMove(widget.window().windowHandle(), _in_window(widget, point))


def drag(widget: QWidget, *points: QPoint) -> None:
    """The left button goes down at the first of `points` (pixels of `widget`), over the others, and up at the last."""
    window = widget.window().windowHandle()
    QTest.mousePress(window, LEFT, NONE, _in_window(widget, points[0]))
    for point in points[1:]:
        QTest.mouseMove(window, _in_window(widget, point))
        QApplication.processEvents()  # as many moves as points: those that wait are made one
    QTest.mouseRelease(window, LEFT, NONE, _in_window(widget, points[-1]))


def _in_window(widget: QWidget, point: QPoint) -> QPoint:
    return widget.mapTo(widget.window(), point)
