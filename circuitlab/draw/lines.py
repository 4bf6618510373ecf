"""Curves over a shared x: a legend of strokes, labelled vertical lines, the nearest curve under the pointer."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import QWidget

from circuitlab.draw.gestures import Id, number
from circuitlab.draw.plot import Overlay, Range
from circuitlab.draw.theme import Theme
from circuitlab.draw.xy import XYPlot, logged, span
from circuitlab.figures.hues import hue_rgb
from circuitlab.figures.marks import Lines

REACH = 24.0
IN_LEGEND = 12
DASH = [5.0, 3.0]
# Curves that belong to no head: apart in lightness too, and none of the three of Q, K and V.
PLAIN = ((74, 122, 190), (222, 148, 40), (150, 84, 150), (96, 96, 104), (98, 178, 200), (140, 92, 58))


class LinesMark(XYPlot):
    """Realises `Lines`."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.mark: Lines = Lines("", np.zeros(0), np.zeros((0, 0)), ())
        self._x, self._ys = np.zeros(0), np.zeros((0, 0))
        self._curves: list[pg.PlotCurveItem] = []
        self._step = 0
        self._over = Overlay(self, self._draw_over)

    def show_mark(self, mark: Lines) -> None:
        """New curves are drawn; a choice alone only changes pens."""
        old, self.mark, self.mark_name = self.mark, mark, mark.name
        axes = mark.x_axis is old.x_axis and mark.y_axis is old.y_axis
        moved = mark.x is not old.x or mark.ys is not old.ys or not axes
        if moved:
            self._x, self._ys = logged(mark.x, mark.x_axis), logged(mark.ys, mark.y_axis)
            self._fill()
            self.describe(mark.x_axis, mark.y_axis)
            self.forget_hover()
        styled = (mark.hues, mark.dashed, mark.chosen, mark.names) != (old.hues, old.dashed, old.chosen, old.names)
        if moved or styled:
            self._style()
        if moved or mark.marks != old.marks:
            self.settle(mark.ys.shape == old.ys.shape)
        self._over.update()

    def _fill(self) -> None:
        while len(self._curves) > len(self._ys):
            self.box.removeItem(self._curves.pop())
        while len(self._curves) < len(self._ys):
            curve = pg.PlotCurveItem(antialias=True)
            self.box.addItem(curve, ignoreBounds=True)
            self._curves.append(curve)
        for curve, y in zip(self._curves, self._ys, strict=True):
            # One point is no curve: it is drawn by the overlay.
            curve.setData(self._x, y, connect="finite")

    def colour(self, i: int) -> tuple[int, int, int]:
        """Of a curve."""
        return (
            hue_rgb(self.mark.hues[i], self.theme.dark)
            if i < len(self.mark.hues) and self.mark.hues[i] >= 0
            else PLAIN[i % len(PLAIN)]
        )

    def _dashed(self, i: int) -> bool:
        return i < len(self.mark.dashed) and self.mark.dashed[i]

    def _style(self) -> None:
        """Chosen curves are thick, the others then step back."""
        chosen = set(self.mark.chosen)
        for i, curve in enumerate(self._curves):
            strong = not chosen or i in chosen
            pen = pg.mkPen(*self.colour(i), 255 if strong else 130, width=(2.5 if i in chosen else 1.5) * self.stroke)
            if self._dashed(i):
                pen.setDashPattern(DASH)
            curve.setPen(pen)
            curve.setZValue(2 if i in chosen else 1)
        n = len(self._ys)
        named = [(self.mark.names[i], self.colour(i)) for i in range(n)] if 1 < n <= IN_LEGEND else []
        dashes = {i: DASH for i in range(n) if self._dashed(i)}
        self.legend.show_entries(named, self.theme, lines=True, dashes=dashes)

    def restyle(self) -> None:
        """The legend's text."""
        if self._ready:
            self._style()

    def full_range(self) -> Range:
        """All curves, and the labelled lines."""
        marked = logged(np.array([at for at, _ in self.mark.marks]), self.mark.x_axis)
        return span(np.concatenate([self._x, marked]), 0.02), span(self._ys.ravel(), 0.06)

    def natural_height(self, width: int) -> int:
        """Wide."""
        return min(300, max(160, round(width * 0.45)))

    def note(self) -> str:
        """Curves without a legend are announced."""
        return f"{len(self._ys)} curves, named under the pointer" if len(self._ys) > IN_LEGEND else ""

    # gestures --------------------------------------------------------------------------------------------------------

    def id_at(self, at: QPointF) -> Id | None:
        """The nearest curve within reach, at the nearest step."""
        if not self._ys.size or not self.frame().contains(at):
            return None
        self._step = int(np.nanargmin(np.abs(self._x - self.to_data(at).x())))
        ys = self.to_pixels(np.full(len(self._ys), self._x[self._step]), self._ys[:, self._step])[:, 1]
        away = np.where(np.isnan(ys), np.inf, np.abs(ys - at.y()))
        nearest = int(away.argmin())
        return (nearest,) if away[nearest] <= REACH else None

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Along one curve the value changes although the id does not."""
        before, step = self._hovered, self._step
        super().mouseMoveEvent(event)
        if self._hovered is not None and self._hovered == before and self._step != step:
            self.emit_hit(self._hovered, "hover")
            self._over.update()

    def readout(self, item: Id) -> str:
        """Name, x, y."""
        i, mark, k = item[0], self.mark, min(self._step, len(self._x) - 1)
        x = float(mark.x[k])
        ticks = mark.x_axis.ticks
        where = f"‘{ticks[k]}’" if k < len(ticks) else (f"{x:,.0f}" if x == round(x) else number(x))
        y = number(float(mark.ys[i, k]))
        return " · ".join((mark.names[i], f"{mark.x_axis.label} {where}".strip(), f"{mark.y_axis.label} {y}".strip()))

    def walk(self, item: Id | None, dx: int, dy: int) -> Id | None:
        """Left and right along the curve, up and down between curves."""
        if not self._ys.size:
            return None
        if item is None:
            return (self.mark.chosen[0] if self.mark.chosen else 0,)
        self._step = min(max(self._step + dx, 0), len(self._x) - 1)
        if dx and item == self._hovered:
            self.emit_hit(item, "hover")
            self._over.update()
        return (min(max(item[0] + dy, 0), len(self._ys) - 1),)

    def show_cursor(self, item: Id | None) -> None:
        """A dot on the hovered curve."""
        self._over.update()

    def _draw_over(self, painter: QPainter) -> None:
        frame = self.frame()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(self.theme.font(self.theme.small))
        metrics = QFontMetricsF(painter.font())
        for at, text in self.mark.marks:
            x = float(self.to_pixels(logged(np.array([at]), self.mark.x_axis), np.zeros(1))[0, 0])
            painter.setPen(QPen(self.theme.colour("faint"), 1, Qt.PenStyle.DashLine))
            painter.drawLine(QPointF(x, frame.top()), QPointF(x, frame.bottom()))
            width = metrics.horizontalAdvance(text)
            left = x + 4 if x + 4 + width <= frame.right() else x - 4 - width
            box = QRectF(left, frame.top() + 2, width + 2, metrics.height())
            painter.fillRect(box, self.theme.colour("background", 0.75))
            painter.setPen(self.theme.colour("muted"))
            painter.drawText(box, 0, text)
        self._draw_dots(painter)

    def _draw_dots(self, painter: QPainter) -> None:
        if self._ys.shape[1] == 1:
            for i in range(len(self._ys)):
                (at,) = self.to_pixels(self._x, self._ys[i])
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(QColor(*self.colour(i)))
                painter.drawEllipse(QPointF(*at), 3, 3)
        if self._hovered is not None and self._hovered[0] < len(self._ys) and self._step < len(self._x):
            at = self.to_pixels(self._x[self._step : self._step + 1], self._ys[self._hovered[0], self._step : self._step + 1])[0]
            if np.isfinite(at).all():
                painter.setPen(QPen(self.theme.colour("background"), 1.5))
                painter.setBrush(QColor(*self.colour(self._hovered[0])))
                painter.drawEllipse(QPointF(*at), 4.5, 4.5)
