"""The colour key of a table on one line: column, lowest level, colour map, highest level."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from circuitlab.caption_parts import Essential
from circuitlab.draw.look.colour_bar import short
from circuitlab.draw.look.colours import table
from circuitlab.draw.look.guarded import guarded
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.tables.model import is_number
from circuitlab.figures.marks import RowColumn, Rows

STRIP, GAP = 96.0, 5.0  # px of the strip at most, and beside it
LEAST = 24.0  # px of a strip that says anything
MARGIN = 4  # px on the screen, before and after


def key_column(mark: Rows) -> RowColumn | None:
    """The column of the colour key: the first coloured one; None without a key."""
    return next((c for c in mark.columns if c.map is not None and is_number(c)), None) if mark.key else None


def key_words(column: RowColumn) -> str:
    """The colour key in words."""
    return Essential(f"colours of {column.name} from {short(column.levels[0])} to {short(column.levels[1])}")


def key_height(theme: Theme) -> float:
    """Height of a key in px."""
    return QFontMetricsF(theme.font(theme.small)).height() + 4


def key_width(column: RowColumn, theme: Theme) -> float:
    """Least width of a key in px."""
    return _texts_width(column, theme) + LEAST


def _texts(column: RowColumn) -> tuple[str, str]:
    return f"{column.name} {short(column.levels[0])}", short(column.levels[1])


def _texts_width(column: RowColumn, theme: Theme) -> float:
    metrics = QFontMetricsF(theme.font(theme.small))
    return sum(map(metrics.horizontalAdvance, _texts(column))) + 2 * GAP


def paint_key(painter: QPainter, room: QRectF, column: RowColumn, theme: Theme) -> None:
    """Paint the key from the left of `room`; the strip is rectangles, on paper too."""
    assert column.map is not None
    metrics = QFontMetricsF(theme.font(theme.small))
    before, after = _texts(column)
    wide = max(LEAST, min(STRIP * theme.scale, room.width() - _texts_width(column, theme)))
    base = room.center().y() + (metrics.ascent() - metrics.descent()) / 2
    painter.setFont(theme.font(theme.small))
    painter.setPen(theme.colour("muted"))
    painter.drawText(QPointF(room.left(), base), before)
    strip = QRectF(room.left() + metrics.horizontalAdvance(before) + GAP, room.center().y() - 4, wide, 8)
    shades = np.asarray(table(column.map, theme))[1:].tolist()
    step = wide / len(shades)
    for i, colour in enumerate(shades):  # each extends below those that follow
        left = strip.left() + i * step
        painter.fillRect(QRectF(left, strip.top(), strip.right() - left, strip.height()), QColor(*colour[:3]))
    painter.drawText(QPointF(strip.right() + GAP, base), after)


class ColourKey(QWidget):
    """The key below a table on the screen, hidden without a column."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme, self.column = theme, None
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.hide()

    column: RowColumn | None

    def show_column(self, column: RowColumn | None, theme: Theme) -> None:
        """Set column and theme."""
        self.column, self.theme = column, theme
        self.setVisible(column is not None)
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        """A line of small text."""
        return QSize(80, round(key_height(self.theme)))

    def paintEvent(self, event: QPaintEvent) -> None:
        """The key, guarded."""
        column = self.column
        if column is not None:
            room, painter = QRectF(self.rect()).adjusted(MARGIN, 0, -MARGIN, 0), QPainter(self)
            guarded(painter, lambda: paint_key(painter, room, column, self.theme), room, self.theme)
            painter.end()
