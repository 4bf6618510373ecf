# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""A legend above a plot: swatches with names, in one or more lines, as high as it needs to be."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPainterPath, QPen, QTransform

from circuitlab.draw.look.guarded import guarded_item
from circuitlab.draw.look.theme import Theme

Entry = tuple[str, tuple[int, int, int]]
SWATCH, STROKE = 10.0, 24.0  # px of a square, and of a stroke: a whole dash and the gap behind it
GAP = 16.0


class Legend(pg.GraphicsWidget):
    """`lines` draws strokes in place of squares, dashed where the entry's index is in `dashes`; `symbols`: shapes of points."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._entries: list[Entry] = []
        self._dashes: dict[int, list[float]] = {}
        self._lines = False
        self._symbols: Sequence[QPainterPath] = ()
        self._widest = 0.0
        self.setFixedHeight(0)

    def show_entries(
        self,
        entries: Sequence[Entry],
        theme: Theme,
        lines: bool = False,
        dashes: dict[int, list[float]] | None = None,
        symbols: Sequence[QPainterPath] = (),
    ) -> None:
        """Set names, colours and theme. `symbols`: paths in the unit square around 0, one for each entry."""
        self._symbols = symbols
        self._entries, self._theme, self._lines, self._dashes = list(entries), theme, lines, dashes or {}
        self.prepareGeometryChange()
        self._widest = self.least_width()
        self.update()

    def boundingRect(self) -> QRectF:
        """Where it paints: a name may reach beyond a narrow picture."""
        rect = self.rect()
        return rect.adjusted(0, 0, max(0.0, self._widest - rect.width()), 0)

    def _flow(self, width: float) -> tuple[list[QPointF], float]:
        metrics = QFontMetricsF(self._theme.font(self._theme.small))
        line = metrics.height() + 4
        x, y, places = 0.0, 0.0, []
        for text, _ in self._entries:
            need = self._sample() + 6 + metrics.horizontalAdvance(text)
            if x and x + need > width:
                x, y = 0.0, y + line
            places.append(QPointF(x, y))
            x += need + GAP
        return places, y + line if self._entries else 0.0

    def _sample(self) -> float:
        """Width in px of the swatch or stroke before a name."""
        return STROKE if self._lines else SWATCH

    def least_width(self) -> float:
        """Width in px of its longest name with its swatch."""
        metrics = QFontMetricsF(self._theme.font(self._theme.small))
        return max((self._sample() + 6 + metrics.horizontalAdvance(text) for text, _ in self._entries), default=0.0)

    def height_for(self, width: float) -> float:
        """Set and return the height at this width."""
        height = self._flow(width)[1]
        height = float(ceil(height + 4)) if height else 0.0
        self.setFixedHeight(height)
        return height

    @guarded_item
    def paint(self, painter: QPainter, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Swatch and name, left to right."""
        font = self._theme.font(self._theme.small)
        metrics = QFontMetricsF(font)
        painter.setFont(font)
        places, _height = self._flow(self.width())
        for i, ((text, rgb), at) in enumerate(zip(self._entries, places, strict=True)):
            middle = at.y() + metrics.height() / 2
            if self._lines:
                pen = QPen(QColor(*rgb), 1.5)
                if i in self._dashes:
                    pen.setDashPattern(self._dashes[i])
                pen.setCapStyle(Qt.PenCapStyle.FlatCap)
                painter.setPen(pen)
                painter.drawLine(QPointF(at.x(), middle), QPointF(at.x() + STROKE, middle))
            elif self._symbols:
                shape = QTransform.fromTranslate(at.x() + SWATCH / 2, middle).scale(SWATCH, SWATCH).map(self._symbols[i])
                painter.setRenderHint(QPainter.RenderHint.Antialiasing)
                painter.fillPath(shape, QColor(*rgb))
            else:
                painter.fillRect(QRectF(at.x(), middle - SWATCH / 2, SWATCH, SWATCH), QColor(*rgb))
            painter.setPen(self._theme.colour("muted"))
            painter.drawText(QPointF(at.x() + self._sample() + 6, at.y() + metrics.ascent()), text)
