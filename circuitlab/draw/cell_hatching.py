"""Hatching over cells of a heatmap that mean nothing or are estimates, in an ink that shows on their colour."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QPainter

from circuitlab.draw.colours import dark_text, rgb
from circuitlab.draw.theme import Theme
from circuitlab.figures.marks import Heatmap


class Hatching:
    """Keeps the inks of the last mark."""

    def __init__(self) -> None:
        self._known: tuple[Heatmap, Theme, np.ndarray] | None = None

    def paint(self, painter: QPainter, mark: Heatmap, box: Callable[[float, float, float, float], QRectF], theme: Theme) -> None:
        """Runs of hatched cells, a row at a time; `box(row, col, rows, cols)` in pixels."""
        if mark.hatched is None:
            return
        inks_of = {1: theme.colour("line"), 2: QColor(16, 16, 20, 110), 3: QColor(255, 255, 255, 130)}
        for row, kinds in enumerate(self._inks(mark, theme)):
            starts = np.flatnonzero(np.diff(kinds, prepend=-1))
            for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(kinds)], strict=True):
                if kinds[start]:
                    brush = QBrush(inks_of[int(kinds[start])], Qt.BrushStyle.BDiagPattern)
                    painter.fillRect(box(row, start, 1, stop - start), brush)

    def _inks(self, mark: Heatmap, theme: Theme) -> np.ndarray:
        """int8 [row, col]: 0 not hatched, 1 nothing is drawn there, 2 light cells, which take dark lines, 3 dark cells."""
        if mark.rgb is not None or mark.hatched is None:
            return np.asarray(mark.hatched, dtype=np.int8)
        known = self._known
        if known is None or known[0] is not mark or known[1] is not theme:
            light = dark_text(rgb(mark.values, mark.levels, mark.map, theme))
            kinds = np.where(np.isnan(mark.values), 1, np.where(light, 2, 3)) * mark.hatched
            self._known = known = (mark, theme, kinds.astype(np.int8))
        return known[2]
