"""One grammar of the hand for every mark: hover previews, click selects, arrows walk, Enter clicks, Alt+Enter double-clicks.

A mark's widget says what is under a point and how ids follow each other; this mixin turns events into Hits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QContextMenuEvent,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea

from circuitlab.counting import number as formatted
from circuitlab.draw.look.theme import Theme
from circuitlab.figures.marks import Gesture, Hit

Id = tuple[int, ...]
_Base = QAbstractScrollArea if TYPE_CHECKING else object
ARROWS = {
    Qt.Key.Key_Left: (-1, 0),
    Qt.Key.Key_Right: (1, 0),
    Qt.Key.Key_Up: (0, -1),
    Qt.Key.Key_Down: (0, 1),
}
CLICK = 4  # px between press and release: more is a drag
_KEYBOARD = (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason, Qt.FocusReason.ShortcutFocusReason)


def number(value: float, unit: str = "", blank: str = "empty") -> str:
    """A value for a readout: four decimals for ordinary sizes, otherwise four significant figures; `blank` for NaN.

    A difference, whose unit begins with Δ, has its sign.
    """
    if np.isnan(value):
        return blank
    size, sign = abs(value), "+" if unit.startswith("Δ") else ""
    text = "0" if size == 0 else formatted(value, f"{sign}.4f" if 1e-3 <= size < 1e3 else f"{sign}.4g")
    return f"{text} {unit}".rstrip()


def gesture_of(keys: Qt.KeyboardModifier) -> Gesture:
    """What Enter stands for: a click; with Shift a shift-click, with Alt a double-click."""
    if keys & Qt.KeyboardModifier.AltModifier:
        return "double-click"
    return "shift-click" if keys & Qt.KeyboardModifier.ShiftModifier else "click"


class Gestures(_Base):
    """Mixed in before a scroll area; the class declares `gestured = Signal(object, str)` and `context = Signal(object, QPoint)`.

    The class defines `id_at`, `readout`, `walk` and `show_cursor`. The hovered item's readout is on the screen: while the pointer
    rests, every gesture refers to that item, even if the layout has since moved the picture.
    """

    theme: Theme
    gestured: Any
    context: Any
    mark_name: str = ""
    pointer: QPoint | None = None  # position in the viewport, while the pointer hovers rather than the keyboard
    _at: QPoint | None = None  # the same position on the screen
    _hovered: Id | None = None
    _readout_shown: bool = False  # whether the readout of the hovered item is still on the screen
    _pressed: QPoint | None = None
    _ring: bool = False

    def id_at(self, at: QPointF) -> Id | None:
        """The item under a point of the viewport."""
        raise NotImplementedError

    def mark_id(self, item: Id) -> Id:
        """The id of an item in the mark, which a panel reads."""
        return item

    def hit(self, item: Id, gesture: Gesture) -> Hit:
        """The Hit of a gesture on an item; () is no item."""
        return Hit(self.mark_name, self.mark_id(item) if item else (), gesture)

    def readout(self, item: Id) -> str:
        """The text for an item in the status bar."""
        raise NotImplementedError

    def walk(self, item: Id | None, dx: int, dy: int) -> Id | None:
        """The neighbour of an item, or the first item."""
        raise NotImplementedError

    def show_cursor(self, item: Id | None) -> None:
        """Outline the hovered item."""

    def emit_hit(self, item: Id, gesture: Gesture) -> None:
        """Emit a Hit with its readout; a screen reader hears the readout of the focused mark."""
        readout = self.readout(item) if item else ""
        self.setAccessibleDescription(readout)
        if readout and self.hasFocus() and QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, readout))
        self.gestured.emit(self.hit(item, gesture), readout)

    def hover(self, item: Id | None) -> None:
        """Move the hovered item; emits only when it changes, or when its readout has gone from the screen."""
        if item == self._hovered and self._readout_shown == (item is not None):
            return
        self._hovered, self._readout_shown = item, item is not None
        self.show_cursor(item)
        self.emit_hit(item or (), "hover" if item else "leave")

    @property
    def hovered_readout(self) -> str:
        """The readout of the hovered item, "" where none is."""
        return "" if self._hovered is None else self.readout(self._hovered)

    def forget_readout(self) -> None:
        """The readout has gone from the screen: the next move of the pointer brings it back."""
        self._readout_shown = False

    def pressed_item(self, event: QMouseEvent) -> Id | None:
        """The item of a press: the one whose readout was shown while the pointer rested there, else what is under it."""
        resting = self.pointer is not None and self._at == event.globalPosition().toPoint()
        return self._hovered if resting and self._hovered is not None else self.id_at(event.position())

    def point_again(self) -> None:
        """The picture has moved under the pointer: hover what is there now."""
        if self.pointer is not None and self._at is not None:
            self.pointer = self.viewport().mapFromGlobal(self._at)
            self.hover(self.id_at(QPointF(self.pointer)))

    def forget_hover(self) -> None:
        """The ids have changed: nothing is hovered until the pointer moves."""
        self._hovered = None
        self.show_cursor(None)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Hover, except while dragging."""
        super().mouseMoveEvent(event)
        self.pointer, self._at = event.position().toPoint(), event.globalPosition().toPoint()
        if not event.buttons():
            self.hover(self.id_at(event.position()))
        elif self._pressed is not None and (self.pointer - self._pressed).manhattanLength() > CLICK:
            self.hover(None)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Remember the position, to tell a click from a drag."""
        super().mousePressEvent(event)
        self._pressed = event.position().toPoint() if event.button() == Qt.MouseButton.LeftButton else None

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Click."""
        super().mouseReleaseEvent(event)
        pressed, self._pressed = self._pressed, None
        if pressed is None:
            return
        if (event.position().toPoint() - pressed).manhattanLength() > CLICK:
            self.point_again()
            return
        item = self.pressed_item(event)
        if item is not None:
            shift = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
            self.emit_hit(item, "shift-click" if shift else "click")

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Double-click; the release that follows is not another click."""
        super().mouseDoubleClickEvent(event)
        self._pressed = None
        item = self.pressed_item(event)
        if item is not None and event.button() == Qt.MouseButton.LeftButton:
            self.emit_hit(item, "double-click")

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Another object shows the menu: emit where, and over which item."""
        keyboard = event.reason() == QContextMenuEvent.Reason.Keyboard
        resting = self.pointer is not None and self._at == event.globalPos() and self._hovered is not None
        item = self._hovered if keyboard or resting else self.id_at(QPointF(event.pos()))
        self.context.emit(None if item is None else self.hit(item, "click"), event.globalPos())
        event.accept()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Zoomed or scrolled."""
        super().wheelEvent(event)
        self.point_again()

    def leaveEvent(self, event: QEvent) -> None:
        """The pointer has gone."""
        super().leaveEvent(event)
        self.pointer = None
        self.hover(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows, Enter, Esc; other keys go up to the window."""
        key, self.pointer = Qt.Key(event.key()), None
        if key in ARROWS:
            item = self.walk(self._hovered, *ARROWS[key])
            if item is not None:
                self.hover(item)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._hovered is not None:
            self.emit_hit(self._hovered, gesture_of(event.modifiers()))
        else:
            if key == Qt.Key.Key_Escape:
                self._hovered, self._readout_shown = None, False
                self.show_cursor(None)
                self.emit_hit((), "leave")
            event.ignore()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show the ring where the keyboard brought the focus."""
        super().focusInEvent(event)
        self._ring = event.reason() in _KEYBOARD
        self.viewport().update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Hide the ring."""
        super().focusOutEvent(event)
        self._ring = False
        self.viewport().update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """The mark, then the focus ring."""
        super().paintEvent(event)
        self.paint_ring()

    def paint_ring(self) -> None:
        """The focus ring, on top; none on a stage, whose keys walk steps and whose audience would read it as a mark."""
        if self._ring and not self.theme.stage:
            painter = QPainter(self.viewport())
            painter.setPen(self.theme.pen("accent"))
            painter.drawRect(self.viewport().rect().adjusted(0, 0, -1, -1))
            painter.end()
