"""Hatching over heatmap cells that are undefined or estimated, in an ink that shows on their colour."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor

import numpy as np
from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QPainter

from circuitlab.draw.look.colours import dark_text, rgb
from circuitlab.draw.look.theme import Theme
from circuitlab.figures.marks import Heatmap

APART = 4.0  # px along x or y between two lines


class Hatching:
    """Remembers the inks of the last mark."""

    def __init__(self) -> None:
        self._memo: tuple[Heatmap, Theme, np.ndarray] | None = None

    def paint(
        self,
        painter: QPainter,
        mark: Heatmap,
        box: Callable[[float, float, float, float], QRectF],
        theme: Theme,
        on_paper: bool = False,
    ) -> None:
        """Runs of hatched cells, a row at a time; `box(row, col, rows, cols)` in pixels.

        `on_paper` lines are lines: every format and every viewer shows a pattern of its own. So they are where strokes are not
        those of the pattern.
        """
        if mark.hatched is None:
            return
        inks_of = {1: theme.colour("line"), 2: QColor(16, 16, 20, 110), 3: QColor(255, 255, 255, 130)}
        for row, kinds in enumerate(self._inks(mark, theme)):
            starts = np.flatnonzero(np.diff(kinds, prepend=-1))
            for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(kinds)], strict=True):
                if not kinds[start]:
                    continue
                ink, place = inks_of[int(kinds[start])], box(row, start, 1, stop - start)
                if on_paper or theme.stroke != 1.0:
                    painter.setPen(theme.pen(ink))
                    painter.drawLines(_diagonals(place, APART * (1.0 if on_paper else theme.stroke)))
                else:
                    painter.fillRect(place, QBrush(ink, Qt.BrushStyle.BDiagPattern))

    def _inks(self, mark: Heatmap, theme: Theme) -> np.ndarray:
        """int8 [row, col]: 0 not hatched, 1 no colour underneath, 2 light cells (dark lines), 3 dark cells (light lines)."""
        if mark.rgb is not None or mark.hatched is None:
            return np.asarray(mark.hatched, dtype=np.int8)
        memo = self._memo
        if memo is None or memo[0] is not mark or memo[1] is not theme:
            light = dark_text(rgb(mark.values, mark.levels, mark.map, theme), theme)
            kinds = np.where(np.isnan(mark.values), 1, np.where(light, 2, 3)) * mark.hatched
            self._memo = memo = (mark, theme, kinds.astype(np.int8))
        return memo[2]


def _diagonals(place: QRectF, apart: float) -> list[QLineF]:
    """Diagonal lines `apart` px from each other through `place` that continue in the neighbouring place."""
    left, top, right, bottom = place.left(), place.top(), place.right(), place.bottom()
    first, last = ceil((left + top) / apart), floor((right + bottom) / apart)
    sums = [k * apart for k in range(first, last + 1)]  # x + y of every point of a line
    return [QLineF(min(right, c - top), max(top, c - right), max(left, c - bottom), min(bottom, c - left)) for c in sums]
