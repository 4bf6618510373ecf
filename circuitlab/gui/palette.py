"""The command palette: type a few letters, press Enter. And the sheet of shortcuts."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, Qt, Slot
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence
from PySide6.QtWidgets import (
    QDialog,
    QGridLayout,
    QLabel,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QVBoxLayout,
    QWidget,
)


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


class Palette(QDialog):
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


class ShortcutSheet(QDialog):
    """Every action with its keys, and the grammar of the hand."""

    GRAMMAR = (
        ("Hover", "preview"),
        ("Click", "select and lock; again to release"),
        ("Shift+click", "add or remove"),
        ("Wheel, drag", "zoom, pan; R resets"),
        ("Arrows", "walk cells, heads, rows"),
    )

    def __init__(self, actions: Sequence[QAction], parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Shortcuts")
        grid = QGridLayout(self)
        grid.setContentsMargins(24, 16, 24, 16)
        grid.setHorizontalSpacing(24)
        rows = [
            (a.shortcut().toString(QKeySequence.SequenceFormat.NativeText), a.text().replace("&", "")) for a in actions
        ]
        rows = [*self.GRAMMAR, *(r for r in rows if r[0])]
        half = -(-len(rows) // 2)
        for i, (keys, text) in enumerate(rows):
            column = 2 * (i // half)
            for offset, words in enumerate((keys, text)):
                label = QLabel(words, self)
                label.setTextFormat(Qt.TextFormat.PlainText)
                grid.addWidget(label, i % half, column + offset)
