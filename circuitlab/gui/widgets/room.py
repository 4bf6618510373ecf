"""A place for a widget whose content changes often, without the layouts around it being computed again."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

LEAST = QSize(160, 96)  # what a figure needs to be read at all


class Room(QWidget):
    """Holds one widget, gives it all its room, and shields the window's layout from it.

    In a Qt layout every change of a text is passed up to the window, which then asks each dock for its size, dozens of times. A
    room asks for the size `least`, whatever the widget asks for. With None it asks for the widget's least width and its height,
    and tells the layout around it only when these change.
    """

    def __init__(self, parent: QWidget, least: QSize | None = LEAST) -> None:
        super().__init__(parent)
        self.view: QWidget | None = None
        self._follows = least is None
        if least is not None:
            self.setMinimumSize(least)
        else:
            self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def hold(self, view: QWidget) -> None:
        """Hold a widget, best one that was made in here: Qt styles what moves to another parent anew, with all that is in it."""
        self.view = view
        if view.parent() is not self:
            view.setParent(self)
        if self._follows:
            self._follow()

    def event(self, event: QEvent) -> bool:
        """Follow the widget when something in it asks for another size."""
        if event.type() == QEvent.Type.LayoutRequest and self._follows:
            self._follow()
        return super().event(event)

    def showEvent(self, event: QShowEvent) -> None:
        """Follow the widget again: Qt passes on no requests while the room is hidden."""
        super().showEvent(event)
        if self._follows:
            self._follow()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Make the widget as large as the room."""
        if self.view is not None:
            self.view.setGeometry(self.rect())

    def _follow(self) -> None:
        if self.view is None:
            return
        size = QSize(self.view.minimumSizeHint().width(), self.view.sizeHint().height())
        self.setMinimumSize(size.expandedTo(self.view.minimumSize()))
