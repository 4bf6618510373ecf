"""The list of lessons: the title, one line about it, its length, and how far it has been read."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt, Signal, Slot
from PySide6.QtGui import QFontMetrics, QPainter, QResizeEvent
from PySide6.QtWidgets import (
    QFrame,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from circuitlab.counting import number_of
from circuitlab.draw.look.guarded import guarded
from circuitlab.draw.look.plain_text import tip_of
from circuitlab.draw.look.theme import Theme
from circuitlab.gui.lessons.tour import Places
from circuitlab.gui.work.app_context import AppContext
from circuitlab.lessons.lesson import Lesson

SIDE, GAP, ABOVE = 16, 3, 9  # px
WRAP = Qt.TextFlag.TextWordWrap


class _Rows(QStyledItemDelegate):
    """Three short paragraphs per entry, as high as they wrap at this width."""

    def __init__(self, owner: LessonList) -> None:
        super().__init__(owner)
        self.owner = owner

    def _parts(self, index: QModelIndex | QPersistentModelIndex, width: int) -> list[tuple[str, str, bool, QRect]]:
        """(text, colour, bold, rectangle) of each paragraph, relative to the entry."""
        lesson, theme = self.owner.lessons[index.row()], self.owner.context.theme
        room, y, parts = width - 2 * SIDE, ABOVE, []
        title, standing = lesson.title or lesson.name, self.owner.standing(lesson)
        lines = ((title, "text", True), (lesson.about, "muted", False), (standing, "muted", False))
        for i, (text, colour, bold) in enumerate(lines):
            font = theme.font(theme.normal if i < 2 else theme.small, bold=bold)
            height = QFontMetrics(font).boundingRect(QRect(0, 0, room, 1000), WRAP, text).height()
            parts.append((text, colour, bold, QRect(SIDE, y, room, height)))
            y += height + GAP
        return parts

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        """The size that the paragraphs need."""
        width = self.owner.viewport().width()
        return QSize(width, self._parts(index, width)[-1][3].bottom() + ABOVE)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> None:
        """Paint an entry, guarded."""
        rect: QRect = option.rect  # type: ignore[attr-defined]
        guarded(painter, lambda: self._paint_entry(painter, option, index), QRectF(rect), self.owner.context.theme)

    def _paint_entry(self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> None:
        """Paint the paragraphs; the last is in the accent where the lesson has been begun."""
        theme = self.owner.context.theme
        rect: QRect = option.rect  # type: ignore[attr-defined]
        state: QStyle.StateFlag = option.state  # type: ignore[attr-defined]
        if state & QStyle.StateFlag.State_MouseOver or state & QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, theme.colour("window"))
        if state & QStyle.StateFlag.State_HasFocus and state & QStyle.StateFlag.State_Selected:
            painter.fillRect(QRect(rect.left(), rect.top(), 3, rect.height()), theme.colour("accent"))
        begun = self.owner.begun(self.owner.lessons[index.row()])
        for i, (text, colour, bold, where) in enumerate(self._parts(index, rect.width())):
            painter.setFont(theme.font(theme.normal if i < 2 else theme.small, bold=bold))
            painter.setPen(theme.colour("accent" if i == 2 and begun else colour))
            painter.drawText(where.translated(rect.topLeft()), WRAP, text)
        painter.setPen(theme.colour("line"))
        painter.drawLine(rect.left() + SIDE, rect.bottom(), rect.right() - SIDE, rect.bottom())


class LessonList(QListWidget):
    """The list. `chosen(Lesson)`: a lesson was clicked, or Enter pressed on it."""

    chosen = Signal(object)

    def __init__(self, context: AppContext, places: Places, parent: QWidget) -> None:
        super().__init__(parent)
        self.context, self.places = context, places
        self.lessons: tuple[Lesson, ...] = ()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setAccessibleName("Lessons")
        self.setMouseTracking(True)
        self.setVerticalScrollMode(self.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setItemDelegate(_Rows(self))
        self.itemActivated.connect(self._chosen)
        self.itemClicked.connect(self._chosen)
        context.theme_changed.connect(self.set_theme)
        self.set_theme(context.theme)

    def fill(self, lessons: Sequence[Lesson]) -> None:
        """List these lessons, in this order."""
        self.lessons = tuple(lessons)
        self.clear()
        for lesson in self.lessons:
            sentences = (lesson.title or lesson.name, lesson.about.rstrip("."), self.standing(lesson))
            item = QListWidgetItem(". ".join(filter(None, sentences)), self)
            item.setToolTip(tip_of(str(lesson.path)))
        if self.lessons:
            self.setCurrentRow(next((i for i, lesson in enumerate(self.lessons) if not self.places.done(lesson)), 0))

    def begun(self, lesson: Lesson) -> bool:
        """Whether the lesson was left at a step after the first."""
        return self.places.step(lesson) > 0

    def standing(self, lesson: Lesson) -> str:
        """The length of a lesson and how far it has been read."""
        parts = [f"{lesson.minutes} min"] if lesson.minutes else []
        parts += [number_of(len(lesson.steps), "step")]
        parts += [f"continue at step {self.places.step(lesson) + 1}"] if self.begun(lesson) else []
        return " · ".join([*parts, "✓ read"] if self.places.done(lesson) else parts)

    @Slot(QListWidgetItem)
    def _chosen(self, item: QListWidgetItem) -> None:
        self.chosen.emit(self.lessons[self.row(item)])

    @Slot(object)
    def set_theme(self, theme: Theme) -> None:
        """Its own background; the rows paint themselves."""
        self.setStyleSheet(f"QListWidget {{ background: {theme.background}; outline: none; }}")
        self.scheduleDelayedItemsLayout()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Lay the entries out again: their lines wrap at another width."""
        super().resizeEvent(event)
        self.scheduleDelayedItemsLayout()
