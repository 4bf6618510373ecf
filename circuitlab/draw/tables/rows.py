"""A table: sorts, filters and copies; numbers to the right in tabular figures, bars behind values, tokens in the mono face."""

from __future__ import annotations

from math import ceil

import numpy as np
from PySide6.QtCore import QItemSelection, QItemSelectionModel, QModelIndex, QPoint, Qt, Signal, Slot
from PySide6.QtGui import QFontMetricsF, QGuiApplication, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QHeaderView,
    QLineEdit,
    QVBoxLayout,
    QWidget,
)

from circuitlab.caption_parts import Essential
from circuitlab.counting import number_of
from circuitlab.draw.look.plain_text import InkLabel
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.tables._cells import HIGHEST_ROW, PAD, ROW, RowsDelegate, RowsHeader, RowsTable
from circuitlab.draw.tables._colour_key import MARGIN, ColourKey, key_column, key_height, key_width, key_words
from circuitlab.draw.tables._counted import counted, n_terms
from circuitlab.draw.tables._seen import SeenRows
from circuitlab.draw.tables._strokes import RowStrokes
from circuitlab.draw.tables._widths import LEAST_SECTION, ColumnWidths
from circuitlab.draw.tables.model import RowsModel, cell_text
from circuitlab.figures.marks import Gesture, Hit, Rows
from circuitlab.story.zoom import Part

MOST = 40  # rows at most in its natural height
GAP = 4  # px between the parts of a table
LEAST_WITH_KEY = 150  # px of height from which on a key to its colours stands below it
NAMED = 2  # columns without room that the caption of a stage names; of more it says how many


class RowsMark(QWidget):
    """Realises `Rows`."""

    gestured = Signal(object, str)
    context = Signal(object, QPoint)
    noted = Signal()
    turned = Signal()  # scrolled, sorted or filtered by hand

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
        self._alone = False
        self._anew = False  # the next mark is shown as in a new table
        self._policy = Qt.ScrollBarPolicy.ScrollBarAsNeeded
        self._widths = ColumnWidths(self.table, self.model, theme)
        self.filter_box = QLineEdit(self)
        self.filter_box.setPlaceholderText("Filter")
        self.filter_box.setClearButtonEnabled(True)
        self.filter_box.setAccessibleName("Filter rows")
        self.count = InkLabel(self)
        self.heading = InkLabel(self)
        self.more = InkLabel(self)
        self.key = ColourKey(theme, self)
        for label in (self.count, self.heading, self.more):
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.heading.setWordWrap(True)
        top = QHBoxLayout()
        top.addWidget(self.filter_box, 1)
        top.addWidget(self.count)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(GAP)
        layout.addWidget(self.heading)
        layout.addLayout(top)
        layout.addWidget(self.table, 1)
        layout.addWidget(self.more)
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
        table.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerItem)
        table.setShowGrid(False)
        table.setWordWrap(False)
        table.setTabKeyNavigation(False)
        table.setMouseTracking(True)
        table.verticalHeader().setVisible(False)
        table.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header = self._header = RowsHeader(table)
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
        self._strokes = RowStrokes(table, self.id_of, self.place_of)
        self._strokes.struck.connect(self._emit)
        table.doubleClicked.connect(self._double_clicked)  # by a key
        table.entered.connect(self._entered)
        table.walked.connect(self._walked)
        table.entered_key.connect(self._walked)
        table.left_by_escape.connect(self._left)
        table.went.connect(self._gone)
        table.copied.connect(self.copy)
        table.asked_menu.connect(self._menu)
        table.fitted.connect(self._fitted)
        self.filter_box.textChanged.connect(self._filtered)
        table.verticalScrollBar().rangeChanged.connect(self._ranged)
        table.verticalScrollBar().valueChanged.connect(self._count_hidden)
        follow = lambda: self._select(self.mark.chosen, follow=not self.mark.ranked)
        self._seen = SeenRows(table, self.model, self.filter_box, follow)
        self._seen.turned.connect(self.turned)

    # the mark --------------------------------------------------------------------------------------------------------

    @property
    def mark(self) -> Rows:
        """The current mark."""
        return self.model.mark

    def show_mark(self, mark: Rows) -> None:
        """Read the arrays only where they are new; sort order, filter and scroll position stay."""
        old, self.mark_name = self.model.mark, mark.name
        anew, self._anew = self._anew, False
        names = [c.name for c in mark.columns] == [c.name for c in old.columns]
        same = names and mark.ids is old.ids and all(a.values is b.values for a, b in zip(mark.columns, old.columns, strict=True))
        same = same and not anew
        self.heading.setText(mark.heading)
        self.heading.setVisible(bool(mark.heading))
        self.filter_box.setVisible(mark.searchable and not self.theme.stage)
        if same:
            self.model.mark = mark
        else:
            place = self.table.verticalScrollBar().value()
            self.model.show_rows(mark)
            self._indicate()
            self._counted()
            new_order = anew or (not (names and np.array_equal(mark.ids, old.ids)) and self.model.sorted_by is None)
            if new_order:
                self._seen.scrolled_otherwise()
            self.table.verticalScrollBar().setValue(0 if new_order else place)
            if not names or anew or self._widths.outgrown():
                self._share(anew=True)
        scales = lambda of: [(c.map, c.levels) for c in of.columns]
        if mark.strong != old.strong or mark.gap != old.gap or scales(mark) != scales(old):
            self.table.viewport().update()
        self._share_height()
        self._place_key()
        self._count_hidden()
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
        header, bar = self.table.horizontalHeader(), self.table.verticalScrollBar()
        column = next((c for c in range(self.model.columnCount()) if not header.isSectionHidden(c)), 0)
        place = bar.value()
        self.table.scrollTo(self.model.index(row, column))
        if bar.value() != place:
            self._seen.scrolled_otherwise()

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
        self._count_hidden()
        self._share()

    def let_scroll(self, policy: Qt.ScrollBarPolicy) -> None:
        """With a scroll bar of its own, or with that of a table beside it; on a stage with none."""
        self._policy = policy
        policy = Qt.ScrollBarPolicy.ScrollBarAlwaysOff if self.theme.stage else policy
        if policy != self.table.verticalScrollBarPolicy():
            self.table.setVerticalScrollBarPolicy(policy)
            self._widths.stretch(self.width(), self.height())
        never, needed = Qt.ScrollBarPolicy.ScrollBarAlwaysOff, Qt.ScrollBarPolicy.ScrollBarAsNeeded
        self.table.setHorizontalScrollBarPolicy(never if self.theme.stage else needed)

    def set_theme(self, theme: Theme) -> None:
        """Another theme: hues stay, scales begin at its background."""
        self.theme = self._delegate.theme = self._widths.theme = theme
        self.heading.setFont(theme.font(theme.small, bold=True))
        for label in (self.count, self.more):
            label.setFont(theme.font(theme.small))
        for label, colour in ((self.heading, "text"), (self.count, "muted"), (self.more, "muted")):
            label.set_ink(theme.colour(colour))
        self.more.setIndent(theme.px(PAD))
        self.filter_box.setVisible(self.mark.searchable and not theme.stage)
        self.let_scroll(self._policy)
        self.filter_box.setFont(theme.font(theme.normal))
        self._place_key()
        self._header.theme = theme
        self._share_height()
        self._counted()
        self._count_hidden()
        self._share(anew=True)
        self.table.viewport().update()

    def set_alone(self, alone: bool) -> None:
        """Whether it is all that the figure shows: its rows then share the height that they have."""
        if alone != self._alone:
            self._alone = alone
            self._share_height()

    def _share_height(self) -> None:
        """Rows that all have room grow; those of a filtered table stay as high as they are, as they come and go."""
        grows = self._alone and not (self.theme.stage or self.mark.searchable)
        row_heights = self.theme.px(ROW), self.theme.px(HIGHEST_ROW if grows else ROW)
        if row_heights != self.table.row_heights:
            self.table.row_heights = row_heights
            self.table.updateGeometries()

    def _count_hidden(self, *_: object) -> None:
        """A line says how many rows of how many these are. On a stage nobody sees a scroll bar: it counts those in sight."""
        rows, first = self.model.order, 0
        if self._cut():
            first = self.table.verticalScrollBar().value()
            rows = rows[first : first + self.table.whole_rows]
        words = "" if self._counts_above() else counted(self.mark, rows, first)
        self.more.setText(words)
        self.more.setVisible(bool(words))

    @Slot()
    def _fitted(self) -> None:
        """The rows have their final height: only now is it known how many are in sight on a stage."""
        if self.theme.stage:
            self._count_hidden()

    def _counts_above(self) -> bool:
        """Whether the count stands beside the filter."""
        return self.mark.searchable and not self.theme.stage

    def least_on_stage(self, width: int) -> int:
        """px of height of a row under its header, with a line that says how many more there are."""
        more = self._count_height() if self.model.rowCount() > 1 else 0
        return self._around_rows(width) + self.theme.px(ROW) + more

    def _count_height(self) -> int:
        """px of height of the line that says how many rows these are; labels end at a whole pixel."""
        return ceil(QFontMetricsF(self.more.font()).height()) + GAP

    def _cut(self) -> bool:
        """Whether rows of a stage have no room."""
        return self.theme.stage and self.model.rowCount() * self.theme.px(ROW) > self._room_for_rows()

    def _room_for_rows(self) -> int:
        """px of height under the header, without the line that says how many more there are."""
        return self.height() - self._around_rows(self.width())

    def _around_rows(self, width: int) -> int:
        """px of height of what stands above and below the rows."""
        heading = 0 if self.heading.isHidden() else self.heading.heightForWidth(width) + GAP
        key = 0 if self.key.isHidden() else self.key.sizeHint().height() + GAP
        return heading + key + self.table.horizontalHeader().sizeHint().height() + 2

    def natural_height(self, width: int) -> int:
        """Height of the rows and the header."""
        px, rows = self.theme.px, min(self.model.rowCount(), MOST)
        key = key_height(self.theme) + 4 if self.mark.key else 0
        more = self._count_height() if self.more.text() else 0
        above = px(22) * bool(self.mark.heading) + px(32) * self.mark.searchable
        return round(key) + more + rows * px(ROW) + px(32) + above

    def natural_width(self) -> int:
        """Width in px that the columns can use."""
        return self._widths.natural

    def notes(self) -> tuple[str, ...]:
        """Which rows and columns are left out."""
        out = self._widths.left_out
        many = self.theme.stage and len(out) > NAMED  # there their names would take the room of the rows
        words = f"{number_of(len(out), 'column')} left out" if many else f"columns left out: {', '.join(out)}"
        left_out = Essential(words) if out else ""
        column = key_column(self.mark)
        key = key_words(column) if column is not None and self.key.column is None else ""
        return tuple(filter(None, (left_out, key)))

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
        self._seen.scrolled_otherwise()

    def visible_part(self) -> Part | None:
        """Rows, order and filter, as far as they are not as the table comes."""
        return self._seen.part()

    def show_visible_part(self, part: Part) -> bool:
        """Show a part that `visible_part` gave, perhaps of another table. Whether it is here as it was."""
        return self._seen.show(part)

    def show_whole(self) -> None:
        """As the table comes."""
        self._seen.show_whole()

    def release(self) -> bool:
        """Select the chosen rows of the mark and no other. Whether other ones were selected by hand."""
        selected = {int(self.model.order[index.row()]) for index in self.table.selectionModel().selectedRows()}
        if selected == {row for row in self.mark.chosen if self._place(row, -1) >= 0}:
            return False
        self._select(self.mark.chosen, follow=False)
        return True

    def forget_hand(self) -> None:
        """Take back what was selected by hand; the next mark begins at the top, its columns as wide as they need."""
        self.release()
        self._anew = True

    def copy(self) -> None:
        """Copy the selected rows, or all that are shown, as tab-separated text."""
        rows = sorted({i.row() for i in self.table.selectionModel().selectedRows()})
        QGuiApplication.clipboard().setText(self.model.tsv(rows or list(range(self.model.rowCount()))))

    # gestures --------------------------------------------------------------------------------------------------------

    def id_of(self, row: int) -> tuple[int, ...]:
        """The id of a shown row."""
        return tuple(int(v) for v in self.mark.ids[self.model.order[row]])

    def place_of(self, item: tuple[int, ...]) -> int:
        """Where the row with an id is shown; -1 where it is not."""
        if self.mark.ids.shape[1] != len(item):
            return -1
        places = np.flatnonzero((self.mark.ids[self.model.order] == item).all(axis=1))
        return int(places[0]) if places.size else -1

    def readout(self, row: int) -> str:
        """A row on one line."""
        cells = [(c.name, cell_text(c, int(self.model.order[row]))) for c in self.mark.columns]
        return " · ".join(f"{name} {text}" for name, text in cells if text)

    @property
    def hovered_readout(self) -> str:
        """The readout of the row that is pointed at, "" where none is."""
        return self.readout(self._hovered) if 0 <= self._hovered < self.model.rowCount() else ""

    @Slot(int, str)
    def _emit(self, row: int, gesture: Gesture) -> None:
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
        rows = self.model.order
        self.count.setText(counted(self.mark, rows) or f"{n_terms(self.mark, rows):,}")
        self.count.setVisible(self._counts_above())

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
