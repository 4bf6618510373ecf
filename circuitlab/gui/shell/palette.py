"""The command palette: type a few letters, press Enter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QObject, Qt, Slot
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QLineEdit, QListWidget, QListWidgetItem, QVBoxLayout, QWidget

from circuitlab.gui.shell.command import GOES_TO
from circuitlab.gui.widgets.dialog import Dialog

BELOW_WORDS = 3  # the best kind of match of a token, see `rank`
MOST = 200  # lines that are listed; typing more narrows the list


def fuzzy(needle: str, text: str) -> int:
    """A score for finding the letters of `needle` in order in `text`: 0 if they are not, more for runs and word starts."""
    score, at, run = 1, 0, 0
    text, needle = text.lower(), needle.lower().replace(" ", "")
    for letter in needle:
        position = text.find(letter, at)
        if position < 0:
            return 0
        run = run + 1 if position == at else 0
        score += 2 * run + (3 if position == 0 or text[position - 1] in " :-" else 0)
        at = position + 1
    return score


def _plain(text: str) -> str:
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def rank(needle: str, text: str) -> tuple[int, int]:
    """(kind of match, score) of a line for the typed text; larger is better, (0, 0) is no match.

    Kinds from best to worst: the whole line, its beginning, consecutive words of it, words of it in any order, beginnings of its
    words, a part of it, and last the typed letters scattered over it.
    """
    score = fuzzy(needle, text)
    typed, line = _plain(needle), _plain(text)
    if not typed:
        return (1, 1) if not needle.strip() or score else (0, 0)
    words, parts = line.split(), typed.split()
    if line == typed:
        kind = 7
    elif f"{line} ".startswith(f"{typed} "):
        kind = 6
    elif f" {typed} " in f" {line} ":
        kind = 5
    elif all(p in words for p in parts):
        kind = 4
    elif all(any(w.startswith(p) for w in words) for p in parts):
        kind = 3
    elif typed in line:
        kind = 2
    else:
        kind = 1 if score else 0
    return kind, score if kind else 0


@dataclass(frozen=True)
class Entry:
    """One entry of the palette."""

    title: str
    run: Callable[[], object]
    keys: str = ""
    name: str = ""  # of the panel it goes to or the model it opens; searched like the title
    token: bool = False  # stands below what has the typed words whole: any word may be a token

    def rank(self, typed: str) -> tuple[int, int]:
        """The better `rank` of title and name."""
        kind, score = max(rank(typed, self.title), rank(typed, self.name))
        return (min(kind, BELOW_WORDS), score) if self.token else (kind, score)


def entry_of(action: QAction) -> Entry:
    """The entry of an action: a command, or "Go to" a panel."""
    title = action.text().replace("&&", "\0").replace("&", "").replace("\0", "&")
    return Entry(
        title, action.trigger, action.shortcut().toString(QKeySequence.SequenceFormat.NativeText), action.property(GOES_TO) or ""
    )


class Palette(Dialog):
    """All actions of the window, and the entries of `more(typed)`: heads, models, tokens. Best match first."""

    usual = (480, 380)

    def __init__(
        self, actions: Sequence[QAction], parent: QWidget, more: Callable[[str], Sequence[Entry]] = lambda typed: ()
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Command palette")
        self.setModal(True)
        self._fixed = [entry_of(a) for a in actions if a.text() and a.isEnabled()]
        self._more = more
        self.entries: list[Entry] = []  # in the order listed
        self.line = QLineEdit(self)
        self.line.setPlaceholderText("Type a command, a panel, a head, a token or a model")
        self.line.setAccessibleName("Command")
        self.list = QListWidget(self)
        self.list.setAccessibleName("Commands that match")
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setTextElideMode(Qt.TextElideMode.ElideMiddle)  # the keys stand at the end
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
        """List the entries that match."""
        entries = [*self._fixed, *self._more(text)]
        ranked = sorted(((e.rank(text), -i, e) for i, e in enumerate(entries)), key=lambda r: r[:2], reverse=True)
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
        """Let the up and down keys move in the list while the line has the keyboard."""
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            step = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1}.get(Qt.Key(event.key()))
            if step is not None:
                row = min(max(self.list.currentRow() + step, 0), self.list.count() - 1)
                self.list.setCurrentRow(row)
                return True
        return False
