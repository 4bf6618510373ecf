"""The target, which all panels share: the token that follows, a chosen token, or one token minus another."""

from __future__ import annotations

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QFormLayout, QMenu, QToolButton, QWidget, QWidgetAction

from circuitlab.figures.contracts.panel import Facts
from circuitlab.gui.panel.token_search import TokenSearch
from circuitlab.gui.work.app_context import AppContext
from circuitlab.model.subject import Target
from circuitlab.state.state import State

TIP = "What attributions, patches, lenses and sweeps measure"


def target_name(target: Target, facts: Facts) -> str:
    """The name of a target in the window."""
    if target.direction:
        return "a direction"
    names = [f"‘{facts.token_text(t)}’" if t < facts.config.d_vocab_out else str(t) for t in target.tokens]
    return " − ".join(names) or "next token"


class TargetButton(QToolButton):
    """Shows the target; its menu changes it."""

    def __init__(self, context: AppContext, parent: QWidget) -> None:
        super().__init__(parent)
        self.context = context
        self._name, self._short = "", False
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
        self.first.chosen.connect(self._first_chosen)
        self.second.chosen.connect(self._second_chosen)
        search = QWidgetAction(menu)
        search.setDefaultWidget(box)
        menu.addAction(search)
        menu.aboutToShow.connect(self._fill)
        self.setMenu(menu)
        context.document.changed.connect(self.refresh)

    @Slot()
    def refresh(self, *_: object) -> None:
        """Show the document's target."""
        state = self.context.document.state
        if self.context.engine.store.peek(state.model) is not None:
            self._name = target_name(state.selection.target, self.context.facts())
            self.show_short(self._short)

    def show_short(self, short: bool) -> None:
        """Show the target with or without the word “target” before it."""
        self._short = short
        self.setText(f"{'' if short else 'target: '}{self._name} ▾".replace("&", "&&"))

    @Slot()
    def _fill(self) -> None:
        state = self.context.document.recorded
        self.follows.setChecked(state.selection.target == Target())
        token = state.selection.token
        self.chosen.setVisible(token is not None)
        if token is not None:
            self.chosen.setText(f"The chosen token ‘{self.context.facts().token_text(token)}’".replace("&", "&&"))

    def _set_target(self, target: Target) -> None:
        state: State = self.context.document.recorded
        self.context.apply(state.select(target=target), f"target: {target_name(target, self.context.facts())}")

    @Slot()
    def _follow(self) -> None:
        self._set_target(Target())

    @Slot()
    def _choose(self) -> None:
        token = self.context.document.recorded.selection.token
        if token is not None:
            self._set_target(Target((token,)))

    @Slot(int)
    def _first_chosen(self, token: int) -> None:
        self._set_target(Target((token,)))

    @Slot(int)
    def _second_chosen(self, token: int) -> None:
        """Subtract a token from the first one, which must have been chosen before."""
        first = self.context.document.recorded.selection.target.tokens[:1]
        if not first:
            self.context.message.emit("Choose the token first, then what is subtracted from it.")
        elif first[0] != token:
            self._set_target(Target((first[0], token)))
