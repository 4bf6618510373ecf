# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""The colour bar beside a heatmap: the map from low to high, its ends and middle in tabular figures, its unit on top."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QImage, QPainter

from circuitlab.counting import number
from circuitlab.draw.look.colours import DARK_INK, LIGHT_INK, dark_text, table
from circuitlab.draw.look.guarded import guarded_item
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import Theme
from circuitlab.figures.marks import BETWEEN, ColourMap

UNIT = 72  # px that a unit may widen the bar to, unless one of its words is wider: then it stands in several lines
BEFORE, STRIP, AFTER = 12, 10, 5  # px before the strip, of it, and before its numbers
HIGHEST, LOWEST = 160, 8  # px of the strip


def short(value: float) -> str:
    """A level in few characters."""
    return number(value, ".3g")


def _broken(text: str, behind: str) -> list[str]:
    """The parts of a text, each but the last with the sign that it is broken behind."""
    *parts, last = text.split(behind)
    return [*(f"{part}{behind.rstrip()}" for part in parts), last]


class ColourBar(pg.GraphicsWidget):
    """Fixed in width; as high as the picture, up to a readable height."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._key: tuple[ColourMap, tuple[float, float], str] = ("magnitude", (0.0, 1.0), "")
        self._image = QImage()
        self.least = self._natural = 0  # px that it takes in any case; that its numbers and unit do
        self._paper: Paper | None = None
        self.show_levels(*self._key, theme=theme)

    def show_levels(self, name: ColourMap, levels: tuple[float, float], unit: str, theme: Theme) -> None:
        """Set map, range and unit."""
        if (name, levels, unit) == self._key and theme is self._theme and not self._image.isNull():
            return
        self._key, self._theme = (name, levels, unit), theme
        strip = np.ascontiguousarray(table(name, theme)[:0:-1])
        self._strip = strip[:, 0] if strip.ndim == 3 else strip
        self._image = QImage(strip.data, 1, 255, 3, QImage.Format.Format_RGB888).copy()
        self._natural = self._natural_extent()
        self.setFixedWidth(self.extent())
        self.update()

    def prepare_export(self, paper: Paper) -> None:
        """On paper the strip is drawn as rectangles."""
        self._paper = paper

    def _paint_strip(self, painter: QPainter, bar: QRectF) -> None:
        if self._paper is None:
            painter.drawImage(bar, self._image)
            return
        step = bar.height() / len(self._strip)
        for i, colour in enumerate(self._strip.tolist()):  # each extends below those that follow
            painter.fillRect(QRectF(bar.left(), bar.top() + i * step, bar.width(), bar.height() - i * step), QColor(*colour))
        if self._paper.grey and self._key[0] == "signed":
            for part in (0.625, 0.75, 0.875, 1.0):
                row = min(round(part * len(self._strip)), len(self._strip) - 1)
                dark = bool(dark_text(self._strip[row], self._theme))
                painter.setPen(self._theme.pen(QColor(DARK_INK if dark else LIGHT_INK)))
                at = bar.top() + (row - 0.03 * len(self._strip)) * step
                painter.drawLine(QPointF(bar.center().x() - 2.5, at), QPointF(bar.center().x() + 2.5, at))

    def boundingRect(self) -> QRectF:
        """Stops short of the picture, so that repainting the picture does not repaint the bar; half a number further down."""
        return self.rect().adjusted(8, 0, 0, QFontMetricsF(self._theme.font(self._theme.small)).height())

    def ticks(self) -> list[float]:
        """Low, middle, high; the middle only where there is room."""
        low, high = self._key[1]
        return [low, (low + high) / 2, high] if self.height() > self._theme.px(70) else [low, high]

    def extent(self) -> int:
        """Width in px."""
        return max(self.least, self._natural)

    @property
    def natural(self) -> int:
        """Width in px of its numbers and unit."""
        return self._natural

    def _natural_extent(self) -> int:
        metrics = QFontMetricsF(self._theme.font(self._theme.small))
        low, high = self._key[1]
        texts = [short(v) for v in (low, (low + high) / 2, high)]
        widest = max(metrics.horizontalAdvance(t) for t in texts)
        unit = max(map(metrics.horizontalAdvance, self._unit()), default=0.0)
        before, wide, after = self._across()
        return round(before + wide + after + max(widest, unit - wide) + 2)

    def _unit(self) -> list[str]:
        """The lines of the unit: one where it has the room, else broken behind a “·”, and between words where it must be."""
        metrics, most = QFontMetricsF(self._theme.font(self._theme.small)), self._theme.px(UNIT)
        lines = list[str]()
        for part in _broken(self._key[2], BETWEEN) if metrics.horizontalAdvance(self._key[2]) > most else [self._key[2]]:
            lines.append("")
            for word in part.split():
                longer = f"{lines[-1]} {word}".strip()
                lines = [*lines[:-1], longer] if not lines[-1] or metrics.horizontalAdvance(longer) <= most else [*lines, word]
        return [line for line in lines if line]

    def _across(self) -> tuple[int, int, int]:
        """px before the strip, of it, and before its numbers."""
        px = self._theme.px
        return px(BEFORE), px(STRIP), px(AFTER)

    @guarded_item
    def paint(self, painter: QPainter, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Unit, strip, hairline, numbers."""
        theme = self._theme
        font = theme.font(theme.small)
        metrics = QFontMetricsF(font)
        painter.setFont(font)
        lines = self._unit()
        top = len(lines) * metrics.height() + 2 if lines else metrics.height() / 2
        height = min(self.height() - top - 2, theme.px(HIGHEST))
        if height < LOWEST:
            return
        before, wide, after = self._across()
        bar = QRectF(before, top, wide, height)
        self._paint_strip(painter, bar)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(theme.pen("line"))
        painter.drawRect(bar)
        painter.setPen(theme.colour("muted"))
        for i, line in enumerate(lines):
            painter.drawText(QPointF(before, metrics.ascent() + i * metrics.height()), line)
        low, high = self._key[1]
        for value in self.ticks():
            at = bar.bottom() - (value - low) / ((high - low) or 1.0) * height
            at = min(max(at, bar.top() + metrics.ascent() / 2 - 1), bar.bottom() - 1)
            painter.drawText(QPointF(bar.right() + after, at + metrics.ascent() / 2 - 1), short(value))
