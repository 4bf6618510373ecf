"""The command palette: type a few letters, press Enter. And the sheet of shortcuts."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, Qt, Slot
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence
from PySide6.QtWidgets import (
    QGridLayout,
    QLabel,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QVBoxLayout,
    QWidget,
)

from circuitlab.gui.commands import CommandAction
from circuitlab.gui.dialog import Dialog


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


class Palette(Dialog):
    """All actions of the window, best match first."""

    def __init__(self, actions: Sequence[QAction], parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Command palette")
        self.setModal(True)
        self.resize(480, 380)
        self._actions = [a for a in actions if a.text() and a.isEnabled()]
        self.line = QLineEdit(self)
        self.line.setPlaceholderText("Type a command")
        self.list = QListWidget(self)
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
        scored = [(fuzzy(text, a.text()), -i, a) for i, a in enumerate(self._actions)]
        self.list.clear()
        for score, _, action in sorted(scored, key=lambda s: (s[0], s[1]), reverse=True):
            if score:
                keys = action.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
                item = QListWidgetItem(action.text().replace("&", "") + (f"    {keys}" if keys else ""))
                item.setData(Qt.ItemDataRole.UserRole, self._actions.index(action))
                self.list.addItem(item)
        self.list.setCurrentRow(0)

    @Slot()
    def choose(self, *_: object) -> None:
        """Run the current command and close."""
        item = self.list.currentItem()
        self.accept()
        if item is not None:
            self._actions[item.data(Qt.ItemDataRole.UserRole)].trigger()

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
        ("Wheel, drag", "zoom, pan; R resets"),
        ("Arrows", "walk cells, heads, rows"),
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
        label = QLabel(words, self)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setProperty("role", role)
        grid.addWidget(label, row, column, 1, span)
