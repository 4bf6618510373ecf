"""Tables side by side scroll together, with one scroll bar, so that equal ranks stay level."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, Qt, Slot

from circuitlab.draw.tables.rows import RowsMark

NEVER, NEEDED = Qt.ScrollBarPolicy.ScrollBarAlwaysOff, Qt.ScrollBarPolicy.ScrollBarAsNeeded


class ScrolledTogether(QObject):
    """Scrolls `tables` (left to right) by the scroll bar of the longest."""

    def __init__(self, tables: Sequence[RowsMark], parent: QObject) -> None:
        super().__init__(parent)
        self.tables = tuple(tables)
        for one in self.tables:
            bar = one.table.verticalScrollBar()
            bar.valueChanged.connect(self._scrolled)
            bar.rangeChanged.connect(self._choose)
        self._choose()

    @Slot(int)
    def _scrolled(self, value: int) -> None:
        for one in self.tables:
            one.table.verticalScrollBar().setValue(value)  # those that are shorter stay at their end

    @Slot()
    def _choose(self, *_: object) -> None:
        longest = max(enumerate(self.tables), key=lambda pair: (pair[1].model.rowCount(), pair[0]))[1]
        for one in self.tables:
            one.let_scroll(NEEDED if one is longest else NEVER)

    def part(self) -> None:
        """Give each its own scroll bar again."""
        for one in self.tables:
            one.table.verticalScrollBar().disconnect(self)
            one.let_scroll(NEEDED)
        self.deleteLater()
