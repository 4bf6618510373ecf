"""What events do: mouse, keys, commands and controls of the real window, through Qt's own test events.

Whatever opens on top (a menu, a list, a dialog) is attended to by a timer, because it runs a loop of its own: an entry of it is
chosen by the event's numbers, or it is sent away. File dialogs answer with a path in a scratch folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from PySide6.QtCore import QPoint, QPointF, Qt, QTimer
from PySide6.QtGui import QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QDialog,
    QFileDialog,
    QLineEdit,
    QMenu,
    QSlider,
    QWidget,
)

from circuitlab.gui.shell.command import CommandAction
from circuitlab.gui.shell.window import Window
from tests.monkey.events import Event

T = TypeVar("T")
TEXTS = (
    "one two one two one",
    "the grey heron stood; the grey heron",
    "",
    " ",
    "a",
    "\n\n\t",
    "<b>bold</b> <s>&amp;",
    "ä€😀 \u200f\u0301",
    "x " * 400,
    "The cat, the dog and the cat",
)
KEYS = (
    Qt.Key.Key_Left,
    Qt.Key.Key_Right,
    Qt.Key.Key_Up,
    Qt.Key.Key_Down,
    Qt.Key.Key_Return,
    Qt.Key.Key_Escape,
    Qt.Key.Key_Tab,
    Qt.Key.Key_Space,
    Qt.Key.Key_R,
    Qt.Key.Key_Home,
    Qt.Key.Key_End,
    Qt.Key.Key_PageDown,
    Qt.Key.Key_Delete,
    Qt.Key.Key_Backspace,
    Qt.Key.Key_A,
    Qt.Key.Key_BracketLeft,
    Qt.Key.Key_Menu,
)
NEVER = ("quit", "train")  # ends the window; starts a program of its own
LARGEST_ROUND = 12  # of attending to what is open, before it is sent away


def chosen(things: Sequence[T], number: float) -> T:
    """One of them by a number in [0, 1)."""
    return things[int(number * len(things))]


class Hands:
    """Plays events on one window. `models` are what the "model" event opens; `scratch` takes what is exported."""

    def __init__(self, window: Window, models: Sequence[str], scratch: Path) -> None:
        self.window, self.models, self.scratch = window, models, scratch
        self._event = Event("settle", 0.5, 0.5, 0.5)
        self._rounds = 0
        self._at_work = False
        self._patches = [
            patch.object(QFileDialog, "getSaveFileName", lambda *_, **__: (str(self._file(True)), "")),
            patch.object(QFileDialog, "getOpenFileName", lambda *_, **__: (str(self._file(False)), "")),
            patch.object(QFileDialog, "getOpenFileNames", lambda *_, **__: ([str(self._file(False))], "")),
            patch.object(
                QFileDialog, "getExistingDirectory", lambda *_, **__: chosen(("", str(scratch), models[0]), self._event.c)
            ),
            patch("PySide6.QtGui.QDesktopServices.openUrl", lambda *_: True),
        ]

    def __enter__(self) -> Hands:
        for each in self._patches:
            each.start()
        self._at_work = True
        self._later()
        return self

    def __exit__(self, *_: object) -> None:
        self._at_work = False
        for each in self._patches:
            each.stop()

    def _file(self, writing: bool) -> Path:
        names = (
            "out.png",
            "out.svg",
            "out.pdf",
            "out.csv",
            "out.npz",
            "out.json",
            "out.zip",
            "out.circuitlab",
            "no/such/folder.png",
        )
        path = self.scratch / chosen(names, self._event.b)
        return path if writing or path.exists() else Path()

    def play(self, event: Event) -> None:
        """Do it, with whatever opens attended to; nothing is left open."""
        self._event, self._rounds = event, 0
        try:
            getattr(self, "_" + event.kind.replace("-", "_"))(event)
        except RuntimeError as error:  # of ours alone: what a slot raises goes to the hook
            if "already deleted" not in str(error):
                raise  # else the widget went away under the pointer, between moving there and pressing
        self.clear()

    def clear(self) -> None:
        """Until nothing stands in front of the window."""
        for _ in range(200):
            QApplication.processEvents()
            if QApplication.activePopupWidget() is None and QApplication.activeModalWidget() is None:
                return
            self._attend()
        raise AssertionError(f"{_front()!r} does not go away")

    # what stands in front --------------------------------------------------------------------------------------------

    def _later(self) -> None:
        """A timer each time: what is done may open a dialog, in whose loop the timer that led there does not fire again."""
        QTimer.singleShot(5, self._attend_and_go_on)

    def _attend_and_go_on(self) -> None:
        if self._at_work:
            self._later()
            self._attend()

    def _attend(self) -> None:
        popup, modal = QApplication.activePopupWidget(), QApplication.activeModalWidget()
        front = popup or modal
        if front is None:
            return
        self._rounds += 1
        if self._rounds > LARGEST_ROUND:
            front.close()
        elif isinstance(front, QMenu):
            self._in_menu(front)
        elif popup is not None:
            QTest.keyClick(popup, chosen((Qt.Key.Key_Escape, Qt.Key.Key_Down, Qt.Key.Key_Return), self._event.b))
        elif isinstance(front, QDialog):
            self._in_dialog(front)
        else:
            front.close()

    def _in_menu(self, menu: QMenu) -> None:
        entries = [a for a in menu.actions() if a.isEnabled() and not a.isSeparator() and not a.menu() and not _forbidden(a)]
        entry = chosen(entries, self._event.c) if entries and self._event.b < 0.7 else None
        menu.close()
        if entry is not None:
            entry.trigger()

    def _in_dialog(self, dialog: QDialog) -> None:
        fields = [w for w in dialog.findChildren(QLineEdit) if w.isVisible() and w.isEnabled() and not w.isReadOnly()]
        buttons = [w for w in dialog.findChildren(QAbstractButton) if w.isVisible() and w.isEnabled()]
        if self._rounds % 3 == 1 and fields:
            QTest.keyClicks(chosen(fields, self._event.a), chosen(("head", "9", "-1", "models/none"), self._event.b))
        elif self._rounds % 3 == 2 and buttons and "rain" not in dialog.windowTitle():
            chosen(buttons, self._event.c).click()
        else:
            dialog.reject()

    # events ----------------------------------------------------------------------------------------------------------

    def _at(self, event: Event) -> tuple[QWidget, QPoint]:
        """The widget under a point of the window, and the point in its own measure."""
        point = QPoint(int(event.a * self.window.width()), int(event.b * self.window.height()))
        widget = self.window.childAt(point) or self.window
        return widget, widget.mapFrom(self.window, point)

    def _click(self, event: Event, modifier: Any = Qt.KeyboardModifier.NoModifier) -> None:
        widget, point = self._at(event)
        QTest.mouseMove(widget, point)
        QTest.mouseClick(widget, Qt.MouseButton.LeftButton, modifier, point)

    def _shift_click(self, event: Event) -> None:
        self._click(event, Qt.KeyboardModifier.ShiftModifier)

    def _double_click(self, event: Event) -> None:
        widget, point = self._at(event)
        QTest.mouseDClick(widget, Qt.MouseButton.LeftButton, pos=point)

    def _right_click(self, event: Event) -> None:
        from PySide6.QtGui import QContextMenuEvent

        widget, point = self._at(event)
        where = widget.mapToGlobal(point)
        QApplication.sendEvent(widget, QContextMenuEvent(QContextMenuEvent.Reason.Mouse, point, where))

    def _hover(self, event: Event) -> None:
        widget, point = self._at(event)
        QTest.mouseMove(widget, point)

    def _wheel(self, event: Event) -> None:
        widget, point = self._at(event)
        turn = QPoint(0, 120 if event.c < 0.5 else -120)
        where, whole = QPointF(point), QPointF(widget.mapToGlobal(point))
        none, phase = Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase
        QApplication.sendEvent(widget, QWheelEvent(where, whole, QPoint(), turn, Qt.MouseButton.NoButton, none, phase, False))

    def _drag(self, event: Event) -> None:
        widget, start = self._at(event)
        end = start + QPoint(int(200 * (event.c - 0.5)), int(200 * (event.b - 0.5)))
        QTest.mousePress(widget, Qt.MouseButton.LeftButton, pos=start)
        QTest.mouseMove(widget, (start + end) / 2)
        QTest.mouseMove(widget, end)
        QTest.mouseRelease(widget, Qt.MouseButton.LeftButton, pos=end)

    def _key(self, event: Event) -> None:
        modifiers = (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.AltModifier)
        QTest.keyClick(QApplication.focusWidget() or self.window, chosen(KEYS, event.a), chosen(modifiers, event.b))

    def _type(self, event: Event) -> None:
        editor = self.window.prompt.editor
        if event.a < 0.5:
            editor.setPlainText(chosen(TEXTS, event.b))
        else:
            QTest.keyClicks(editor, chosen((" one", "x", " the cat", "\t"), event.b))
        if event.c < 0.5:
            self.window.prompt.commit()

    def _command(self, event: Event) -> None:
        actions = [a for a in self.window.menus.actions if not _forbidden(a)]
        action = chosen(actions, event.a)
        action.go() if isinstance(action, CommandAction) else action.trigger()

    def _control(self, event: Event) -> None:
        docks = [d for d in self.window.docks.values() if d.isVisible() and not d.visibleRegion().isEmpty()]
        kinds = (QComboBox, QAbstractSpinBox, QAbstractButton, QSlider, QLineEdit)
        dock = chosen(docks, event.a) if docks else None
        widgets = (
            [w for w in dock.findChildren(QWidget) if isinstance(w, kinds) and w.isVisible() and w.isEnabled()] if dock else []
        )
        if widgets:
            _use(chosen(widgets, event.b), event.c)

    def _undo(self, event: Event) -> None:
        for _ in range(1 + int(event.a * 4)):
            self.window.undo()

    def _redo(self, event: Event) -> None:
        for _ in range(1 + int(event.a * 4)):
            self.window.redo()

    def _model(self, event: Event) -> None:
        self.window.open_model(chosen(self.models, event.a))

    def _resize(self, event: Event) -> None:
        self.window.resize(700 + int(event.a * 1300), 500 + int(event.b * 600))

    def _settle(self, event: Event) -> None:
        settle(self.window)


def settle(window: Window, seconds: float = 60.0) -> None:
    """Until every visible dock shows its answer. Raises `AssertionError` when the time is up."""
    from circuitlab.gui.shell.main import settle as settled

    window.checkpoints.player.stop()
    assert settled(window, seconds), f"not settled after {seconds:g} s"


def _front() -> QWidget | None:
    return QApplication.activePopupWidget() or QApplication.activeModalWidget()


def _forbidden(action: Any) -> bool:
    return action.objectName() in {f"command.{name}" for name in NEVER}


def _use(widget: QWidget, number: float) -> None:
    if isinstance(widget, QComboBox):
        if widget.count():
            widget.setCurrentIndex(int(number * widget.count()))
            widget.activated.emit(widget.currentIndex())
    elif isinstance(widget, QAbstractSpinBox):
        widget.stepBy(1 if number < 0.5 else -1)
    elif isinstance(widget, QSlider):
        widget.setValue(widget.minimum() + int(number * (widget.maximum() - widget.minimum() + 1)))
    elif isinstance(widget, QLineEdit):
        QTest.keyClicks(widget, chosen(("1", "L0H1", "the", "-", "x\t"), number))
        QTest.keyClick(widget, Qt.Key.Key_Return)
    elif isinstance(widget, QAbstractButton):
        widget.click()
