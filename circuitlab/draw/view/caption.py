"""Title and caption of a figure: a few lines at most, the rest in the tool tip and behind a button; on paper all of it.

On the screen their height never moves the picture under a pointer: see `Wrapped`.
"""

from __future__ import annotations

from math import ceil

from PySide6.QtCore import QRect, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QResizeEvent
from PySide6.QtWidgets import QWidget

from circuitlab.caption_parts import Essential
from circuitlab.draw.look.plain_text import InkLabel, plain_tip
from circuitlab.figures.marks import joined


class Wrapped(InkLabel):
    """Wraps `parts`; where `lines` (0: any number) do not hold them the last but `Essential` ones go, and an ellipsis says so.

    `steady`: its height is the largest that it has had at its width, until `forget`; and while it is `frozen` its words make do
    with the height there is, so that a picture beside it stays where it is. `whole`: the lines do not count. `folds`: they would
    not hold all parts. `beside`: px that stand beside it while it does. `fitted()`: the words are fitted anew.
    """

    fitted = Signal()

    def __init__(self, parent: QWidget | None = None, steady: bool = False) -> None:
        super().__init__(parent)
        self.setWordWrap(True)
        self.parts, self.lines, self.first, self.most = (), 0, 0, 0
        self.steady, self.frozen = steady, False
        self.whole = self.folds = False
        self.beside = 0
        self.room: tuple[tuple[str, ...], int] = (), 0
        self._held_height = self._held_width = 0  # px of height, of the width that it was for
        if steady:
            self.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)

    @property
    def words(self) -> str:
        """All parts in one line."""
        return joined(*self.parts)

    def say(self, parts: tuple[str, ...], lines: int = 0, first: int = 0, most: int = 0) -> None:
        """Set the parts and the number of lines; the `first` parts stay. `most`: lines of `Essential` parts, 0: any."""
        if (parts, lines, first, most) != (self.parts, self.lines, self.first, self.most):
            self.parts, self.lines, self.first, self.most = parts, lines, first, most
            self._fit()

    def keep_room(self, texts: tuple[str, ...], lines: int) -> None:
        """Be high enough for these texts, too, and for so many lines."""
        if (texts, lines) != self.room:
            self.room = texts, lines
            self._keep()

    def freeze(self, frozen: bool) -> None:
        """Keep the present height, or take the height of the text."""
        if frozen != self.frozen:
            self.frozen = frozen
            self._fit()

    def unfold(self, whole: bool) -> None:
        """Show all words, or as many as the lines hold."""
        if whole != self.whole:
            self.whole = whole
            self.forget()

    def forget(self) -> None:
        """The room has changed: take no more height than the text needs now."""
        self._held_height, frozen, self.frozen = 0, self.frozen, False
        self._fit()
        self.frozen = frozen

    def heightForWidth(self, width: int) -> int:
        """The height of the text, and no less than before."""
        natural = self._natural(width)
        if not self.steady or width != self.width():
            return natural
        return self._held_height if self.frozen else max(natural, self._held_height)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Fit the words to the new width."""
        super().resizeEvent(event)
        across = self.width() + self.beside
        if across != self._held_width and not self.frozen:
            self._held_width, self._held_height = across, 0
        self._fit()

    def _natural(self, width: int) -> int:
        """The height that the text needs, and what it keeps room for."""
        texts, lines = self.room
        least = lines * self.fontMetrics().lineSpacing()
        return max(super().heightForWidth(width), least, *(self._height_of(text, width) for text in texts))

    def _height_of(self, text: str, width: int) -> int:
        return self.fontMetrics().boundingRect(QRect(0, 0, max(width, 80), 10000), Qt.TextFlag.TextWordWrap, text).height()

    def _of_lines(self, lines: int) -> int:
        """px of height of so many lines, each of which Qt may begin at a whole pixel."""
        return max(lines * self.fontMetrics().lineSpacing(), ceil(lines * QFontMetricsF(self.font()).lineSpacing()))

    def _fits(self, text: str, beside: int = 0) -> bool:
        height = self._height_of(text, self.width() + beside)
        fits = not self.lines or height <= self._of_lines(self.lines) + 1
        return fits and not (self.frozen and height > self._held_height + 1)

    def _fit(self) -> None:
        text = self.words
        self.folds = not self._fits(text, self.beside)  # even with the room of the button
        if self.folds and not self.whole:
            text = self._shortened()
        if text != self.text():
            self.setText(text)
            self.setToolTip(plain_tip(self.words) if text != self.words else "")
        self._keep()
        self.fitted.emit()

    def _shortened(self) -> str:
        """What of the parts the lines hold, with an ellipsis."""
        first, parts = self.parts[: self.first], self.parts[self.first :]
        stay = [part for part in parts if isinstance(part, Essential)]
        go = [part for part in parts if not isinstance(part, Essential)]
        while go and not self._fits(joined(*first, *go, *stay, "…")):
            go.pop()
        while len(stay) > 1 and self._beyond_most(joined(*first, *go, *stay)):
            stay.remove(max(stay[1:], key=len))  # the longest, which leaves the most of the others
        if not go and not stay and not first and parts:  # one long sentence: as many words as fit
            return self._begun(parts[0])
        words, ended = joined(*first, *go, *stay), joined(*first, *go, *stay, "…")
        alone = self._height_of(ended, self.width()) > self._height_of(words, self.width()) > 0
        return words if alone else ended  # an ellipsis has no line of its own

    def _beyond_most(self, text: str) -> bool:
        """Whether a text takes more lines than any may."""
        return self.most > 0 and self._height_of(text, self.width()) > self._of_lines(self.most) + 1

    def _begun(self, text: str, *after: str) -> str:
        """As many words of a text as fit, with an ellipsis, before other parts."""
        words = text.split(" ")
        while words and not self._fits(joined(" ".join(words) + "…", *after)):
            words.pop()
        return joined(" ".join(words) + "…", *after)

    def _keep(self) -> None:
        if self.steady and not self.frozen and (natural := self._natural(self.width())) != self._held_height:
            self._held_height = max(self._held_height, natural)
            self.updateGeometry()


class Caption(Wrapped):
    """What stands under a picture."""


class Title(Wrapped):
    """What stands above a picture. Too long, it loses words from its end, but for `Essential` parts, which then end it."""

    def _shortened(self) -> str:
        plain = joined(*(part for part in self.parts if not isinstance(part, Essential)))
        return self._begun(plain, *(part for part in self.parts if isinstance(part, Essential)))
