"""Places for the names of points in a scatter plot: beside the point, over no other name and on no other point."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import sqrt

from PySide6.QtCore import QPointF, QRectF, QSizeF

GAP = 2.0  # px between the ring of a selected point and its name
NAMES_APART = 4.0  # px between two names beside each other


def free_place(at: QPointF, size: QSizeF, radius: float, frame: QRectF, taken: Collection[QRectF]) -> QRectF | None:
    """The first free box of this size beside a point `at` with a ring of `radius`, inside `frame` and off all of `taken`.

    It is sought to the right, to the left, above and below, where it slides along the edge of the frame; then above and below
    with one end at the point; then at the four corners. None: there is no free place.
    """
    inside = (box for box in _places(at, size, radius + GAP, frame) if frame.contains(box))
    return next((box for box in inside if not any(box.intersects(other) for other in taken)), None)


def _places(at: QPointF, size: QSizeF, off: float, frame: QRectF) -> Iterator[QRectF]:
    """Boxes `off` px from a point, the clearest ones first."""
    x, y, near, width, height = at.x(), at.y(), off / sqrt(2), size.width(), size.height()
    across = _within(x - width / 2, width, frame.left(), frame.right())
    down = _within(y - height / 2, height, frame.top(), frame.bottom())
    above_below = (y - off - height, y + off)
    sides = [(x + off, down), (x - off - width, down), *((across, top) for top in above_below)]
    flush = [(left, top) for top in above_below for left in (x - GAP, x + GAP - width)]
    corners = [(left, top) for top in (y - near - height, y + near) for left in (x + near, x - near - width)]
    return (QRectF(QPointF(*place), size) for place in (*sides, *flush, *corners))


def _within(start: float, length: float, low: float, high: float) -> float:
    """Where a stretch begins that is moved, if it must be, to lie between `low` and `high`."""
    return max(min(start, high - length - 1), low + 1)
