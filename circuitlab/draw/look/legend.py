# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""A legend above a plot: swatches with names, in one or more lines, as high as it needs to be."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPainterPath, QTransform

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
        self._left_out = False
        self._across = 0.0  # px in which the entries stand, where that is more than the width of the picture below
        self.setFixedHeight(0)

    @property
    def key(self) -> tuple[object, ...]:
        """What is equal for two legends that say the same in the same way."""
        return (
            tuple(self._entries),
            self._lines,
            tuple(sorted((i, tuple(d)) for i, d in self._dashes.items())),
            bool(self._symbols),
        )

    def leave_out(self) -> None:
        """Another legend beside it says the same: it has no entries from now on."""
        self._left_out = True
        self.show_entries((), self._theme, self._lines)

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
        self._entries = [] if self._left_out else list(entries)
        self._theme, self._lines, self._dashes = theme, lines, dashes or {}
        self.prepareGeometryChange()
        self._widest = self.least_width()
        self.update()

    def boundingRect(self) -> QRectF:
        """Where it paints: a name may reach beyond a narrow picture."""
        rect = self.rect()
        return rect.adjusted(0, 0, max(0.0, max(self._widest, self._across) - rect.width()), 0)

    def _flow(self, width: float) -> tuple[list[QPointF], float]:
        metrics = QFontMetricsF(self._theme.font(self._theme.small))
        line = metrics.height() + 4
        x, y, places = 0.0, 0.0, []
        for text, _ in self._entries:
            need = self._before() + metrics.horizontalAdvance(text)
            if x and x + need > width:
                x, y = 0.0, y + line
            places.append(QPointF(x, y))
            x += need + self._px(GAP)
        return places, y + line if self._entries else 0.0

    def _sample(self) -> float:
        """Width in px of the swatch or stroke before a name."""
        return (STROKE if self._lines else SWATCH) * self._theme.stroke

    def _px(self, length: float) -> float:
        """On a stage with the text; in a window of large type the names themselves need the room."""
        return self._theme.px(length) if self._theme.stage else length

    def _before(self) -> float:
        """px before a name."""
        return self._sample() + self._px(6)

    def least_width(self) -> float:
        """Width in px of its longest name with its swatch."""
        metrics = QFontMetricsF(self._theme.font(self._theme.small))
        return max((self._before() + metrics.horizontalAdvance(text) for text, _ in self._entries), default=0.0)

    def line_width(self) -> float:
        """Width in px of all entries in one line."""
        metrics = QFontMetricsF(self._theme.font(self._theme.small))
        names = [self._before() + metrics.horizontalAdvance(text) for text, _ in self._entries]
        return sum(names) + self._px(GAP) * max(len(names) - 1, 0)

    def height_across(self, width: float) -> float:
        """Set and return the height at this width, which may be more than that of the picture below."""
        self._across = width
        return self.height_for(width)

    def height_at(self, width: float) -> float:
        """The height at this width."""
        height = self._flow(width)[1] if self._entries else 0.0
        return float(ceil(height + 4)) if height else 0.0

    def height_for(self, width: float) -> float:
        """Set and return the height at this width."""
        height = self.height_at(width)
        self.setFixedHeight(height)
        return height

    @guarded_item
    def paint(self, painter: QPainter, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Swatch and name, left to right."""
        font = self._theme.font(self._theme.small)
        metrics = QFontMetricsF(font)
        painter.setFont(font)
        places, _height = self._flow(max(self.width(), self._across))
        sample = self._sample()
        for i, ((text, rgb), at) in enumerate(zip(self._entries, places, strict=True)):
            middle = at.y() + metrics.height() / 2
            if self._lines:
                pen = self._theme.pen(QColor(*rgb), 1.5)
                if i in self._dashes:
                    pen.setDashPattern(self._dashes[i])
                pen.setCapStyle(Qt.PenCapStyle.FlatCap)
                painter.setPen(pen)
                painter.drawLine(QPointF(at.x(), middle), QPointF(at.x() + sample, middle))
            elif self._symbols:
                shape = QTransform.fromTranslate(at.x() + sample / 2, middle).scale(sample, sample).map(self._symbols[i])
                painter.setRenderHint(QPainter.RenderHint.Antialiasing)
                painter.fillPath(shape, QColor(*rgb))
            else:
                painter.fillRect(QRectF(at.x(), middle - sample / 2, sample, sample), QColor(*rgb))
            painter.setPen(self._theme.colour("muted"))
            painter.drawText(QPointF(at.x() + self._before(), at.y() + metrics.ascent()), text)
