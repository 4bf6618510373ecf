"""The readout beside the pointer."""

from __future__ import annotations

from collections.abc import Collection
from math import ceil, sqrt
from typing import Any

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QLabel, QWidget

from circuitlab.draw.look.theme import GRID, Theme

MOST = 420  # px of width at text size 1; a longer one wraps


class PointerNote(QLabel):
    """Plain text over a figure, transparent to the mouse."""

    def __init__(self, parent: QWidget, theme: Theme) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAutoFillBackground(True)
        self.setFrameShape(QLabel.Shape.Box)
        self.setMargin(GRID // 2)
        self.setIndent(0)  # a label with a frame is otherwise indented by half an x
        self._theme = theme
        self._mark: Any = None  # whose item is read out
        self._at, self._apart = QPoint(), 0.0
        self.set_theme(theme)
        self.hide()

    def set_theme(self, theme: Theme) -> None:
        """Small text in the colours of tool tips."""
        self._theme = theme
        self.setFont(theme.font(theme.small))
        ink = self.palette()
        ink.setColor(self.backgroundRole(), theme.colour("raised"))
        ink.setColor(self.foregroundRole(), theme.colour("text"))
        self.setPalette(ink)

    def keep_apart(self, radius: float) -> None:
        """Stand outside a ring of so many px round the pointer."""
        if radius != self._apart:
            self._apart = radius
            if not self.isHidden():
                self._show_text(self.text(), self._at)

    def show_readout(self, mark: Any, readout: str) -> None:
        """The readout of a mark's hovered item; hidden where there is none, or where the keyboard hovers."""
        pointer = getattr(mark, "pointer", None)
        if not readout or pointer is None:
            self._mark = None
            self.hide()
            return
        self._mark = mark
        self._show_text(readout, mark.viewport().mapTo(self.parentWidget(), pointer))

    def refresh(self, marks: Collection[object]) -> None:
        """Another figure of these marks under the same pointer: the readout of what is there now, or nothing."""
        if self._mark is not None:
            self.show_readout(self._mark, self._mark.hovered_readout if self._mark in marks else "")

    def leave(self, marks: Collection[object]) -> None:
        """Hide; the next move of the pointer over one of these marks brings it back."""
        mark, self._mark = self._mark, None
        self.hide()
        if mark is not None and mark in marks:
            mark.forget_readout()

    def _show_text(self, words: str, at: QPoint) -> None:
        """Above and to the right of a point of the parent, inside the parent; tool tips appear below."""
        parent = self.parentWidget()
        assert parent is not None
        room, pad = parent.rect(), 2 * (self.margin() + self.frameWidth())
        most = min(self._theme.px(MOST), room.width() - 2 * GRID) - pad
        flags = Qt.TextFlag.TextWordWrap | Qt.AlignmentFlag.AlignLeft
        text = self.fontMetrics().boundingRect(QRect(0, 0, most, room.height()), int(flags), words)
        self.setText(words)
        width = text.width() + pad + 2
        height = max(text.height() + pad, self.heightForWidth(width))
        self._at = at
        self.setGeometry(place_beside(at, QSize(width, height), room, self._apart))
        self.show()
        self.raise_()


def place_beside(at: QPoint, size: QSize, room: QRect, apart: float = 0.0) -> QRect:
    """A box of this size at a point, no nearer than `apart`: above and to the right of it, else where the room is."""
    wide, high = size.width(), size.height()
    aside = ceil(apart / sqrt(2))
    right, left = at.x() + max(2 * GRID, aside), at.x() - max(2 * GRID, aside) - wide
    above, below = at.y() - max(GRID, aside) - high, at.y() + max(3 * GRID, aside)
    x = right if right + wide <= room.width() else left
    y = above if above >= 0 else below
    box = QRect(max(0, x), min(y, max(0, room.height() - high)), wide, high)
    if not apart or (x >= 0 and y + high <= room.height()):
        return box
    level = min(max(0, at.y() - high // 2), max(0, room.height() - high))
    centred = min(max(0, at.x() - wide // 2), max(0, room.width() - wide))
    far = ceil(apart)
    others = (
        QRect(at.x() + far, level, wide, high),
        QRect(at.x() - far - wide, level, wide, high),
        QRect(centred, at.y() - far - high, wide, high),
        QRect(centred, at.y() + far, wide, high),
    )
    return next((one for one in others if room.contains(one)), box)
