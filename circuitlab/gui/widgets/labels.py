"""Labels of plain text. A `ShortLabel` elides its text for lack of room instead of making the window wider."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from circuitlab.draw.look.guarded import guarded_widget
from circuitlab.draw.look.plain_text import PlainLabel, tip_of

STEP = 24  # px


def label(parent: QWidget, role: str = "") -> QLabel:
    """A label of plain text with margins at its sides."""
    text_label = PlainLabel(parent)
    text_label.setProperty("role", role)
    text_label.setContentsMargins(8, 0, 8, 0)
    return text_label


def paragraph(parent: QWidget, role: str = "", selectable: bool = True) -> QLabel:
    """A label of plain text that wraps, without margins."""
    text_label = label(parent, role)
    text_label.setContentsMargins(0, 0, 0, 0)
    text_label.setWordWrap(True)
    if selectable:
        text_label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return text_label


class ShortLabel(PlainLabel):
    """One line as wide as its text, up to `most` px and while there is room; the tooltip has the whole text.

    `least`: px that it keeps where there is no room; `fills`: it takes what is left of its row; `elides`: where the text is
    elided. The text is kept here, as a change of QLabel's own lays out the whole window again; widths are rounded up to multiples
    of `STEP`, so that few changes of the text ask for another one.
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
        self._most, self._least, self._text, self._width = most, least, "", 0
        self._elides = elides
        self.setProperty("role", role)
        policy = QSizePolicy.Policy.Expanding if fills else QSizePolicy.Policy.Maximum
        self.setSizePolicy(policy, QSizePolicy.Policy.Preferred)

    def text(self) -> str:
        """The whole text."""
        return self._text

    def setText(self, text: str) -> None:
        """Show a text, and put it into the tooltip."""
        if text == self._text:
            return
        self._text = text
        self.setToolTip(tip_of(text))
        self.setAccessibleName(text)
        if self._natural_width() != self._width:
            self._width = self._natural_width()
            self.updateGeometry()
        self.update()

    def _natural_width(self) -> int:
        margins = self.contentsMargins()
        # 2 px more: the advance is rounded, and a text that does not fit exactly is elided
        width = self.fontMetrics().horizontalAdvance(self._text) + 2 + margins.left() + margins.right()
        return min(-(-width // STEP) * STEP, self._most)

    def limit(self, most: int) -> None:
        """Limit the width to `most` px from now on."""
        if most != self._most:
            self._most = most
            self.updateGeometry()

    def reserve(self, lines: Iterable[str]) -> None:
        """Take the width of the longest of these lines, whichever is shown, so that the widgets beside it do not move."""
        margins = self.contentsMargins()
        width = max(map(self.fontMetrics().horizontalAdvance, lines), default=0) + 2 + margins.left() + margins.right()
        self.setFixedWidth(width)

    def sizeHint(self) -> QSize:
        """The width of the whole text, up to the limit."""
        return QSize(self._natural_width(), self.fontMetrics().height() + 4)

    def minimumSizeHint(self) -> QSize:
        """The width of an elided text."""
        return QSize(min(self._least, self._natural_width()), self.sizeHint().height())

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """Draw the text, elided if it does not fit."""
        painter.setPen(self.palette().color(self.foregroundRole()))
        room = self.contentsRect()
        elided = self.fontMetrics().elidedText(self._text, self._elides, room.width())
        painter.drawText(room, int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), elided)
