"""What is seen of a table: the rows in view, their order and a filter, as words that another table can be brought to."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtWidgets import QLineEdit

from circuitlab.draw.tables._cells import RowsTable
from circuitlab.draw.tables.model import RowsModel
from circuitlab.figures.marks import Rows
from circuitlab.story.zoom import Part, TablePart

Order = tuple[int, Qt.SortOrder] | None
WAYS = {"up": Qt.SortOrder.AscendingOrder, "down": Qt.SortOrder.DescendingOrder}


def declared(mark: Rows) -> Order:
    """The order that a mark asks for, None for that of its rows."""
    return None if mark.sort is None else (mark.sort[0], WAYS[mark.sort[1]])


class SeenRows(QObject):
    """`turned()`: another part is seen, by hand. `follow()` brings the selection into view as it is in a new table.

    Where nobody has scrolled, the selection decides what is in view, and no word is said of it.
    """

    turned = Signal()

    def __init__(self, table: RowsTable, model: RowsModel, filter_box: QLineEdit, follow: Callable[[], object]) -> None:
        super().__init__(table)
        self._table, self._model, self._filter, self._follow = table, model, filter_box, follow
        self._by_hand = False  # scrolled by hand, or as words say
        self._first: int | None = None  # the row that words have at the top, until something else scrolls
        self._showing = False
        table.verticalScrollBar().actionTriggered.connect(self._scrolled)
        table.verticalScrollBar().rangeChanged.connect(self._ranged)
        table.horizontalHeader().sortIndicatorChanged.connect(self._turned)
        filter_box.textChanged.connect(self._turned)

    # -- what happens to the table ------------------------------------------------------------------------------------

    @Slot()
    def _scrolled(self, *_: object) -> None:
        self._by_hand, self._first = True, None
        self._turned()

    @Slot()
    def _turned(self, *_: object) -> None:
        if not self._showing:
            self.turned.emit()

    @Slot()
    def _ranged(self, *_: object) -> None:
        """The table has got its size: now the row can be brought to the top."""
        if self._first is not None:
            self._table.verticalScrollBar().setValue(self._first)

    def scrolled_otherwise(self) -> None:
        """The selection, or another table, has decided what is in view."""
        self._by_hand, self._first = False, None

    # -- as words -----------------------------------------------------------------------------------------------------

    def part(self) -> Part | None:
        """Rows, order and filter, as far as they are not as the table comes."""
        rows = self._rows() if self._by_hand else None
        sort = None if self._model.sorted_by == declared(self._model.mark) else self._sort()
        text = self._filter.text()
        if sort is None and not text:
            return None if rows is None else (float(rows[0]), float(rows[1]))
        return TablePart(rows, sort, text)

    def _rows(self) -> tuple[int, int] | None:
        """The first and the last row in view; None at the top of a table that would be there in any case."""
        n, bar = self._model.rowCount(), self._table.verticalScrollBar()
        first = bar.value() if self._first is None else self._first
        last = self._table.rowAt(self._table.viewport().height() - 1)
        if not n or (not first and not (self._model.mark.chosen and bar.maximum())):
            return None
        return first, max(first, n - 1 if last < 0 else last)

    def _sort(self) -> tuple[str, str] | tuple[()]:
        if self._model.sorted_by is None:
            return ()
        column, order = self._model.sorted_by
        return self._model.mark.columns[column].name, next(way for way, one in WAYS.items() if one == order)

    def show(self, part: Part) -> bool:
        """Show a part that `part` gave, perhaps of another table. Whether it is here as it was."""
        if not isinstance(part, TablePart):
            if len(part) != 2:
                self.show_whole()
                return False
            part = TablePart((int(part[0]), int(part[1])))
        mark = self._model.mark
        columns = [column.name for column in mark.columns]
        sortable = not part.sort or part.sort[0] in columns
        filtered = not part.filter or mark.searchable
        order = declared(mark) if part.sort is None or not sortable else None
        if part.sort and sortable:
            order = columns.index(part.sort[0]), WAYS[part.sort[1]]
        self._showing = True
        self._filter.setText(part.filter if filtered else "")
        self._sort_by(order)
        inside = self._scroll_to(part.rows)
        self._showing = False
        return sortable and filtered and inside

    def show_whole(self) -> None:
        """As the table comes: in the order that it asks for, every row, the selection in view."""
        if self.part() is None:
            return
        self._showing = True
        self._filter.clear()
        self._sort_by(declared(self._model.mark))
        self._scroll_to(None)
        self._showing = False

    def _sort_by(self, order: Order) -> None:
        column, way = order or (-1, Qt.SortOrder.DescendingOrder)
        self._table.horizontalHeader().setSortIndicator(column, way)
        if self._model.sorted_by != order:
            self._model.sort(column, way)

    def _scroll_to(self, rows: tuple[int, int] | None) -> bool:
        """Bring the first of these rows to the top, None: where a new table is. Whether there is such a row."""
        n, bar = self._model.rowCount(), self._table.verticalScrollBar()
        if rows is None:
            self.scrolled_otherwise()
            bar.setValue(0)
            self._follow()
            return True
        self._by_hand, self._first = True, min(max(rows[0], 0), max(n - 1, 0))
        bar.setValue(self._first)
        return rows[0] == self._first
