"""A table that sorts its own numpy order, filters, and copies as tab-separated text."""

from __future__ import annotations

from typing import Any

import numpy as np
from PySide6.QtCore import QAbstractTableModel, QItemSelectionModel, QModelIndex, QPersistentModelIndex, QRectF, Qt, Slot
from PySide6.QtGui import QColor, QGuiApplication, QKeyEvent, QKeySequence, QPainter
from PySide6.QtWidgets import QHeaderView, QLineEdit, QStyledItemDelegate, QStyleOptionViewItem, QTableView, QVBoxLayout, QWidget

from circuitlab.draw import colours
from circuitlab.draw.mark_view import MarkView
from circuitlab.draw.theme import LIGHT, Theme
from circuitlab.figures.marks import Hit, RowColumn, Rows

Index = QModelIndex | QPersistentModelIndex


class RowsModel(QAbstractTableModel):
    """The rows of a mark through an order of its own; a proxy would sort 50 000 rows a hundred times slower."""

    def __init__(self) -> None:
        super().__init__()
        self.mark: Rows | None = None
        self.order = np.zeros(0, np.int64)
        self.sorted_by: tuple[int, bool] | None = None
        self.needle = ""

    def take(self, mark: Rows) -> None:
        """Show a mark; the person's sorting stays while the columns are the same."""
        same = self.mark is not None and [c.name for c in self.mark.columns] == [c.name for c in mark.columns]
        self.beginResetModel()
        self.mark = mark
        if not same:
            self.sorted_by = None if mark.sort is None else (mark.sort[0], mark.sort[1] == "up")
        self._arrange()
        self.endResetModel()

    def _arrange(self) -> None:
        mark = self.mark
        if mark is None:
            return
        order = np.arange(len(mark.ids))
        if self.needle:
            texts = [c.values for c in mark.columns if c.values.dtype.kind in "OU"]
            hit = [any(self.needle in str(t[i]).lower() for t in texts) for i in order]
            order = order[np.array(hit, dtype=bool)] if len(order) else order
        if self.sorted_by is not None and self.sorted_by[0] < len(mark.columns):
            column, up = self.sorted_by
            keys = mark.columns[column].values[order]
            keys = keys.astype(str) if keys.dtype.kind == "O" else keys
            ranked = np.argsort(keys, kind="stable")
            order = order[ranked if up else ranked[::-1]]
        self.order = order

    def filter(self, text: str) -> None:
        """Rows whose text columns hold `text`."""
        self.beginResetModel()
        self.needle = text.strip().lower()
        self._arrange()
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """Rows that pass the filter."""
        return 0 if parent.isValid() else len(self.order)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """Columns."""
        return 0 if parent.isValid() or self.mark is None else len(self.mark.columns)

    def column(self, i: int) -> RowColumn:
        """One column of the mark."""
        assert self.mark is not None
        return self.mark.columns[i]

    def text(self, row: int, column: int) -> str:
        """What a cell shows."""
        found = self.column(column)
        value = found.values[self.order[row]]
        if found.values.dtype.kind in "OU":
            return str(value)
        if found.values.dtype.kind == "f":
            return "" if np.isnan(value) else f"{value:.{found.digits}f}"
        return f"{int(value)}"

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Text, alignment, font."""
        if not index.isValid():
            return None
        column = self.column(index.column())
        if role == Qt.ItemDataRole.DisplayRole:
            return self.text(index.row(), index.column())
        if role == Qt.ItemDataRole.TextAlignmentRole:
            side = Qt.AlignmentFlag.AlignLeft if column.values.dtype.kind in "OU" else Qt.AlignmentFlag.AlignRight
            return side | Qt.AlignmentFlag.AlignVCenter
        if role == Qt.ItemDataRole.FontRole and column.tokens:
            return LIGHT.font(mono=True)
        return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Names and tips of columns."""
        if orientation != Qt.Orientation.Horizontal or self.mark is None or section >= len(self.mark.columns):
            return None
        column = self.column(section)
        if role == Qt.ItemDataRole.DisplayRole:
            arrow = "" if self.sorted_by is None or self.sorted_by[0] != section else " ↑" if self.sorted_by[1] else " ↓"
            return column.name + (f" ({column.unit})" if column.unit else "") + arrow
        if role == Qt.ItemDataRole.ToolTipRole:
            return column.tip or None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            side = Qt.AlignmentFlag.AlignLeft if column.values.dtype.kind in "OU" else Qt.AlignmentFlag.AlignRight
            return side | Qt.AlignmentFlag.AlignVCenter
        return None

    def toggle(self, column: int) -> None:
        """Numbers: largest first, then smallest, then as they came; texts the other way round."""
        numbers = self.column(column).values.dtype.kind not in "OU"
        first = not numbers
        self.beginResetModel()
        if self.sorted_by is None or self.sorted_by[0] != column:
            self.sorted_by = (column, first)
        elif self.sorted_by[1] == first:
            self.sorted_by = (column, not first)
        else:
            self.sorted_by = None
        self._arrange()
        self.endResetModel()

    def as_text(self) -> str:
        """All shown rows, tab-separated, with a header line."""
        assert self.mark is not None
        lines = ["\t".join(c.name for c in self.mark.columns)]
        lines += ["\t".join(self.text(r, c) for c in range(self.columnCount())) for r in range(self.rowCount())]
        return "\n".join(lines)


class RowsDelegate(QStyledItemDelegate):
    """Bars and tints behind the values; the chosen rows marked at their left edge."""

    theme: Theme = LIGHT

    def paint(self, p: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Behind first, then the text as usual."""
        model = index.model()
        assert isinstance(model, RowsModel) and model.mark is not None
        column, row = model.column(index.column()), int(model.order[index.row()])
        box = QRectF(option.rect)  # type: ignore[attr-defined]
        if column.values.dtype.kind == "f" and not np.isnan(column.values[row]):
            value = float(column.values[row])
            low, high = column.levels
            if column.bar:
                share = min(max((value - low) / max(high - low, 1e-30), 0), 1)
                r, g, b = colours.table("magnitude", self.theme)[70].tolist()
                p.fillRect(QRectF(box.left() + 2, box.top() + 3, (box.width() - 4) * share, box.height() - 6), QColor(r, g, b))
            elif column.map is not None:
                r, g, b = colours.rgb(np.array(value), column.levels, column.map, self.theme).tolist()
                p.fillRect(box, QColor(r, g, b))
        super().paint(p, option, index)
        if index.column() == 0 and row in model.mark.chosen:
            p.fillRect(QRectF(box.left(), box.top() + 2, 3, box.height() - 4), QColor(self.theme.accent))


class RowsView(MarkView):
    """See the module."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.mark: Rows | None = None
        self.model = RowsModel()
        self.table = QTableView(self)
        self.search = QLineEdit(self)
        self.delegate = RowsDelegate(self.table)
        self._prepare()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(4)
        box.addWidget(self.search)
        box.addWidget(self.table)

    def _prepare(self) -> None:
        table = self.table
        table.setModel(self.model)
        table.setItemDelegate(self.delegate)
        table.setShowGrid(False)
        table.setWordWrap(False)
        table.verticalHeader().hide()
        table.verticalHeader().setDefaultSectionSize(24)
        table.setSelectionBehavior(QTableView.SelectionBehavior.SelectRows)
        table.setSelectionMode(QTableView.SelectionMode.SingleSelection)
        table.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        header = table.horizontalHeader()
        header.setSectionsClickable(True)
        header.setHighlightSections(False)
        header.setStretchLastSection(True)
        header.sectionClicked.connect(self._sort)
        table.clicked.connect(self._clicked)
        table.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        table.customContextMenuRequested.connect(self._context)
        self.search.setPlaceholderText("Filter")
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self._filter)
        self.search.hide()

    def set_theme(self, theme: Theme) -> None:
        """Colours."""
        self.theme = self.delegate.theme = theme
        self.table.viewport().update()

    def show_mark(self, mark: Rows) -> None:
        """Reset the model only where columns differ."""
        old, self.mark = self.mark, mark
        self.search.setVisible(mark.searchable)
        if old is not None and old.columns is mark.columns:
            self.model.mark = mark
            self.table.viewport().update()
        else:
            names_before = None if old is None else [c.name for c in old.columns]
            self.model.take(mark)
            if names_before != [c.name for c in mark.columns]:
                self._size_columns()
        self.setAccessibleName(f"{mark.name}: {len(mark.ids)} rows")

    def _size_columns(self) -> None:
        header = self.table.horizontalHeader()
        header.setResizeContentsPrecision(60)
        self.table.resizeColumnsToContents()
        for i in range(self.model.columnCount()):
            wide = 110 if self.model.column(i).bar else 36
            header.resizeSection(i, min(max(header.sectionSize(i) + 6, wide), 260))
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)

    @Slot(int)
    def _sort(self, column: int) -> None:
        self.model.toggle(column)

    @Slot(str)
    def _filter(self, text: str) -> None:
        self.model.filter(text)

    def id_at(self, row: int) -> tuple[int, ...]:
        """The id of a shown row."""
        assert self.mark is not None
        return tuple(int(i) for i in self.mark.ids[self.model.order[row]])

    @Slot(QModelIndex)
    def _clicked(self, index: QModelIndex) -> None:
        shift = QGuiApplication.keyboardModifiers() & Qt.KeyboardModifier.ShiftModifier
        if self.mark is not None and index.isValid():
            self.picked.emit(Hit(self.mark.name, self.id_at(index.row()), "shift-click" if shift else "click"))

    @Slot(object)
    def _context(self, point: Any) -> None:
        index = self.table.indexAt(point)
        hit = Hit(self.mark.name, self.id_at(index.row())) if self.mark is not None and index.isValid() else None
        self.context.emit(hit, self.table.viewport().mapToGlobal(point))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Ctrl+C copies the table; Enter picks the current row."""
        if event.matches(QKeySequence.StandardKey.Copy):
            QGuiApplication.clipboard().setText(self.model.as_text())
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.table.currentIndex().isValid():
            self._clicked(self.table.currentIndex())
        else:
            super().keyPressEvent(event)

    def select_row(self, row: int) -> None:
        """Make a shown row the current one."""
        flags = QItemSelectionModel.SelectionFlag.ClearAndSelect | QItemSelectionModel.SelectionFlag.Rows
        self.table.selectionModel().setCurrentIndex(self.model.index(row, 0), flags)
