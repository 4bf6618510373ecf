"""Labels of plain text; `ShortLabel` is elided where there is no room, rather than making the window wider."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from circuitlab.draw.look.plain_text import PlainLabel, tip_of

STEP = 24  # px


def label(parent: QWidget, role: str = "") -> QLabel:
    """Plain text with room at its sides."""
    text_label = PlainLabel(parent)
    text_label.setProperty("role", role)
    text_label.setContentsMargins(8, 0, 8, 0)
    return text_label


def words(parent: QWidget, role: str = "", selectable: bool = True) -> QLabel:
    """Plain text of several lines, from edge to edge."""
    text_label = label(parent, role)
    text_label.setContentsMargins(0, 0, 0, 0)
    text_label.setWordWrap(True)
    if selectable:
        text_label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return text_label


class ShortLabel(PlainLabel):
    """One line, as wide as its text up to `most` pixels where there is room; the tool tip has all of it.

    `least`: what it keeps where there is none; `fills`: it takes what is left of its row. It keeps its text itself: QLabel's own
    would have the whole window laid out again at each change. Only a width that is another multiple of `STEP` is asked for.
    `elides`: where it is cut.
    """

    def __init__(
        self,
        parent: QWidget,
        role: str = "",
        most: int = 100_000,
        least: int = 16,
        fills: bool = False,
        elides: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
    ) -> None:
        super().__init__(parent)
        self._most, self._least, self._line, self._width = most, least, "", 0
        self._elides = elides
        self.setProperty("role", role)
        policy = QSizePolicy.Policy.Expanding if fills else QSizePolicy.Policy.Maximum
        self.setSizePolicy(policy, QSizePolicy.Policy.Preferred)

    def text(self) -> str:
        """The whole line."""
        return self._line

    def setText(self, text: str) -> None:
        """Also into the tool tip."""
        if text == self._line:
            return
        self._line = text
        self.setToolTip(tip_of(text))
        self.setAccessibleName(text)
        if self._natural_width() != self._width:
            self._width = self._natural_width()
            self.updateGeometry()
        self.update()

    def _natural_width(self) -> int:
        margins = self.contentsMargins()
        # the advance is rounded, the text is cut where it does not fit exactly
        need = self.fontMetrics().horizontalAdvance(self._line) + 2 + margins.left() + margins.right()
        return min(-(-need // STEP) * STEP, self._most)

    def limit(self, most: int) -> None:
        """So many px at most from now on."""
        if most != self._most:
            self._most = most
            self.updateGeometry()

    def reserve(self, lines: Iterable[str]) -> None:
        """The room of the longest of these, whichever is shown: what stands beside it does not move."""
        margins = self.contentsMargins()
        need = max(map(self.fontMetrics().horizontalAdvance, lines), default=0) + 2 + margins.left() + margins.right()
        self.setFixedWidth(need)

    def sizeHint(self) -> QSize:
        """The whole line, up to the limit."""
        return QSize(self._natural_width(), self.fontMetrics().height() + 4)

    def minimumSizeHint(self) -> QSize:
        """Nothing wide."""
        return QSize(min(self._least, self._natural_width()), self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """The text, or as much of it as fits."""
        painter = QPainter(self)
        painter.setPen(self.palette().color(self.foregroundRole()))
        room = self.contentsRect()
        short = self.fontMetrics().elidedText(self._line, self._elides, room.width())
        painter.drawText(room, int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), short)
        painter.end()
