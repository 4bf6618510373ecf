"""Frames round single cells of a heatmap, and lines between the ranges that its axes name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPen

from circuitlab.draw.theme import Theme
from circuitlab.figures.marks import Heatmap

LEAST = 4.0  # px of a cell, below which a frame would hide it
CLEAR = 9.0  # px of a cell, from which on its frame stands off it: a full cell is as dark as its frame


def paint_frames(painter: QPainter, mark: Heatmap, box: Callable[[int, int], QRectF], theme: Theme) -> None:
    """A frame round each cell of `mark.framed`; `box(row, col)` is a cell in pixels."""
    if mark.framed is None or not mark.framed.size:
        return
    cell = box(0, 0)
    if min(cell.width(), cell.height()) < LEAST:
        return
    off = (-2, -2, 1, 1) if min(cell.width(), cell.height()) >= CLEAR else (0, 0, -1, -1)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(theme.colour("muted"), 1))
    for row, col in np.argwhere(mark.framed).tolist():
        painter.drawRect(box(row, col).adjusted(*off))


def paint_rules(painter: QPainter, mark: Heatmap, box: Callable[[float, float, float, float], QRectF], theme: Theme) -> None:
    """A line where one named range ends and another begins; `box(row, col, rows, cols)` in pixels."""
    rows, cols = mark.values.shape
    painter.setPen(QPen(theme.colour("faint"), 1))
    for first, _, _ in mark.x.spans[1:]:
        edge = box(0, first, rows, 1)
        painter.drawLine(edge.topLeft(), edge.bottomLeft())
    for first, _, _ in mark.y.spans[1:]:
        edge = box(first, 0, 1, cols)
        painter.drawLine(edge.topLeft(), edge.topRight())
