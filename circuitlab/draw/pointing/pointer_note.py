"""The readout beside the pointer."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from PySide6.QtCore import QPoint, QRect, Qt
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
        self._theme = theme
        self._mark: Any = None  # whose item is read out
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

    def show_readout(self, mark: Any, readout: str) -> None:
        """The readout of a mark's hovered item; hidden where there is none, or where the keyboard hovers."""
        pointer = getattr(mark, "pointer", None)
        if not readout or pointer is None:
            self._mark = None
            self.hide()
            return
        self._mark = mark
        self._show_text(readout, mark.viewport().mapTo(self.parentWidget(), pointer))

    def refresh(self, marks: Collection[Any]) -> None:
        """Another figure of these marks under the same pointer: the readout of what is there now, or nothing."""
        if self._mark is not None:
            self.show_readout(self._mark, self._mark.hovered_readout if self._mark in marks else "")

    def leave(self, marks: Collection[Any]) -> None:
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
        width, height = text.width() + pad + 2, text.height() + pad
        left = at.x() + 2 * GRID if at.x() + 2 * GRID + width <= room.width() else at.x() - 2 * GRID - width
        top = at.y() - GRID - height if at.y() - GRID - height >= 0 else at.y() + 3 * GRID
        self.setText(words)
        self.setGeometry(max(0, left), min(top, max(0, room.height() - height)), width, height)
        self.show()
        self.raise_()
