"""A place for a widget whose contents change often: what stands around it is not laid out again."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

LEAST = QSize(160, 96)  # what a figure needs to be read at all


class Room(QWidget):
    """Gives one widget all its room, and stands between it and the window's layout.

    With a layout of Qt's, every change of a text is passed up to the window, which then asks each of its docks for its size,
    dozens of times. A room asks for `least`, whatever it holds; None: for the widget's least width and its height, and it tells
    the layout around it only when these change.
    """

    def __init__(self, view: QWidget, parent: QWidget, least: QSize | None = LEAST) -> None:
        super().__init__(parent)
        self.view, self._follows = view, least is None
        view.setParent(self)
        if least is not None:
            self.setMinimumSize(least)
        else:
            self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
            self._follow()

    def event(self, event: QEvent) -> bool:
        """Something in the widget asks for another size."""
        if event.type() == QEvent.Type.LayoutRequest and self._follows:
            self._follow()
        return super().event(event)

    def showEvent(self, event: QShowEvent) -> None:
        """Qt passes no requests on to what is not visible."""
        super().showEvent(event)
        if self._follows:
            self._follow()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The widget is as large as the room."""
        self.view.setGeometry(self.rect())

    def _follow(self) -> None:
        needed = QSize(self.view.minimumSizeHint().width(), self.view.sizeHint().height())
        self.setMinimumSize(needed.expandedTo(self.view.minimumSize()))
