"""How wide the columns of a table are: as their texts ask, stretched where there is room, shortened where there is none."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QHeaderView, QTableView

from circuitlab.draw.rows_model import RowsModel, cell_text, is_number
from circuitlab.draw.theme import Theme
from circuitlab.figures.marks import RowColumn

ROW = 22  # px, like the others at text size 1
SHORT_BAR, LEAST_BAR = 28, 12  # beside its number; where there is no more room
SHORTENED = 84  # words are cut down to this, so that the numbers beside them stay in sight
SHORTEST = 44  # and to this before there is anything to scroll sideways


def _widest(column: RowColumn, metrics: QFontMetricsF) -> float:
    """px of the longest text among the first rows."""
    texts = (cell_text(column, r) for r in range(min(200, len(column.values))))
    return max(map(metrics.horizontalAdvance, texts), default=0.0)


class ColumnWidths:
    """Of a table's header. `fit` when the columns are others, `stretch` when the room is; both get it in px."""

    def __init__(self, table: QTableView, model: RowsModel, theme: Theme) -> None:
        self.theme = theme
        self._table, self._model = table, model
        self._widths: list[int] = []
        self._least: list[int] = []
        self._stretched: list[int] = []
        self._squeezed = False

    def fit(self, width: int, height: int) -> None:
        """As wide as the first rows and the header; bars share what is left evenly, so that they compare, or tokens do."""
        header = self._table.horizontalHeader()
        plain = QFontMetricsF(self.theme.font(self.theme.normal))
        mono = QFontMetricsF(self.theme.font(self.theme.normal, mono=True))
        columns, px = self._model.mark.columns, self.theme.px
        bars = [i for i, c in enumerate(columns) if c.bar]
        self._stretched = bars or [i for i, c in enumerate(columns) if c.tokens]
        self._widths, self._least = [], []
        for i, column in enumerate(columns):
            title = self._model.headerData(i, Qt.Orientation.Horizontal) or ""
            widest = _widest(column, mono if column.tokens else plain)
            wanted = max(min(widest, px(220)) + px(18), plain.horizontalAdvance(title) + px(34))
            header.setSectionResizeMode(i, QHeaderView.ResizeMode.Interactive)
            header.resizeSection(i, round(wanted))
            self._widths.append(round(wanted))
            shortest = widest + px(16 + SHORT_BAR * column.bar) if is_number(column) else min(widest + px(18), px(SHORTENED))
            shortest = max(shortest, plain.horizontalAdvance(title) + px(20), header.minimumSectionSize())
            self._least.append(round(min(wanted, shortest)))
        self.stretch(width, height)

    def outgrown(self) -> bool:
        """Whether other values have numbers too long for the columns; words may be shortened, and nothing jumps for less."""
        plain = QFontMetricsF(self.theme.font(self.theme.normal))
        pairs = zip(self._model.mark.columns, self._widths, strict=True)
        return any(is_number(c) and _widest(c, plain) + self.theme.px(16) > width for c, width in pairs)

    def stretch(self, width: int, height: int) -> None:
        """Give what is left to the columns that stretch; where nothing is, words are shortened before numbers are pushed out."""
        header, bar = self._table.horizontalHeader(), self._table.verticalScrollBar()
        long = self._model.rowCount() * self.theme.px(ROW) + self.theme.px(32) > height
        scrolls = (bar.isVisible() or long) and self._table.verticalScrollBarPolicy() != Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        room = width - (bar.sizeHint().width() if scrolls else 0)  # the table itself is laid out later
        fits = sum(self._widths) <= room
        self._hide_rank(room)
        for i in self._stretched:
            mode = QHeaderView.ResizeMode.Stretch if fits else QHeaderView.ResizeMode.Interactive
            if i < len(self._widths) and header.sectionResizeMode(i) != mode:
                header.setSectionResizeMode(i, mode)
        if fits or not self._widths:
            if self._squeezed:
                self._spread()
            return
        self._squeezed = True
        seen = slice(1 if header.isSectionHidden(0) else 0, None)
        widths, least = self._widths[seen], self._shorter(room)[seen]
        spare = sum(widths) - sum(least)
        share = min(1.0, max(0.0, sum(widths) - room + 2) / spare) if spare else 0.0
        for i, (wide, smallest) in enumerate(zip(widths, least, strict=True), seen.start):
            header.resizeSection(i, int(wide - share * (wide - smallest)))

    def _shorter(self, room: int) -> list[int]:
        """The least widths; where even these are too much, words and then bars have less."""
        header, columns = self._table.horizontalHeader(), self._model.mark.columns
        least, px = list(self._least), self.theme.px
        over = sum(w for i, w in enumerate(least) if not header.isSectionHidden(i)) - room + 2
        words = [(i, max(0, least[i] - px(SHORTEST))) for i, c in enumerate(columns) if not is_number(c)]
        plain = QFontMetricsF(self.theme.font(self.theme.normal))
        beside = lambda i: max(0, least[i] - round(_widest(columns[i], plain) + px(16)))  # its number stays whole
        bars = [(i, min(beside(i), px(SHORT_BAR - LEAST_BAR))) for i, c in enumerate(columns) if is_number(c) and c.bar]
        for i, most in (*words, *bars):
            less = min(most, max(0, over))
            least[i], over = least[i] - less, over - less
        return least

    def _spread(self) -> None:
        """There is room again for what had been shortened."""
        self._squeezed = False
        for i, width in enumerate(self._widths):
            if i not in self._stretched:
                self._table.horizontalHeader().resizeSection(i, width)

    def _hide_rank(self, room: int) -> None:
        """The rank is the first column to go: rows stand in its order."""
        header = self._table.horizontalHeader()
        ranked = len(self._widths) > 2 and self._model.mark.columns[0].name == "#"
        hidden = ranked and sum(self._least) > room
        if self._widths and header.isSectionHidden(0) != hidden:
            header.setSectionHidden(0, hidden)
            header.sectionPosition(0)  # Qt places them now; after further resizing it would leave the hidden one its width
