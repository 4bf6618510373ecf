"""Tab order: as the eye reads, whatever the order of creation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from itertools import pairwise

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QWidget

OVERLAP = 4  # px of height that two lines may share


def stops(inside: QWidget) -> list[QWidget]:
    """The widgets in `inside`, itself included, that can have the keyboard, in the order in which they were made.

    Parts of a field (the line of a spin box), which hand the keyboard on to it, are none of their own; lists that a field opens
    are windows.
    """
    widgets, window = [inside, *inside.findChildren(QWidget)], inside.window()
    usable = [w for w in widgets if w.focusPolicy() != Qt.FocusPolicy.NoFocus and w.focusProxy() is None]
    return [w for w in usable if w.window() is window]


def chain(widgets: Sequence[QWidget]) -> None:
    """Tab goes from each widget to the next; those at which it does not stop are left out, for Qt would leave out both."""
    tabbed = [w for w in widgets if w.focusPolicy() & Qt.FocusPolicy.TabFocus]
    for one, other in pairwise(tabbed):
        if one is not other:
            QWidget.setTabOrder(one, other)


def chain_as_read(inside: QWidget) -> None:
    """Tab goes line by line, from left to right; widgets that share some of their height stand in one line."""
    places = [(w.mapTo(inside, QPoint()), w) for w in stops(inside) if w is not inside and w.isVisibleTo(inside)]
    chain([w for _, w in sorted(places, key=cmp_to_key(_before))])


def _before(a: tuple[QPoint, QWidget], b: tuple[QPoint, QWidget]) -> int:
    (p, v), (q, w) = a, b
    if v.isAncestorOf(w) or w.isAncestorOf(v):  # an area before its contents
        return -1 if v.isAncestorOf(w) else 1
    if p.y() + v.height() <= q.y() + OVERLAP or q.y() + w.height() <= p.y() + OVERLAP:
        return p.y() - q.y()
    return p.x() - q.x()
