"""Figures of answers that are there: the same as those that are computed, and nothing is computed or opened for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore, reference
from circuitlab.figures.contracts.panel import panels
from circuitlab.model.subject import Head
from circuitlab.report.held_figures import NOT_READY, held_figure
from circuitlab.report.render import figure_of
from circuitlab.report.requests import panel_requests
from circuitlab.state.state import Pin, State
from tests.figure_prints import figure_print
from tests.models import directory

NAMES = ("attention", "predictions", "composition")


@pytest.fixture
def state(tmp_path: Path) -> State:
    ref = reference(str(directory(tmp_path / "model")))
    state = State(ref).with_tokens(tuple(range(3, 12))).select(heads=(Head(1, 1),), destination=4)
    earlier = replace(state, tokens=state.tokens[:5])
    return replace(state, pins=(Pin("shorter", earlier.subject, earlier.selection),), compare="difference")


def refuse(*arguments: Any, **more: Any) -> Any:
    raise AssertionError("something is computed or opened")


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_of_answers_that_are_there_is_the_one_that_is_computed(
    state: State, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, panel = Engine(ModelStore()), panels()[name]
    computed = figure_of(engine, panel, state)
    monkeypatch.setattr(Engine, "answer", refuse)
    assert figure_print(held_figure(engine, panel, state)) == figure_print(computed)
    assert computed.grid


def test_held_answers_are_drawn_and_one_that_is_missing_is_said(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, panel = Engine(ModelStore()), panels()["attention"]
    engine.store.open(state.model)
    answers = [engine.answer(request) for request in panel_requests(engine, panel, state)]
    other = Engine(engine.store)
    other.hold(answers)
    monkeypatch.setattr(Engine, "answer", refuse)
    assert held_figure(other, panel, state).grid
    moved = state.select(heads=(Head(0, 2),)).with_tokens((1, 2, 3))
    figure = held_figure(other, panel, moved)
    assert (figure.grid, figure.why_empty) == ((), NOT_READY)


def test_a_model_that_is_not_open_stays_closed(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(ModelStore())
    monkeypatch.setattr(ModelStore, "open", refuse)
    assert held_figure(engine, panels()["attention"], state).why_empty == NOT_READY
