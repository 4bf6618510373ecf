"""Frames around single cells of a heatmap, lines between the ranges named on its axes, and the crosshair."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter

from circuitlab.draw.look.theme import Theme
from circuitlab.figures.marks import Heatmap

LEAST = 4.0  # px of a cell, below which a frame would hide it
MOST_TILES = 1024  # with more tiles, none is framed
MOST_RULES, PALE = 12, 0.4  # ranges along an axis, of more of which the lines between them are so opaque: they stand over cells
CLEAR = 9.0  # px of a cell, from which on its frame stands off it: a full cell is as dark as its frame


def paint_frames(painter: QPainter, mark: Heatmap, box: Callable[[int, int], QRectF], theme: Theme) -> None:
    """A frame around each cell of `mark.framed`; `box(row, col)` is a cell in pixels."""
    if mark.framed is None or not mark.framed.size:
        return
    cell = box(0, 0)
    if min(cell.width(), cell.height()) < LEAST:
        return
    off = (-2, -2, 1, 1) if min(cell.width(), cell.height()) >= CLEAR else (0, 0, -1, -1)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(theme.pen("muted"))
    for row, col in np.argwhere(mark.framed).tolist():
        painter.drawRect(box(row, col).adjusted(*off))


def paint_tiles(painter: QPainter, mark: Heatmap, box: Callable[[tuple[int, int]], QRectF], theme: Theme) -> None:
    """A hairline around each tile; `box((row, col))` is a tile in pixels."""
    tiles = mark.tiles
    if tiles is None or tiles.rows * tiles.cols > MOST_TILES:
        return
    painter.setPen(theme.pen("line"))
    for row in range(tiles.rows):
        for col in range(tiles.cols):
            painter.drawRect(box((row, col)))


def paint_rules(painter: QPainter, mark: Heatmap, box: Callable[[float, float, float, float], QRectF], theme: Theme) -> None:
    """A line where one named range ends and another begins; `box(row, col, rows, cols)` in pixels."""
    rows, cols = mark.values.shape
    dense = max(len(mark.x.spans), len(mark.y.spans)) > MOST_RULES
    painter.setPen(theme.pen(theme.colour("faint", PALE) if dense else "faint"))
    for first, _, _ in mark.x.spans[1:]:
        edge = box(0, first, rows, 1)
        painter.drawLine(edge.topLeft(), edge.bottomLeft())
    for first, _, _ in mark.y.spans[1:]:
        edge = box(first, 0, 1, cols)
        painter.drawLine(edge.topLeft(), edge.topRight())


def paint_crosshair(
    painter: QPainter, mark: Heatmap, box: Callable[[float, float, float, float], QRectF], frame: QRectF, theme: Theme
) -> None:
    """The selected row and column, and the cell where they meet; `box` as above, `frame` the picture in pixels."""
    rows, cols = mark.values.shape
    row, col = mark.row, mark.col
    painter.setPen(theme.pen("accent"))
    inside = frame.adjusted(0, 0, -1, -1)
    if row is not None and row < rows:
        painter.drawRect(box(row, 0, 1, cols).adjusted(0, -1, 0, 0) & inside)
    if col is not None and col < cols:
        painter.drawRect(box(0, col, rows, 1).adjusted(-1, 0, 0, 0) & inside)
    painter.setPen(theme.pen("accent", 2.0))
    if row is not None and col is not None and row < rows and col < cols:
        painter.drawRect(box(row, col, 1, 1))
