"""Title and caption of a figure: a few lines at most, the rest in the tool tip and behind a button; on paper all of it.

On the screen their height never moves the picture under a pointer: see `Wrapped`.
"""

from __future__ import annotations

from PySide6.QtCore import QRect, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QWidget

from circuitlab.caption_parts import Essential
from circuitlab.draw.look.plain_text import plain_tip
from circuitlab.figures.marks import joined


class Wrapped(QLabel):
    """Wraps `parts`; where `lines` (0: any number) do not hold them the last but `Essential` ones go, and an ellipsis says so.

    `steady`: its height is the largest that it has had at its width, until `forget`; and while it is `frozen` its words make do
    with the height there is, so that a picture beside it stays where it is. `whole`: the lines do not count. `folds`: they would
    not hold all parts. `beside`: px that stand beside it while it does. `fitted()`: the words are fitted anew.
    """

    fitted = Signal()

    def __init__(self, parent: QWidget | None = None, steady: bool = False) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        self.parts, self.lines, self.first = (), 0, 0
        self.steady, self.frozen = steady, False
        self.whole = self.folds = False
        self.beside = 0
        self._held_height = self._held_width = 0  # px of height, of the width that it was for
        if steady:
            self.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)

    @property
    def words(self) -> str:
        """All parts in one line."""
        return joined(*self.parts)

    def say(self, parts: tuple[str, ...], lines: int = 0, first: int = 0) -> None:
        """Set the parts and the number of lines; the `first` parts stay."""
        if (parts, lines, first) != (self.parts, self.lines, self.first):
            self.parts, self.lines, self.first = parts, lines, first
            self._fit()

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
        natural = super().heightForWidth(width)
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

    def _fits(self, text: str, beside: int = 0) -> bool:
        metrics = self.fontMetrics()
        room = QRect(0, 0, max(self.width() + beside, 80), 10000)
        height = metrics.boundingRect(room, Qt.TextFlag.TextWordWrap, text).height()
        fits = not self.lines or height <= self.lines * metrics.lineSpacing() + 1
        return fits and not (self.frozen and height > self._held_height + 1)

    def _fit(self) -> None:
        text = self.words
        self.folds = not self._fits(text, self.beside)  # even with the room of the button
        if self.folds and not self.whole:
            first, parts = self.parts[: self.first], self.parts[self.first :]
            stay = [part for part in parts if isinstance(part, Essential)]
            go = [part for part in parts if not isinstance(part, Essential)]
            while go and not self._fits(joined(*first, *go, *stay, "…")):
                go.pop()
            text = joined(*first, *go, *stay, "…")
            if not go and not stay and not first and parts:  # one long sentence: as many words as fit
                text = self._begun(parts[0])
        if text != self.text():
            self.setText(text)
            self.setToolTip(plain_tip(self.words) if text != self.words else "")
        self._keep()
        self.fitted.emit()

    def _begun(self, text: str) -> str:
        words = text.split(" ")
        while words and not self._fits(" ".join(words) + "…"):
            words.pop()
        return " ".join(words) + "…"

    def _keep(self) -> None:
        if self.steady and not self.frozen and (natural := super().heightForWidth(self.width())) != self._held_height:
            self._held_height = max(self._held_height, natural)
            self.updateGeometry()


class Caption(Wrapped):
    """What stands under a picture."""
