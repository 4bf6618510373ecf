"""Where the tokens of a running text stand: flowed to the width, with room above their lines for words and below for indices."""

from __future__ import annotations

from math import ceil

import numpy as np
from PySide6.QtCore import QRectF
from PySide6.QtGui import QFont, QFontMetricsF
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.theme import Theme
from circuitlab.draw.painted.mark import PaintedMark
from circuitlab.draw.pointing.gestures import Id
from circuitlab.figures.marks import Tokens

PAD = 2.0
LINE_GAP = 3.0
ARC = 12.0  # px: how high arrows rise over the text


class FlowedText(PaintedMark):
    """One box per token; a subclass paints what is in the boxes."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.mark: Tokens = Tokens("", (), np.zeros(0))
        self._widths: np.ndarray = np.zeros(0)
        self._boxes: np.ndarray = np.zeros((0, 3))  # [token, (x, line, width)]
        self._flowed_at = -1
        self._every = 0  # an index stands under each `_every`-th token, 0: under none
        self._height = 0.0
        self._rects: list[QRectF] = []

    def _measure(self) -> None:
        self._height = 0.0
        metrics = QFontMetricsF(self._font())
        widths: dict[str, float] = {}
        for text in self.mark.texts:
            if text not in widths:
                widths[text] = metrics.horizontalAdvance(text)
        self._widths = np.array([widths[t] for t in self.mark.texts]) + 2 * PAD
        self._flowed_at = -1
        self.relayout()

    def _font(self) -> QFont:
        return self.theme.font(self.theme.normal, mono=True)

    def _line(self) -> float:
        if not self._height:
            self._height = float(round(QFontMetricsF(self._font()).height() + LINE_GAP + self._lead() + self._foot()))
        return self._height

    def _foot(self) -> float:
        """Room below each line for indices."""
        return float(round(QFontMetricsF(self._index_font()).ascent() + 2)) if self._every else 0.0

    def _index_font(self) -> QFont:
        return self.theme.font(max(0.85 * self.theme.small, ceil(self.theme.least)))

    def _lead(self) -> float:
        """Room above each line for words and arrows."""
        if not (self.mark.named or self.mark.arrows):
            return 0.0
        return float(round(QFontMetricsF(self.theme.font(self.theme.small)).height() + ARC))

    def _flow(self, width: int) -> None:
        """Place the tokens from left to right, breaking lines after ↵ and at the width."""
        if width == self._flowed_at:
            return
        self._flowed_at = width
        x, line = 0.0, int(bool(self.mark.heading))
        boxes = np.zeros((len(self.mark.texts), 3))
        for i, (text, need) in enumerate(zip(self.mark.texts, self._widths.tolist(), strict=True)):
            need = min(need, float(width))
            if x and x + need > width:
                x, line = 0.0, line + 1
            boxes[i] = x, line, need
            x += need
            if text.endswith("↵"):
                x, line = 0.0, line + 1
        self._boxes = boxes
        height = self._line()
        lead, foot = self._lead(), self._foot()
        self._rects = [
            QRectF(x, line * height + 1 + lead, width - 1, height - 2 - lead - foot) for x, line, width in boxes.tolist()
        ]

    def line_height(self) -> int:
        """Height of a line with the words above it."""
        return int(self._line())

    def content_height(self, width: int) -> int:
        """Height of all lines."""
        if not self.mark.texts:
            return 0
        self._flow(max(width, 20))
        return int((self._boxes[-1, 1] + 1) * self._line()) + 2

    def item_rect(self, item: Id) -> QRectF:
        """The box of a token."""
        self._flow(max(self.viewport().width(), 20))
        x, line, width = self._boxes[item[0]]
        height, lead = self._line(), self._lead()
        return QRectF(x + 0.5, line * height + 1 + lead, width - 1, height - 2 - lead - self._foot())

    def least_width(self) -> float:
        """Width of the longest token."""
        return max(super().least_width(), float(self._widths.max(initial=0.0)))

    def natural_width(self) -> int:
        """Width in px of the text on one line, and of a scroll bar that may still be shown."""
        return ceil(float(self._widths.sum())) + 4 + self.verticalScrollBar().sizeHint().width()
