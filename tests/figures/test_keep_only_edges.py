"""The panel of a circuit of edges: what it asks, its list, what clicks and the right button do."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from circuitlab.analysis.interventions.circuit_faithfulness import KeepOnlyParams, KeepOnlyResult
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.figures.contracts.panel import Facts, Why, facts_of, find_panel
from circuitlab.figures.marks import Figure, Hit, Points, Rows
from circuitlab.figures.panels.circuit.panel import KeepOnlyView
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.render import figure_of
from circuitlab.state.cuts import offers
from circuitlab.state.state import State
from tests.models import CONFIGS, directory

TOKENS = (0, 5, 3, 5, 6, 5, 3, 2, 5)
PANEL = find_panel("keep_only")
LISTED = "L0H1->L1H2:K, L0H3->L1H0:V"


@pytest.fixture
def engine() -> Engine:
    return Engine(ModelStore())


def stated(path: Path, name: str, view: KeepOnlyView) -> State:
    ref = ModelRef(f"file:{directory(path / name, CONFIGS[name])}")
    return State(ref).with_tokens(TOKENS).with_view("keep_only", view)


def view_of(state: State) -> KeepOnlyView:
    return state.view("keep_only", KeepOnlyView)


def drawn(engine: Engine, state: State) -> tuple[Figure, Rows]:
    figure = figure_of(engine, PANEL, state)
    rows = figure.find("kept")
    assert isinstance(rows, Rows)
    return figure, rows


def test_the_listed_edges_are_the_circuit_and_a_point_takes_its_edges(engine: Engine, tmp_path: Path) -> None:
    state = stated(tmp_path, "gpt2", KeepOnlyView(of="edges", edges=LISTED, samples=4, seed=2))
    figure, rows = drawn(engine, state)
    edges = tuple(name.strip() for name in LISTED.split(","))
    result = engine.answer(Request.named("keep_only", KeepOnlyParams(edges=edges, samples=4, seed=2), state.subject)).result
    assert isinstance(result, KeepOnlyResult)
    assert rows.columns[0].values.tolist() == ["kept", "kept"]
    assert (
        rows.columns[1].values.tolist() == ["L0H3 → L1H0  V", "L0H1 → L1H2  K"]
        or rows.ids[:, 1:].tolist() == result.members.tolist()
    )
    np.testing.assert_allclose(rows.columns[2].values, 100 * result.minimality)
    assert re.search(r"\b4\b.*\b2\b.*seed 2\b", figure.caption) and "L0H1→L1H2:K" in figure.title
    plane = figure.find("plane")
    assert isinstance(plane, Points)
    np.testing.assert_allclose(plane.x, 100 * np.array([result.faithfulness, *result.random_faithfulness]))
    taken = PANEL.pick(state, Hit("plane", tuple(plane.ids[1].tolist())))
    asked = PANEL.requests(taken, facts_of(engine, state.model))
    assert not isinstance(asked, Why)
    again = engine.answer(asked["circuit"]).result
    assert isinstance(again, KeepOnlyResult)
    np.testing.assert_array_equal(again.members, result.random_members[0])


def test_the_chosen_edge_is_the_circuit_until_one_is_listed_and_joins_by_a_click(engine: Engine, tmp_path: Path) -> None:
    state = stated(tmp_path, "attention-only", KeepOnlyView(of="edges", samples=1))
    facts = facts_of(engine, state.model)
    assert "Composition" in PANEL.requests(state, facts).text  # type: ignore[union-attr]
    state = state.select(edge=(Head(0, 1), Head(1, 2)), edge_kind="K")
    _, rows = drawn(engine, state)
    assert rows.columns[0].values.tolist() == ["+ add"] and np.isfinite(rows.columns[2].values).all()
    kept = PANEL.pick(state, Hit("kept", tuple(rows.ids[0].tolist())))
    assert view_of(kept).edges == "L0H1->L1H2:K"
    assert drawn(engine, kept)[1].columns[0].values.tolist() == ["kept"]
    other = kept.select(edge=(Head(0, 0), Head(1, 2)), edge_kind="V")
    _, rows = drawn(engine, other)
    assert rows.columns[0].values.tolist() == ["+ add", "kept"] and np.isnan(rows.columns[2].values[0])
    assert rows.chosen == (0,)
    both = PANEL.pick(other, Hit("kept", tuple(rows.ids[0].tolist())))
    assert view_of(both).edges == "L0H1->L1H2:K, L0H0->L1H2:V"
    first = Hit("kept", (0, 0, 1, 1, 2, 1))
    assert PANEL.pick(both, first).selection.edge == (Head(0, 1), Head(1, 2))
    assert view_of(PANEL.pick(both, replace(first, gesture="shift-click"))).edges == "L0H0->L1H2:V"


@pytest.mark.parametrize(
    ("name", "edges", "why"),
    [
        ("gpt2", "L0H1", "cannot be read"),
        ("gpt2", "L0H9->L1H0:K", "has no"),
        ("gpt2", "L1H0->L0H0:K", "later layer"),
        ("gpt2", "L1H0->logits", "Logits too"),
        ("both-norms-capped", LISTED, "norm"),
    ],
)
def test_what_cannot_be_kept_says_what_to_do(engine: Engine, tmp_path: Path, name: str, edges: str, why: str) -> None:
    state = stated(tmp_path, name, KeepOnlyView(of="edges", edges=edges))
    facts: Facts = facts_of(engine, state.model)
    asked = PANEL.requests(state, facts)
    assert isinstance(asked, Why) and why in asked.text
    assert PANEL.figure(state, facts, {}, {}).why_empty == asked.text


def test_edges_to_the_logits_are_cut_where_it_is_ticked(engine: Engine, tmp_path: Path) -> None:
    state = stated(tmp_path, "gpt2", KeepOnlyView(of="edges", edges="L1H0->logits", ends=True, samples=1))
    _, rows = drawn(engine, state)
    assert rows.columns[1].values.tolist() == ["L1H0 → logits"]
    assert PANEL.pick(state, Hit("kept", tuple(rows.ids[0].tolist()))).selection.heads == (Head(1, 0),)


def test_the_right_button_keeps_the_edge_and_lets_it_go() -> None:
    state = State(ModelRef("builtin:m"), tokens=TOKENS).select(edge=(Head(0, 1), Head(1, 3)), edge_kind="V")
    changed = lambda s, config: [o for o in offers(s, CONFIGS[config]) if o.state.views != s.views]
    named = lambda s, config: {o.title: o.state for o in changed(s, config)}
    ((title, kept),) = named(state, "llama").items()
    assert "L0H1" in title and "L1H3" in title
    assert (view_of(kept).of, view_of(kept).edges) == ("edges", "L0H1->L1H2:V")
    ((title, gone),) = named(kept, "llama").items()
    assert "L0H1" in title and view_of(gone).edges == ""
    assert not named(state, "both-norms-capped") and not named(state.select(edge=None), "llama")
    assert not named(kept.with_view("keep_only", KeepOnlyView(edges="what")), "llama")
