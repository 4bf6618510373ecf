"""The model behind a table: it sorts and filters its own numpy order (a proxy over 50 000 rows takes seconds)."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from circuitlab.counting import number
from circuitlab.draw.look.plain_text import plain_tip
from circuitlab.figures.marks import RowColumn, Rows

Index = QModelIndex | QPersistentModelIndex
_NOWHERE = QModelIndex()
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter


def is_number(column: RowColumn) -> bool:
    """Whether a column sorts numerically and is right-aligned."""
    return np.asarray(column.values).dtype.kind in "iufb"


def _small_or_fixed(column: RowColumn, value: float) -> str:
    """A change, with its sign, a probability or a ranked number, in the one way in which its column writes small ones.

    Of a probability and of what was ranked two figures are exact however small it is; of a change, which is what two numbers of
    single precision leave, its order of magnitude.
    """
    sign, figures = ("+", 0) if column.reads == "change" else ("", 1)
    if value == 0 and (column.reads != "ranked" or column.small):
        return "0"
    return number(value, f"{sign}.{figures}e" if abs(value) < column.small else f"{sign},.{column.digits}f")


def cell_text(column: RowColumn, row: int) -> str:
    """The text of a cell; empty for NaN."""
    value = column.values[row]
    if not is_number(column):
        return str(value)
    if value != value:
        return ""
    if column.reads != "number":
        return _small_or_fixed(column, float(value))
    return number(int(value), ",") if column.digits == 0 else number(float(value), f",.{column.digits}f")


class RowsModel(QAbstractTableModel):
    """Rows of a `Rows` mark in the order `order`, indices into the mark."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.mark = Rows("", (), np.zeros((0, 1), dtype=np.int64))
        self.order = np.zeros(0, dtype=np.int64)
        self.sorted_by: tuple[int, Qt.SortOrder] | None = None
        self.filter_text = ""
        self._texts: dict[int, np.ndarray] = {}

    def show_rows(self, mark: Rows) -> None:
        """Another table; sort order and filter stay where the columns are the same."""
        self.beginResetModel()
        same = [c.name for c in mark.columns] == [c.name for c in self.mark.columns]
        if not same or mark.sort != self.mark.sort:
            up = Qt.SortOrder.AscendingOrder
            self.sorted_by = (mark.sort[0], up if mark.sort[1] == "up" else Qt.SortOrder.DescendingOrder) if mark.sort else None
        self.mark = mark
        self._texts.clear()
        self._arrange()
        self.endResetModel()

    def _text(self, column: int) -> np.ndarray:
        """[n] str of a column in lower case, cached."""
        if column not in self._texts:
            self._texts[column] = np.char.lower(np.asarray(self.mark.columns[column].values).astype(str))
        return self._texts[column]

    def _arrange(self) -> None:
        """Set `order`: filter, then sort stably with NaN last in either direction."""
        keep = np.arange(len(self.mark.ids))
        if self.filter_text:
            keep = keep[self._matches(self.filter_text.lower())]
        if self.sorted_by is not None and self.sorted_by[0] < len(self.mark.columns):
            column, way = self.sorted_by
            down = way == Qt.SortOrder.DescendingOrder
            spec = self.mark.columns[column]
            if is_number(spec):
                keys = np.asarray(spec.values, dtype=np.float64)[keep]
                keep = keep[np.argsort(-keys if down else keys, kind="stable")]
            else:
                keep = keep[np.argsort(self._text(column)[keep], kind="stable")]
                keep = keep[::-1] if down else keep
        self.order = keep

    def _matches(self, text: str) -> np.ndarray:
        matches = np.zeros(len(self.mark.ids), dtype=bool)
        for i, column in enumerate(self.mark.columns):
            if not is_number(column):
                matches |= np.char.find(self._text(i), text) >= 0
            elif text.isdecimal() and column.digits == 0:
                matches |= np.asarray(column.values) == int(text)
        return matches

    def gap_before(self, place: int) -> bool:
        """Whether rows are left out between this row and the one above it."""
        gap = self.mark.gap
        return gap is not None and place == gap and place > 0 and self.sorted_by is None and not self.filter_text

    def filter(self, text: str) -> None:
        """Keep the rows whose text contains `text`."""
        self.beginResetModel()
        # A typed space matches the visible one.
        self.filter_text = text.replace(" ", "·") if any(c.tokens for c in self.mark.columns) else text
        self._arrange()
        self.endResetModel()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort by a column; -1: the original order."""
        self.layoutAboutToBeChanged.emit()
        before, indices = self.order, self.persistentIndexList()
        self.sorted_by = (column, order) if column >= 0 else None
        self._arrange()
        place = np.empty(len(self.mark.ids), dtype=np.int64)
        place[self.order] = np.arange(len(self.order))
        self.changePersistentIndexList(indices, [self.index(int(place[before[i.row()]]), i.column()) for i in indices])
        self.layoutChanged.emit()

    def rowCount(self, parent: Index = _NOWHERE) -> int:
        """Rows that pass the filter."""
        return 0 if parent.isValid() else len(self.order)

    def columnCount(self, parent: Index = _NOWHERE) -> int:
        """Columns."""
        return 0 if parent.isValid() else len(self.mark.columns)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Text, alignment, and a tool tip that is always plain text."""
        if not index.isValid():
            return None
        column = self.mark.columns[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return cell_text(column, int(self.order[index.row()]))
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _RIGHT if is_number(column) else _LEFT
        if role == Qt.ItemDataRole.ToolTipRole:
            value = column.values[int(self.order[index.row()])]
            return plain_tip(number(value, ".9g") if is_number(column) else str(value))
        return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Names with units; the meaning of a column in its tool tip."""
        if orientation == Qt.Orientation.Vertical or section >= len(self.mark.columns):
            return None
        column = self.mark.columns[section]
        if role == Qt.ItemDataRole.DisplayRole:
            return f"{column.name} ({column.unit})" if column.unit else column.name
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tip(column.tip or column.name)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _RIGHT if is_number(column) else _LEFT
        return None

    def tsv(self, rows: list[int]) -> str:
        """The rows shown, as tab-separated text with a header and full-precision numbers."""
        lines = ["\t".join(c.copied_name for c in self.mark.columns)]
        for row in self.order[rows].tolist():
            cells = [f"{c.values[row]:.9g}" if is_number(c) else str(c.values[row]) for c in self.mark.columns]
            lines.append("\t".join(cell.replace("\t", "⇥").replace("\n", "↵") for cell in cells))
        return "\n".join(lines) + "\n"
