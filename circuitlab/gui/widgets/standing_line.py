"""A sentence of the status bar that stands until it no longer holds or is put away, with buttons for what can be done."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QToolButton, QWidget

from circuitlab.gui.widgets.buttons import flat
from circuitlab.gui.widgets.labels import ShortLabel

MOST = 620  # px of the sentence


class StandingLine(QWidget):
    """`name`: of its buttons, for tests. Hidden while it says nothing."""

    def __init__(self, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self._name = name
        self.words = ShortLabel(self, "warning", MOST)
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(6)
        self._row.addWidget(self.words)
        self.hide()

    def button(self, text: str, tip: str) -> QToolButton:
        """Another button behind the sentence."""
        made = flat(self, f"{self._name}.{text.lower().replace(' ', '_')}", text, tip)
        self._row.addWidget(made)
        return made

    def say(self, text: str) -> None:
        """Stand with this sentence; "" ends it."""
        self.words.setText(text)
        self.setVisible(bool(text))
