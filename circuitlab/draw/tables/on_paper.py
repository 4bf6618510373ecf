"""A table on paper: nothing scrolls or is cut short. Words wrap; columns without room are left out and named."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QResizeEvent
from PySide6.QtWidgets import QWidget

from circuitlab.caption_parts import Essential
from circuitlab.draw.look.colours import DARK_INK, LIGHT_INK, bar_rgb, dark_text, rgb
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.painted.mark import PaintedMark
from circuitlab.draw.pointing.gestures import Id
from circuitlab.draw.tables._colour_key import key_column, key_height, key_width, key_words, paint_key
from circuitlab.draw.tables._counted import counted
from circuitlab.draw.tables.model import RowsModel, cell_text, is_number
from circuitlab.figures.marks import RowColumn, Rows

MOST = 40  # rows; all of them are in the CSV
LAST_FEW = 1.2  # times as many rows are all shown, rather than all but a few
FEWEST = 12  # rows, where several tables stand below each other
PAD, GAP = 4.0, 4.0  # px beside a text, above and below it together
BAR, LONG_BAR = 26.0, 150.0  # px of a bar beside its number, and at most
SOME_TOKEN = 44.0  # px into which a token may be wrapped
PARTED = "  "  # between tokens in one cell, each with its number


@dataclass(frozen=True)
class _Column:
    """Width of a column in px: with its title in one line, with each cell in one line, and the least, where words wrap."""

    at: int
    wide: float
    cells: float
    least: float


def _shrunk(pairs: list[tuple[float, float]], width: float) -> list[float]:
    """From (wide, least) of each column its width in px, all of them `width` or what they have at least: none keeps more than
    `most` px above its least, so that those that can shrink most do so first.
    """
    spare, most = width - sum(least for _, least in pairs), 0.0
    for i, above in enumerate(slacks := sorted(wide - least for wide, least in pairs)):
        most = min(above, max(spare, 0.0) / (len(slacks) - i))
        spare -= most
    return [min(wide, least + most) for wide, least in pairs]


class RowsOnPaper(PaintedMark):
    """Realises `Rows` where nobody sorts, filters or scrolls."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.mark: Rows = Rows("", (), np.zeros((0, 1), dtype=np.int64))
        self._model = RowsModel(self)
        self._most = MOST
        self._fitted: tuple[int, list[tuple[int, float]], list[str], list[float], float] | None = None

    def show_mark(self, mark: Rows) -> None:
        """Lay out from scratch: it is drawn once."""
        self.mark, self.mark_name, self._fitted = mark, mark.name, None
        self._model.show_rows(mark)
        self.relayout()

    def restyle(self) -> None:
        """Text sizes have changed."""
        self._fitted = None

    def show_at_most(self, tables: int) -> None:
        """Its part of the rows of a figure in which so many tables stand below each other."""
        self._most, self._fitted = max(MOST // tables, FEWEST), None

    # layout ----------------------------------------------------------------------------------------------------------

    def _font(self, column: RowColumn, row: int = -1) -> QFont:
        return self.theme.font(self.theme.small, mono=column.tokens, bold=row in self.mark.strong)

    def _metrics(self, column: RowColumn, row: int) -> QFontMetricsF:
        """Of a cell; bold is wider."""
        return QFontMetricsF(self._font(column, row))

    def _title(self, at: int) -> str:
        return str(self._model.headerData(at, Qt.Orientation.Horizontal))

    def _rows(self) -> list[int]:
        order = self._model.order
        return (order if len(order) <= self._most * LAST_FEW else order[: self._most]).tolist()

    def _column(self, at: int) -> _Column:
        column, title = self.mark.columns[at], QFontMetricsF(self.theme.font(self.theme.small))
        texts = [(cell_text(column, row), self._metrics(column, row)) for row in self._rows()]
        widest = max((metrics.horizontalAdvance(text) for text, metrics in texts), default=0.0)
        words = max(map(title.horizontalAdvance, self._title(at).split()), default=0.0)
        if is_number(column):
            least = widest + BAR * column.bar
        elif column.tokens:
            least = min(widest, SOME_TOKEN)
        else:
            least = max((metrics.horizontalAdvance(w) for text, metrics in texts for w in text.split()), default=0.0)
        whole = max(widest + BAR * column.bar, title.horizontalAdvance(self._title(at)))
        cells = max(widest + BAR * column.bar, words)
        return _Column(at, *(ceil(px) + 2 * PAD for px in (whole, cells, max(least, words))))

    def fits_on_paper(self, width: float) -> bool:
        """Whether all columns fit side by side without much wrapping."""
        columns = [self._column(i) for i in range(len(self.mark.columns))]
        return sum((c.wide + c.least) / 2 for c in columns) <= width

    def keeps_columns(self, width: float) -> bool:
        """Whether no column is left out at this width, however much its words wrap."""
        return sum(self._column(i).least for i in range(len(self.mark.columns))) <= width

    def least_width(self) -> float:
        """The first column that is no rank, and one more: alone it would mean nothing."""
        columns = [self._column(i) for i in range(len(self.mark.columns))]
        ranked = len(columns) > 2 and self._title(0) == "#"
        return sum(c.least for c in columns[ranked : ranked + 2])

    def _fit(self, width: int) -> tuple[list[tuple[int, float]], list[str], list[float], float]:
        """Columns and widths, titles of those left out, row heights, header height; computed once per width."""
        if self._fitted is None or self._fitted[0] != width:
            columns = [self._column(i) for i in range(len(self.mark.columns))]
            out: list[str] = []
            while len(columns) > 1 and sum(c.least for c in columns) > width:
                ranked = columns[0].at == 0 and self._title(0) == "#" and len(columns) > 2
                out.insert(0, self._title(columns.pop(0 if ranked else -1).at))  # rows stand in the order of their ranks
            widths = self._shared(columns, float(width))
            heights = [max(self._cell_height(i, r, w) for i, w in widths) for r in self._rows()]
            heights = [high + self._gap() * self._model.gap_before(i) for i, high in enumerate(heights)]
            titles = QFontMetricsF(self.theme.font(self.theme.small))
            head = max((self._height(self._title(i), titles, w, self._flags(None)) for i, w in widths), default=0.0)
            self._fitted = (width, widths, out, heights, head)
        return self._fitted[1:]

    def _shared(self, columns: list[_Column], width: float) -> list[tuple[int, float]]:
        """Spare width goes to bars; missing width is taken from titles, then from the words and tokens that can shrink most."""
        wide, cells = sum(c.wide for c in columns), sum(c.cells for c in columns)
        if wide > width:
            pairs = [(c.wide, c.cells) if cells <= width else (c.cells, c.least) for c in columns]
            return [(c.at, w) for c, w in zip(columns, _shrunk(pairs, width), strict=True)]
        bars = [c.at for c in columns if self.mark.columns[c.at].bar]
        more = min((width - wide) / max(len(bars), 1), LONG_BAR)
        widths = [(c.at, c.wide + more * (c.at in bars)) for c in columns]
        rest = (width - sum(w for _, w in widths)) / max(len(widths), 1)
        return [(at, w + rest) for at, w in widths]

    def _text(self, at: int, row: int, width: float) -> str:
        """The text of a cell. One of several parts, as “the 0.04  a 0.02”, breaks between them and not in a number."""
        column = self.mark.columns[at]
        text = cell_text(column, row)
        if not column.tokens or PARTED not in text:
            return text
        metrics, lines = self._metrics(column, row), [""]
        for part in text.split(PARTED):
            longer = f"{lines[-1]}{PARTED}{part}" if lines[-1] else part
            if lines[-1] and metrics.horizontalAdvance(longer) > width - 2 * PAD:
                lines.append(part)
            else:
                lines[-1] = longer
        return "\n".join(lines)

    def _flags(self, at: int | None) -> int:
        tokens = at is not None and self.mark.columns[at].tokens
        return int(Qt.TextFlag.TextWrapAnywhere if tokens else Qt.TextFlag.TextWordWrap)

    def _cell_height(self, at: int, row: int, width: float) -> float:
        column = self.mark.columns[at]
        flags = None if is_number(column) else self._flags(at)  # numbers do not wrap
        return self._height(self._text(at, row, width), self._metrics(column, row), width, flags)

    @staticmethod
    def _height(text: str, metrics: QFontMetricsF, width: float, flags: int | None) -> float:
        room = QRectF(0, 0, width - 2 * PAD + 0.5, 1e5)
        high = metrics.height() if flags is None else metrics.boundingRect(room, flags, text).height()
        return ceil(max(high, metrics.height())) + GAP

    def _top(self, width: int) -> float:
        """Height of the heading."""
        if not self.mark.heading:
            return 0.0
        metrics = QFontMetricsF(self.theme.font(self.theme.small, bold=True))
        return metrics.boundingRect(QRectF(0, 0, width, 1e5), self._flags(None), self.mark.heading).height() + GAP

    def content_height(self, width: int) -> int:
        """Heading, header, rows."""
        _, _, heights, head = self._fit(max(width, 40))
        count = self._line() if self._count(len(heights)) else 0.0
        return ceil(self._top(max(width, 40)) + head + sum(heights) + 2 + self._below() + count)

    def _line(self) -> float:
        """Height of a line of words."""
        return self._gap()

    def _count(self, n: int) -> str:
        """Below the first `n` rows: how many of how many; "" where the line among them says so, or all are."""
        among = any(self._model.gap_before(place) for place in range(n))
        return "" if among else counted(self.mark, self._rows()[:n])

    def _gap(self) -> float:
        """Height of the line that says rows are left out."""
        return QFontMetricsF(self.theme.font(self.theme.small)).height() + GAP

    def _below(self) -> float:
        """Height of the colour key."""
        return key_height(self.theme) + GAP if self._key() is not None else 0.0

    def _key(self) -> RowColumn | None:
        column = key_column(self.mark)
        return column if column is not None and self.viewport().width() - 2 * PAD >= key_width(column, self.theme) else None

    def _n_visible(self) -> int:
        """How many rows the height holds."""
        width = max(self.viewport().width(), 40)
        _, _, heights, head = self._fit(width)
        ends = self._top(width) + head + np.cumsum(heights)
        room = self.viewport().height() - self._below() + 1
        n = int((ends <= room).sum())
        return int((ends <= room - self._line()).sum()) if self._count(n) else n

    def notes(self) -> tuple[str, ...]:
        """Which columns are left out, and what colours mean."""
        words: list[str] = []
        out = self._fit(max(self.viewport().width(), 40))[1]
        key = key_column(self.mark)
        words += [key_words(key)] if key is not None and self._key() is None else []
        return (*words, *([Essential(f"columns left out: {', '.join(out)}")] if out else []))

    def left_out(self) -> tuple[str, ...]:
        """Rows and columns, the colour key."""
        n = self._n_visible()
        rows = (f"{counted(self.mark, self._rows()[:n])} rows",) if n < len(self.mark.ids) else ()
        return (*rows, *self.notes())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Other rows and columns fit."""
        super().resizeEvent(event)
        self.noted.emit()

    # painting --------------------------------------------------------------------------------------------------------

    def draw(self, painter: QPainter, visible: QRectF) -> None:
        """All of it, on a white page."""
        width = max(self.viewport().width(), 40)
        widths, _, heights, head = self._fit(width)
        painter.setPen(self.theme.colour("text"))
        if self.mark.heading:
            painter.setFont(self.theme.font(self.theme.small, bold=True))
            painter.drawText(QRectF(0, 0, width, self._top(width)), self._flags(None), self.mark.heading)
        y, x = self._top(width), 0.0
        painter.setFont(self.theme.font(self.theme.small))
        painter.setPen(self.theme.colour("muted"))
        for at, wide in widths:
            side = Qt.AlignmentFlag.AlignRight if is_number(self.mark.columns[at]) else Qt.AlignmentFlag.AlignLeft
            room = QRectF(x + PAD, y, wide - 2 * PAD + 0.5, head - GAP / 2)
            painter.drawText(room, int(side | Qt.AlignmentFlag.AlignBottom) | self._flags(None), self._title(at))
            x += wide
        y += head
        painter.setPen(self.theme.pen("faint"))
        painter.drawLine(QPointF(0, y - 1), QPointF(x, y - 1))
        for place, (row, high) in enumerate(zip(self._rows()[: self._n_visible()], heights, strict=False)):
            if self._model.gap_before(place):
                self._draw_gap(painter, QRectF(0, y, x, self._gap()))
                y, high = y + self._gap(), high - self._gap()
            self._draw_row(painter, row, QRectF(0, y, x, high), widths)
            y += high
        if words := self._count(self._n_visible()):
            painter.setFont(self.theme.font(self.theme.small))
            painter.setPen(self.theme.colour("muted"))
            painter.drawText(QRectF(PAD, y, x - PAD, self._line()), int(Qt.AlignmentFlag.AlignVCenter), words)
            y += self._line()
        if (key := self._key()) is not None:
            paint_key(painter, QRectF(PAD, y + GAP, x - 2 * PAD, key_height(self.theme)), key, self.theme)

    def _draw_gap(self, painter: QPainter, room: QRectF) -> None:
        """Says how many rows are listed of how many."""
        painter.setFont(self.theme.font(self.theme.small))
        painter.setPen(self.theme.colour("muted"))
        words = counted(self.mark, self._rows()[: self._n_visible()])
        painter.drawText(room, int(Qt.AlignmentFlag.AlignCenter), f"⋯ {words} ⋯")

    def _draw_row(self, painter: QPainter, row: int, place: QRectF, widths: list[tuple[int, float]]) -> None:
        if row in self.mark.chosen:
            painter.fillRect(place, self.theme.colour("accent", 0.14))
            painter.fillRect(QRectF(0, place.top(), 2, place.height()), self.theme.colour("accent"))
        x = 0.0
        for at, width in widths:
            column, cell = self.mark.columns[at], QRectF(x, place.top(), width, place.height())
            x += width
            ink = self._ground(painter, column, row, cell)
            painter.setFont(self._font(column, row))
            painter.setPen(ink)
            side = Qt.AlignmentFlag.AlignRight if is_number(column) else Qt.AlignmentFlag.AlignLeft
            flags = int(side | Qt.AlignmentFlag.AlignVCenter) | (0 if is_number(column) else self._flags(at))
            painter.drawText(cell.adjusted(PAD, 0, -PAD + 0.5, 0), flags, self._text(at, row, width))

    def _ground(self, painter: QPainter, column: RowColumn, row: int, cell: QRectF) -> QColor:
        """Paint a cell's tint or bar; the ink that reads on it."""
        ink = self.theme.colour("text")
        if not is_number(column) or column.values[row] != column.values[row]:
            return ink
        value = float(column.values[row])
        if column.map is not None:
            shade = rgb(np.array([value], dtype=np.float32), column.levels, column.map, self.theme)[0]
            painter.fillRect(cell.adjusted(0, 0, -1, -1), QColor(*(int(c) for c in shade)))
            return QColor(DARK_INK if bool(dark_text(shade, self.theme)) else LIGHT_INK)
        low, high = column.levels
        if column.bar and high > low:
            numbers = max(QFontMetricsF(self._font(column, r)).horizontalAdvance(cell_text(column, r)) for r in self._rows())
            room = cell.adjusted(PAD, 2, -numbers - 2 * PAD, -2)
            zero, end = (min(max((v - low) / (high - low), 0.0), 1.0) for v in (0.0, value))
            left, right = sorted((zero, end))
            colour = QColor(*bar_rgb(low < 0, value, self.theme))
            painter.fillRect(
                QRectF(room.left() + left * room.width(), room.top(), (right - left) * room.width(), room.height()), colour
            )
        return ink

    # gestures --------------------------------------------------------------------------------------------------------

    def item_rect(self, item: Id) -> QRectF:
        """Nothing is an item."""
        return QRectF()

    def id_at(self, at: QPointF) -> Id | None:
        """Nothing is an item."""
        return None

    def readout(self, item: Id) -> str:
        """Nothing."""
        return ""

    def walk(self, item: Id | None, dx: int, dy: int) -> Id | None:
        """Nowhere."""
        return None
