"""The choice of the token in front of the prompt: none, the model's BOS, or any other of its special tokens."""

from __future__ import annotations

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QComboBox, QWidget

from circuitlab.draw.look.plain_text import tip_of
from circuitlab.model.text.reading import Front
from circuitlab.model.text.tokenizer import Tokenizer, visible

NOTHING = "no BOS"
WIDTH = 9  # characters of the closed box
LIST_WIDTH = 240  # px of the open one
VISIBLE = 20


class FrontChoice(QComboBox):
    """`chosen(front)`: the person has chosen another one."""

    chosen = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._fronts: tuple[Front, ...] = ()
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(WIDTH)
        self.setMaxVisibleItems(VISIBLE)
        self.view().setMinimumWidth(LIST_WIDTH)
        self.setAccessibleName("Token in front of the text")
        self.activated.connect(self._activated)

    def show_front(self, tokenizer: Tokenizer | None, front: Front) -> None:
        """Offer the special tokens of a tokenizer, and show which of them stands in front."""
        bos = None if tokenizer is None else tokenizer.bos
        special = {} if tokenizer is None else tokenizer.special_tokens
        others = {text: visible(text) for i, text in special.items() if i != bos}
        named = {} if tokenizer is None or bos is None else {True: f"BOS {tokenizer.display(bos)}"}
        offered: dict[Front, str] = {False: NOTHING, **named, **others}
        if (*offered, *offered.values()) != (*self._fronts, *(self.itemText(i) for i in range(self.count()))):
            self.clear()
            self.addItems(list(offered.values()))
            self._fronts = tuple(offered)
        shown = front if front in offered else False
        self.setCurrentIndex(self._fronts.index(shown))
        self.setEnabled(len(offered) > 1)
        about = (
            "a special token" if isinstance(shown, str) else "the beginning-of-sequence token" if shown else "no special token"
        )
        what = f"In front of the text: {about}, {offered[shown]}" if shown else f"In front of the text: {about}"
        self.setToolTip(tip_of(what if self.isEnabled() else "This model’s tokenizer has no BOS and no other special token"))

    @Slot(int)
    def _activated(self, index: int) -> None:
        self.chosen.emit(self._fronts[index])
