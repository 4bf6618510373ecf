"""Labels of plain text; one that is cut with an ellipsis where there is no room, rather than making the window wider."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget


def label(parent: QWidget, role: str = "") -> QLabel:
    """Plain text with room at its sides."""
    made = QLabel(parent)
    made.setTextFormat(Qt.TextFormat.PlainText)
    made.setProperty("role", role)
    made.setContentsMargins(8, 0, 8, 0)
    return made


class ShortLabel(QLabel):
    """One line, as wide as its text up to `most` pixels where there is room; the tool tip has all of it."""

    def __init__(self, parent: QWidget, role: str = "", most: int = 100_000) -> None:
        super().__init__(parent)
        self._most = most
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setProperty("role", role)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)

    def setText(self, text: str) -> None:
        """Also into the tool tip."""
        if text != self.text():
            super().setText(text)
            self.setToolTip(text)

    def sizeHint(self) -> QSize:
        """The whole line, up to the limit."""
        size = super().sizeHint()
        return QSize(min(size.width(), self._most), size.height())

    def minimumSizeHint(self) -> QSize:
        """Nothing wide."""
        return QSize(16, super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """The text, or as much of it as fits."""
        painter = QPainter(self)
        painter.setPen(self.palette().color(self.foregroundRole()))
        short = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, self.width())
        painter.drawText(self.rect(), int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), short)
        painter.end()
