"""Horizontal bars: name, bar from zero, value; as many rows as there are values, scrolled where they do not fit."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt, Signal, Slot
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter
from PySide6.QtWidgets import QWidget

from circuitlab.counting import number as figured
from circuitlab.draw.look.colours import bar_rgb
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.painted.mark import PaintedMark
from circuitlab.draw.pointing.gestures import Id, number
from circuitlab.figures.contracts.hues import hue_rgb
from circuitlab.figures.marks import Bars
from circuitlab.story.zoom import Part, TablePart

ROW = 20  # px at text size 1
GAP = 8
LEAST_BAR = 32  # px on paper


def _numbers(values: np.ndarray) -> list[str]:
    """The values with one number of decimals, so that they can be read down the column."""
    finite = np.abs(values[np.isfinite(values)])
    top = float(finite.max()) if finite.size else 0.0
    if not 1e-3 <= top < 1e4 or (finite == np.round(finite)).all():
        return ["" if v != v else number(v) for v in values.tolist()]
    digits = max(2, 2 - math.floor(math.log10(top)))
    return ["" if v != v else figured(v, f".{digits}f") for v in values.tolist()]


class BarsMark(PaintedMark):
    """Realises `Bars`."""

    CONTENT = "rows"

    turned = Signal()  # scrolled by hand

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.mark: Bars = Bars("", np.zeros(0), ())
        self._names = 0.0  # px
        self._numbers = 0.0
        self._span = (0.0, 1.0)
        self._texts: list[str] = []
        self._holds, self._held = False, (0.0, 0.0)  # while ranges are held: the ends of all values since
        self._first: int | None = None  # the row that words have at the top, until somebody scrolls
        self.verticalScrollBar().actionTriggered.connect(self._scrolled)

    def show_mark(self, mark: Bars) -> None:
        """Measure again only for other values or labels."""
        old, self.mark, self.mark_name = self.mark, mark, mark.name
        if mark.values is not old.values or mark.labels is not old.labels or mark.unit != old.unit:
            self._measure()
            if len(mark.values) != len(old.values):
                self.forget_hover()
            self.relayout()
        self.viewport().update()

    def hold_range(self, on: bool) -> None:
        """From now on the scale only grows from one figure to the next, or it fits each again."""
        self._holds, self._held = on, (0.0, 0.0)
        self._measure()
        self.viewport().update()

    def restyle(self) -> None:
        """Text sizes have changed."""
        self._measure()

    def _font(self) -> QFont:
        return self.theme.font(self.theme.normal - 1, mono=self.mark.tokens)

    def _measure(self) -> None:
        values = np.asarray(self.mark.values, dtype=np.float64)
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        low, high = min(low, self._held[0]), max(high, self._held[1])
        self._span = (min(low, 0.0), max(high, 0.0)) if low or high else (0.0, 1.0)
        if self._holds and finite.size:
            self._held = self._span
        self._texts = _numbers(values)
        names = QFontMetricsF(self._font())
        least = (self._names, self._numbers) if self._holds else (0.0, 0.0)
        self._names = max((names.horizontalAdvance(t) for t in self.mark.labels), default=0.0)
        numbers = QFontMetricsF(self.theme.font(self.theme.small))
        self._numbers = max((numbers.horizontalAdvance(t) for t in self._texts), default=0.0)
        self._names, self._numbers = max(self._names, least[0]), max(self._numbers, least[1])

    @property
    def _row_height(self) -> int:
        return self.theme.px(ROW)

    def content_height(self, width: int) -> int:
        """One row per value, and the unit."""
        return self._row_height * len(self.mark.values) + (self.theme.px(16) if self.mark.unit else 0)

    def least_width(self) -> float:
        """Names, numbers, and a bar between them long enough to compare."""
        return self._names + self._numbers + 3 * self.theme.px(GAP) + LEAST_BAR

    def line_height(self) -> int:
        """A row."""
        return self._row_height

    @Slot()
    def _scrolled(self, *_: object) -> None:
        self._first = None
        self.turned.emit()

    def relayout(self) -> None:
        """The row that words have at the top stays there."""
        super().relayout()
        if self._first is not None:
            self.verticalScrollBar().setValue(self._first * self._row_height)

    def visible_part(self) -> Part | None:
        """The first and the last row in view, None at the top."""
        first = self.offset // self._row_height if self._first is None else self._first
        last = min(first + self.viewport().height() // self._row_height, len(self.mark.values)) - 1
        return (float(first), float(max(first, last))) if first else None

    def show_visible_part(self, part: Part) -> bool:
        """Bring the first of these rows to the top. Whether there is such a row."""
        if isinstance(part, TablePart) or len(part) != 2:
            self.show_whole()
            return False
        self._first = min(max(int(part[0]), 0), max(len(self.mark.values) - 1, 0))
        self.verticalScrollBar().setValue(self._first * self._row_height)
        return int(part[0]) == self._first

    def show_whole(self) -> None:
        """To the top."""
        self._first = None
        self.verticalScrollBar().setValue(0)

    def _columns(self) -> tuple[float, float, float]:
        """Right edge of the names; left and right edge of the bars."""
        width, px = self.viewport().width(), self.theme.px
        names = min(self._names, width * 0.4) + px(6)
        return names, names + px(GAP), max(names + px(GAP) + 10, width - self._numbers - px(GAP) - px(6))

    def item_rect(self, item: Id) -> QRectF:
        """The whole row."""
        return QRectF(0, item[0] * self._row_height, self.viewport().width(), self._row_height)

    def colour(self, i: int) -> QColor:
        """The hue of its head, or that of its sign."""
        mark = self.mark
        if mark.hues is not None and mark.hues[i] >= 0:
            return QColor(*hue_rgb(mark.hues[i], self.theme.dark))
        return QColor(*bar_rgb(self._span[0] < 0, float(mark.values[i]), self.theme))

    def draw(self, painter: QPainter, visible: QRectF) -> None:
        """The visible rows."""
        n = len(self.mark.values)
        right, left, end = self._columns()
        low, high = self._span
        scale = (end - left) / ((high - low) or 1.0)
        zero = left - low * scale
        for i in range(max(0, int(visible.top() // self._row_height)), min(n, int(visible.bottom() // self._row_height) + 1)):
            self._row(painter, i, right, zero, scale, end)
        painter.setPen(self.theme.pen("faint" if low < 0 else "line"))
        painter.drawLine(QPointF(round(zero) + 0.5, 0), QPointF(round(zero) + 0.5, n * self._row_height))
        if self.mark.unit:
            painter.setFont(self.theme.font(self.theme.small))
            painter.setPen(self.theme.colour("muted"))
            unit = QRectF(left, n * self._row_height, self.viewport().width() - left - 4, self.theme.px(16))
            painter.drawText(unit, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, self.mark.unit)

    def _row(self, painter: QPainter, i: int, right: float, zero: float, scale: float, end: float) -> None:
        row, middle = self.item_rect((i,)), Qt.AlignmentFlag.AlignVCenter
        chosen = i in self.mark.chosen
        if chosen:
            painter.fillRect(row, self.theme.colour("accent", 0.14))
            painter.fillRect(QRectF(0, row.top(), 3 * self.theme.stroke, self._row_height), self.theme.colour("accent"))
        elif self._hovered == (i,):
            painter.fillRect(row, self.theme.colour("line", 0.5))
        value = float(self.mark.values[i])
        if np.isfinite(value):
            edge, inset = zero + value * scale, self.theme.px(4)
            long = max(abs(edge - zero), 1.0 if value else 0.0)
            bar = QRectF(min(zero, edge), row.top() + inset, long, self._row_height - 2 * inset)
            painter.fillRect(bar, self.colour(i))
        before = self.theme.px(6)
        painter.setFont(self._font())
        painter.setPen(self.theme.colour("text"))
        name = QFontMetricsF(self._font()).elidedText(self.mark.labels[i], Qt.TextElideMode.ElideMiddle, right - before)
        painter.drawText(QRectF(before, row.top(), right - before, self._row_height), Qt.AlignmentFlag.AlignRight | middle, name)
        painter.setFont(self.theme.font(self.theme.small))
        painter.setPen(self.theme.colour("muted"))
        numbers = QRectF(end, row.top(), self.viewport().width() - end - 4, self._row_height)
        painter.drawText(numbers, Qt.AlignmentFlag.AlignRight | middle, self._texts[i])

    # gestures --------------------------------------------------------------------------------------------------------

    def id_at(self, at: QPointF) -> Id | None:
        """The row under a point."""
        i = int(self.to_content(at).y() // self._row_height)
        return (i,) if 0 <= i < len(self.mark.values) else None

    def readout(self, item: Id) -> str:
        """Name and value."""
        name = self.mark.labels[item[0]]
        return f"{f'‘{name}’' if self.mark.tokens else name} · {number(float(self.mark.values[item[0]]), self.mark.unit)}"

    def walk(self, item: Id | None, dx: int, dy: int) -> Id | None:
        """Up and down."""
        n = len(self.mark.values)
        if not n:
            return None
        if item is None:
            return (self.mark.chosen[0] if self.mark.chosen else 0,)
        return (min(max(item[0] + dy, 0), n - 1),)
