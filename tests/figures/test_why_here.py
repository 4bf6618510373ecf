"""Why here and Step by step: what stands in their marks is what the analyses gave, and a click means what it points at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.attribution.head_step import HeadStepParams
from circuitlab.analysis.attribution.score_expansion import ScoreExpansionParams
from circuitlab.analysis.attribution.tensor_identity import TensorIdentityParams
from circuitlab.counting import number, probability
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.panel import Why, facts_of, find_panel
from circuitlab.figures.marks import Figure, Heatmap, Hit, Rows
from circuitlab.figures.panels.head_walkthrough import StepByStepView
from circuitlab.figures.panels.score_expansion import WhyHereView
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head, ModelRef
from circuitlab.state.state import Pin, State
from tests.figures.drawing import drawn
from tests.figures.figure_words import rows_counted
from tests.models import CONFIGS, directory

HEAD = Head(2, 1)
PAGES: tuple[Any, ...] = ("steps", "entries", "sources", "A ⊗ W")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    shape = replace(CONFIGS["gpt2"], n_layers=3)
    ref = ModelRef(f"file:{directory(tmp_path_factory.mktemp('m') / 'model', shape)}")
    return State(ref).with_tokens((0, 5, 9, 5, 7, 9)).select(heads=(HEAD,), destination=4, source=2, locked=True)


def rows_of(figure: Figure, name: str) -> Rows:
    mark = figure.find(name)
    assert isinstance(mark, Rows)
    return mark


def column(rows: Rows, name: str) -> np.ndarray:
    return next(c.values for c in rows.columns if c.name == name)


def expansion(engine: Engine, state: State, source: int | None = 2) -> Any:
    return engine.answer(Request.named("score_expansion", ScoreExpansionParams(HEAD, 4, source), state.subject)).result


@pytest.mark.parametrize("values", ["centred", "raw"])
def test_groups_and_terms_are_those_of_the_answer_and_add_up(engine: Engine, state: State, values: Any) -> None:
    found, figure = expansion(engine, state), drawn(engine, state, "why_here", WhyHereView("terms", values))
    groups, terms = rows_of(figure, "groups"), rows_of(figure, "terms")
    np.testing.assert_allclose(column(groups, "raw"), [*found.groups, found.score], atol=1e-5)
    np.testing.assert_allclose(column(groups, "centred"), [*found.groups_centred, found.score - found.row_mean], atol=1e-5)
    assert column(groups, "%")[-1] == 100
    assert [c.name for c in groups.columns if c.bar] == [values]
    by = {"centred": found.centred, "raw": found.terms}
    for i, key in enumerate(terms.ids.tolist()):
        dest = found.names_dest.index(column(terms, "query from")[i])
        src = found.names_src.index(column(terms, "key from")[i])
        for name, whole in by.items():
            assert column(terms, name)[i] == whole[dest, src]
        assert tuple(key[2:4]) == tuple(found.heads[dest])
        assert tuple(key[4:]) == tuple(found.heads[src])
    assert (np.diff(np.abs(column(terms, values))) <= 0).all()
    assert rows_counted(figure) == (200, found.terms.size)
    assert "remainder" in figure.caption


def test_heads_are_listed_with_all_that_they_carry(engine: Engine, state: State) -> None:
    result = expansion(engine, state)
    rows = rows_of(drawn(engine, state, "why_here", WhyHereView("heads")), "heads")
    assert len(rows.ids) == 8
    for i, (layer, head, by_key) in enumerate(rows.ids.tolist()):
        at = result.earlier.tolist().index([layer, head])
        q, k, both_q, both_k = result.through_centred[at]
        assert column(rows, "key")[i] == pytest.approx(k + both_k)
        assert column(rows, "query")[i] == pytest.approx(q + both_q)
        assert (column(rows, "K")[i], column(rows, "Q")[i]) == (k, q)
        assert by_key == int(abs(k + both_k) >= abs(q + both_q))


def test_the_map_holds_every_term(engine: Engine, state: State) -> None:
    result = expansion(engine, state)
    mark = drawn(engine, state, "why_here", WhyHereView("map", "raw")).find("map")
    assert isinstance(mark, Heatmap)
    np.testing.assert_array_equal(mark.values, result.terms.astype(np.float32))
    assert mark.levels[1] == -mark.levels[0] == np.abs(mark.values).max()
    assert mark.y.ticks == result.names_dest and mark.x.ticks == result.names_src
    assert "query" in mark.y.label and "key" in mark.x.label


def test_without_a_source_the_cell_is_the_one_most_attended_to(engine: Engine, state: State) -> None:
    hovered = state.select(source=None)
    result = expansion(engine, state, None)
    assert f"→ {result.source} " in drawn(engine, hovered, "why_here").title
    later = state.select(source=5)  # not seen from 4
    assert f"→ {result.source} " in drawn(engine, later, "why_here").title
    assert f"→ {result.source} " in drawn(engine, hovered, "step_by_step").title


def test_a_click_on_a_term_chooses_the_edge_through_its_key_before_its_query(state: State) -> None:
    pick = find_panel("why_here").pick
    both = pick(state, Hit("terms", (7, 8, 0, 3, 1, 2), "click"))
    assert (both.selection.edge, both.selection.edge_kind) == ((Head(1, 2), HEAD), "K")
    assert both.selection.head == HEAD
    query = pick(state, Hit("map", (0, 3, -1, -1), "click"))
    assert (query.selection.edge, query.selection.edge_kind) == ((Head(0, 3), HEAD), "Q")
    assert pick(state, Hit("terms", (0, 1, -1, -1, -1, -1), "click")) is state
    assert pick(state, Hit("heads", (1, 0, 0), "click")).selection.edge_kind == "Q"
    assert pick(state, Hit("heads", (1, 0, 1), "click")).selection.edge == (Head(1, 0), HEAD)
    assert pick(state, Hit("groups", (2,), "click")) is state
    assert pick(state, Hit("terms", (7, 8, 0, 3, 1, 2), "hover")) is state


def test_a_first_layer_head_has_no_heads_before_it(engine: Engine, state: State) -> None:
    first = state.select(heads=(Head(0, 1),))
    figure = drawn(engine, first, "why_here", WhyHereView("heads"))
    assert len(figure.marks()) == 1
    assert column(rows_of(figure, "groups"), "raw")[1:4].tolist() == [0, 0, 0]
    assert rows_of(drawn(engine, first, "why_here"), "terms").heading == ""


def test_a_difference_is_term_by_term_and_one_that_is_missing_there_counts_as_nothing(engine: Engine, state: State) -> None:
    cut = ((Intervention("zero", Site("result", 0, (1,))), True), (Intervention("scale", Site("resid_pre", 1), (0.5,)), True))
    pinned = replace(state, edits=cut, pins=(Pin("before", state.subject, state.selection),), compare="difference")
    before, after = expansion(engine, state), expansion(engine, pinned)
    figure = drawn(engine, pinned, "why_here")
    centred = column(rows_of(figure, "groups"), "Δ")[:4]
    np.testing.assert_allclose(centred, after.groups_centred - before.groups_centred, atol=1e-12)
    terms = rows_of(figure, "terms")
    said = zip(column(terms, "query from"), column(terms, "key from"), column(terms, "Δ"), strict=True)
    for dest, src, change in said:
        there = 0.0
        if "interventions" not in (dest, src):
            there = before.centred[before.names_dest.index(dest), before.names_src.index(src)]
        here = after.centred[after.names_dest.index(dest), after.names_src.index(src)]
        assert change == pytest.approx(here - there, abs=1e-12)
    assert (np.diff(np.abs(column(terms, "Δ"))) <= 0).all()
    heads = rows_of(drawn(engine, pinned, "why_here", WhyHereView("heads")), "heads")
    at = heads.ids.tolist().index(next(i for i in heads.ids.tolist() if i[:2] == [0, 1]))
    was = before.through_centred[before.earlier.tolist().index([0, 1])]
    assert column(heads, "Δ")[at] == pytest.approx(-(was[1] + was[3]))
    assert f"A = now {probability(after.attention, 2)}, before {probability(before.attention, 2)}" in figure.title
    reference = drawn(engine, replace(pinned, compare="reference"), "why_here")
    np.testing.assert_allclose(column(rows_of(reference, "groups"), "raw")[:4], before.groups)


def test_steps_are_in_order_with_this_runs_numbers(engine: Engine, state: State) -> None:
    result: Any = engine.answer(Request.named("head_step", HeadStepParams(HEAD, 4, 2), state.subject)).result
    rows = rows_of(drawn(engine, state, "step_by_step"), "steps")
    assert (np.diff(column(rows, "#")) >= 0).all()
    text = "\n".join(column(rows, "this run"))
    assert f"score {number(result.score, '.4g')}" in text
    assert f"A = {probability(result.attention)}" in text
    assert f"length {np.sqrt((result.z**2).sum()):.4g}" in text
    assert "5 of 6" in text
    assert number(result.effect, "+.3f") in text


def test_entries_and_sources_are_those_of_the_answer(engine: Engine, state: State) -> None:
    result: Any = engine.answer(Request.named("head_step", HeadStepParams(HEAD, 4, 2), state.subject)).result
    entries = rows_of(drawn(engine, state, "step_by_step", StepByStepView("entries")), "entries")
    np.testing.assert_array_equal(column(entries, "q · k"), result.products[entries.ids[:, 0]])
    np.testing.assert_array_equal(column(entries, "z"), result.z[entries.ids[:, 0]])
    sources = rows_of(drawn(engine, state, "step_by_step", StepByStepView("sources")), "sources")
    assert sources.ids[:, 0].tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(column(sources, "A"), result.pattern[:5])
    assert sources.chosen == (2,)
    picked = find_panel("step_by_step").pick(state, Hit("sources", (1,), "click"))
    assert (picked.selection.destination, picked.selection.source, picked.selection.locked) == (4, 1, True)


def test_the_readings_stand_with_their_differences(engine: Engine, state: State) -> None:
    edge = state.select(edge=(Head(0, 3), HEAD))
    result: Any = engine.answer(Request.named("tensor_identity", TensorIdentityParams(HEAD, Head(0, 3)), state.subject)).result
    figure = drawn(engine, edge, "step_by_step", StepByStepView("A ⊗ W"))
    shown = column(rows_of(figure, "identities"), "difference").tolist()
    assert shown == [f"{number(d, '.1e')} of {of:.3g}" for d, of in zip(result.difference, result.of, strict=True)]
    for other in (edge.with_edge(Head(2, 0), HEAD, "K"), edge.with_heads(HEAD), edge.without_edge()):  # nothing earlier
        alone = drawn(engine, other, "step_by_step", StepByStepView("A ⊗ W"))
        assert column(rows_of(alone, "identities"), "difference")[-1] == "not computed"
        assert "Composition" in alone.caption


@pytest.mark.parametrize("name", ["why_here", "step_by_step"])
def test_a_panel_with_nothing_to_show_says_why(engine: Engine, state: State, name: str) -> None:
    facts, panel = facts_of(engine, state.model), find_panel(name)
    for without, word in ((state.with_tokens(()), "Type some text"), (state.select(heads=(Head(7, 0),)), "choose one")):
        asked = panel.requests(without, facts)
        assert isinstance(asked, Why) and word in asked.text
        assert panel.figure(without, facts, {}, {}).why_empty == asked.text
    assert not panel.figure(state, facts, {}, {}).marks()


@pytest.mark.parametrize("name", ["odd", "llama", "both-norms-capped"])
def test_every_page_stands_one_token_and_any_model(engine: Engine, tmp_path: Path, name: str) -> None:
    ref = ModelRef(f"file:{directory(tmp_path / 'm', CONFIGS[name], tokenizer=False)}")
    for tokens in ((1,), (1, 2, 3, 2, 1)):
        state = State(ref).with_tokens(tokens).select(heads=(Head(1, 0),))
        for page in ("terms", "heads", "map"):
            assert drawn(engine, state, "why_here", WhyHereView(page)).marks()
        for page in PAGES:
            assert drawn(engine, state, "step_by_step", StepByStepView(page)).marks()
