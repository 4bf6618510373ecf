"""Commands, declared once: menus, shortcuts, palette and shortcut sheet all read this table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtGui import QAction, QKeySequence

if TYPE_CHECKING:
    from circuitlab.gui.window import Window

MENUS = ("File", "Edit", "Go", "View", "Help")


@dataclass(frozen=True)
class Command:
    """`run(window)`; `menu` is one of `MENUS`; `shortcut` in Qt's portable text, several separated by ", "."""

    name: str
    title: str
    menu: str
    run: Callable[[Window], None]
    shortcut: str = ""
    separator: bool = False


def _walk(layer: int, head: int) -> Callable[[Window], None]:
    return lambda window: window.walk_heads(layer, head)


COMMANDS: tuple[Command, ...] = (
    Command("open", "Open model…", "File", lambda w: w.ask_open(), "Ctrl+O"),
    Command("reload", "Reload model from disk", "File", lambda w: w.reload_model()),
    Command("save-session", "Copy session as JSON", "File", lambda w: w.copy_session(), separator=True),
    Command("quit", "Quit", "File", lambda w: w.close_window(), "Ctrl+Q", separator=True),
    Command("undo", "Undo", "Edit", lambda w: w.bench.document.undo(), "Ctrl+Z"),
    Command("redo", "Redo", "Edit", lambda w: w.bench.document.redo(), "Ctrl+Shift+Z, Ctrl+Y"),
    Command("release", "Release the selection", "Edit", lambda w: w.release(), "Esc", separator=True),
    Command("continue", "Continue the text", "Edit", lambda w: w.prompt.continue_text(), "Ctrl+Return"),
    Command("prompt", "Edit the prompt", "Edit", lambda w: w.prompt.editor.setFocus(), "Ctrl+L"),
    Command("cancel", "Cancel everything that runs", "Edit", lambda w: w.bench.runner.cancel_all(), "Ctrl+."),
    Command("head-left", "Previous head", "Go", _walk(0, -1), "Alt+Left"),
    Command("head-right", "Next head", "Go", _walk(0, 1), "Alt+Right"),
    Command("head-up", "Same head, layer before", "Go", _walk(-1, 0), "Alt+Up"),
    Command("head-down", "Same head, layer after", "Go", _walk(1, 0), "Alt+Down"),
    Command("all-heads", "Select all heads of this layer", "Go", lambda w: w.select_layer(), "Alt+A"),
    Command("token-left", "Previous token", "Go", lambda w: w.walk_tokens(-1), "Ctrl+Left", separator=True),
    Command("token-right", "Next token", "Go", lambda w: w.walk_tokens(1), "Ctrl+Right"),
    Command("pin", "Pin this as the reference", "View", lambda w: w.pin(), "Ctrl+P"),
    Command("unpin", "Unpin", "View", lambda w: w.unpin()),
    Command("compare", "Compare: now, reference, difference", "View", lambda w: w.next_compare(), "Ctrl+D"),
    Command("theme", "Light, dark or system", "View", lambda w: w.next_theme(), separator=True),
    Command("maximise", "Maximise or restore the panel", "View", lambda w: w.toggle_maximised(), "F11"),
    Command("reset-zoom", "Reset zoom", "View", lambda w: w.reset_zoom(), "Ctrl+0"),
    Command("redock", "Re-dock all panels", "View", lambda w: w.redock()),
    Command("reset-layout", "Reset layout", "View", lambda w: w.reset_layout()),
    Command("palette", "Command palette…", "Help", lambda w: w.show_palette(), "Ctrl+Shift+P"),
    Command("shortcuts", "Shortcuts", "Help", lambda w: w.show_shortcuts(), "F1"),
    Command("about", "About CircuitLab", "Help", lambda w: w.show_about()),
)


class CommandAction(QAction):
    """A command as a Qt action of a window."""

    def __init__(self, command: Command, window: Window) -> None:
        super().__init__(command.title, window)
        self.command, self._window = command, window
        self.setObjectName(f"command.{command.name}")
        if command.shortcut:
            self.setShortcuts([QKeySequence(s.strip()) for s in command.shortcut.split(", ")])
        self.triggered.connect(self.go)

    def go(self) -> None:
        """Run it."""
        self.command.run(self._window)
