"""The context menu of a token of the prompt: select it, ablate or patch there, note something, measure it, copy it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMenu, QWidget

from circuitlab.figures.contracts.common import pick_position
from circuitlab.figures.marks import Hit
from circuitlab.gui.panel.notes_menu import NotesMenu
from circuitlab.gui.panel.offers_menu import OffersMenu
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.state_commands import StateCommands
from circuitlab.model.subject import Target


class TokenMenu(QMenu):
    """The menu of the prompt's tokens. Call `aim(hit)` before it is shown; None if it is opened beside them or by key."""

    def __init__(
        self, context: AppContext, state_commands: StateCommands, copy_image: Callable[[], object], parent: QWidget
    ) -> None:
        super().__init__("Token", parent)
        self.context, self._copy_tokens = context, copy_image
        self.setObjectName("menu.prompt")
        self.offers_menu = OffersMenu(context, pick_position, state_commands, self)
        self.offers_menu.setObjectName("menu.prompt.cuts")
        self._target: tuple[tuple[int, ...], int] | None = None  # the prompt's tokens, and the position among them
        self.choose = self.addAction("")
        self.choose.triggered.connect(self._choose)
        self.addMenu(self.offers_menu)
        self.measure = self.addAction("")
        self.measure.triggered.connect(self._measure)
        self.notes_menu = NotesMenu(context, pick_position, self)
        self.notes_menu.setObjectName("menu.prompt.notes")
        self.addMenu(self.notes_menu)
        self.addSeparator()
        self.copy_token = self.addAction("Copy token")
        self.copy_token.triggered.connect(self._copy_token)
        self.copy_id = self.addAction("")
        self.copy_id.triggered.connect(self._copy_id)
        self.addSeparator()
        self.addAction("Pin as the reference").triggered.connect(state_commands.pin)
        self.addAction("Copy image").triggered.connect(self._copy_image)
        self.aboutToHide.connect(self.offers_menu.forget)
        self.aboutToHide.connect(self.notes_menu.forget)

    def aim(self, hit: Hit | None) -> None:
        """Set what the menu is about: the token under the pointer, else the chosen one."""
        state = self.context.document.recorded
        position = hit.id[0] if hit is not None and hit.id else state.selection.destination
        self._target = (state.tokens, position) if position is not None and position < len(state.tokens) else None
        self.offers_menu.aim(hit)
        self.notes_menu.aim(hit)
        self.notes_menu.menuAction().setVisible(self._target is not None)
        for action in (self.choose, self.measure, self.copy_token, self.copy_id):
            action.setVisible(self._target is not None)
        if self._target is None or position is None:
            return
        token, facts = state.tokens[position], self.context.facts(state.model)
        text = facts.token_text(token).replace("&", "&&")
        chosen = state.selection.locked and state.selection.destination == position
        self.choose.setText(f"Release position {position}, ‘{text}’" if chosen else f"Choose position {position}, ‘{text}’")
        self.measure.setText(f"Measure ‘{text}’")
        self.measure.setVisible(token < facts.config.d_vocab_out and state.selection.target != Target((token,)))
        self.copy_token.setVisible(facts.has_tokenizer)
        self.copy_id.setText(f"Copy id {token}")

    def _position_and_id(self) -> tuple[int, int] | None:
        """The position and id of the token that the menu is about; None, with a message, if the prompt has changed."""
        if self._target is not None and self._target[0] == self.context.document.recorded.tokens:
            tokens, position = self._target
            return position, tokens[position]
        self.context.message.emit("Not done: the prompt has changed since the menu was opened.")
        return None

    @Slot()
    def _choose(self) -> None:
        if (token := self._position_and_id()) is not None:
            hit = Hit("prompt", (token[0],), "click")
            self.context.apply(pick_position(self.context.document.recorded, hit), "select a token")

    @Slot()
    def _measure(self) -> None:
        if (token := self._position_and_id()) is not None:
            state = self.context.document.recorded
            text = self.context.facts(state.model).token_text(token[1])
            self.context.apply(state.select(target=Target((token[1],))), f"target: ‘{text}’")

    @Slot()
    def _copy_token(self) -> None:
        """Copy a token as it is in the text; one that is not a whole character, as it is shown."""
        tokenizer = self.context.tokenizer()
        if tokenizer is not None and (token := self._position_and_id()) is not None:
            text = tokenizer.decode((token[1],))
            self._copy(tokenizer.display(token[1]) if not text or "\ufffd" in text else text, "Token copied.")

    @Slot()
    def _copy_id(self) -> None:
        if (token := self._position_and_id()) is not None:
            self._copy(str(token[1]), "Id copied.")

    def _copy(self, text: str, message: str) -> None:
        QGuiApplication.clipboard().setText(text)
        self.context.message.emit(message)

    @Slot()
    def _copy_image(self) -> None:
        self._copy_tokens()
        self.context.message.emit("Image copied.")
