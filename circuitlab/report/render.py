"""One panel of one State into a file, without a window."""

from __future__ import annotations

from pathlib import Path

from circuitlab.draw.look.paper import Paper
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer
from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.figures.contracts.panel import Facts, Panel, Why, facts_of
from circuitlab.figures.contracts.vocabulary import pinned
from circuitlab.figures.marks import Figure
from circuitlab.session.state import State


def figure_of(engine: Engine, panel: Panel, state: State) -> Figure:
    """The figure that the window would show. Raises `BadInput` with the panel's own reason where there is none.

    A reference is computed even where only now is shown, as both sides share one scale.
    """
    facts = facts_of(engine, state.model)
    now = _answers(engine, panel, state, facts)
    pin = state.reference
    ref = {}
    if pin is not None:
        try:
            ref_state = pinned(state, facts)
            if not isinstance(ref_state, str):
                ref = _answered(engine, panel, ref_state, facts_of(engine, ref_state.model))
        except CircuitLabError:
            if state.compare != "now":
                raise
    return panel.figure(state, facts, now, ref)


def _answered(engine: Engine, panel: Panel, state: State, facts: Facts) -> dict[str, Answer]:
    """What the panel asks of a reference; nothing where that has no answer, and the figure says why it stands alone."""
    return {} if isinstance(panel.requests(state, facts), Why) else _answers(engine, panel, state, facts)


def _answers(engine: Engine, panel: Panel, state: State, facts: Facts) -> dict[str, Answer]:
    requests = panel.requests(state, facts)
    if isinstance(requests, Why):
        raise BadInput(requests.text)
    return {role: engine.answer(request) for role, request in requests.items()}


def write(figure: Figure, path: Path, paper: Paper) -> None:
    """A figure that is already there, written by suffix. Starts an offscreen Qt if there is none."""
    from circuitlab.draw.export.pictures import export
    from circuitlab.draw.look.app import application

    application(offscreen=True)
    export(figure, path, paper)
