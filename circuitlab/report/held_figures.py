"""Figures from answers that are held or cached: what is there is drawn, and nothing is computed or opened."""

from __future__ import annotations

from collections.abc import Mapping

from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer
from circuitlab.errors import CircuitLabError, reason
from circuitlab.figures.contracts.compare import titles_beside
from circuitlab.figures.contracts.panel import Facts, Panel, Why, facts_of
from circuitlab.figures.contracts.vocabulary import pinned
from circuitlab.figures.marks import Figure, empty
from circuitlab.state.state import State
from circuitlab.unforeseen import part

NOT_READY = "Not computed yet."


def held_figure(engine: Engine, panel: Panel, state: State) -> Figure:
    """The figure of a panel in a State, as the window would show it; an empty one that says why where an answer is not there.

    Raises nothing: what cannot be drawn says so.
    """
    try:
        with part():
            now = _answers(engine, panel, state)
            if isinstance(now, str):
                return empty(now, panel.title)
            return panel.figure(state, facts_of(engine, state.model), now, _reference(engine, panel, state))
    except CircuitLabError as error:
        return empty(reason(error), panel.title)


def held_titles(engine: Engine, panel: Panel, state: State, title: str) -> tuple[str, ...] | None:
    """What the figure of this title is called on the sides of the reference; None without one, or without an open model."""
    facts = _facts(engine, state)
    if state.reference is None or facts is None:
        return None
    before = pinned(state, facts)
    same = not isinstance(before, str) and panel.requests(state, facts) == panel.requests(before, facts_of(engine, before.model))
    return titles_beside(title, state, facts, same)


def _answers(engine: Engine, panel: Panel, state: State) -> Mapping[str, Answer] | str:
    """The answers that are there by role, all of them, or why there are none."""
    facts = _facts(engine, state)
    if facts is None:
        return NOT_READY
    requests = panel.requests(state, facts)
    if isinstance(requests, Why):
        return requests.text
    answers = {role: engine.cached(request) for role, request in requests.items()}
    held = {role: answer for role, answer in answers.items() if answer is not None}
    return held if len(held) == len(answers) else NOT_READY


def _reference(engine: Engine, panel: Panel, state: State) -> Mapping[str, Answer]:
    facts = _facts(engine, state)
    if state.reference is None or facts is None or isinstance(before := pinned(state, facts), str):
        return {}
    answers = _answers(engine, panel, before)
    return {} if isinstance(answers, str) else answers


def _facts(engine: Engine, state: State) -> Facts | None:
    """Facts of the State's model, None where it is not open."""
    refs = {state.model, *(pin.subject.model for pin in state.pins)}
    return facts_of(engine, state.model) if all(engine.store.peek(ref) is not None for ref in refs) else None
