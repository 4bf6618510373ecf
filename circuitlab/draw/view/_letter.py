"""The letter of a part of a sheet, before the part's title."""

from __future__ import annotations

from math import ceil

from PySide6.QtGui import QFont, QFontMetricsF
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.plain_text import InkLabel
from circuitlab.draw.look.theme import Theme

LARGER = 1.2  # than the ordinary text of the sheet


class Letter(InkLabel):
    """Bold, and a little larger than everything else."""

    def __init__(self, letter: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setText(letter)

    def set_theme(self, theme: Theme, beside: QFont) -> int:
        """Take the theme's sizes and ink; px by which text in the font `beside` is lower, for both to stand on one line."""
        self.setFont(theme.font(theme.small * LARGER, bold=True))
        self.set_ink(theme.colour("text"))
        return max(0, ceil(QFontMetricsF(self.font()).ascent()) - ceil(QFontMetricsF(beside).ascent()))
