"""While no other work is under way, compute what the user is likely to request next: the States one step from the present one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtWidgets import QDockWidget

from circuitlab.analysis.behaviour.token_loss import TokenLossParams, token_loss
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import OpenModel
from circuitlab.figures.contracts.panel import Facts, Why
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.work.app_context import AppContext
from circuitlab.model.subject import Head
from circuitlab.state.model_change import one_series
from circuitlab.state.state import State

PAUSE = 250  # ms without a change
STEPPING = 20  # ms, where the last change was a step along a training: another one is likely, and soon
HEADS = ((0, 1), (0, -1), (1, 0), (-1, 0))
CHECKPOINTS = (1, 2, -1)
QUICK = 3.0  # s
SHARE = 16  # a model is opened ahead of time where so many of its size fit in what stays open


def heads_beside(state: State, facts: Facts, model: OpenModel) -> Iterable[State]:
    """The four heads beside the chosen one; a model without layers has none."""
    if facts.config.n_layers and len(state.selection.heads) == 1:
        now = state.selection.head
        for layers, heads in HEADS:
            head = Head((now.layer + layers) % facts.config.n_layers, (now.head + heads) % facts.config.n_heads)
            yield state.with_heads(head)


def checkpoints_beside(state: State, facts: Facts, model: OpenModel) -> Iterable[State]:
    """The next two points of the training and the previous one, for models small enough to stay open."""
    ends = [*range(len(model.opened.steps)), None]
    if len(ends) > 1 and state.model.checkpoint in ends:
        at = ends.index(state.model.checkpoint)
        for step in CHECKPOINTS:
            if 0 <= at + step < len(ends):
                yield replace(state, model=replace(state.model, checkpoint=ends[at + step]))


Beside = Callable[[State, Facts, OpenModel], Iterable[State]]
BESIDE: tuple[Beside, ...] = (heads_beside, checkpoints_beside)


def _quick(request: Request, now: Answer | None) -> bool:
    """Whether a request is cheap enough to prefetch: by its lane, or by the time its present answer took."""
    took = math.inf if now is None or not now.complete else now.provenance.seconds
    return request.analysis.lane == "live" or took <= QUICK


class LookingAhead(QObject):
    """Once the document has not changed for a moment, prefetches what the visible panels would request a step away."""

    def __init__(self, context: AppContext, docks: Mapping[str, QDockWidget], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.context, self.docks = context, docks
        self._beside = BESIDE
        self.timer = QTimer(self)
        self.timer.setSingleShot(True)
        self.timer.setInterval(PAUSE)
        self.timer.timeout.connect(self.look)
        context.document.changed.connect(self._changed)

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        along = old.model != new.model and one_series(old.model, new.model)
        self._beside = (checkpoints_beside, heads_beside) if along else BESIDE
        self.timer.start(STEPPING if along else PAUSE)

    def requests(self) -> tuple[Request, ...]:
        """The requests one step to each side, each once, the likeliest first."""
        state = self.context.document.state
        model = self.context.engine.store.peek(state.model)
        if model is None:
            return ()
        facts, requests = self.context.facts(), dict[Request, None]()
        for beside in self._beside:
            for near in beside(state, facts, model):
                if near.model == state.model or SHARE * model.nbytes <= self.context.engine.store.room:
                    requests |= dict.fromkeys(self._requests(near, facts, near.model != state.model))
        return tuple(requests)

    def _requests(self, near: State, facts: Facts, losses: bool) -> Iterable[Request]:
        """The requests in a nearby State: those of the visible panels, and the losses that the prompt shows."""
        for dock in self.docks.values():
            if isinstance(dock, PanelDock) and dock.shown:
                requests = dock.panel.requests(near, facts)
                if not isinstance(requests, Why):
                    answers = dock.feed.exchange.answers["now"]
                    yield from (request for role, request in requests.items() if _quick(request, answers.get(role)))
        if losses and near.tokens:
            yield Request(token_loss, TokenLossParams(), near.subject)

    @Slot()
    def look(self) -> None:
        """Queue the requests; try again later if something is running now."""
        if self.context.runner.busy:
            self.timer.start()
        else:
            self.context.runner.prefetch.queue(self.requests())

    def stop(self) -> None:
        """Prefetch no more."""
        self.timer.stop()
