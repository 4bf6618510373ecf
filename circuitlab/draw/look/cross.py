"""The cross over what is ablated or patched, on cells, tiles and nodes alike."""

from __future__ import annotations

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter

from circuitlab.draw.look.theme import Theme

CROSS = 11.0  # px of a cross at the normal text size


def paint_cross(painter: QPainter, place: QRectF, theme: Theme, corner: bool = False) -> None:
    """A cross over `place`, no larger than text and visible on every colour; `corner`: at the top right."""
    side = max(min(0.5 * min(place.width(), place.height()), theme.px(CROSS)), CROSS / 2)
    inset = side / 2 + 2
    at = QPointF(place.right() - inset, place.top() + inset) if corner else place.center()
    arms = [QLineF(at.x() - side / 2, at.y() - d * side / 2, at.x() + side / 2, at.y() + d * side / 2) for d in (1, -1)]
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    for colour, width in (("background", 5.0), ("text", 2.0)):
        pen = theme.pen(colour, width)
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        painter.setPen(pen)
        painter.drawLines(arms)
    painter.restore()
