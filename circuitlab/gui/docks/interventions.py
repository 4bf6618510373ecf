"""The interventions in force: ablations and patches, each with a switch, and their effect on the loss of the text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QCheckBox, QDockWidget, QFrame, QHBoxLayout, QScrollArea, QToolButton, QVBoxLayout, QWidget

from circuitlab.analysis.behaviour.token_loss import TokenLossParams, TokenLossResult, token_loss
from circuitlab.counting import before_and_after, number_of
from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.draw.pointing.focus_order import chain
from circuitlab.engine.request import Answer, Request
from circuitlab.gui.panel.panel_dock import on_screen
from circuitlab.gui.panel.title_bar import TitleBar
from circuitlab.gui.widgets.one_row import OneRow
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.state_commands import StateCommands
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.intervention import Intervention
from circuitlab.state.cuts import words
from circuitlab.state.state import State

HOW = (
    "Nothing is ablated. Right-click a head, an edge, a cell or a token in any panel and choose Intervene; "
    "Ctrl+B zero-ablates the chosen heads."
)
SIDES = ("ablated", "clean")


class EditRow(QWidget):
    """One intervention: its switch, its description and the button that removes it."""

    def __init__(self, state_commands: StateCommands, parent: QWidget) -> None:
        super().__init__(parent)
        self.state_commands = state_commands
        self.edit: Intervention | None = None
        self.on = QCheckBox(self)
        self.on.setToolTip("Switch this intervention on or off: to ablate or patch, or to leave the model as it is")
        self.on.clicked.connect(self._switch)
        self.label = PlainLabel(self)
        self.label.setWordWrap(True)  # the end of the words says on which path it acts
        self.remove = QToolButton(self)
        self.remove.setText("Remove")
        self.remove.clicked.connect(self._remove)
        box = QHBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.addWidget(self.on)
        box.addWidget(self.label, 1)
        box.addWidget(self.remove)

    def show_edit(self, edit: Intervention, on: bool, n_tokens: int) -> None:
        """Show the present state of the intervention."""
        self.edit = edit
        fits = edit.fits(n_tokens)
        self.on.setChecked(on)
        self.on.setEnabled(fits)
        self.on.setAccessibleName(words(edit))
        self.remove.setAccessibleName(f"Remove {words(edit)}")
        text = words(edit) + ("" if fits else " — does not fit this prompt")
        self.label.setText(text)
        self.label.setToolTip(tip_of(text))

    @Slot(bool)
    def _switch(self, on: bool) -> None:
        if self.edit is not None:
            self.state_commands.switch(self.edit, on)

    @Slot()
    def _remove(self) -> None:
        if self.edit is not None:
            self.state_commands.remove(self.edit)


class InterventionsDock(QDockWidget):
    """See the module."""

    def __init__(self, context: AppContext, state_commands: StateCommands, parent: QWidget | None = None) -> None:
        super().__init__("Interventions", parent)
        self.setObjectName("dock.interventions")
        self.context, self.state_commands = context, state_commands
        self.rows: list[EditRow] = []
        self.answers: dict[str, Answer[TokenLossResult]] = {}
        self.requests: dict[str, Request[TokenLossResult]] = {}
        self._make_body()
        self.bar = TitleBar(self, context, self._make_controls)
        context.document.changed.connect(self._changed)
        self._slots = {side: WorkSlot(self, side, answered=self._answered) for side in SIDES}
        self.visibilityChanged.connect(self._changed)
        self.refresh()

    def _make_controls(self, parent: QWidget) -> QWidget:
        controls = QWidget(parent)
        row = OneRow(controls)
        self.all = QCheckBox("All on", controls)
        self.all.setToolTip("Switch every intervention on or off, to compare the ablated or patched model with the intact one")
        self.all.clicked.connect(self.state_commands.switch_all)
        self.clear = QToolButton(controls)
        self.clear.setText("Remove all")
        self.clear.clicked.connect(self.state_commands.clear_edits)
        for widget in (self.all, self.clear):
            row.addWidget(widget)
        return controls

    def _make_body(self) -> None:
        body = QWidget(self)
        self.box = QVBoxLayout(body)
        self.box.setContentsMargins(8, 8, 8, 8)
        self.hint = PlainLabel(HOW, body)
        self.effect = PlainLabel(body)
        for label in (self.hint, self.effect):
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.effect.setProperty("role", "caption")
        for widget in (self.hint, self.effect):
            self.box.addWidget(widget)
        self.box.addStretch(1)
        self.area = scroll = QScrollArea(self)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setWidgetResizable(True)
        scroll.setAccessibleName(self.windowTitle())
        scroll.setMinimumHeight(60)
        scroll.setWidget(body)
        self.setWidget(scroll)

    @Slot()
    def _changed(self, *_: object) -> None:
        if on_screen(self):
            self.refresh()

    def refresh(self) -> None:
        """List the interventions and request the losses with and without them."""
        state = self.context.document.state
        while len(self.rows) > len(state.edits):
            row = self.rows.pop()
            self.box.removeWidget(row)
            row.deleteLater()
        while len(self.rows) < len(state.edits):
            self.rows.append(EditRow(self.state_commands, self))
            self.box.insertWidget(len(self.rows), self.rows[-1])
        chain([self.area, *(stop for row in self.rows for stop in (row.on, row.remove))])
        for row, (edit, on) in zip(self.rows, state.edits, strict=True):
            row.show_edit(edit, on, len(state.tokens))
        has_edits = bool(state.edits)
        self.hint.setVisible(not has_edits)
        self.all.setEnabled(has_edits)
        self.all.setChecked(has_edits and all(on for _, on in state.edits))
        self.clear.setEnabled(has_edits)
        self._ask(state)
        self._show_effect()

    def _ask(self, state: State) -> None:
        requests: dict[str, Request[TokenLossResult]] = {}
        if state.subject.edits and len(state.tokens) > 1 and on_screen(self):
            subjects = {"ablated": state.subject, "clean": replace(state.subject, edits=())}
            requests = {side: Request(token_loss, TokenLossParams(), subject) for side, subject in subjects.items()}
        new = {side: request for side, request in requests.items() if self.requests.get(side) != request}
        self.requests = requests
        self.answers = {side: a for side, a in self.answers.items() if side in requests and a.request == requests[side]}
        for side, request in new.items():
            answer = self.context.runner.ask(self._slots[side], request)
            if answer is not None:
                self.answers[side] = answer

    @property
    def waiting(self) -> bool:
        """Whether a loss is outstanding."""
        return any(side not in self.answers for side in self.requests)

    @Slot(object, object)
    def _answered(self, answer: Answer[TokenLossResult], side: str) -> None:
        if self.requests.get(side) == answer.request:
            self.answers[side] = answer
            self._show_effect()

    def _show_effect(self) -> None:
        """Show the mean loss before and after, and the token whose loss changed most."""
        results = [self.answers[side].result for side in SIDES if side in self.answers]
        self.effect.setVisible(len(results) == 2)
        if len(results) < 2:
            return
        ablated, clean = results
        change = np.asarray(ablated.loss[1:], float) - clean.loss[1:]
        if not np.isfinite(change).any():  # one token, or none that the model can predict
            return
        at = int(np.nanargmax(np.abs(change))) + 1
        token = self.context.facts().token_text(int(ablated.tokens[at]))
        intact, cut, difference = before_and_after(clean.mean, ablated.mean)
        self.effect.setText(
            f"mean loss {intact} → {cut} nats ({difference}) over "
            f"{number_of(clean.n_predicted, 'token')}; "
            f"most at {at} ‘{token}’: {clean.loss[at]:.2f} → {ablated.loss[at]:.2f}"
        )
