"""The page of an export before it is written: drawn as it will be, its size, and what it has no room for."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, QTimer, Slot
from PySide6.QtGui import QPainter, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from circuitlab.draw.export.pictures import Preview
from circuitlab.draw.look.guarded import guarded_widget
from circuitlab.draw.look.paper import Paper, height_remark
from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.draw.look.theme import NORMAL
from circuitlab.errors import CircuitLabError

Draw = Callable[[Paper, QSize, float], Preview]
PAUSE = 120  # ms after the last change
ROOM = QSize(520, 540)  # px at text size 1
LARGEST = 6.0  # px to a mm, at text size 1: a column is not drawn larger than it can be judged
MARGIN = 12


class Page(QWidget):
    """The picture on the ground of the window."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.shown: Preview | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName("Preview")

    def sizeHint(self) -> QSize:
        """Room for a column."""
        return ROOM * (self.fontInfo().pixelSize() / NORMAL)

    def minimumSizeHint(self) -> QSize:
        """Less on a small screen."""
        return QSize(200, 160)

    def room(self, width_mm: float) -> QSize:
        """px for a picture of this width."""
        largest = round(width_mm * LARGEST * self.fontInfo().pixelSize() / NORMAL)
        return QSize(min(self.width() - 2 * MARGIN, largest), self.height() - 2 * MARGIN).expandedTo(QSize(40, 40))

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """The picture in the middle, with a hairline round it: white paper on a white window has no edge."""
        if self.shown is None:
            return
        image = self.shown.image
        size = image.deviceIndependentSize()
        at = QPointF((self.width() - size.width()) // 2, (self.height() - size.height()) // 2)
        painter.drawImage(at, image)
        painter.setPen(self.palette().color(self.palette().ColorRole.Mid))
        painter.drawRect(QRectF(at, size).adjusted(-1, -1, 0, 0))


class PaperPreview(QWidget):
    """`paper_of()` is the paper now, `draw(paper, room, ratio)` its page in so many px; both may raise why there is none.

    `refresh()`: something has changed, and is drawn once nothing more does.
    """

    def __init__(self, paper_of: Callable[[], Paper], draw: Draw, parent: QWidget) -> None:
        super().__init__(parent)
        self._paper_of, self._draw = paper_of, draw
        self.page, self.words = Page(self), PlainLabel(self)
        self.words.setWordWrap(True)
        self.words.setProperty("role", "caption")
        self.words.setMinimumHeight(3 * self.words.fontMetrics().lineSpacing())  # the page stays where it is
        self.words.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        self.timer = QTimer(self)
        self.timer.setSingleShot(True)
        self.timer.timeout.connect(self.draw)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.addWidget(self.page, 1)
        box.addWidget(self.words)

    @Slot()
    def refresh(self, *_: object) -> None:
        """Draw anew after a pause."""
        self.timer.start(PAUSE)

    @Slot()
    def draw(self) -> None:
        """Draw the page as it will be, or say why it cannot be."""
        try:
            paper = self._paper_of()
            shown = self._draw(paper, self.page.room(paper.width_mm), self.devicePixelRatioF())
        except CircuitLabError as error:
            self.page.shown = None
            self.words.setText(" ".join(filter(None, (error.what, error.expected and f"Expected: {error.expected}."))))
        else:
            self.page.shown = shown
            size = ", ".join(filter(None, (f"{shown.width_mm:.0f} × {shown.height_mm:.0f} mm", height_remark(shown.height_mm))))
            out = f"No room for all of it: {'; '.join(shown.left_out)}." if shown.left_out else "Nothing is left out."
            self.words.setText(f"{size}, type of {paper.font_pt:g} pt, no smaller than {paper.least_pt:g}. {out}")
        self.page.update()

    def showEvent(self, event: QShowEvent) -> None:
        """The first page, once the dialog is there."""
        super().showEvent(event)
        self.timer.start(0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another room."""
        super().resizeEvent(event)
        self.refresh()
