"""Clock hands: small dials in rows, each with its hand and the angle it has turned through."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.colours import NEUTRAL
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.painted.mark import PaintedMark
from circuitlab.draw.pointing.gestures import Id, number
from circuitlab.figures.marks import Dials

LEAST, MOST = 24.0, 72.0  # px a dial takes, margins included
LABELLED = 34.0  # px of a dial from which on there is room for its label


class DialsMark(PaintedMark):
    """Realises `Dials`: in one row where they fit, as large as they fit."""

    CONTENT = "dials"

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.mark: Dials = Dials("", np.zeros(0))

    def show_mark(self, mark: Dials) -> None:
        """Repaint all hands; lay out again for another number of them."""
        old, self.mark, self.mark_name = self.mark, mark, mark.name
        if len(mark.angles) != len(old.angles):
            self.forget_hover()
            self.relayout()
        self.viewport().update()

    def _size(self, width: float) -> float:
        px = self.theme.px
        return min(max(width / max(len(self.mark.angles), 1), px(LEAST)), px(MOST))

    def _columns(self, width: float) -> int:
        return max(1, int((width + 0.5) // self._size(width)))

    def _below(self, size: float) -> float:
        """Height of the labels."""
        labelled = self.mark.labels and size >= self.theme.px(LABELLED)
        return QFontMetricsF(self.theme.font(self.theme.small)).height() if labelled else 0.0

    def content_height(self, width: int) -> int:
        """Rows of dials with their labels."""
        size = self._size(width)
        return math.ceil(math.ceil(len(self.mark.angles) / self._columns(width)) * (size + self._below(size)))

    def item_rect(self, item: Id) -> QRectF:
        """The square around a dial."""
        width = self.viewport().width()
        size = self._size(width)
        row, col = divmod(item[0], self._columns(width))
        return QRectF(col * size, row * (size + self._below(size)), size, size)

    def draw(self, painter: QPainter, visible: QRectF) -> None:
        """The visible dials."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(self.theme.font(self.theme.small))
        width = self.viewport().width()
        size, columns = self._size(width), self._columns(width)
        below, muted, pens = self._below(size), self.theme.colour("muted"), self._pens()
        for i, angle in enumerate(np.asarray(self.mark.angles, dtype=np.float64).tolist()):
            row, col = divmod(i, columns)
            left, top = col * size, row * (size + below)
            if QRectF(left, top, size, size + below).intersects(visible):
                self._dial(painter, QRectF(left + 2.5, top + 2.5, size - 5, size - 5), angle, pens, self._hovered == (i,))
                if below and i < len(self.mark.labels):
                    painter.setPen(muted)
                    under = QRectF(left, top + size - 1, size, below)
                    painter.drawText(under, Qt.AlignmentFlag.AlignCenter, self.mark.labels[i])

    def _pens(self) -> tuple[QColor, QPen, QPen, QPen, QPen]:
        """Pens of the turned angle, the face, the hovered face, the upright mark, and the hand."""
        turned = QColor(*NEUTRAL)
        turned.setAlphaF(0.28)
        face, hovered, upright = map(self.theme.pen, ("line", "text", "faint"))
        hand = self.theme.pen("text", 2.0)
        hand.setCapStyle(Qt.PenCapStyle.RoundCap)
        return turned, face, hovered, upright, hand

    def _dial(
        self, painter: QPainter, face: QRectF, angle: float, pens: tuple[QColor, QPen, QPen, QPen, QPen], hovered: bool
    ) -> None:
        """The face, a faint upright mark, the turned angle, the hand."""
        centre, radius = face.center(), face.width() / 2
        turned, plain, pointed, upright, hand = pens
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(turned)
        painter.drawPie(face, 90 * 16, -round(math.degrees(angle) * 16))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(pointed if hovered else plain)
        painter.drawEllipse(face)
        painter.setPen(upright)
        painter.drawLine(centre, QPointF(centre.x(), centre.y() - radius))
        painter.setPen(hand)
        reach = radius - 1.5
        painter.drawLine(centre, QPointF(centre.x() + reach * math.sin(angle), centre.y() - reach * math.cos(angle)))

    def id_at(self, at: QPointF) -> Id | None:
        """The dial under a point."""
        point = self.to_content(at)
        width = self.viewport().width()
        size, columns = self._size(width), self._columns(width)
        row, col = int(point.y() // (size + self._below(size))), int(point.x() // size)
        i = row * columns + col
        return (i,) if 0 <= col < columns and 0 <= i < len(self.mark.angles) else None

    def readout(self, item: Id) -> str:
        """The tip that the figure gives, or the angle."""
        i = item[0]
        return self.mark.tips[i] if i < len(self.mark.tips) else f"{i} · {number(float(self.mark.angles[i]), 'rad')}"

    def walk(self, item: Id | None, dx: int, dy: int) -> Id | None:
        """The next dial."""
        n = len(self.mark.angles)
        if not n:
            return None
        if item is None:
            return (0,)
        return (min(max(item[0] + dx + dy * self._columns(self.viewport().width()), 0), n - 1),)
