"""The value under the pointer, beside the pointer."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtWidgets import QLabel, QWidget

from circuitlab.draw.look.theme import GRID, Theme

MOST = 420  # px of width at text size 1; a longer one wraps


class PointerNote(QLabel):
    """Plain text over a figure; the mouse goes through it."""

    def __init__(self, parent: QWidget, theme: Theme) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAutoFillBackground(True)
        self.setFrameShape(QLabel.Shape.Box)
        self.setMargin(GRID // 2)
        self._theme = theme
        self.set_theme(theme)
        self.hide()

    def set_theme(self, theme: Theme) -> None:
        """Small text on the colour of tool tips."""
        self._theme = theme
        self.setFont(theme.font(theme.small))
        ink = self.palette()
        ink.setColor(self.backgroundRole(), theme.colour("raised"))
        ink.setColor(self.foregroundRole(), theme.colour("text"))
        self.setPalette(ink)

    def say(self, words: str, at: QPoint) -> None:
        """Above and right of a point of the parent, inside the parent; a tool tip has its place below."""
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
