"""The context menu of a token of the prompt: select it, ablate or patch there, measure it, copy it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMenu, QWidget

from circuitlab.figures.contracts.common import pick_position
from circuitlab.figures.marks import Hit
from circuitlab.gui.panel.offers_menu import OffersMenu
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.state_commands import StateCommands
from circuitlab.model.subject import Target


class TokenMenu(QMenu):
    """The menu of the prompt's strip of tokens. `aim(hit)` before it is shown; None: beside the tokens, or by its key."""

    def __init__(
        self, context: AppContext, state_commands: StateCommands, copy_image: Callable[[], object], parent: QWidget
    ) -> None:
        super().__init__("Token", parent)
        self.context, self._copy_tokens = context, copy_image
        self.setObjectName("menu.prompt")
        self.cuts = OffersMenu(context, pick_position, state_commands, self)
        self.cuts.setObjectName("menu.prompt.cuts")
        self._of: tuple[tuple[int, ...], int] | None = None  # the prompt's tokens, and the position among them
        self.choose = self.addAction("")
        self.choose.triggered.connect(self._choose)
        self.addMenu(self.cuts)
        self.measure = self.addAction("")
        self.measure.triggered.connect(self._measure)
        self.addSeparator()
        self.copy_token = self.addAction("Copy token")
        self.copy_token.triggered.connect(self._copy_token)
        self.copy_id = self.addAction("")
        self.copy_id.triggered.connect(self._copy_id)
        self.addSeparator()
        self.addAction("Pin as the reference").triggered.connect(state_commands.pin)
        self.addAction("Copy image").triggered.connect(self._copy_image)
        self.aboutToHide.connect(self.cuts.forget)

    def aim(self, hit: Hit | None) -> None:
        """What it is about: the token under the pointer, else the one that is chosen."""
        state = self.context.document.recorded
        at = hit.id[0] if hit is not None and hit.id else state.selection.destination
        self._of = (state.tokens, at) if at is not None and at < len(state.tokens) else None
        self.cuts.aim(hit)
        for action in (self.choose, self.measure, self.copy_token, self.copy_id):
            action.setVisible(self._of is not None)
        if self._of is None or at is None:
            return
        token, facts = state.tokens[at], self.context.facts(state.model)
        text = facts.token_text(token).replace("&", "&&")
        chosen = state.selection.locked and state.selection.destination == at
        self.choose.setText(f"Release position {at}, ‘{text}’" if chosen else f"Choose position {at}, ‘{text}’")
        self.measure.setText(f"Measure ‘{text}’")
        self.measure.setVisible(token < facts.config.d_vocab_out and state.selection.target != Target((token,)))
        self.copy_token.setVisible(facts.has_tokenizer)
        self.copy_id.setText(f"Copy id {token}")

    def _place(self) -> tuple[int, int] | None:
        """(position, id) of what the menu was opened on, None where the prompt is another by now."""
        if self._of is not None and self._of[0] == self.context.document.recorded.tokens:
            return self._of[1], self._of[0][self._of[1]]
        self.context.message.emit("The prompt is another by now.")
        return None

    @Slot()
    def _choose(self) -> None:
        if (place := self._place()) is not None:
            hit = Hit("prompt", (place[0],), "click")
            self.context.apply(pick_position(self.context.document.recorded, hit), "select a token")

    @Slot()
    def _measure(self) -> None:
        if (place := self._place()) is not None:
            state, token = self.context.document.recorded, place[1]
            text = self.context.facts(state.model).token_text(token)
            self.context.apply(state.select(target=Target((token,))), f"target: ‘{text}’")

    @Slot()
    def _copy_token(self) -> None:
        """As it stands in the text; one that is no whole character, as it is shown."""
        tokenizer = self.context.tokenizer()
        if tokenizer is not None and (place := self._place()) is not None:
            text = tokenizer.decode((place[1],))
            self._copy(tokenizer.display(place[1]) if not text or "\ufffd" in text else text, "Token copied.")

    @Slot()
    def _copy_id(self) -> None:
        if (place := self._place()) is not None:
            self._copy(str(place[1]), "Id copied.")

    def _copy(self, text: str, message: str) -> None:
        QGuiApplication.clipboard().setText(text)
        self.context.message.emit(message)

    @Slot()
    def _copy_image(self) -> None:
        self._copy_tokens()
        self.context.message.emit("Image copied.")
