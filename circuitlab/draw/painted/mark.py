"""The base of marks that are painted in a scroll area (text, bars): only the visible part is painted."""

from __future__ import annotations

from math import ceil
from typing import Any

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QToolTip, QWidget

from circuitlab.caption_parts import Essential
from circuitlab.draw.look.guarded import guarded
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.plain_text import plain_tip
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.pointing.gestures import Gestures, Id

LEAST_BESIDE, LEAST_ALONE = 160, 72  # px on paper


class PaintedMark(Gestures, QAbstractScrollArea):
    """Scrolls content of `content_height(width)` that `draw(painter, visible)` paints in content coordinates."""

    CONTENT = "text"  # what it shows, in a word

    gestured = Signal(object, str)
    context = Signal(object, QPoint)
    noted = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        QAbstractScrollArea.__init__(self, parent)
        self.theme = theme
        self.mark: Any = None
        self.setFrameShape(self.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setMouseTracking(True)
        self.viewport().setAutoFillBackground(False)
        self.setMinimumSize(80, 28)
        self._cut = False
        self._laid_out = 0  # px of height for which it was last laid out
        if theme.stage:
            self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    # what a subclass says --------------------------------------------------------------------------------------------

    def show_mark(self, mark: Any) -> None:
        """Draw what differs from the mark that is shown."""
        raise NotImplementedError

    def content_height(self, width: int) -> int:
        """How high everything is at this width."""
        raise NotImplementedError

    def draw(self, painter: QPainter, visible: QRectF) -> None:
        """Paint what touches `visible`."""
        raise NotImplementedError

    def item_rect(self, item: Id) -> QRectF:
        """Where an item is, in content coordinates."""
        raise NotImplementedError

    def line_height(self) -> int:
        """Height in px of lines that are shown whole or not at all; 0: the content is clipped at the edge of the widget."""
        return 0

    def tip(self, item: Id) -> str:
        """Plain text of an item's tool tip."""
        return self.readout(item)

    def restyle(self) -> None:
        """Discard what depends on `self.theme`."""

    # shared ----------------------------------------------------------------------------------------------------------

    def set_theme(self, theme: Theme) -> None:
        """Another theme: hues stay, scales begin at its background."""
        if theme.stage != self.theme.stage:
            policy = Qt.ScrollBarPolicy.ScrollBarAlwaysOff if theme.stage else Qt.ScrollBarPolicy.ScrollBarAsNeeded
            self.setVerticalScrollBarPolicy(policy)
        self.theme = theme
        self.restyle()
        self.viewport().update()

    def natural_height(self, width: int) -> int:
        """Height of the whole content."""
        return self.content_height(width)

    def notes(self) -> tuple[str, ...]:
        """Parts of the caption about how it was drawn."""
        return ()

    def without_room(self) -> tuple[str, ...]:
        """The same on a stage, where nobody sees a scroll bar, for content that goes on beyond its edge."""
        return (Essential(f"no room for all {self.CONTENT}"),) if self._cut else ()

    def prepare_export(self, paper: Paper) -> None:
        """On paper nothing scrolls."""
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    def fits_on_paper(self, width: float) -> bool:
        """Whether it can be read at this width beside others."""
        return width >= LEAST_BESIDE

    def least_width(self) -> float:
        """Width in px on paper below which nothing of it can be read."""
        return LEAST_ALONE

    def reset_view(self) -> None:
        """Back to the top."""
        self.verticalScrollBar().setValue(0)

    def relayout(self) -> None:
        """After a change of size or content: set the scroll range, leaving what remains below the last whole line empty."""
        self._laid_out = room = self.contentsRect().height()
        line, bar = self.line_height(), self.verticalScrollBar()
        content = self.content_height(self.viewport().width())
        rest = room % line if line and line <= room < content else 0
        if self.viewportMargins().bottom() != rest:
            self.setViewportMargins(0, 0, 0, rest)
        beyond = max(0, content - room + rest)
        bar.setRange(0, -(-beyond // line) * line if line else beyond)
        bar.setPageStep(max(room - rest, 1))
        bar.setSingleStep(line or 24)
        if (cut := self.theme.stage and beyond >= max(line, 1)) != self._cut:
            self._cut = cut
            self.noted.emit()

    def catch_up(self) -> None:
        """Flow for the present height: Qt tells nobody of one that is given while another is being told."""
        if self.contentsRect().height() != self._laid_out:
            self.relayout()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Flow again."""
        super().resizeEvent(event)
        self.relayout()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        """Move the painted content and paint what comes into view."""
        if self.line_height():
            self.viewport().update()
        else:
            self.viewport().scroll(dx, dy)

    @property
    def offset(self) -> int:
        """Height in px of the content above the viewport, in whole lines."""
        value, line = self.verticalScrollBar().value(), self.line_height()
        return value - value % line if line else value

    def to_content(self, at: QPointF) -> QPointF:
        """A point of the viewport in content coordinates."""
        return QPointF(at.x(), at.y() + self.offset)

    def reveal(self, item: Id) -> None:
        """Scroll an item into view."""
        rect, bar, high, line = self.item_rect(item), self.verticalScrollBar(), self.viewport().height(), self.line_height() or 1
        if rect.top() < self.offset:
            bar.setValue(int(rect.top()))
        elif rect.bottom() > self.offset + high:
            bar.setValue(ceil((rect.bottom() - high) / line) * line)

    def show_cursor(self, item: Id | None) -> None:
        """Outline the hovered item; one reached by keys is scrolled into view."""
        if item is not None and self.pointer is None:
            self.reveal(item)
        self.viewport().update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Background, visible items, focus ring."""
        painter = QPainter(self.viewport())
        painter.fillRect(event.rect(), self.theme.colour("background"))
        painter.translate(0, -self.offset)
        visible = QRectF(event.rect()).translated(0, self.offset)
        guarded(painter, lambda: self.draw(painter, visible), visible, self.theme)
        painter.end()
        self.paint_ring()

    def viewportEvent(self, event: QEvent) -> bool:
        """Plain-text tool tips."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            item = self.id_at(QPointF(event.pos()))
            QToolTip.showText(event.globalPos(), plain_tip(self.tip(item)) if item else "", self.viewport())
            return True
        return super().viewportEvent(event)
