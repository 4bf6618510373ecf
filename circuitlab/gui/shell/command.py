"""A command of a window, and its action in menus. The table of all commands is `commands.py`, which imports the window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMainWindow

from circuitlab.draw.look.plain_text import tip_of

GOES_TO = "goes to"  # the property of an action that has the title of the panel it goes to
MENUS = ("File", "Edit", "Go", "View", "Help")
W = TypeVar("W", bound=QMainWindow)


def _always(window: QMainWindow) -> bool:
    return True


def _no_reason(window: QMainWindow) -> str:
    return ""


@dataclass(frozen=True)
class Command(Generic[W]):
    """One command of a window: `run(window)`; `menu` is one of `MENUS`; `shortcut` in Qt's portable text, separated by ", ".

    `enabled(window)` is called when a menu or the palette opens. `checked(window)` makes it one of a group of choices. `tip`: the
    tooltip of its menu entry. `why_not(window)`: why it cannot be run now, which is the tooltip then; "" where it can.
    """

    name: str
    title: str
    menu: str
    run: Callable[[W], object]
    shortcut: str = ""
    separator: bool = False
    enabled: Callable[[W], bool] = _always
    checked: Callable[[W], bool] | None = None
    submenu: str = ""
    tip: str = ""
    why_not: Callable[[W], str] = _no_reason


AnyCommand: TypeAlias = Command[Any]  # of a window whose kind only the command knows


class CommandAction(QAction):
    """A command as a Qt action of a window."""

    def __init__(self, command: AnyCommand, window: QMainWindow) -> None:
        super().__init__(command.title, window)
        self.command, self._window = command, window
        self.setObjectName(f"command.{command.name}")
        self.setCheckable(command.checked is not None)
        if command.tip:
            self.setToolTip(tip_of(command.tip))
        if command.shortcut:
            self.setShortcuts([QKeySequence(s.strip()) for s in command.shortcut.split(", ")])
        self.triggered.connect(self.go)

    def refresh(self) -> None:
        """Update, before it is shown, whether it can be run now and whether it is checked."""
        why_not = self.command.why_not(self._window)
        self.setEnabled(self.command.enabled(self._window) and not why_not)
        if self.command.why_not is not _no_reason:
            self.setToolTip(tip_of(why_not or self.command.tip))
        if self.command.checked is not None:
            self.setChecked(self.command.checked(self._window))

    def go(self) -> None:
        """Run the command if it is enabled: a shortcut can arrive where a menu entry would be disabled."""
        if self.command.enabled(self._window):
            self.command.run(self._window)
        self.setEnabled(True)
