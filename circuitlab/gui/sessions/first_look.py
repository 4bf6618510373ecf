"""A new session on a model without stored scores looks at induction once it is measured; on a shipped model it does at once."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.analysis.attention.head_scores import HeadScoresParams, HeadScoresResult, head_scores
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.selection_reading import of_weights
from circuitlab.gui.work.app_context import AppContext
from circuitlab.model.subject import Head
from circuitlab.state.state import Selection, State

LEAST = 0.4  # a head of a lower prefix-matching score is not said to look for repeats


def repeat_in(tokens: tuple[int, ...]) -> int | None:
    """The last position whose token has come before, None where none has."""
    earlier: set[int] = set()
    result = None
    for position, token in enumerate(tokens):
        if token in earlier:
            result = position
        earlier.add(token)
    return result


def best_head(result: HeadScoresResult) -> Head | None:
    """The head of the highest prefix-matching score, None where none has `LEAST`."""
    head = result.best("prefix_matching")
    return None if head is None or result.of("prefix_matching")[head.layer, head.head] < LEAST else head


class FirstLook(QObject):
    """From `begin` on, until the scores of all heads are there or the person selects anything themselves.

    It computes nothing: a panel asks for the scores. `looked(Work)`: a head is selected in place of this work,
    without a step of undo.
    """

    looked = Signal(object)

    def __init__(self, context: AppContext, parent: QObject) -> None:
        super().__init__(parent)
        self.context = context
        self._since: State | None = None
        context.runner.jobs_changed.connect(self.look)
        context.document.history_changed.connect(self._recorded)

    def begin(self) -> None:
        """A session has begun; nothing is to be done where its first State has a selection."""
        state = self.context.document.recorded
        self._since = state if state.selection == Selection() else None
        self.look()

    @Slot()
    def _recorded(self) -> None:
        now, since = self.context.document.recorded, self._since
        if since is not None and (now.model != since.model or now.selection != since.selection):
            self._since = None

    @Slot()
    def look(self) -> None:
        """Select the head if its score is there. What is hovered is waited for."""
        document, since = self.context.document, self._since
        if since is None or document.state != document.recorded:
            return
        state, work = document.recorded, document.work
        answer = self.context.engine.cached(Request(head_scores, HeadScoresParams(), of_weights(state)))
        if answer is None:
            return
        self._since = None
        head = best_head(answer.result)
        if head is None:
            return
        repeat = repeat_in(state.tokens) if state.tokens == since.tokens else None  # of a text that is being typed none is locked
        self.context.mend(replace(state, selection=Selection((head,), destination=repeat, locked=repeat is not None)))
        self.looked.emit(work)
