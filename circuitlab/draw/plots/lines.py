"""Curves over a shared x: a legend of strokes, labelled vertical lines and bands, a readout of the nearest curve."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QMouseEvent, QPainter
from PySide6.QtWidgets import QWidget

from circuitlab.caption_parts import Essential
from circuitlab.counting import number_of
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.plots._line_labels import COLUMNS, Around, curves_at
from circuitlab.draw.plots.items import Curve
from circuitlab.draw.plots.plot import Overlay, Range
from circuitlab.draw.plots.xy import XYPlot, logged, span
from circuitlab.draw.pointing.gestures import Id, number
from circuitlab.figures.contracts.hues import hue_rgb
from circuitlab.figures.marks import Lines

REACH = 24.0
IN_LEGEND = 12
MOST_ABSENT = 3  # names of curves without a value in the caption
BAND = 0.14  # of the accent
DASH = [5.0, 3.0]  # of the other one of a pair: a control, a reference
# Of series after the first, so that they are told apart without colour; none of them looks like DASH.
PATTERNS: tuple[list[float], ...] = (
    [],
    [10.0, 2.5],
    [1.5, 2.0],
    [8.0, 2.0, 1.5, 2.0],
    [3.0, 1.5],
    [8.0, 2.0, 1.5, 2.0, 1.5, 2.0],
)
ALONE, POINTED = 3.0, 4.5  # px of radius: the dot of a curve of one point, and of one that is pointed at
STEPPED_BACK = 185  # alpha of curves beside selected ones: legible in either theme
# Curves that belong to no head: none of the three of Q, K and V, each with a contrast of 3 : 1 on either ground.
PLAIN = ((74, 122, 190), (204, 128, 22), (158, 92, 158), (112, 112, 120), (42, 148, 172), (156, 104, 68))


class LinesMark(XYPlot):
    """Realises `Lines`."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.mark: Lines = Lines("", np.zeros(0), np.zeros((0, 0)), ())
        self._x, self._ys = np.zeros(0), np.zeros((0, 0))
        self._curves: list[Curve] = []
        self._step = 0
        self._on_paper = False
        self._under = Overlay(self, self._draw_under, z=-10.0)
        self._over = Overlay(self, self._draw_over)

    def show_mark(self, mark: Lines) -> None:
        """Redraw new curves; a selection changes pens only."""
        old, self.mark, self.mark_name = self.mark, mark, mark.name
        axes = mark.x_axis is old.x_axis and mark.y_axis is old.y_axis
        moved = mark.x is not old.x or mark.ys is not old.ys or mark.joined != old.joined or not axes
        if moved:
            self._x, self._ys = logged(mark.x, mark.x_axis), logged(mark.ys, mark.y_axis)
            self._fill()
            self.describe(mark.x_axis, mark.y_axis)
            self.forget_hover()
        style = lambda m: (m.hues, m.dashed, m.chosen, m.names, m.named)
        styled = style(mark) != style(old)
        if moved or styled:
            self._style()
        if moved or mark.marks != old.marks or mark.named != old.named:
            self.settle(mark.ys.shape == old.ys.shape)
        self._under.update()
        self._over.update()

    def _fill(self) -> None:
        while len(self._curves) > len(self._ys):
            self.box.removeItem(self._curves.pop())
        while len(self._curves) < len(self._ys):
            curve = Curve(antialias=True)
            self.box.addItem(curve, ignoreBounds=True)
            self._curves.append(curve)
        for curve, y in zip(self._curves, self._ys, strict=True):
            # A single point is drawn by the overlay.
            if self.mark.joined:
                finite = np.isfinite(self._x) & np.isfinite(y)
                curve.setData(self._x[finite], y[finite])
            else:
                curve.setData(self._x, y, connect="finite")

    def colour(self, i: int) -> tuple[int, int, int]:
        """The colour of a curve."""
        return (
            hue_rgb(hue, self.theme.dark)
            if (hue := self.mark.hues[i] if i < len(self.mark.hues) else -1 - i) >= 0
            else PLAIN[(-1 - hue) % len(PLAIN)]
        )

    def _patterns(self) -> dict[int, list[float]]:
        """Dashes by curve: those of the mark, and a pattern for each series in the legend."""
        dashed = {i for i, on in enumerate(self.mark.dashed) if on and i < len(self._ys)}
        patterns = dict.fromkeys(dashed, DASH)
        series = [i for i in self._in_legend() if i not in dashed]
        return patterns | {i: PATTERNS[k % len(PATTERNS)] for k, i in enumerate(series) if k % len(PATTERNS)}

    def _in_legend(self) -> tuple[int, ...]:
        n = len(self._ys)
        every = tuple(range(n)) if 1 < n <= IN_LEGEND else ()
        return every if self.mark.named is None else self.mark.named

    def _style(self) -> None:
        """Selected curves are thick and the others step back."""
        chosen, patterns = set(self.mark.chosen), self._patterns()
        for i, curve in enumerate(self._curves):
            strong = not chosen or i in chosen
            ink = QColor(*self.colour(i), 255 if strong else STEPPED_BACK)
            pen = self.theme.pen(ink, 2.5 if i in chosen else 1.5, cosmetic=self.ratio)
            if i in patterns:
                pen.setDashPattern(patterns[i])
                pen.setCapStyle(Qt.PenCapStyle.FlatCap)
            curve.setPen(pen)
            curve.setZValue(2 if i in chosen else 1)
        curves = self._in_legend()
        entries = [(self.mark.names[i], self.colour(i)) for i in curves]
        dashes = {k: patterns[i] for k, i in enumerate(curves) if i in patterns}
        self.legend.show_entries(entries, self.theme, lines=True, dashes=dashes)

    def restyle(self) -> None:
        """Legend colours."""
        if self._ready:
            self._style()

    def full_range(self) -> Range:
        """All curves, and the labelled lines."""
        marked = logged(np.array([at for at, _ in self.mark.marks]), self.mark.x_axis)
        return span(np.concatenate([self._x, marked]), 0.02), span(self._ys.ravel(), 0.06)

    def natural_height(self, width: int) -> int:
        """A wide picture."""
        return min(300, max(160, round(width * 0.45)))

    def notes(self) -> tuple[str, ...]:
        """Curves without any value, curves missing from the legend, titles without room."""
        return (*filter(None, (self._without_values(), self._not_in_legend())), *super().notes())

    def _without_values(self) -> str:
        names = [self.mark.names[i] for i in np.flatnonzero(~np.isfinite(self._ys).any(axis=1)).tolist()] if self._ys.size else []
        more = f" and {len(names) - MOST_ABSENT} more" if len(names) > MOST_ABSENT else ""
        return Essential(f"without any value: {', '.join(names[:MOST_ABSENT])}{more}") if names else ""

    def _not_in_legend(self) -> str:
        """How many of the curves that are drawn the legend names: of itself, or by a curve that looks the same."""
        patterns, named = self._patterns(), self._in_legend()
        look = lambda i: (self.colour(i), tuple(patterns.get(i, ())))
        drawn = np.flatnonzero(np.isfinite(self._ys).any(axis=1)).tolist() if self._ys.size else []
        in_legend = {look(i) for i in named}
        n, n_named = len(drawn), sum(look(i) in in_legend for i in drawn)
        if n < 2 or n_named == n:
            return ""
        if n_named:
            return f"{number_of(n, 'curve')}, {n_named} of them in the legend"
        return number_of(n, "curve") if self._on_paper else f"{number_of(n, 'curve')}, named under the pointer"

    def prepare_export(self, paper: Paper) -> None:
        """There is no pointer on paper."""
        super().prepare_export(paper)
        self._on_paper = True

    # gestures --------------------------------------------------------------------------------------------------------

    def id_at(self, at: QPointF) -> Id | None:
        """The nearest curve within reach, at the nearest step; (−1,) where none is and a step alone can be picked."""
        if not self._ys.size or not self.frame().contains(at) or np.isnan(self._x).all():
            return None
        self._step = int(np.nanargmin(np.abs(self._x - self.to_data(at).x())))
        ys = self.to_pixels(np.full(len(self._ys), self._x[self._step]), self._ys[:, self._step])[:, 1]
        away = np.where(np.isnan(ys), np.inf, np.abs(ys - at.y()))
        nearest = int(away.argmin())
        if away[nearest] <= REACH:
            return self._id(nearest)
        return self._id(-1) if self.mark.steps else None

    def _id(self, curve: int) -> Id:
        return (curve, self._step) if self.mark.steps else (curve,)

    def mark_id(self, item: Id) -> Id:
        """(*curve id, *step id) where the mark has them."""
        mark = self.mark
        if not mark.steps or mark.curve_ids is None or mark.step_ids is None:
            return item
        curve = mark.curve_ids[item[0]] if item[0] >= 0 else np.full(mark.curve_ids.shape[1], -1)
        return tuple(int(v) for v in (*curve, *mark.step_ids[item[1]]))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """The value changes along a curve while its id stays the same."""
        before, step = self._hovered, self._step
        super().mouseMoveEvent(event)
        if self._hovered is not None and self._hovered == before and self._step != step:
            self.emit_hit(self._hovered, "hover")
            self.show_cursor(self._hovered)

    def readout(self, item: Id) -> str:
        """Name, x, y."""
        i, mark, k = item[0], self.mark, min(self._step, len(self._x) - 1)
        x = float(mark.x[k])
        ticks = mark.x_axis.ticks
        where = f"‘{ticks[k]}’" if k < len(ticks) else (f"{x:,.0f}" if x == round(x) else number(x))
        if i < 0:
            return f"{mark.x_axis.label} {where}".strip()
        y = number(float(mark.ys[i, k]))
        return " · ".join((mark.names[i], f"{mark.x_axis.label} {where}".strip(), f"{mark.y_axis.label} {y}".strip()))

    def walk(self, item: Id | None, dx: int, dy: int) -> Id | None:
        """Left and right along the curve, up and down between curves."""
        if not self._ys.size:
            return None
        if item is None:
            return self._id(self.mark.chosen[0] if self.mark.chosen else 0)
        self._step = min(max(self._step + dx, 0), len(self._x) - 1)
        to = self._id(min(max(item[0] + dy, 0), len(self._ys) - 1))
        if dx and to == self._hovered:  # along one curve the value changes although the id does not
            self.emit_hit(to, "hover")
            self.show_cursor(to)
        return to

    def show_cursor(self, item: Id | None) -> None:
        """A dot on the hovered curve."""
        self._under.update()
        self._over.update()

    def _pixels_across(self, at: float) -> float:
        """Position in px along x of a value; NaN where a logarithmic axis has none."""
        return float(self.to_pixels(logged(np.array([at]), self.mark.x_axis), np.zeros(1))[0, 0])

    def _draw_under(self, painter: QPainter) -> None:
        """Bands and the selected step, behind the curves."""
        frame, mark = self.frame(), self.mark
        for first, last, _ in mark.bands:
            left, right = self._pixels_across(first), self._pixels_across(last)
            if np.isfinite((left, right)).all():
                painter.fillRect(QRectF(left, frame.top(), right - left, frame.height()), self.theme.colour("accent", BAND))
        hovered = mark.steps and self._hovered is not None and self._step < len(mark.x)
        lines = [(mark.x[self._step], "faint", 1.0)] if hovered else []
        lines += [(mark.current, "accent", 1.5)] if mark.current is not None else []
        for at, ink, width in lines:
            x = self._pixels_across(float(at))
            if np.isfinite(x):
                painter.setPen(self.theme.pen(ink, width))
                painter.drawLine(QPointF(x, frame.top()), QPointF(x, frame.bottom()))

    def _draw_over(self, painter: QPainter) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(self.theme.font(self.theme.small))
        frame, mark = self.frame(), self.mark
        around = self._around(frame)
        for first, last, text in mark.bands:
            left, right = self._pixels_across(first), self._pixels_across(last)
            if np.isfinite((left, right)).all() and right >= frame.left() and left <= frame.right():
                self._paint_label(painter, text, max(left, frame.left()), min(right, frame.right()), around)
        for at, text in mark.marks:
            x = self._pixels_across(at)
            if np.isfinite(x):
                painter.setPen(self.theme.pen("faint", 1.0, Qt.PenStyle.DashLine))
                painter.drawLine(QPointF(x, frame.top()), QPointF(x, frame.bottom()))
                if frame.left() <= x <= frame.right():
                    self._paint_label(painter, text, x, x, around)
        self._draw_dots(painter)
        if self._ys.size and not np.isfinite(self._ys).any():
            painter.setPen(self.theme.colour("muted"))
            painter.drawText(frame, int(Qt.AlignmentFlag.AlignCenter), "no values")

    def _around(self, frame: QRectF) -> Around:
        """What labels must keep clear of."""
        labelled = any(text for *_, text in (*self.mark.bands, *self.mark.marks))
        columns = np.linspace(frame.left(), frame.right(), COLUMNS) if labelled else np.zeros(0)
        across = self.to_pixels(self._x, np.zeros(len(self._x)))[:, 0]
        ys = np.array([self.to_pixels(self._x, y)[:, 1] for y in self._ys]).reshape(len(self._ys), len(self._x))
        spans = [(self._pixels_across(first), self._pixels_across(last)) for first, last, _ in self.mark.bands]
        lines = [self._pixels_across(at) for at in (*(at for at, _ in self.mark.marks), self.mark.current) if at is not None]
        return Around(
            frame,
            columns,
            curves_at(columns, across, ys),
            tuple(x for x in lines if frame.left() <= x <= frame.right()),
            tuple((a, b) for a, b in spans if np.isfinite((a, b)).all() and b >= frame.left() and a <= frame.right()),
        )

    def _paint_label(self, painter: QPainter, text: str, first: float, last: float, around: Around) -> None:
        """A label beside what reaches from `first` to `last`; on two lines, or with a leader, where that is clearer."""
        if not text:
            return
        metrics = QFontMetricsF(painter.font())
        size = lambda way: (max(map(metrics.horizontalAdvance, way.split("\n"))) + 2, metrics.height() * (1 + way.count("\n")))
        ways = [text, text.replace(", ", ",\n", 1)] if ", " in text else [text]
        label = around.place([(way, *size(way)) for way in ways], first, last)
        if label.leader is not None:
            painter.setPen(self.theme.pen("faint"))
            painter.drawLine(*label.leader)
        painter.fillRect(label.box, self.theme.colour("background", 0.75))
        painter.setPen(self.theme.colour("muted"))
        lines = [metrics.elidedText(line, Qt.TextElideMode.ElideRight, label.box.width()) for line in label.text.split("\n")]
        side = Qt.AlignmentFlag.AlignRight if label.left else Qt.AlignmentFlag.AlignLeft
        painter.drawText(label.box, int(side), "\n".join(lines))

    def _draw_dots(self, painter: QPainter) -> None:
        alone, pointed = ALONE * self.theme.stroke, POINTED * self.theme.stroke
        if self._ys.shape[1] == 1:
            for i in range(len(self._ys)):
                (at,) = self.to_pixels(self._x, self._ys[i])
                if not np.isfinite(at).all():
                    continue
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(QColor(*self.colour(i)))
                painter.drawEllipse(QPointF(*at), alone, alone)
        if self._hovered is not None and 0 <= self._hovered[0] < len(self._ys) and self._step < len(self._x):
            at = self.to_pixels(self._x[self._step : self._step + 1], self._ys[self._hovered[0], self._step : self._step + 1])[0]
            if np.isfinite(at).all():
                painter.setPen(self.theme.pen("background", 1.5))
                painter.setBrush(QColor(*self.colour(self._hovered[0])))
                painter.drawEllipse(QPointF(*at), pointed, pointed)
