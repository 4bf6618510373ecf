"""A table: sorts, filters and copies; numbers to the right in tabular figures, bars behind values, tokens in the mono face."""

from __future__ import annotations

from typing import Any

import numpy as np
from PySide6.QtCore import QItemSelection, QItemSelectionModel, QModelIndex, QPoint, Qt, Signal, Slot
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QHeaderView,
    QLineEdit,
    QVBoxLayout,
    QWidget,
)

from circuitlab.caption_parts import Essential
from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.tables._cells import RowsDelegate, RowsHeader, RowsTable
from circuitlab.draw.tables._colour_key import MARGIN, ColourKey, key_column, key_height, key_width, key_words
from circuitlab.draw.tables._widths import LEAST_SECTION, ROW, ColumnWidths
from circuitlab.draw.tables.model import RowsModel, cell_text
from circuitlab.figures.marks import Hit, Rows

MOST = 40  # rows at most in its natural height
LEAST_WITH_KEY = 150  # px of height from which on a key to its colours stands below it


def listed(mark: Rows) -> str:
    """How many rows a table lists of how many, where others are left out in between."""
    return "" if mark.gap is None else f"each table {len(mark.ids):,} of {mark.gap[1]:,}, others left out where the dots are"


class RowsMark(QWidget):
    """Realises `Rows`."""

    gestured = Signal(object, str)
    context = Signal(object, QPoint)
    noted = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self.mark_name = ""
        self.model = RowsModel(self)
        self.table = RowsTable(self)
        self._delegate = RowsDelegate(self.table)
        self._delegate.theme = theme
        self._hovered = -1
        self._scrolls = False
        self._widths = ColumnWidths(self.table, self.model, theme)
        self.filter_box = QLineEdit(self)
        self.filter_box.setPlaceholderText("Filter")
        self.filter_box.setClearButtonEnabled(True)
        self.filter_box.setAccessibleName("Filter rows")
        self.count = PlainLabel(self)
        self.heading = PlainLabel(self)
        self.key = ColourKey(theme, self)
        for label in (self.count, self.heading):
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.heading.setWordWrap(True)
        top = QHBoxLayout()
        top.addWidget(self.filter_box, 1)
        top.addWidget(self.count)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(self.heading)
        layout.addLayout(top)
        layout.addWidget(self.table, 1)
        layout.addWidget(self.key)
        self._set_up_table()
        self._connect()
        self.set_theme(theme)
        self.setMinimumSize(80, 60)
        self.setFocusProxy(self.table)

    def _set_up_table(self) -> None:
        table = self.table
        table.setModel(self.model)
        table.setItemDelegate(self._delegate)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        table.setShowGrid(False)
        table.setWordWrap(False)
        table.setTabKeyNavigation(False)
        table.setMouseTracking(True)
        table.verticalHeader().setVisible(False)
        table.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header = RowsHeader(Qt.Orientation.Horizontal, table)
        table.setHorizontalHeader(header)
        header.setSectionsClickable(True)
        header.setSortIndicatorShown(True)
        header.setSortIndicatorClearable(True)
        header.setHighlightSections(False)
        header.setTextElideMode(Qt.TextElideMode.ElideRight)
        header.setMinimumSectionSize(LEAST_SECTION)
        header.setSortIndicator(-1, Qt.SortOrder.DescendingOrder)

    def _connect(self) -> None:
        table = self.table
        table.horizontalHeader().sortIndicatorChanged.connect(self._sorted)
        table.clicked.connect(self._clicked)
        table.doubleClicked.connect(self._double_clicked)
        table.entered.connect(self._entered)
        table.walked.connect(self._walked)
        table.entered_key.connect(self._walked)
        table.left_by_escape.connect(self._left)
        table.went.connect(self._gone)
        table.copied.connect(self.copy)
        table.asked_menu.connect(self._menu)
        self.filter_box.textChanged.connect(self._filtered)
        table.verticalScrollBar().rangeChanged.connect(self._ranged)

    # the mark --------------------------------------------------------------------------------------------------------

    @property
    def mark(self) -> Rows:
        """The current mark."""
        return self.model.mark

    def show_mark(self, mark: Rows) -> None:
        """Read the arrays only where they are new; sort order, filter and scroll position stay."""
        old, self.mark_name = self.model.mark, mark.name
        names = [c.name for c in mark.columns] == [c.name for c in old.columns]
        same = names and mark.ids is old.ids and all(a.values is b.values for a, b in zip(mark.columns, old.columns, strict=True))
        self.heading.setText(mark.heading)
        self.heading.setVisible(bool(mark.heading))
        self.filter_box.setVisible(mark.searchable)
        if same:
            self.model.mark = mark
        else:
            place = self.table.verticalScrollBar().value()
            self.model.show_rows(mark)
            self._indicate()
            self._counted()
            new_order = not (names and np.array_equal(mark.ids, old.ids)) and self.model.sorted_by is None
            self.table.verticalScrollBar().setValue(0 if new_order else place)
            if not names or self._widths.outgrown():
                self._share(anew=True)
        scales = lambda of: [(c.map, c.levels) for c in of.columns]
        if mark.strong != old.strong or mark.gap != old.gap or scales(mark) != scales(old):
            self.table.viewport().update()
        self._place_key()
        if not same or mark.chosen != old.chosen:
            self._select(mark.chosen, follow=same or not self.mark.ranked)
            self.table.viewport().update()

    def _place_key(self) -> None:
        """Show the key below the table where there is room; otherwise the caption has it."""
        column = key_column(self.mark)
        room = self.width() - 2 * MARGIN
        if column is not None and (self.height() < self.theme.px(LEAST_WITH_KEY) or room < key_width(column, self.theme)):
            column = None
        self.key.show_column(column, self.theme)

    def _indicate(self) -> None:
        header = self.table.horizontalHeader()
        header.blockSignals(True)
        column, order = self.model.sorted_by or (-1, Qt.SortOrder.DescendingOrder)
        header.setSortIndicator(column, order)
        header.blockSignals(False)

    def _select(self, chosen: tuple[int, ...], follow: bool = True) -> None:
        """Select the chosen rows without a signal. `follow`: scroll the leading one into view."""
        selection = QItemSelection()
        last = self.model.columnCount() - 1
        rows = np.flatnonzero(np.isin(self.model.order, chosen)).tolist() if chosen else []
        for row in rows:
            selection.select(self.model.index(row, 0), self.model.index(row, last))
        flag = QItemSelectionModel.SelectionFlag
        self.table.selectionModel().select(selection, flag.ClearAndSelect)
        if rows:
            leading = self.model.index(self._place(chosen[0], rows[0]), 0)
            follows = follow and (self.table.hasFocus() or not self._by_size())
            self.table.setAutoScroll(follows)  # otherwise Qt scrolls to the current row
            self.table.selectionModel().setCurrentIndex(leading, flag.NoUpdate)
            self.table.setAutoScroll(True)
            if follows:
                self._reveal(leading.row())

    def _reveal(self, row: int) -> None:
        """Scroll to a row; Qt scrolls to no cell of a hidden column."""
        header = self.table.horizontalHeader()
        column = next((c for c in range(self.model.columnCount()) if not header.isSectionHidden(c)), 0)
        self.table.scrollTo(self.model.index(row, column))

    def _place(self, row: int, otherwise: int) -> int:
        """Current position of a row of the mark; `otherwise` where it is filtered out."""
        places = np.flatnonzero(self.model.order == row)
        return int(places[0]) if places.size else otherwise

    def _by_size(self) -> bool:
        """Whether the rows are in the order of a measure: then the largest stay in view."""
        if self.mark.ranked and self.model.sorted_by is None:
            return True
        for column in self.mark.columns:
            if column.bar and len(self.model.order) > 1:
                sizes = np.abs(np.nan_to_num(np.asarray(column.values, float)[self.model.order]))
                if (np.diff(sizes) <= 0).all():
                    return True
        return False

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Share the new width."""
        super().resizeEvent(event)
        before = self.key.column
        self._place_key()
        if self.key.column is not before:
            self.noted.emit()
        self._share()

    def let_scroll(self, policy: Qt.ScrollBarPolicy) -> None:
        """With a scroll bar of its own, or with that of a table beside it."""
        if policy != self.table.verticalScrollBarPolicy():
            self.table.setVerticalScrollBarPolicy(policy)
            self._widths.stretch(self.width(), self.height())

    def set_theme(self, theme: Theme) -> None:
        """Another theme: hues stay, scales begin at its background."""
        self.theme = self._delegate.theme = self._widths.theme = theme
        self.count.setFont(theme.font(theme.small))
        self.heading.setFont(theme.font(theme.small, bold=True))
        ink = self.count.palette()
        ink.setColor(self.count.foregroundRole(), theme.colour("muted"))
        self.count.setPalette(ink)
        self.filter_box.setFont(theme.font(theme.normal))
        self._place_key()
        self.table.verticalHeader().setDefaultSectionSize(theme.px(ROW))
        self._share(anew=True)
        self.table.viewport().update()

    def natural_height(self, width: int) -> int:
        """Height of the rows and the header."""
        px = self.theme.px
        rows = min(self.model.rowCount(), MOST)
        key = key_height(self.theme) + 4 if self.mark.key else 0
        return (
            round(key) + rows * px(ROW) + px(32) + (px(22) if self.mark.heading else 0) + (px(32) if self.mark.searchable else 0)
        )

    def notes(self) -> tuple[str, ...]:
        """Which rows and columns are left out."""
        left_out = Essential(f"columns left out: {', '.join(self._widths.left_out)}") if self._widths.left_out else ""
        column = key_column(self.mark)
        key = key_words(column) if column is not None and self.key.column is None else ""
        return tuple(filter(None, (left_out, listed(self.mark), key)))

    def _share(self, anew: bool = False) -> None:
        """Share the width among the columns; the caption names those without room."""
        before = self._widths.left_out
        (self._widths.fit if anew else self._widths.stretch)(self.width(), self.height())
        if self._widths.left_out != before:
            self.noted.emit()

    def tab_stops(self) -> list[QWidget]:
        """Where Tab stops, from the top."""
        return [self.filter_box, self.table]

    def reset_view(self) -> None:
        """To the top, in the original order."""
        self.filter_box.clear()
        self.table.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.DescendingOrder)
        self.table.scrollToTop()

    def copy(self) -> None:
        """Copy the selected rows, or all that are shown, as tab-separated text."""
        rows = sorted({i.row() for i in self.table.selectionModel().selectedRows()})
        QGuiApplication.clipboard().setText(self.model.tsv(rows or list(range(self.model.rowCount()))))

    # gestures --------------------------------------------------------------------------------------------------------

    def id_of(self, row: int) -> tuple[int, ...]:
        """The id of a shown row."""
        return tuple(int(v) for v in self.mark.ids[self.model.order[row]])

    def readout(self, row: int) -> str:
        """A row on one line."""
        cells = [(c.name, cell_text(c, int(self.model.order[row]))) for c in self.mark.columns]
        return " · ".join(f"{name} {text}" for name, text in cells if text)

    def _emit(self, row: int, gesture: Any) -> None:
        self.gestured.emit(Hit(self.mark_name, self.id_of(row), gesture), self.readout(row))

    @Slot(int, Qt.SortOrder)
    def _sorted(self, column: int, order: Qt.SortOrder) -> None:
        self.model.sort(column, order)
        if self.mark.chosen and (place := self._place(self.mark.chosen[0], -1)) >= 0:
            self._reveal(place)  # the selection stays in view

    @Slot(int, int)
    def _ranged(self, low: int, high: int) -> None:
        """A scroll bar has appeared or gone beside the columns."""
        if (high > low) != self._scrolls:
            self._scrolls = high > low
            self._share()

    @Slot(str)
    def _filtered(self, text: str) -> None:
        self.model.filter(text)
        self._counted()
        self._select(self.mark.chosen)

    def _counted(self) -> None:
        k, n = self.model.rowCount(), len(self.mark.ids)
        self.count.setText(f"{k:,} of {n:,}" if k != n else f"{n:,}")
        self.count.setVisible(self.mark.searchable)

    @Slot(QModelIndex)
    def _clicked(self, index: QModelIndex) -> None:
        shift = QGuiApplication.keyboardModifiers() & Qt.KeyboardModifier.ShiftModifier
        self._emit(index.row(), "shift-click" if shift else "click")

    @Slot(QModelIndex)
    def _double_clicked(self, index: QModelIndex) -> None:
        self._emit(index.row(), "double-click")

    @Slot(QModelIndex)
    def _entered(self, index: QModelIndex) -> None:
        if index.row() != self._hovered:
            self._hovered = index.row()
            self._emit(index.row(), "hover")

    @Slot()
    def _walked(self) -> None:
        if self.table.currentIndex().isValid():
            self._emit(self.table.currentIndex().row(), "click")

    @Slot()
    def _gone(self) -> None:
        if self._hovered >= 0:
            self._left()

    @Slot()
    def _left(self) -> None:
        self._hovered = -1
        self.gestured.emit(Hit(self.mark_name, (), "leave"), "")

    @Slot(QPoint, QPoint)
    def _menu(self, at: QPoint, where: QPoint) -> None:
        index = self.table.indexAt(at)
        self.context.emit(Hit(self.mark_name, self.id_of(index.row())) if index.isValid() else None, where)
