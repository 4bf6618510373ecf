"""The axes of a matrix: a label for each row or column, turned where needed, thinned where cells are small."""

from __future__ import annotations

from typing import Any

import pyqtgraph as pg
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter

from circuitlab.draw.theme import LIGHT, Theme
from circuitlab.figures.marks import Axis

LABEL = 10.0  # px: below this a cell is too small for its label
LONGEST = 84.0  # px


class CellAxis(pg.AxisItem):
    """Labels at cell centres. `centres` are positions in data units, one for each tick."""

    def __init__(self, orientation: str) -> None:
        super().__init__(orientation)
        self.axis, self.centres, self.theme = Axis(), [], LIGHT  # type: ignore[var-annotated]
        self.setStyle(showValues=False, tickLength=0)

    def show_axis(self, axis: Axis, centres: list[float], theme: Theme) -> None:
        """Take labels; the size follows the longest of them."""
        self.axis, self.centres, self.theme = axis, centres, theme
        metrics = QFontMetricsF(self._font())
        longest = max((metrics.horizontalAdvance(t) for t in axis.ticks), default=0.0)
        extent = round(min(longest, LONGEST) + 8 + (16 if axis.label else 0))
        if self.orientation in ("left", "right"):
            self.setWidth(extent)
        else:
            turned = axis.tokens
            self.setHeight(extent if turned else 18 + (16 if axis.label else 0))
        self.picture = None
        self.update()

    def _font(self) -> Any:
        return self.theme.font(self.theme.small, mono=True) if self.axis.tokens else self.theme.font(self.theme.small)

    def paint(self, p: QPainter, opt: Any, widget: Any) -> None:
        """Draw the labels that fit, and the axis' name."""
        view = self.linkedView()
        if view is None or not self.centres:
            return
        p.setFont(self._font())
        p.setPen(QColor(self.theme.muted))
        box = self.boundingRect()
        across = self.orientation in ("left", "right")
        low, high = view.viewRange()[1 if across else 0]
        length = view.height() if across else view.width()
        per_unit = length / max(high - low, 1e-9)
        step = self._step(per_unit)
        for i in range(0, len(self.centres), step):
            if low <= self.centres[i] <= high:
                text = self.axis.ticks[i] if step == 1 or not self.axis.tokens else str(i)
                self._label(p, box, (self.centres[i] - low) * per_unit, text, across)
        self._name(p, box, across)

    def _step(self, per_unit: float) -> int:
        spacing = (self.centres[1] - self.centres[0]) * per_unit if len(self.centres) > 1 else 99.0
        if spacing >= LABEL:
            return 1
        least = 28.0 / max(spacing, 1e-6)
        return next((s for s in (2, 5, 10, 20, 50, 100, 200, 500, 1000) if s >= least), 2000)

    def _label(self, p: QPainter, box: QRectF, at: float, text: str, across: bool) -> None:
        metrics = QFontMetricsF(p.font())
        text = metrics.elidedText(text, Qt.TextElideMode.ElideRight, LONGEST)
        if across:
            rect = QRectF(box.left(), box.top() + at - 10, box.width() - 4, 20)
            p.drawText(rect, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, text)
        elif not self.axis.tokens:
            rect = QRectF(box.left() + at - 60, box.top() + 3, 120, 16)
            p.drawText(rect, Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop, text)
        else:
            p.save()
            p.translate(box.left() + at, box.top() + 4)
            p.rotate(90)
            p.drawText(QRectF(0, -10, LONGEST + 4, 20), Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, text)
            p.restore()

    def _name(self, p: QPainter, box: QRectF, across: bool) -> None:
        if not self.axis.label:
            return
        p.setFont(self.theme.font(self.theme.small))
        p.setPen(QColor(self.theme.muted))
        if across:
            p.save()
            p.translate(box.left() + 2, box.center().y())
            p.rotate(-90)
            p.drawText(QRectF(-100, -1, 200, 14), Qt.AlignmentFlag.AlignCenter, self.axis.label)
            p.restore()
        else:
            rect = QRectF(box.left(), box.bottom() - 15, box.width(), 14)
            p.drawText(rect, Qt.AlignmentFlag.AlignCenter, self.axis.label)
