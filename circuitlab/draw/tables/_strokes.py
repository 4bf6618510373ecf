"""Clicks and double-clicks on the rows of a table, which a click may write anew before the button is down again."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QPoint, Qt, Signal, Slot
from PySide6.QtGui import QGuiApplication

from circuitlab.draw.pointing.gestures import CLICK
from circuitlab.draw.tables._cells import RowsTable

Id = tuple[int, ...]


class RowStrokes(QObject):
    """`struck(place, gesture)`: the left button was on a row, which is known by its id from when the button went down.

    Qt knows it by its place, which it forgets as soon as the table has other values: the second press of a double-click would be
    a first one again, and a click under which values arrive would be none. `id_at(place)` and `place_of(id)`, -1 for none, are
    of the rows as they are shown.
    """

    struck = Signal(int, str)

    def __init__(self, table: RowsTable, id_at: Callable[[int], Id], place_of: Callable[[Id], int]) -> None:
        super().__init__(table)
        self._table, self._id_at, self._place_of = table, id_at, place_of
        self._item: Id | None = None  # on which the button went down
        self._at = QPoint()
        self._second = False  # the button goes up after a double-click
        table.button_down.connect(self._down)
        table.button_up.connect(self._up)
        table.button_twice.connect(self._twice)

    @Slot(QPoint)
    def _down(self, at: QPoint) -> None:
        index = self._table.indexAt(at)
        self._item = self._id_at(index.row()) if index.isValid() else None
        self._at, self._second = at, False

    @Slot(QPoint)
    def _up(self, at: QPoint) -> None:
        place = -1 if self._second else self._place(at)
        if place >= 0:
            shift = QGuiApplication.keyboardModifiers() & Qt.KeyboardModifier.ShiftModifier
            self.struck.emit(place, "shift-click" if shift else "click")

    @Slot(QPoint)
    def _twice(self, at: QPoint) -> None:
        if not self._stays(at):
            self._down(at)  # on another row: a click of its own
            return
        self._second = True
        if (place := self._place(at)) >= 0:
            self.struck.emit(place, "double-click")

    def _stays(self, at: QPoint) -> bool:
        """Whether the pointer is where, or on the row on which, the button went down."""
        index = self._table.indexAt(at)
        same = index.isValid() and self._id_at(index.row()) == self._item
        return self._item is not None and (same or (at - self._at).manhattanLength() <= CLICK)

    def _place(self, at: QPoint) -> int:
        """Where the row is now on which the button went down; -1 once the pointer has left it, or it is shown no more."""
        return self._place_of(self._item) if self._item is not None and self._stays(at) else -1
