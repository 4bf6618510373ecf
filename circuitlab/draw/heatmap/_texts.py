"""Texts in heatmap cells where they fit: plain token text, elided where cells are narrow."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor

import numpy as np
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter

from circuitlab.draw.look.colours import DARK_INK, LIGHT_INK, dark_text, rgb
from circuitlab.draw.look.theme import Theme
from circuitlab.figures.marks import Heatmap

LEAST_CHARACTERS = 3  # that fit a cell's width; with fewer nothing is written
ELLIPSIS_FROM = 5

Visible = tuple[tuple[float, float], tuple[float, float]]


def shortened(text: str, most: int) -> str:
    """The first characters, at most this many, ending in an ellipsis where there is room for more than that."""
    if len(text) <= most:
        return text
    return text[:most] if most < ELLIPSIS_FROM else text[: most - 1] + "…"


def _font(theme: Theme) -> QFont:
    return theme.font(max(theme.small - 1, ceil(theme.least)), mono=True)


def has_room(cell: QRectF, theme: Theme) -> bool:
    """Whether a cell of this size can hold a text."""
    metrics = QFontMetricsF(_font(theme))
    return cell.width() >= metrics.horizontalAdvance("m" * LEAST_CHARACTERS) and cell.height() >= metrics.height()


def paint_texts(painter: QPainter, mark: Heatmap, box: Callable[[int, int], QRectF], visible: Visible, theme: Theme) -> None:
    """Write `mark.texts` into the cells of the `visible` columns and rows; `box(row, col)` is a cell in pixels."""
    if mark.texts is None or not mark.values.size:
        return
    font = _font(theme)
    metrics = QFontMetricsF(font)
    if not has_room(box(0, 0), theme):
        return
    (x0, x1), (y0, y1) = visible
    rows, cols = mark.values.shape
    painter.setFont(font)
    for row in range(max(0, floor(y0)), min(rows, ceil(y1))):
        inks = dark_text(rgb(mark.values[row], mark.levels, mark.map, theme), theme)
        for col in range(max(0, floor(x0)), min(cols, ceil(x1))):
            room = box(row, col).adjusted(2, 0, -2, 0)
            text = shortened(str(mark.texts[row, col]), floor(room.width() / metrics.horizontalAdvance("m")))
            while len(text) > 1 and not text.isascii() and metrics.horizontalAdvance(text) > room.width():
                text = text[:-1]  # what no mono face has may be wider
            painter.setPen(QColor(DARK_INK if bool(np.all(inks[col])) else LIGHT_INK))
            painter.drawText(room, Qt.AlignmentFlag.AlignCenter, text)
