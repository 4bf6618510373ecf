"""The caption under a picture: a few lines at most, the rest in its tool tip; on paper all of it."""

from __future__ import annotations

import re

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QWidget

from circuitlab.draw.plain import plain_tip

BETWEEN = " · "
# what a reader must not have to look for: what does not add up, what is not yet or not wholly drawn, and (≈) what is estimated
STAYS = re.compile(
    r"remainder|so far|drawn as|not compared|first \d|columns left out|colours from|underlined|− marks|hues of heads|[^·]*≈"
)


class Caption(QLabel):
    """Wraps `words`; those that do not fit into `lines` (0: any number) go, the last ones first, and an ellipsis says so."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        self.words, self.lines, self.first = "", 0, ()

    def say(self, words: str, lines: int, first: tuple[str, ...] = ()) -> None:
        """Other words, or another number of lines; `first` are parts of them that stay."""
        if (words, lines, first) != (self.words, self.lines, self.first):
            self.words, self.lines, self.first = words, lines, first
            self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another width, other words fit."""
        super().resizeEvent(event)
        self._fit()

    def _fits(self, text: str) -> bool:
        metrics = self.fontMetrics()
        room = QRect(0, 0, max(self.width(), 80), 10000)
        return metrics.boundingRect(room, Qt.TextFlag.TextWordWrap, text).height() <= self.lines * metrics.lineSpacing() + 1

    def _fit(self) -> None:
        text = self.words
        if self.lines and not self._fits(text):
            parts = text.split(BETWEEN)
            parts = parts[len(self.first) :]
            stay = [p for p in parts if STAYS.match(p)]
            go = [p for p in parts if p not in stay]
            while go and not self._fits(BETWEEN.join((*self.first, *go, *stay, "…"))):
                go.pop()
            text = BETWEEN.join((*self.first, *go, *stay, "…"))
        if text != self.text():
            self.setText(text)
            self.setToolTip(plain_tip(self.words) if text != self.words else "")
