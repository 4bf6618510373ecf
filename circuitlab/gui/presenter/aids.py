"""Pointing aids over any widget: black, white, a still and magnified picture, a ring round the pointer, a number being typed.

They know neither stories nor figures. The mouse is watched at the native window, before any widget below hears of it.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QCursor, QMouseEvent, QPixmap, QWheelEvent, QWindow
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.theme import Theme
from circuitlab.gui.presenter.overlays import Curtain, PointerRing, TypedNumber
from circuitlab.gui.presenter.resting_pointer import RestingPointer
from circuitlab.gui.presenter.still import NOTCH, Still

STEP = 120  # angle of one notch of a wheel, in eighths of a degree
MOST_DIGITS = 4
REFUSED_FOR = 2000  # ms that a number without a step stays on the screen after it was confirmed
_MOVES = (QEvent.Type.Enter, QEvent.Type.MouseMove, QEvent.Type.MouseButtonPress, QEvent.Type.Wheel)


class Aids(QObject):
    """The aids of a widget. `changed()`: one was switched on or off; `asked(number)`: a typed number was confirmed, from 1.

    `exists(number)`: whether there is a step of this number; one that there is not is shown as such and never asked for.
    """

    changed = Signal()
    asked = Signal(int)

    def __init__(self, target: QWidget, exists: Callable[[int], bool] = lambda number: True) -> None:
        super().__init__(target)
        self.target, self.exists = target, exists
        self.still = Still(target)
        self.ring = PointerRing(target)
        self.number = TypedNumber(target)
        self.curtain = Curtain(target)
        self.pointer = RestingPointer(target)
        self.ringed = False
        self.frozen = False  # the audience keeps the picture, whatever becomes of the target
        self._digits = ""
        self.refusal = QTimer(self, singleShot=True, interval=REFUSED_FOR)  # runs while a confirmed number is shown as none
        self.refusal.timeout.connect(self._forget_number)
        self._handle: QWindow | None = None
        self._angle = 0  # of a wheel, less than one notch
        target.installEventFilter(self)
        self._watch()

    def set_theme(self, theme: Theme) -> None:
        """Draw ring and number in the colours of a theme."""
        self.ring.theme = self.number.theme = self.still.theme = theme
        for widget in (self.ring, self.number, self.still):
            widget.update()

    # -- the aids -------------------------------------------------------------------------------------------------------

    @property
    def _is_still(self) -> bool:
        """Whether a still picture is shown: frozen, or magnified."""
        return not self.still.isHidden()

    @property
    def covers(self) -> bool:
        """Whether the target itself is not seen: a curtain or a still picture lies over it."""
        return bool(self.curtain.colour) or self._is_still

    @property
    def active(self) -> bool:
        """Whether anything but the ring lies over the target."""
        return self.covers or bool(self._digits)

    @property
    def state(self) -> str:
        """What lies over the target, in a word or two; "" for nothing but the ring."""
        if self.curtain.colour:
            return self.curtain.colour
        larger = f"{self.still.scale:.2g} times as large" if self.still.scale > 1 else ""
        return ", ".join(filter(None, ("frozen" if self.frozen else "", larger)))

    def black(self) -> None:
        """Everything black, or visible again."""
        self._cover("black")

    def white(self) -> None:
        """Everything white, or visible again."""
        self._cover("white")

    def _cover(self, colour: str) -> None:
        self.curtain.let_down("" if self.curtain.colour == colour else colour)
        self.changed.emit()

    def freeze(self) -> None:
        """Freeze the picture, deaf to the pointer and to whatever the target shows meanwhile, or let it go."""
        if self.frozen:
            self._let_go()
        else:
            self.frozen = True
            if not self._is_still:
                self._take()
        self.changed.emit()

    def _let_go(self) -> None:
        self.frozen = False
        self.still.let_go()

    def _take(self) -> None:
        self.still.take(self._picture())
        self._to_front()

    def _to_front(self) -> None:
        """Lie over all else in the target, what it gets later too, in this order."""
        for one in (self.still, self.ring, self.number, self.curtain):
            one.raise_()

    def _picture(self) -> QPixmap:
        """What the target shows, without the aids."""
        over = [w for w in (self.ring, self.number, self.curtain) if not w.isHidden()]
        for widget in over:
            widget.hide()
        pixmap = self.target.grab()
        for widget in over:
            widget.show()
        return pixmap

    def magnify(self, factor: float, at: QPointF) -> None:
        """Magnify the picture about a point of the target; at its own size it is the target again, unless it is frozen."""
        if not self._is_still and factor <= 1:
            return
        if not self._is_still:
            self._take()
        self.still.magnify(factor, at)
        if self.still.scale == 1.0 and not self.frozen:
            self._let_go()
        self.changed.emit()

    def ring_pointer(self) -> None:
        """A ring round the pointer, or none."""
        self.ringed = not self.ringed
        if self.ringed:
            self._move_ring(self.target.mapFromGlobal(QCursor.pos()))
        else:
            self.ring.hide()
        self.changed.emit()

    def _move_ring(self, at: QPoint) -> None:
        if self.ringed:
            self.ring.move_to(at)
            self.ring.setVisible(self.target.rect().contains(at))
            self.ring.raise_()
            self.curtain.raise_()

    # -- a number, digit by digit -----------------------------------------------------------------------------------------

    @property
    def typing(self) -> bool:
        """Whether a number is being typed."""
        return bool(self._digits)

    def digit(self, digit: str) -> None:
        """Take one more digit of a step's number, the first one of another where the last was confirmed in vain."""
        if self.refusal.isActive():
            self._digits = ""
        if len(self._digits) < MOST_DIGITS and (self._digits or digit != "0"):
            self._digits += digit
            self._show_number()

    def erase(self) -> None:
        """Take back the last digit."""
        self._digits = self._digits[:-1]
        self._show_number()

    def confirm(self) -> None:
        """Go to the step of the typed number. One that there is not stays on the screen for a moment, to be corrected."""
        if not self._digits:
            return
        if not self.exists(int(self._digits)):
            self.refusal.start()
            return
        number, self._digits = int(self._digits), ""
        self._show_number()
        self.asked.emit(number)

    @Slot()
    def _forget_number(self) -> None:
        self._digits = ""
        self._show_number()

    def _show_number(self) -> None:
        self.refusal.stop()
        known = not self._digits or self.exists(int(self._digits))
        self.number.show_text(self._digits if known else f"{self._digits}: no such step")
        self.changed.emit()

    # -- back to the target -------------------------------------------------------------------------------------------------

    def lift(self) -> bool:
        """Lift the curtain; whether it was down."""
        if not self.curtain.colour:
            return False
        self.curtain.let_down("")
        self.changed.emit()
        return True

    def back_out(self) -> bool:
        """Leave the last of the aids: the number, the curtain, the still picture, then the ring. Whether there was one."""
        if self._uncover():
            return True
        if self.frozen:
            self.freeze()
            return True
        if self.ringed:
            self.ring_pointer()
            return True
        return False

    def _uncover(self) -> bool:
        if self._digits:
            self._forget_number()
            return True
        if self.lift():
            return True
        if self._is_still and not self.frozen:
            self._let_go()
            self.changed.emit()
            return True
        return False

    def clear(self) -> None:
        """Show the target alone, but for what is frozen; the ring stays round the pointer."""
        while self._uncover():
            pass

    # -- the mouse ----------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        handle = self.target.window().windowHandle()
        if handle is not None and handle is not self._handle:
            if self._handle is not None:
                self._handle.removeEventFilter(self)
            self._handle = handle
            handle.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Move the ring with the pointer, hide one that rests, and take Shift+wheel for the magnifier."""
        kind = event.type()
        if watched is self.target:
            if kind in (QEvent.Type.Show, QEvent.Type.WinIdChange):
                self._watch()
                self.pointer.begin()
            elif kind == QEvent.Type.Hide:
                self.pointer.left()
            elif kind == QEvent.Type.ChildAdded:
                self._to_front()
            return False
        if kind in _MOVES:
            self.pointer.moved()
        elif kind == QEvent.Type.Leave:
            self.pointer.left()
        if kind == QEvent.Type.MouseMove and isinstance(event, QMouseEvent):
            self._move_ring(self._inside(event.position()).toPoint())
        elif kind == QEvent.Type.Leave:
            self.ring.hide()
        elif kind == QEvent.Type.Wheel and isinstance(event, QWheelEvent):
            return self._turned(event)
        return False

    def _inside(self, at: QPointF) -> QPointF:
        """A point of the native window, in px of the target."""
        return self.target.mapFrom(self.target.window(), at)

    def _turned(self, event: QWheelEvent) -> bool:
        """Whether the wheel was for the magnifier. Where Shift turns a wheel sideways, its other angle counts."""
        at = self._inside(event.position())
        if self.curtain.colour or not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            return False
        if not self.target.rect().contains(at.toPoint()):
            return False
        self._angle += event.angleDelta().y() or event.angleDelta().x()
        notches, self._angle = int(self._angle / STEP), self._angle - STEP * int(self._angle / STEP)
        if notches:
            self.magnify(NOTCH**notches, at)
        event.accept()
        return True
