"""The command palette: type a few letters, press Enter. And the sheet of shortcuts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QObject, Qt, Slot
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence
from PySide6.QtWidgets import (
    QGridLayout,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QVBoxLayout,
    QWidget,
)

from circuitlab.draw.plain import PlainLabel
from circuitlab.gui.commands import CommandAction
from circuitlab.gui.dialog import Dialog

MOST = 200  # lines: what is further down is found by typing on


def fuzzy(needle: str, text: str) -> int:
    """How well the letters of `needle` are found in order in `text`: 0 not at all, more for runs and word starts."""
    score, at, run = 1, 0, 0
    text, needle = text.lower(), needle.lower().replace(" ", "")
    for letter in needle:
        found = text.find(letter, at)
        if found < 0:
            return 0
        run = run + 1 if found == at else 0
        score += 2 * run + (3 if found == 0 or text[found - 1] in " :-" else 0)
        at = found + 1
    return score


def _plain(text: str) -> str:
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def rank(needle: str, text: str) -> tuple[int, int]:
    """How well a line answers what was typed, larger is better, (0, 0) not at all.

    The words themselves come first: the whole line, its beginning, a part of it, all of them as words, as beginnings of words,
    within words; only then letters that are scattered over it.
    """
    score = fuzzy(needle, text)
    wanted, line = _plain(needle), _plain(text)
    if not wanted:
        return (1, 1) if not needle.strip() or score else (0, 0)
    words, parts = line.split(), wanted.split()
    if line == wanted:
        kind = 7
    elif f"{line} ".startswith(f"{wanted} "):
        kind = 6
    elif f" {wanted} " in f" {line} ":
        kind = 5
    elif all(p in words for p in parts):
        kind = 4
    elif all(any(w.startswith(p) for w in words) for p in parts):
        kind = 3
    elif wanted in line:
        kind = 2
    else:
        kind = 1 if score else 0
    return kind, score if kind else 0


@dataclass(frozen=True)
class Entry:
    """A line of the palette."""

    title: str
    run: Callable[[], object]
    keys: str = ""
    name: str = ""  # of what it goes to or opens: found by it as by its title

    def rank(self, typed: str) -> tuple[int, int]:
        """As `rank`, of the better of title and name."""
        return max(rank(typed, self.title), rank(typed, self.name))


def entry_of(action: QAction) -> Entry:
    """A command or a way to a panel."""
    title = action.text().replace("&&", "\0").replace("&", "").replace("\0", "&")
    name = title.removeprefix("Go to ") if action.objectName().startswith("goto.") else ""
    return Entry(title, action.trigger, action.shortcut().toString(QKeySequence.SequenceFormat.NativeText), name)


class Palette(Dialog):
    """All actions of the window, and what `more(typed)` knows: heads, models, tokens. Best match first."""

    def __init__(
        self, actions: Sequence[QAction], parent: QWidget, more: Callable[[str], Sequence[Entry]] = lambda typed: ()
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Command palette")
        self.setModal(True)
        self.resize(480, 380)
        self._fixed = [entry_of(a) for a in actions if a.text() and a.isEnabled()]
        self._more = more
        self.entries: list[Entry] = []  # as they are listed
        self.line = QLineEdit(self)
        self.line.setPlaceholderText("Type a command, a panel, a head, a token or a model")
        self.line.setAccessibleName("Command")
        self.list = QListWidget(self)
        self.list.setAccessibleName("Commands that match")
        box = QVBoxLayout(self)
        box.setContentsMargins(8, 8, 8, 8)
        box.addWidget(self.line)
        box.addWidget(self.list)
        self.line.textChanged.connect(self.fill)
        self.line.returnPressed.connect(self.choose)
        self.line.installEventFilter(self)
        self.list.itemActivated.connect(self.choose)
        self.fill("")

    @Slot(str)
    def fill(self, text: str) -> None:
        """List what matches."""
        known = [*self._fixed, *self._more(text)]
        ranked = sorted(((e.rank(text), -i, e) for i, e in enumerate(known)), key=lambda r: r[:2], reverse=True)
        self.entries = [e for (kind, _), _, e in ranked if kind][:MOST]
        self.list.clear()
        for entry in self.entries:
            self.list.addItem(QListWidgetItem(entry.title + (f"    {entry.keys}" if entry.keys else "")))
        self.list.setCurrentRow(0)

    @Slot()
    def choose(self, *_: object) -> None:
        """Run the current command and close."""
        row = self.list.currentRow()
        self.accept()
        if 0 <= row < len(self.entries):
            self.entries[row].run()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Up and down move in the list while typing."""
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            step = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1}.get(Qt.Key(event.key()))
            if step is not None:
                row = min(max(self.list.currentRow() + step, 0), self.list.count() - 1)
                self.list.setCurrentRow(row)
                return True
        return False


class ShortcutSheet(Dialog):
    """Every command with its keys, by menu, and the grammar of the hand."""

    COLUMNS = 3
    GRAMMAR = (
        ("Hover", "preview"),
        ("Click", "select and lock; again to release"),
        ("Shift+click", "add or remove"),
        ("Double-click", "open in its own panel"),
        ("Wheel, drag", "zoom, pan; R resets"),
        ("Right-click", "menu about what is pointed at"),
        ("Arrows", "walk cells, heads, rows"),
        ("Enter, Shift+Enter, Alt+Enter", "click, Shift+click, double-click"),
        ("+ −, Ctrl+arrows", "zoom, pan"),
        ("S in a table", "sort by the column; again: the other way"),
        ("Menu key", "menu about what the keys are on"),
    )

    def __init__(self, actions: Sequence[QAction], parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Commands and shortcuts")
        native = QKeySequence.SequenceFormat.NativeText
        groups: dict[str, list[tuple[str, str]]] = {"The hand": list(self.GRAMMAR)}
        for action in actions:
            keys = " or ".join(k.toString(native) for k in action.shortcuts())
            group = action.command.menu if isinstance(action, CommandAction) else "Panels"
            title = action.command.title if isinstance(action, CommandAction) else action.text()
            groups.setdefault(group, []).append((keys, title))
        grid = QGridLayout(self)
        grid.setContentsMargins(24, 16, 24, 16)
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(4)
        lines = sum(len(g) + 1 for g in groups.values())
        row, column, longest = 0, 0, -(-lines // self.COLUMNS)
        for group, rows in groups.items():
            if row and row + len(rows) > longest + 2:
                row, column = 0, column + 3
                grid.setColumnMinimumWidth(column - 1, 24)
            self._put(grid, row, column, group, "title", 2)
            row += 1
            for keys, text in rows:
                self._put(grid, row, column, keys, "caption")
                self._put(grid, row, column + 1, text)
                row += 1
        grid.setRowStretch(grid.rowCount(), 1)

    def _put(self, grid: QGridLayout, row: int, column: int, words: str, role: str = "", span: int = 1) -> None:
        label = PlainLabel(words, self)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setProperty("role", role)
        grid.addWidget(label, row, column, 1, span)
