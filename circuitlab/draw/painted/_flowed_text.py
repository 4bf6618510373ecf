"""Where the tokens of a running text stand: flowed to the width, with room above their lines for words and below for indices."""

from __future__ import annotations

from math import ceil

import numpy as np
from PySide6.QtCore import QRectF, Qt
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
        self._small = False
        self._height = 0.0
        self._above = 0  # lines of the heading
        self._measured: dict[int, np.ndarray] = {}  # widths of the tokens by size of type
        self._rects: list[QRectF] = []

    def _measure(self) -> None:
        self._height = 0.0
        self._measured = {}
        self._widths = self._widths_in(self._font())
        self._flowed_at = -1
        self.relayout()

    def _widths_in(self, font: QFont) -> np.ndarray:
        """Width in px of each token's box."""
        size = font.pixelSize()
        if size not in self._measured:
            metrics = QFontMetricsF(font)
            widths = {text: metrics.horizontalAdvance(text) for text in dict.fromkeys(self.mark.texts)}
            self._measured[size] = np.array([widths[t] for t in self.mark.texts]) + 2 * PAD
        return self._measured[size]

    def set_type(self, small: bool, every: int) -> None:
        """Small or ordinary type, and an index below each `every`-th token, 0: none."""
        if (small, every) != (self._small, self._every):
            self._small, self._every = small, every
            self._measure()
            self.viewport().update()

    def heights(self, width: int, small: bool, every: int) -> tuple[int, int]:
        """(of all lines, of one line) in px, if it were set so in this width."""
        before = self._small, self._every
        self._small, self._every = small, every
        line = self._line_now()
        above = self._heading_lines(max(width, 20), line)
        ends = self._places(max(width, 20), self._widths_in(self._font()), above)
        self._small, self._every = before
        return (int((ends[-1, 1] + 1) * line) + 2 if len(ends) else 0), int(line)

    def _font(self) -> QFont:
        return self.theme.font(self.theme.small if self._small else self.theme.normal, mono=True)

    def _line(self) -> float:
        if not self._height:
            self._height = self._line_now()
        return self._height

    def _line_now(self) -> float:
        return float(round(QFontMetricsF(self._font()).height() + LINE_GAP + self._lead() + self._foot()))

    def _foot(self) -> float:
        """Room below each line for indices."""
        return float(round(QFontMetricsF(self._index_font()).ascent() + 2)) if self._every else 0.0

    def _index_font(self) -> QFont:
        return self.theme.font(max(0.85 * self.theme.small, ceil(self.theme.least)))

    def _lead(self) -> float:
        """Room above each line for words and arrows."""
        if not (self.mark.named or self.mark.arrows):
            return 0.0
        return float(round(QFontMetricsF(self.theme.font(self.theme.small)).height() + self.theme.px(ARC)))

    def _flow(self, width: int) -> None:
        """Place the tokens from left to right, breaking lines after ↵ and at the width."""
        if width == self._flowed_at:
            return
        self._flowed_at = width
        self._above = self._heading_lines(width, self._line())
        self._boxes = boxes = self._places(width, self._widths, self._above)
        height = self._line()
        lead, foot = self._lead(), self._foot()
        self._rects = [
            QRectF(x, line * height + 1 + lead, width - 1, height - 2 - lead - foot) for x, line, width in boxes.tolist()
        ]

    def _places(self, width: int, widths: np.ndarray, above: int) -> np.ndarray:
        """[token, (x, line, width)] in a width, for tokens of these widths below so many lines."""
        x, line = 0.0, above
        boxes = np.zeros((len(self.mark.texts), 3))
        for i, (text, need) in enumerate(zip(self.mark.texts, widths.tolist(), strict=True)):
            need = min(need, float(width))
            if x and x + need > width:
                x, line = 0.0, line + 1
            boxes[i] = x, line, need
            x += need
            if text.endswith("↵"):
                x, line = 0.0, line + 1
        return boxes

    def _heading_font(self) -> QFont:
        return self.theme.font(self.theme.small, bold=True)

    def _heading_lines(self, width: int, line: float) -> int:
        """How many lines of so many px the heading takes, which wraps."""
        if not self.mark.heading:
            return 0
        room = QRectF(0, 0, width - 2 * PAD, 1e5)
        high = QFontMetricsF(self._heading_font()).boundingRect(room, Qt.TextFlag.TextWordWrap, self.mark.heading).height()
        return ceil((high - LINE_GAP) / line)

    def line_height(self) -> int:
        """Height of a line with the words above it."""
        return int(self._line())

    def least_on_stage(self, width: int) -> int:
        """px of height of the heading, without which nobody knows what the text is of, and of a line below it."""
        return (self._heading_lines(max(width, 20), self._line()) + 1) * self.line_height()

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
