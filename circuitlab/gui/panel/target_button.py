"""What is measured, the same everywhere: the token that follows, a token, or one token minus another."""

from __future__ import annotations

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QFormLayout, QMenu, QToolButton, QWidget, QWidgetAction

from circuitlab.figures.contracts.panel import Facts
from circuitlab.gui.panel.token_search import TokenSearch
from circuitlab.gui.work.app_context import AppContext
from circuitlab.model.subject import Target
from circuitlab.session.state import State

TIP = "What attributions, patches, lenses and sweeps measure"


def target_words(target: Target, facts: Facts) -> str:
    """What a target is called on the screen."""
    if target.direction:
        return "a direction"
    names = [f"‘{facts.token_text(t)}’" if t < facts.config.d_vocab_out else str(t) for t in target.tokens]
    return " − ".join(names) or "next token"


class TargetButton(QToolButton):
    """Says the target; its menu changes it."""

    def __init__(self, context: AppContext, parent: QWidget) -> None:
        super().__init__(parent)
        self.context = context
        self._words, self._less = "", False
        self.setObjectName("subject.target")
        self.setToolTip(TIP)
        self.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(self)
        self.follows = menu.addAction("The token that follows")
        self.follows.setCheckable(True)
        self.follows.triggered.connect(self._follow)
        self.chosen = menu.addAction("")
        self.chosen.triggered.connect(self._choose)
        menu.addSeparator()
        box = QWidget(menu)
        form = QFormLayout(box)
        self.first, self.second = TokenSearch(context, box), TokenSearch(context, box)
        form.addRow("token", self.first)
        form.addRow("minus", self.second)
        self.first.chosen.connect(self._first)
        self.second.chosen.connect(self._second)
        search = QWidgetAction(menu)
        search.setDefaultWidget(box)
        menu.addAction(search)
        menu.aboutToShow.connect(self._fill)
        self.setMenu(menu)
        context.document.changed.connect(self.refresh)

    @Slot()
    def refresh(self, *_: object) -> None:
        """Show the target."""
        state = self.context.document.state
        if self.context.engine.store.peek(state.model) is not None:
            self._words = target_words(state.selection.target, self.context.facts())
            self.say_less(self._less)

    def say_less(self, less: bool) -> None:
        """Without saying that it is the target."""
        self._less = less
        self.setText(f"{'' if less else 'target: '}{self._words} ▾".replace("&", "&&"))

    @Slot()
    def _fill(self) -> None:
        state = self.context.document.recorded
        self.follows.setChecked(state.selection.target == Target())
        token = state.selection.token
        self.chosen.setVisible(token is not None)
        if token is not None:
            self.chosen.setText(f"The chosen token ‘{self.context.facts().token_text(token)}’".replace("&", "&&"))

    def _aim(self, target: Target) -> None:
        state: State = self.context.document.recorded
        self.context.apply(state.select(target=target), f"target: {target_words(target, self.context.facts())}")

    @Slot()
    def _follow(self) -> None:
        self._aim(Target())

    @Slot()
    def _choose(self) -> None:
        token = self.context.document.recorded.selection.token
        if token is not None:
            self._aim(Target((token,)))

    @Slot(int)
    def _first(self, token: int) -> None:
        self._aim(Target((token,)))

    @Slot(int)
    def _second(self, token: int) -> None:
        """Minus this one; what it is subtracted from must have been chosen."""
        first = self.context.document.recorded.selection.target.tokens[:1]
        if not first:
            self.context.message.emit("Choose the token first, then what is subtracted from it.")
        elif first[0] != token:
            self._aim(Target((first[0], token)))
