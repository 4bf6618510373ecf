"""Places for the labels of vertical lines and bands in a plot: off curves, lines, bands and other labels where possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from PySide6.QtCore import QPointF, QRectF

COLUMNS = 160  # sampled along the picture for the heights of the curves
ROWS = 7  # candidate heights
OFF = 4.0  # px between a label and its line
# What it costs to stand on something, to be cut short, to be broken in two lines, to stand off its line.
ON_LABEL, CUT, ON_CURVE, ON_LINE, ON_BAND, BROKEN, AWAY = 1000.0, 300.0, 20.0, 15.0, 6.0, 3.0, 2.0


@dataclass(frozen=True)
class Label:
    """`box` in px; `leader`: a line from the labelled thing to a label that is not beside it; `left`: the label is left of it."""

    text: str
    box: QRectF
    leader: tuple[QPointF, QPointF] | None
    left: bool
    cost: float


@dataclass
class Around:
    """The contents of a plot, in px: `curves` [curve, column] at `columns`, vertical `lines`, `bands`, labels already set."""

    frame: QRectF
    columns: np.ndarray
    curves: np.ndarray
    lines: tuple[float, ...] = ()
    bands: tuple[tuple[float, float], ...] = ()
    taken: list[QRectF] = field(default_factory=list)

    def crossing(self, box: QRectF) -> int:
        """How many curves cross a box."""
        near = np.flatnonzero((self.columns >= box.left()) & (self.columns <= box.right()))
        if not near.size or not len(self.curves):
            return 0
        ys = self.curves[:, max(near[0] - 1, 0) : near[-1] + 2]
        ys = ys if ys.shape[1] > 1 else np.repeat(ys, 2, axis=1)
        low, high = np.minimum(ys[:, :-1], ys[:, 1:]), np.maximum(ys[:, :-1], ys[:, 1:])  # NaN touches nothing
        return int(((high >= box.top()) & (low <= box.bottom())).any(axis=1).sum())

    def cost(self, box: QRectF) -> float:
        """The cost of a label in this box."""
        lines = sum(box.left() - 1 <= x <= box.right() + 1 for x in self.lines)
        bands = sum(first < box.right() and last > box.left() for first, last in self.bands)
        over = sum(box.intersects(other) for other in self.taken)
        return ON_LABEL * over + ON_CURVE * self.crossing(box) + ON_LINE * lines + ON_BAND * bands

    def place(self, texts: list[tuple[str, float, float]], first: float, last: float) -> Label:
        """The best label of `texts` (text, width, height) for something that reaches from `first` to `last`."""
        best = min((self._label(*place, first, last) for place in self._places(texts, first, last)), key=lambda one: one.cost)
        self.taken.append(best.box)
        return best

    def _places(
        self, texts: list[tuple[str, float, float]], first: float, last: float
    ) -> Iterator[tuple[str, QRectF, bool, float]]:
        """Candidates (text, box, whether left of the labelled thing, own cost): from the top down, adjacent ones first."""
        frame = self.frame
        edges = [x for span in (*self.bands, *((x, x) for x in self.lines)) for x in span]
        for k, (text, wide, high) in enumerate(texts):
            afters = {last + OFF, *(x + OFF for x in edges if x > last), frame.right() - wide - 2}
            befores = {first - OFF, *(x - OFF for x in edges if x < first), frame.left() + wide + 2}
            starts = [(x, False) for x in sorted(afters) if x >= last + OFF]
            ends = [(x, True) for x in sorted(befores, reverse=True) if x <= first - OFF]
            for i, top in enumerate(np.linspace(frame.top() + 2, max(frame.bottom() - high - 2, frame.top() + 2), ROWS)):
                for x, left in (*starts, *ends):
                    room = min(wide, x - frame.left() if left else frame.right() - x)
                    cut = CUT * (2 - max(room, 0.0) / wide) if room < wide else 0.0
                    box = QRectF(x - max(room, 0.0) if left else x, float(top), max(room, 0.0), high)
                    yield text, box, left, cut + BROKEN * k + 0.01 * i

    def _label(self, text: str, box: QRectF, left: bool, alone: float, first: float, last: float) -> Label:
        off = first - box.right() if left else box.left() - last
        if off <= OFF + 0.5:
            return Label(text, box, None, left, alone + self.cost(box))
        middle, near = box.center().y(), box.right() + 2 if left else box.left() - 2
        way = QRectF(min(near, last), middle - 0.5, abs(near - (first if left else last)), 1)
        cost = AWAY + off / 100 + 2 * self.crossing(way) + ON_LABEL * sum(way.intersects(other) for other in self.taken)
        leader = QPointF(first if left else last, middle), QPointF(near, middle)
        return Label(text, box, leader, left, alone + cost + self.cost(box))


def curves_at(columns: np.ndarray, x: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """[curve, column] heights of curves [curve, point] over `x` [point], NaN outside a curve; all in px."""
    heights = np.full((len(ys), len(columns)), np.nan)
    for curve, y in zip(heights, ys, strict=True):
        finite = np.isfinite(x) & np.isfinite(y)
        if finite.any():
            order = np.argsort(x[finite])
            curve[:] = np.interp(columns, x[finite][order], y[finite][order], np.nan, np.nan)
    return heights
