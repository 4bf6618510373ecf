"""A scatter plot: brushes shared in buckets, a density image above 20 000 points, paths, a readout of the nearest point."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from pyqtgraph.graphicsItems.ScatterPlotItem import Symbols
from PySide6.QtCore import QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter
from PySide6.QtWidgets import QWidget

from circuitlab.caption_parts import Essential
from circuitlab.counting import number_of
from circuitlab.draw.look.colours import NEUTRAL, hues_rgb, rgba_table, steps, table
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.plots._point_labels import NAMES_APART, free_place
from circuitlab.draw.plots.items import Image, Scatter
from circuitlab.draw.plots.plot import Ends, Overlay, Range
from circuitlab.draw.plots.xy import MARGIN, XYPlot, logged, span
from circuitlab.draw.pointing.gestures import Id, number
from circuitlab.figures.contracts.hues import hue_rgb
from circuitlab.figures.marks import Points

MOST = 20_000
BUCKETS = 64
BINS = 256
REACH = 14.0  # px
MOST_LABELS = 80
SHAPES = ("o", "s", "t1", "d", "+", "star", "t", "x")  # in the order of the legend: distinct without colour
PATH = 150 / 255  # opacity of a path
RING = 3.0  # px between a point and the ring round it
MOST_MARGIN = 0.2  # of a picture: at its edges, for points that lie there
TINT = 0.05  # of the half where x is positive


class PointsMark(XYPlot):
    """Realises `Points`."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        nothing = np.zeros(0)
        self.mark: Points = Points("", nothing, nothing, np.zeros((0, 1), dtype=np.int64))
        self._x, self._y = nothing, nothing
        self._brushes: dict[tuple[int, int, int], object] = {}
        self.scatter = Scatter(pxMode=True, pen=None)
        self.density = Image()
        self.density.setZValue(-5)
        self.box.addItem(self.density, ignoreBounds=True)
        self.box.addItem(self.scatter, ignoreBounds=True)
        self._under = Overlay(self, self._draw_under, z=-1.0)
        self._over = Overlay(self, self._draw_over)
        self._index: int | None = None
        self._unnamed = 0  # points in view whose label found no place
        self._on_paper = False
        self.box.sigResized.connect(self._pad_again)

    def show_mark(self, mark: Points) -> None:
        """Redraw new positions or colours; a selection repaints the overlay alone."""
        old, self.mark, self.mark_name = self.mark, mark, mark.name
        axes = mark.x_axis is old.x_axis and mark.y_axis is old.y_axis
        moved = mark.x is not old.x or mark.y is not old.y or not axes
        keys = ("hues", "values", "levels", "map", "size", "sight", "controls", "origin", "rings")
        if moved or any(getattr(mark, k) is not getattr(old, k) for k in keys):
            if moved:
                self._x, self._y = logged(mark.x, mark.x_axis), logged(mark.y, mark.y_axis)
                self.forget_hover()
            self.describe(mark.x_axis, mark.y_axis)
            self.box.setAspectLocked(mark.equal)
            self._fill()
            self._name_hues()
            self.settle(len(mark.x) == len(old.x))
        elif mark.legend != old.legend:
            self._name_hues()
            self.settle(True)
        self._under.update()
        self._over.update()

    def left_out(self) -> tuple[str, ...]:
        """Names of points."""
        words = f"{number_of(self._unnamed, 'point')} without a name" if self._unnamed else ""
        return (*super().left_out(), *filter(None, [words]))

    def _dense(self) -> bool:
        return len(self._x) > MOST

    def notes(self) -> tuple[str, ...]:
        """That a density stands in place of points, and titles without room."""
        dense = (Essential(f"drawn as the density of {number_of(len(self._x), 'point')}"),) if self._dense() else ()
        return (*dense, *super().notes())

    def _rgb(self) -> np.ndarray:
        """[n, 3] uint8, in at most 64 shades of a map."""
        mark = self.mark
        if mark.hues is not None:
            hues, back = np.unique(np.asarray(mark.hues), return_inverse=True)
            return hues_rgb(hues, self.theme)[back]
        if mark.values is not None:
            shades = steps(mark.values, mark.levels) // (256 // BUCKETS) * (256 // BUCKETS)
            return table(mark.map, self.theme)[np.maximum(shades, 1)]
        return np.broadcast_to(np.array(NEUTRAL, dtype=np.uint8), (len(self._x), 3))

    def _fill(self) -> None:
        if self._dense():
            self.scatter.clear()
            self._fill_density()
            self.noted.emit()
            return
        self.density.clear()
        # A point without coordinates would reach Qt as NaN, which kills the process.
        finite = np.isfinite(self._x) & np.isfinite(self._y)
        brushes = [self._brush(tuple(c)) for c in self._rgb()[finite].tolist()]
        x, y, size = self._x[finite], self._y[finite], self._size()
        self.scatter.setData(x=x, y=y, brush=brushes, pen=None, size=size, symbol=self._symbols(finite))

    def _size(self) -> float:
        """px across a point."""
        return self.mark.size * self.theme.stroke

    def _symbols(self, finite: np.ndarray) -> str | list[str]:
        """A shape for each point whose hue is in the legend; circles without a legend."""
        mark = self.mark
        if mark.hues is None or len(mark.legend) < 2:
            return SHAPES[0]
        shape = {hue: SHAPES[i % len(SHAPES)] for i, (_, hue) in enumerate(mark.legend)}
        return [shape.get(int(hue), SHAPES[0]) for hue in np.asarray(mark.hues)[finite]]

    def _name_hues(self) -> None:
        entries = [(text, hue_rgb(hue, self.theme.dark)) for text, hue in self.mark.legend]
        shapes = [Symbols[SHAPES[i % len(SHAPES)]] for i in range(len(entries))] if len(entries) > 1 else []
        self.legend.show_entries(entries, self.theme, symbols=shapes)

    def _brush(self, rgb: tuple[int, ...]) -> object:
        key = (rgb[0], rgb[1], rgb[2])
        if key not in self._brushes:
            self._brushes[key] = pg.mkBrush(*key, 215)
        return self._brushes[key]

    def _fill_density(self) -> None:
        (x0, x1), (y0, y1) = self.full_range()
        finite = np.isfinite(self._x) & np.isfinite(self._y)
        counts = np.histogram2d(self._y[finite], self._x[finite], bins=BINS, range=((y0, y1), (x0, x1)))[0]
        log_counts = np.where(counts == 0, np.nan, np.log1p(counts))
        self.density.setLookupTable(rgba_table("magnitude", self.theme), update=False)
        self.density.setImage(steps(log_counts, (0.0, float(np.log1p(counts.max())) or 1.0)), autoLevels=False, levels=(0, 255))
        self.density.setRect(QRectF(x0, y0, x1 - x0, y1 - y0))

    def full_range(self) -> Range:
        """All points with their controls, what must be visible, and a margin."""
        x, y = [self._x], [self._y]
        if self.mark.controls is not None:
            x.append(self.mark.controls[:, 0])
            y.append(self.mark.controls[:, 1])
        if self.mark.sight is not None:
            x.append(np.array(self.mark.sight[:2]))
            y.append(np.array(self.mark.sight[2:]))
        return span(np.concatenate(x)), span(np.concatenate(y))

    def padded(self, part: Range) -> Range:
        """A range in which the points at its ends are whole, with a ring round them; on paper nothing moves the numbers."""
        if self._on_paper:
            return part
        frame, reach = self.frame(), self._ring_radius() + 2 * self.theme.stroke
        x, y = (
            _wider(ends, reach / max(length, 1.0)) for ends, length in zip(part, (frame.width(), frame.height()), strict=True)
        )
        return x, y

    def _ring_radius(self) -> float:
        """px of radius of the ring round a point."""
        return self._size() / 2 + RING * self.theme.stroke

    def _pad_again(self, *_: object) -> None:
        """Points at the ends are whole at any size."""
        if self._ready and not self._zoomed:
            self.reset_view()

    def natural_height(self, width: int) -> int:
        """Square where x and y have equal units."""
        return min(width, 420) if self.mark.equal else min(round(width * 0.6), 360)

    def restyle(self) -> None:
        """Colour maps start at the background."""
        if self._ready:
            self._fill()
            self._name_hues()

    def prepare_export(self, paper: Paper) -> None:
        """Vector circles instead of pixmaps."""
        super().prepare_export(paper)
        self._on_paper = True
        self.setRenderHint(QPainter.RenderHint.LosslessImageRendering)
        self.scatter.setExportMode(True)

    # gestures --------------------------------------------------------------------------------------------------------

    def id_at(self, at: QPointF) -> Id | None:
        """The nearest point within reach."""
        if not len(self._x) or not self.frame().contains(at):
            return None
        away = np.hypot(*(self.to_pixels(self._x, self._y) - (at.x(), at.y())).T)
        nearest = int(np.nanargmin(away)) if not np.isnan(away).all() else 0
        if not away[nearest] <= REACH:
            return None
        self._index = nearest
        return tuple(int(v) for v in self.mark.ids[nearest])

    def _place(self, item: Id) -> int:
        if self._index is not None and self._index < len(self.mark.ids) and tuple(self.mark.ids[self._index]) == item:
            return self._index
        return int(np.flatnonzero((self.mark.ids == np.array(item)).all(axis=1))[0])

    def readout(self, item: Id) -> str:
        """Label, coordinates, value."""
        i, mark = self._place(item), self.mark
        if mark.tips:
            return mark.tips[i]
        parts = [mark.labels[i]] if i < len(mark.labels) else []
        for axis, values in ((mark.x_axis, mark.x), (mark.y_axis, mark.y)):
            parts.append(f"{axis.label} {number(float(values[i]))}".strip())
        if mark.values is not None:
            parts.append(number(float(mark.values[i])))
        return " · ".join(parts)

    def walk(self, item: Id | None, dx: int, dy: int) -> Id | None:
        """The nearest point in that direction."""
        n = len(self._x)
        if not n:
            return None
        here = self._place(item) if item is not None else (self.mark.chosen[0] if self.mark.chosen else None)
        if here is None:
            self._index = 0
            return tuple(int(v) for v in self.mark.ids[0])
        best = nearest_towards(self.to_pixels(self._x, self._y), here, dx, dy)
        self._index = best
        return tuple(int(v) for v in self.mark.ids[best])

    def show_cursor(self, item: Id | None) -> None:
        """Ring the hovered point."""
        self._over.update()

    def _draw_under(self, painter: QPainter) -> None:
        """Paths behind the points; points without coordinates are skipped."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self.mark.origin:
            self._draw_origin(painter)
        self._draw_controls(painter)
        for path in self.mark.paths:
            at = self.to_pixels(self._x[list(path)], self._y[list(path)])
            corners = at[np.isfinite(at).all(axis=1)]
            hue = -1 if self.mark.hues is None else int(self.mark.hues[path[-1]])
            ink = QColor(*hues_rgb((hue,), self.theme)[0].tolist())
            ink.setAlphaF(self.theme.opacity(PATH))
            painter.setPen(self.theme.pen(ink, 1.5))
            painter.drawPolyline([QPointF(x, y) for x, y in corners.tolist()])

    def _draw_origin(self, painter: QPainter) -> None:
        """The positive half tinted, lines through the origin, circles round it with their names at the upper right."""
        frame = self.frame()
        middle, unit = self.to_pixels(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
        x, y, scale = float(middle[0]), float(middle[1]), float(abs(unit[0] - middle[0]))
        if x < frame.right():
            left = max(x, frame.left())
            painter.fillRect(QRectF(left, frame.top(), frame.right() - left, frame.height()), self.theme.colour("accent", TINT))
        painter.setPen(self.theme.pen(self.theme.colour("muted", self.theme.guide_opacity(PATH))))
        painter.drawLine(QPointF(x, frame.top()), QPointF(x, frame.bottom()))
        painter.drawLine(QPointF(frame.left(), y), QPointF(frame.right(), y))
        painter.setFont(self.theme.font(self.theme.small))
        for radius, text in self.mark.rings:
            painter.setPen(
                self.theme.pen(self.theme.colour("muted", self.theme.guide_opacity(PATH / 2)), 1.0, Qt.PenStyle.DotLine)
            )
            painter.drawEllipse(QPointF(x, y), radius * scale, radius * scale)
            painter.setPen(self.theme.colour("muted"))
            painter.drawText(QPointF(x + 0.707 * radius * scale + 2, y - 0.707 * radius * scale - 2), text)

    def _draw_controls(self, painter: QPainter) -> None:
        if self.mark.controls is None or self._dense():
            return
        painter.setPen(self.theme.pen(self.theme.colour("muted", self.theme.guide_opacity(PATH))))
        radius = (self._size() - self.theme.stroke) / 2
        ends = zip(self.to_pixels(self._x, self._y), self.to_pixels(*self.mark.controls.T), strict=True)
        for end, control in ends:
            if not np.isfinite(control).all():
                continue
            painter.drawEllipse(QPointF(*control), radius, radius)
            away = end - control
            length = float(np.hypot(*away))
            if np.isfinite(length) and length > radius:
                painter.drawLine(QPointF(*(control + away / length * radius)), QPointF(*end))

    def _draw_over(self, painter: QPainter) -> None:
        mark, n = self.mark, len(self._x)
        chosen = [i for i in mark.chosen if i < n]
        hovered = [self._place(self._hovered)] if self._hovered is not None else []
        labelled = list(range(n)) if 0 < len(mark.labels) == n <= MOST_LABELS else []
        front = [i for i in (*hovered, *chosen) if i < len(mark.labels)]
        order = list(dict.fromkeys([*front, *labelled]))
        marked = list(dict.fromkeys([*order, *chosen, *hovered]))
        if not marked:
            return
        at = dict(zip(marked, self.to_pixels(self._x[marked], self._y[marked]).tolist(), strict=True))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        radius = self._ring_radius()
        for items, name in ((chosen, "accent"), (hovered, "text")):
            painter.setPen(self.theme.pen(name, 2.0))
            for i in items:
                if np.isfinite(at[i]).all():
                    painter.drawEllipse(QPointF(*at[i]), radius, radius)
        self._draw_labels(painter, order, at, radius)

    def _draw_labels(self, painter: QPainter, order: list[int], at: dict[int, list[float]], radius: float) -> None:
        """The first ones first; a label without a free place is omitted."""
        painter.setFont(self.theme.font(self.theme.small))
        metrics = QFontMetricsF(painter.font())
        frame = self.frame()
        finite = [p for p in at.values() if np.isfinite(p).all()]
        near = RING * self.theme.stroke
        dots = [QRectF(x - near, y - near, 2 * near, 2 * near) for x, y in finite]
        taken: list[QRectF] = []
        self._unnamed = 0
        for i in order:
            x, y = at[i]
            if not np.isfinite((x, y)).all() or not frame.contains(QPointF(x, y)):
                continue  # no coordinates (for Qt, NaN lies within every frame), or out of view
            text = self.mark.labels[i]
            size = QSizeF(metrics.horizontalAdvance(text), metrics.height())
            box = free_place(QPointF(x, y), size, radius, frame, (*taken, *dots))
            if box is None and text and i in self.mark.chosen:  # a selected point is labelled, over others if need be
                box = free_place(QPointF(x, y), size, radius, frame, taken)
            if box is None:
                self._unnamed += bool(text)
                continue
            taken.append(box.adjusted(-NAMES_APART, 0, NAMES_APART, 0))
            if i in self.mark.chosen:
                painter.fillRect(box, self.theme.colour("background", 0.8))
            painter.setPen(QColor(self.theme.colour("accent" if i in self.mark.chosen else "muted")))
            painter.drawText(QPointF(box.left(), box.top() + metrics.ascent()), text)


def _wider(ends: Ends, share: float) -> Ends:
    """A range of data with its margin, in which that margin is `share` of the whole at least, as far as there is room for it."""
    low, high = ends
    inner = (high - low) / (1 + 2 * MARGIN)
    more = max(inner / (1 - 2 * min(share, MOST_MARGIN)) - (high - low), 0.0) / 2
    return low - more, high + more


def nearest_towards(pixels: np.ndarray, here: int, dx: int, dy: int) -> int:
    """The point nearest to `here` in a direction (dy down), sideways distance counting double; `here` when there is none."""
    apart = pixels - pixels[here]
    forward, aside = apart @ np.array([dx, dy]), np.abs(apart @ np.array([dy, dx]))
    cost = np.where(forward > 0.5, forward + 2 * aside, np.inf)
    best = int(np.nanargmin(np.where(np.isnan(cost), np.inf, cost)))
    return best if np.isfinite(cost[best]) else here
