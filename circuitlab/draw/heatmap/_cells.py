"""The cells of a heatmap on paper: one path of rectangles for each colour, so that they are sharp in every viewer."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import QColor, QPaintEngine, QPainter, QPainterPath

from circuitlab.draw.look.colours import BARELY, DARK_INK, LIGHT_INK, dark_text, rgb
from circuitlab.draw.look.theme import Theme
from circuitlab.figures.marks import Heatmap

MOST = 128 * 128  # rectangles; a map of more becomes a lossless image
UNDER = 0.25  # px that a cell reaches under those painted after it: viewers would let the paper through between two edges


def cell_colours(mark: Heatmap, theme: Theme) -> np.ndarray:
    """[row, col] int64, 0xRRGGBB of each cell, −1 where nothing is painted: no value, or the colour of the paper."""
    colours = rgb(mark.values, mark.levels, mark.map, theme) if mark.rgb is None else mark.rgb
    packed = np.asarray(colours).astype(np.int64) @ np.array((65536, 256, 1))
    empty = packed == (theme.colour("background").rgb() & 0xFFFFFF)
    return np.where(empty | np.isnan(mark.values) if mark.rgb is None else empty, -1, packed)


def rectangles(colours: np.ndarray) -> int:
    """The number of cells that are painted."""
    return int((colours >= 0).sum())


def paint_cells(painter: QPainter, colours: np.ndarray, frame: QRectF, visible: QRectF | None = None) -> None:
    """Fill `frame` with the cells of `cell_colours`, as far as they lie in `visible`."""
    rows, cols = colours.shape
    raster = painter.paintEngine().type() == QPaintEngine.Type.Raster
    under = 0.0 if raster else min(UNDER, frame.width() / cols / 4, frame.height() / rows / 4)
    x = frame.left() + np.arange(cols + 1) * (frame.width() / cols)
    y = frame.top() + np.arange(rows + 1) * (frame.height() / rows)
    around = np.pad(colours, 1, constant_values=-1)
    # Colours are painted in ascending order; a cell extends below its neighbours painted later.
    left, right = around[1:-1, :-2] >= colours, around[1:-1, 2:] >= colours
    above, below = around[:-2, 1:-1] >= colours, around[2:, 1:-1] >= colours
    x0, x1 = x[:-1] - under * left, x[1:] + under * right
    y0, y1 = y[:-1, None] - under * above, y[1:, None] + under * below
    if visible is not None:  # not by clipping: a file must not contain what it does not show
        x0, x1 = (np.clip(v, visible.left(), visible.right()) for v in (x0, x1))
        y0, y1 = (np.clip(v, visible.top(), visible.bottom()) for v in (y0, y1))
        colours = np.where((x1 > x0) & (y1 > y0), colours, -1)
    painter.setPen(Qt.PenStyle.NoPen)
    for colour in np.unique(colours[colours >= 0]).tolist():
        path = QPainterPath()
        path.setFillRule(Qt.FillRule.WindingFill)
        for row, col in np.argwhere(colours == colour).tolist():
            at = row, col
            path.addRect(QRectF(x0[at], y0[at], x1[at] - x0[at], y1[at] - y0[at]))
        painter.fillPath(path, QColor(colour))


def paint_signs(painter: QPainter, mark: Heatmap, frame: QRectF, theme: Theme) -> None:
    """A minus sign in every visibly negative cell: in grey the two sides of the signed map look alike."""
    if mark.map != "signed" or mark.rgb is not None:
        return
    rows, cols = mark.values.shape
    wide, high = frame.width() / cols, frame.height() / rows
    top = max(abs(level) for level in mark.levels)
    with np.errstate(invalid="ignore"):
        negative = np.argwhere(mark.values < -BARELY * top)
    if not len(negative):
        return
    dark = dark_text(rgb(mark.values[tuple(negative.T)], mark.levels, mark.map, theme), theme)
    half = min(wide * 0.3, 4.0)
    for on_dark in (False, True):
        pen = theme.pen(QColor(LIGHT_INK if on_dark else DARK_INK), min(max(high * 0.14, 0.35), 1.2))
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)
        painter.setPen(pen)
        lines = [
            QLineF(x - half, y, x + half, y)
            for row, col in negative[dark != on_dark].tolist()
            for x, y in [(frame.left() + (col + 0.5) * wide, frame.top() + (row + 0.5) * high)]
        ]
        if lines:
            painter.drawLines(lines)
