"""A place for a view whose contents change often: what stands round it is not laid out again."""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

LEAST = QSize(160, 96)  # what a figure needs to be read at all


class Room(QWidget):
    """Gives a view all its room and asks for no more than `least`: another title in a figure must not lay the whole window out
    again."""

    def __init__(self, view: QWidget, parent: QWidget, least: QSize = LEAST) -> None:
        super().__init__(parent)
        self.view, self._least = view, least
        view.setParent(self)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The view is as large as the room."""
        self.view.setGeometry(self.rect())

    def minimumSizeHint(self) -> QSize:
        """The same whatever is shown."""
        return self._least
