"""The texts to train on, each with its share: a table, and buttons that add to it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QHeaderView, QTableWidget, QTableWidgetItem, QVBoxLayout, QWidget

from circuitlab.draw.look.plain_text import tip_of
from circuitlab.gui.widgets.buttons import push

SHOWN = 5  # texts that are visible at once, at least
ROW = 24  # px
LIBRARY = "stdlib"
LIBRARY_WORDS = "Python’s standard library"
TEXTS = "Text (*.txt *.md *.py);;All files (*)"


class TrainingTexts(QWidget):
    """The table with its buttons. `changed()`: a text was added or removed, or a share edited."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._make_table()
        self.add_files = push(self, "Files…", self._browse_files)
        self.add_folder = push(self, "Folder…", self._browse_folder)
        self.add_library = push(self, "Python’s library", self._add_library)
        self.remove = push(self, "Remove", self._remove)
        side = QVBoxLayout()
        side.setSpacing(6)
        for button in (self.add_files, self.add_folder, self.add_library, self.remove):
            side.addWidget(button)
        side.addStretch(1)
        box = QHBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(8)
        box.addWidget(self.table, 1)
        box.addLayout(side)

    def _make_table(self) -> None:
        self.table = QTableWidget(0, 2, self)
        self.table.setAccessibleName("Texts")
        self.table.setHorizontalHeaderLabels(["text", "share"])
        shares = self.table.horizontalHeaderItem(1)
        assert shares is not None
        shares.setToolTip("Part of the training sequences, 0 to 1; empty: an equal part of what the others leave")
        self.table.verticalHeader().setVisible(False)
        self.table.setSelectionBehavior(QTableWidget.SelectionBehavior.SelectRows)
        self.table.setShowGrid(False)
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        header.setSectionResizeMode(1, QHeaderView.ResizeMode.Fixed)
        header.resizeSection(1, 72)
        header.setHighlightSections(False)
        for i, left in ((0, Qt.AlignmentFlag.AlignLeft), (1, Qt.AlignmentFlag.AlignRight)):
            item = self.table.horizontalHeaderItem(i)
            assert item is not None
            item.setTextAlignment(left | Qt.AlignmentFlag.AlignVCenter)
        self.table.verticalHeader().setDefaultSectionSize(ROW)
        self.table.setMinimumHeight(SHOWN * ROW + 34)
        self.table.itemChanged.connect(self.changed)

    def texts(self) -> tuple[tuple[str, str], ...]:
        """(path or "stdlib", share as typed) of each row."""
        return tuple((self._name(row), self._cell(row, 1)) for row in range(self.table.rowCount()))

    def _cell(self, row: int, column: int) -> str:
        item = self.table.item(row, column)
        return "" if item is None else item.text().strip()

    def _name(self, row: int) -> str:
        shown = self._cell(row, 0)
        return LIBRARY if shown == LIBRARY_WORDS else shown

    def add(self, name: str, share: str = "") -> None:
        """Add a text, unless it is already in the table."""
        name = LIBRARY_WORDS if name == LIBRARY else name
        if self.table.findItems(name, Qt.MatchFlag.MatchExactly):
            return
        self.table.blockSignals(True)
        row = self.table.rowCount()
        self.table.insertRow(row)
        path, part = QTableWidgetItem(name), QTableWidgetItem(share)
        path.setFlags(path.flags() & ~Qt.ItemFlag.ItemIsEditable)
        path.setToolTip(tip_of(name))
        part.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.table.setItem(row, 0, path)
        self.table.setItem(row, 1, part)
        self.table.blockSignals(False)
        self.changed.emit()

    @Slot()
    def _browse_files(self) -> None:
        paths, _ = QFileDialog.getOpenFileNames(self, "Add texts", "", TEXTS)
        for path in paths:
            self.add(path)

    @Slot()
    def _browse_folder(self) -> None:
        path = QFileDialog.getExistingDirectory(self, "Add a folder: its .txt, .md and .py files")
        if path:
            self.add(path)

    @Slot()
    def _add_library(self) -> None:
        self.add(LIBRARY)

    @Slot()
    def _remove(self) -> None:
        """Remove the selected rows, or else the last one."""
        rows = sorted({index.row() for index in self.table.selectedIndexes()}, reverse=True)
        for row in rows or ([self.table.rowCount() - 1] if self.table.rowCount() else []):
            self.table.removeRow(row)
        self.changed.emit()
