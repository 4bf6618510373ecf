"""Lists whose entries are a few short paragraphs each: lessons, the steps of a story, notes."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt, Slot
from PySide6.QtGui import QFontMetrics, QPainter, QResizeEvent
from PySide6.QtWidgets import QFrame, QListWidget, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from circuitlab.draw.look.guarded import guarded
from circuitlab.draw.look.style_rules import set_sheet
from circuitlab.draw.look.theme import Theme
from circuitlab.gui.work.app_context import AppContext

SIDE, GAP, ABOVE = 16, 3, 9  # px
WRAP = Qt.TextFlag.TextWordWrap


class Paragraph(NamedTuple):
    """One of an entry's paragraphs: its text, and a colour of the theme."""

    text: str
    colour: str = "text"
    bold: bool = False
    small: bool = False


@lru_cache(maxsize=1024)
def _height(paragraph: Paragraph, room: int, theme: Theme) -> int:
    """px that a paragraph needs where it wraps: a list asks for each of its rows a dozen times while it is laid out."""
    font = theme.font(theme.small if paragraph.small else theme.normal, bold=paragraph.bold)
    return QFontMetrics(font).boundingRect(QRect(0, 0, room, 1000), WRAP, paragraph.text).height()


class _Rows(QStyledItemDelegate):
    """The paragraphs of each entry, as high as they wrap at this width."""

    def __init__(self, owner: RowList) -> None:
        super().__init__(owner)
        self.owner = owner

    def _parts(self, row: int, width: int) -> list[tuple[Paragraph, QRect]]:
        """Each paragraph with its rectangle, relative to the entry."""
        theme, room, y = self.owner.context.theme, width - 2 * SIDE, self.owner.above
        parts = []
        for paragraph in self.owner.paragraphs(row):
            height = _height(paragraph, room, theme)
            parts.append((paragraph, QRect(SIDE, y, room, height)))
            y += height + GAP
        return parts

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        """The size that the paragraphs need."""
        width = self.owner.viewport().width()
        return QSize(width, self.height(index.row(), width))

    def height(self, row: int, width: int) -> int:
        """px that an entry needs at a width."""
        return self._parts(row, width)[-1][1].bottom() + self.owner.above

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> None:
        """Paint an entry, guarded."""
        rect: QRect = option.rect  # type: ignore[attr-defined]
        guarded(painter, lambda: self._paint_entry(painter, option, index), QRectF(rect), self.owner.context.theme)

    def _paint_entry(self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> None:
        """Paint the paragraphs, each in its colour, and a line below them."""
        theme = self.owner.context.theme
        rect: QRect = option.rect  # type: ignore[attr-defined]
        state: QStyle.StateFlag = option.state  # type: ignore[attr-defined]
        if state & QStyle.StateFlag.State_MouseOver or state & QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, theme.colour("window"))
        if state & QStyle.StateFlag.State_HasFocus and state & QStyle.StateFlag.State_Selected:
            painter.fillRect(QRect(rect.left(), rect.top(), 3, rect.height()), theme.colour("accent"))
        for paragraph, where in self._parts(index.row(), rect.width()):
            painter.setFont(theme.font(theme.small if paragraph.small else theme.normal, bold=paragraph.bold))
            painter.setPen(theme.colour(paragraph.colour))
            painter.drawText(where.translated(rect.topLeft()), WRAP, paragraph.text)
        painter.setPen(theme.colour("line"))
        painter.drawLine(rect.left() + SIDE, rect.bottom(), rect.right() - SIDE, rect.bottom())


class RowList(QListWidget):
    """A list of entries with `paragraphs(row)`. `above`: px over and under the paragraphs of an entry."""

    above = ABOVE

    def __init__(self, context: AppContext, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.context = context
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setAccessibleName(name)
        self.setMouseTracking(True)
        self.setVerticalScrollMode(self.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._rows = _Rows(self)
        self.setItemDelegate(self._rows)
        context.theme_changed.connect(self.set_theme)
        self.set_theme(context.theme)

    def paragraphs(self, row: int) -> tuple[Paragraph, ...]:
        """The paragraphs of an entry, at least one."""
        raise NotImplementedError

    def natural_height(self, width: int) -> int:
        """px that all entries need at a width in px."""
        return sum(self._rows.height(row, width) for row in range(self.count()))

    @Slot(object)
    def set_theme(self, theme: Theme) -> None:
        """Its own background; the rows paint themselves."""
        set_sheet(self, f"QListWidget {{ background: {theme.background}; outline: none; }}")
        self.scheduleDelayedItemsLayout()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Lay the entries out again: their lines wrap at another width."""
        super().resizeEvent(event)
        self.scheduleDelayedItemsLayout()
