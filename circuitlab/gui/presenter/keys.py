"""The keys of the stage: one table from key to action. Those of every clicker are among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QKeyEvent, QMouseEvent, QWindow
from PySide6.QtWidgets import QWidget

Key = Qt.Key
ENTER, ERASE = (Key.Key_Return, Key.Key_Enter), Key.Key_Backspace
DIGITS = tuple(Key(Key.Key_0.value + i) for i in range(10))
SHIFTED = Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.KeypadModifier


@dataclass(frozen=True)
class StageKey:
    """What the stage does by its name in `Stage.acts`, what it is called in help, and the keys for it."""

    action: str
    title: str
    keys: tuple[Qt.Key, ...]
    words: str  # the keys as they are read


KEYS = (
    StageKey(
        "on",
        "Next step",
        (Key.Key_PageDown, Key.Key_Right, Key.Key_Down, Key.Key_Space, *ENTER, Key.Key_N),
        "Page Down, →, ↓, Space, Enter, N",
    ),
    StageKey(
        "back",
        "Previous step",
        (Key.Key_PageUp, Key.Key_Left, Key.Key_Up, ERASE, Key.Key_P),
        "Page Up, ←, ↑, Backspace, P",
    ),
    StageKey("first", "First step", (Key.Key_Home,), "Home"),
    StageKey("last", "Last step", (Key.Key_End,), "End"),
    StageKey("digit", "Go to a step: its number, then Enter", DIGITS, "0 … 9, Enter"),
    StageKey("picture", "The next panel of a step that has several, then all of them", (Key.Key_V,), "V"),
    StageKey("restore", "The step as it was, after pointing at it", (Key.Key_R,), "R"),
    StageKey("black", "Black, or the step again", (Key.Key_B, Key.Key_Period), "B, ."),
    StageKey("white", "White, or the step again", (Key.Key_W, Key.Key_Comma), "W, ,"),
    StageKey("freeze", "Freeze the picture and its film while you go on, or let it go", (Key.Key_F,), "F"),
    StageKey("ring", "A ring round the pointer, or none", (Key.Key_L,), "L"),
    StageKey("swap", "Stage and speaker change screens", (Key.Key_S,), "S"),
    StageKey("aside", "Your note at the foot, with one screen", (Key.Key_A,), "A"),
    StageKey("time", "Stop the time, or let it go on", (Key.Key_T,), "T"),
    StageKey("end", "Stop a film, then lift what lies over the step, then release, then end", (Key.Key_Escape,), "Esc"),
)
HOLDS_A_FILM = ("A click, any other key", "Hold a film, or continue it")
_ACTIONS = {key: entry.action for entry in KEYS for key in entry.keys}


def action_of(event: QKeyEvent) -> str:
    """What a key does on the stage, "" for nothing. Shift and Caps Lock make no difference; Ctrl, Alt and Meta do."""
    return "" if event.modifiers() & ~SHIFTED else _ACTIONS.get(Key(event.key()), "")


def is_plain(event: QKeyEvent) -> bool:
    """Whether a key is pressed by itself: no modifier or lock, no volume, no screenshot, nothing with Ctrl, Alt or Meta."""
    key = event.key()
    common = 0 < key < Key.Key_Shift.value or Key.Key_F1.value <= key <= Key.Key_F35.value
    return common and key != Key.Key_Print.value and not event.modifiers() & ~SHIFTED


def digit_of(event: QKeyEvent) -> str:
    """The digit of a key whose action is "digit"."""
    return str(DIGITS.index(Key(event.key())))


class KeyWatch(QObject):
    """Takes every key of a window at its native window, before any widget hears of it; those with Ctrl, Alt or Meta go on.

    `press()`: a click with the left button, and whether it is taken too.

    A filter on the application would be called for every event of every widget, also of those that are still being made.
    """

    def __init__(self, target: QWidget, key: Callable[[QKeyEvent], bool], press: Callable[[], bool] = lambda: False) -> None:
        super().__init__(target)
        self._target, self._key, self._press = target, key, press
        self._pressed = False  # by a press that was taken
        self._handle: QWindow | None = None
        target.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Take a key or a click, or watch the native window that the target has now."""
        kind = event.type()
        if watched is self._target:
            if kind in (QEvent.Type.Show, QEvent.Type.WinIdChange):
                self._watch()
            return False
        if isinstance(event, QMouseEvent):
            return self._clicked(event)
        if kind not in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease) or not isinstance(event, QKeyEvent):
            return False
        if kind == QEvent.Type.KeyPress:
            self._key(event)
        return not event.modifiers() & ~SHIFTED

    def _clicked(self, event: QMouseEvent) -> bool:
        """Whether an event of the mouse is part of a click that is taken: nothing below hears half of one."""
        if event.button() == Qt.MouseButton.LeftButton:
            if event.type() == QEvent.Type.MouseButtonPress:
                self._pressed = self._press()
            elif event.type() == QEvent.Type.MouseButtonRelease:
                taken, self._pressed = self._pressed, False
                return taken
        elif not event.buttons() & Qt.MouseButton.LeftButton:
            self._pressed = False  # it was let go elsewhere
        return self._pressed

    def _watch(self) -> None:
        handle = self._target.windowHandle()
        if handle is not None and handle is not self._handle:
            self._handle = handle
            handle.installEventFilter(self)
