"""The sheet of shortcuts: every command with its keys, by menu, and what mouse and keys do in a figure; it scrolls if need be."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QAction, QKeySequence, QPalette
from PySide6.QtWidgets import QDialogButtonBox, QGridLayout, QScrollArea, QStyle, QVBoxLayout, QWidget

from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.gui.presenter.keys import HOLDS_A_FILM, KEYS
from circuitlab.gui.shell.command import CommandAction
from circuitlab.gui.widgets.dialog import Dialog, room_for

COLUMNS = 3  # at most
APART, BETWEEN, LINE = 24, 16, 4  # px between columns, between keys and what they do, between lines
IN_A_FIGURE = (
    ("Hover", "preview"),
    ("Click", "select and lock; again to release"),
    ("Shift+click", "add or remove"),
    ("Double-click", "open in its own panel"),
    ("Wheel, drag", "zoom, pan; R resets"),
    ("Right-click", "menu about the item under the pointer"),
    ("Arrows", "walk cells, heads, rows"),
    ("Enter, Shift+Enter, Alt+Enter", "click, Shift+click, double-click"),
    ("+ −, Ctrl+arrows", "zoom, pan"),
    ("S in a table", "sort by the column; again: the other way"),
    ("Menu key", "menu about the item that the keys are on"),
)
Line = tuple[PlainLabel, PlainLabel]  # keys, what they do


def lines_of(actions: Sequence[QAction]) -> dict[str, list[tuple[str, str]]]:
    """(keys, what they do) by heading."""
    native = QKeySequence.SequenceFormat.NativeText
    magnify = "Shift+wheel", "Magnify the picture; drag moves it"
    on_stage = [*((entry.words, entry.title) for entry in KEYS), HOLDS_A_FILM, magnify]
    groups: dict[str, list[tuple[str, str]]] = {"In a figure": list(IN_A_FIGURE), "On the stage": on_stage}
    for action in actions:
        keys = " or ".join(k.toString(native) for k in action.shortcuts())
        group = action.command.menu if isinstance(action, CommandAction) else "Panels"
        title = action.command.title if isinstance(action, CommandAction) else action.text()
        groups.setdefault(group, []).append((keys, title))
    return groups


class ShortcutSheet(Dialog):
    """See the module. As many columns as the screen is wide for, `COLUMNS` at most."""

    def __init__(self, actions: Sequence[QAction], parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Commands and shortcuts")
        self.inside = QWidget(self)
        self.area = QScrollArea(self)
        self.area.setAccessibleName("Commands and their keys")
        self.area.setFrameShape(QScrollArea.Shape.NoFrame)
        self.area.setFocusPolicy(Qt.FocusPolicy.StrongFocus)  # its arrows scroll
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setBackgroundRole(QPalette.ColorRole.Window)
        self._fill(lines_of(actions))
        self.area.setWidget(self.inside)
        self.area.setWidgetResizable(True)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close, self)
        buttons.rejected.connect(self.reject)
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.addWidget(self.area, 1)
        box.addWidget(buttons)

    def _fill(self, groups: dict[str, list[tuple[str, str]]]) -> None:
        """Place headings and lines, column by column."""
        groups_of_labels = {
            heading: [(self._label(k, "caption"), self._label(t)) for k, t in rows] for heading, rows in groups.items()
        }
        grid = QGridLayout(self.inside)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(BETWEEN)
        grid.setVerticalSpacing(LINE)
        columns = self._columns([r for rows in groups_of_labels.values() for r in rows])
        longest = -(-sum(len(rows) + 1 for rows in groups_of_labels.values()) // columns)
        row, column = 0, 0
        for heading, rows in groups_of_labels.items():
            if row and row + len(rows) > longest + 2 and column < 3 * (columns - 1):
                row, column = 0, column + 3
                grid.setColumnMinimumWidth(column - 1, APART)
            grid.addWidget(self._label(heading, "title"), row, column, 1, 2)
            for i, (keys, text) in enumerate(rows, row + 1):
                grid.addWidget(keys, i, column)
                grid.addWidget(text, i, column + 1)
            row += len(rows) + 1
        grid.setRowStretch(grid.rowCount(), 1)

    def _columns(self, lines: Sequence[Line]) -> int:
        """How many columns fit side by side on this screen."""
        widest = [max(label.sizeHint().width() for label in side) for side in zip(*lines, strict=True)]
        return max(
            1, min(COLUMNS, (room_for(self).width() - 48 - self._bar() + APART) // (sum(widest) + BETWEEN + 2 * BETWEEN + APART))
        )

    def _bar(self) -> int:
        return self.style().pixelMetric(QStyle.PixelMetric.PM_ScrollBarExtent) + self.area.verticalScrollBar().sizeHint().width()

    def _label(self, text: str, role: str = "") -> PlainLabel:
        label = PlainLabel(text, self.inside)
        label.setProperty("role", role)
        label.ensurePolished()
        return label

    def sizeHint(self) -> QSize:
        """The size of all lines."""
        inside, own = self.inside.sizeHint(), super().sizeHint()
        buttons = own.height() - self.area.sizeHint().height()
        return QSize(inside.width() + 48 + self._bar(), inside.height() + buttons)
