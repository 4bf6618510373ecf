"""The patching panel: what stands in its marks is what the analyses gave, and it says what to do where there is nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QSize

from circuitlab.analysis.interventions.patching import PatchingParams
from circuitlab.analysis.interventions.path_patching import PathPatchingParams
from circuitlab.draw.export.pictures import render
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.panel import facts_of, find_panel
from circuitlab.figures.marks import Figure, Heatmap, Hit, Rows, Tokens
from circuitlab.figures.panels.patching.panel import WHAT, PatchingView
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from circuitlab.report.render import figure_of
from circuitlab.state.state import Pin, State
from tests.figures.figure_words import rows_counted
from tests.models import CONFIGS, directory

TOKENS = (0, 5, 9, 5, 7, 5, 9, 20)
PINNED = (0, 5, 8, 5, 5, 8, 20)
CUT = Intervention("zero", Site("result", 0, (1,)))


def _state(path: Path, name: str, **changes: Any) -> State:
    ref = ModelRef(f"file:{directory(path / name, replace(CONFIGS[name], **changes))}")
    state = State(ref).with_tokens(TOKENS).select(heads=(Head(0, 1),))
    return replace(state, pins=(Pin("pin", Subject(ref, PINNED)),))


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    return _state(tmp_path_factory.mktemp("m"), "gpt2", n_layers=3)


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> State:
    return _state(tmp_path_factory.mktemp("g"), "llama")


def drawn(engine: Engine, state: State, **view: Any) -> Figure:
    return figure_of(engine, find_panel("patching"), state.with_view("patching", PatchingView(**view)))


def found(engine: Engine, state: State, name: str, params: Any) -> Any:
    return engine.answer(Request.named(name, params, state.subject)).result


@pytest.mark.parametrize("exchange", WHAT)
def test_the_grid_is_the_answers_and_empty_outside_the_cone(engine: Engine, state: State, exchange: Any) -> None:
    heat = drawn(engine, state, exchange=exchange).find("grid")
    assert isinstance(heat, Heatmap)
    result = found(engine, state, "patching", PatchingParams(PINNED, WHAT[exchange], contrast=True, estimate=True))
    assert result.inside.any() and not result.inside.all()
    np.testing.assert_array_equal(np.isnan(heat.values), ~result.inside)
    np.testing.assert_allclose(heat.values[result.inside], result.effect[result.inside].astype(np.float32))
    shares = drawn(engine, state, exchange=exchange, show="normalised").find("grid")
    assert isinstance(shares, Heatmap)
    np.testing.assert_allclose(shares.values[result.inside], result.normalised[result.inside], rtol=1e-5)
    whole = drawn(engine, state, exchange=exchange, at="all positions")
    assert render(whole, QSize(400, 320)).width() == 400
    assert "hatched" in drawn(engine, state, exchange=exchange).caption


def test_both_prompts_stand_above_with_what_differs(engine: Engine, state: State) -> None:
    figure = drawn(engine, state.select(destination=6, locked=True))
    pinned, text = figure.find("pinned"), figure.find("text")
    assert isinstance(pinned, Tokens) and isinstance(text, Tokens)
    assert len(pinned.texts) == len(PINNED) and len(text.texts) == len(TOKENS)
    result = found(engine, state, "patching", PatchingParams(PINNED, contrast=True, estimate=True))
    assert result.align.tolist() == [0, 1, 2, 3, -1, 4, 5, 6]
    assert np.sign(np.nan_to_num(text.values)).tolist() == [0, 0, 1, 0, -1, 0, 1, 0]
    assert np.sign(np.nan_to_num(pinned.values)).tolist() == [0, 0, 1, 0, 0, 1, 0]
    assert (text.row, pinned.row, text.locked) == (6, 5, True)
    assert drawn(engine, state.select(destination=4)).find("pinned").row is None  # type: ignore[union-attr]
    heat = figure.find("grid")
    assert isinstance(heat, Heatmap)
    assert [t[0] for t in heat.x.ticks].count("≠") == 2
    assert heat.x.ticks[4].startswith("∅")
    assert (heat.row, heat.col) == (1, 6)


def test_a_key_value_head_stands_for_its_group(engine: Engine, grouped: State) -> None:
    heat = drawn(engine, grouped.select(heads=(Head(1, 3),), destination=2), exchange="key").find("grid")
    assert isinstance(heat, Heatmap)
    assert heat.y.ticks == ("L0H0–1", "L0H2–3", "L1H0–1", "L1H2–3")
    assert (heat.row, heat.col) == (3, 2)
    assert heat.row_ids is not None and heat.row_ids.tolist() == [[0, 0], [0, 2], [1, 0], [1, 2]]
    own = drawn(engine, grouped.select(heads=(Head(1, 3),)), exchange="query", rows="chosen heads").find("grid")
    assert isinstance(own, Heatmap) and own.y.ticks == ("L1H3",)


def test_a_cell_chooses_head_and_position(state: State) -> None:
    pick = find_panel("patching").pick
    chosen = pick(state, Hit("grid", (2, 3, 5)))
    assert chosen.selection.heads == (Head(2, 3),)
    assert (chosen.selection.destination, chosen.selection.locked) == (5, True)
    layer = pick(state, Hit("grid", (2, -1, 4)))
    assert (layer.selection.heads, layer.selection.destination) == (state.selection.heads, 4)
    row = pick(state, Hit("grid", (1, 0, -1)))
    assert (row.selection.head, row.selection.destination) == (Head(1, 0), None)
    assert pick(state, Hit("grid", (2, 3, 5), "hover")) is state
    assert pick(state, Hit("text", (3,))).selection.destination == 3


def test_hovering_starts_no_sweep_and_a_locked_token_is_read_where_asked(engine: Engine, state: State) -> None:
    panel, facts = find_panel("patching"), facts_of(engine, state.model)
    asked = panel.requests(state, facts)
    assert panel.requests(state.select(destination=3), facts) == asked
    assert panel.requests(state.select(destination=3, locked=True), facts) == asked
    reading = state.with_view("patching", PatchingView(read="locked token"))
    assert panel.requests(reading.select(destination=3), facts) == asked
    locked: Any = panel.requests(reading.select(destination=3, locked=True), facts)
    assert locked["grid"].params.position == 3
    aimed: Any = panel.requests(state.select(target=Target((3, 4))), facts)
    assert aimed["grid"].params.target == Target((3, 4))


def test_paths_from_the_chosen_head(engine: Engine, state: State) -> None:
    figure = drawn(engine, state, page="paths")
    heat, table = figure.find("paths"), figure.find("strongest")
    assert isinstance(heat, Heatmap) and isinstance(table, Rows)
    result = found(engine, state, "path_patching", PathPatchingParams(PINNED, Head(0, 1), contrast=True))
    assert heat.values.shape == (2, 14)
    for way in range(3):
        np.testing.assert_allclose(heat.values[:, 5 * way : 5 * way + 4], result.effect[way, 1:], rtol=1e-5)
    assert np.isnan(heat.values[:, [4, 9]]).all()
    assert rows_counted(figure) == (24, 24)
    for (a, b, layer, way, head), value in zip(table.ids.tolist(), table.columns[1].values, strict=True):
        assert (a, b) == (0, 1)
        assert value == result.effect[way, layer, head]
    assert (np.diff(np.abs(table.columns[1].values)) <= 0).all()
    assert render(figure, QSize(360, 420)).height() == 420
    by_mlp = drawn(engine, state, page="paths", writer="MLP of its layer")
    assert "MLP of layer 0" in by_mlp.title
    share = drawn(engine, state, page="paths", show="normalised").find("paths")
    assert isinstance(share, Heatmap)
    np.testing.assert_allclose(share.values[:, :4], result.normalised[0, 1:], rtol=1e-5)


def test_a_path_chooses_the_pair_and_its_sender_stays(engine: Engine, state: State) -> None:
    pick, facts = find_panel("patching").pick, facts_of(engine, state.model)
    state = state.with_view("patching", PatchingView(page="paths"))
    chosen = pick(state, Hit("paths", (0, 1, 2, 1, 3)))
    assert chosen.selection.edge == (Head(0, 1), Head(2, 3))
    assert chosen.selection.edge_kind == "K"
    assert chosen.selection.head == Head(2, 3)
    assert find_panel("patching").requests(chosen, facts) == find_panel("patching").requests(state, facts)
    figure = figure_of(engine, find_panel("patching"), chosen)
    heat, table = figure.find("paths"), figure.find("strongest")
    assert isinstance(heat, Heatmap) and isinstance(table, Rows)
    assert (heat.row, heat.col) == (1, 8)
    assert heat.col_ids is not None and heat.col_ids[8].tolist() == [1, 3]
    assert table.ids[list(table.chosen)].tolist() == [[0, 1, 2, 1, 3]]
    let_go = pick(chosen, Hit("strongest", (0, 1, 2, 1, 3)))
    assert (let_go.selection.edge, let_go.selection.heads) == (None, (Head(0, 1),))
    assert pick(state, Hit("paths", (0, 1, 2, -1, -1))) is state


def test_what_is_missing_is_said_with_what_to_do(engine: Engine, state: State, tmp_path: Path) -> None:
    def why(state: State, **view: Any) -> str:
        figure = drawn(engine, state, **view)
        assert not figure.grid and figure.title
        return figure.why_empty

    assert "Ctrl+P" in why(replace(state, pins=()))
    assert "change a word" in why(state.with_tokens(PINNED))
    other = replace(state.pins[0], subject=Subject(ModelRef("file:elsewhere"), PINNED))
    assert "another model" in why(replace(state, pins=(other,)))
    assert "last layer" in why(state.select(heads=(Head(2, 0),)), page="paths")
    assert "no L9H0" in why(state.select(heads=(Head(9, 0),)), page="paths")
    assert "no MLPs" in why(_state(tmp_path, "attention-only"), exchange="MLP output")
    assert "norms" in why(_state(tmp_path, "both-norms-capped"), page="paths")
    assert "one-layer" in why(_state(tmp_path, "gpt2", n_layers=1), page="paths")
    cut = replace(state.with_tokens(PINNED), edits=((CUT, True),))
    figure = drawn(engine, cut)
    assert figure.grid
    pinned_cut = replace(state, pins=(Pin("pin", Subject(state.model, PINNED, (CUT,), Conventions())),))
    assert "interventions" in drawn(engine, pinned_cut).caption
    assert "interventions" not in drawn(engine, state).caption


def test_the_same_on_both_prompts_has_no_share(engine: Engine, state: State) -> None:
    ends = replace(state, pins=(Pin("pin", Subject(state.model, (*TOKENS, 9, 9, 3))),))
    figure = drawn(engine, ends.with_tokens((*TOKENS, 7)), show="normalised")
    assert bool(figure.grid) != bool(figure.why_empty)
    shorter = replace(state, pins=(Pin("pin", Subject(state.model, TOKENS[:-1])),))
    assert drawn(engine, shorter, show="normalised").why_empty
    assert drawn(engine, shorter).grid


def test_partial_and_missing_answers(engine: Engine, state: State) -> None:
    panel, facts = find_panel("patching"), facts_of(engine, state.model)
    assert panel.figure(state, facts, {}, {}).title == "Patching"
    request: Any = panel.requests(state, facts)
    answer = engine.answer(request["grid"])
    result: Any = answer.result
    values = result.values.copy()
    values[:4] = np.nan
    half = replace(answer, result=replace(result, values=values, exact=~np.isnan(values), done=0.7), complete=False)
    figure = panel.figure(state, facts, {"grid": half}, {})
    heat = figure.find("grid")
    assert isinstance(heat, Heatmap)
    assert np.isnan(heat.values[:4]).all() and np.isfinite(heat.values[4:]).any()
    assert "so far: 70%" in figure.caption
    nothing = np.full_like(values, np.nan)
    none = replace(answer, result=replace(result, values=nothing, exact=nothing == 0, done=0.0), complete=False)
    assert panel.figure(state.with_view("patching", PatchingView(show="normalised")), facts, {"grid": none}, {}).grid


def test_the_title_names_what_was_exchanged_until_the_next_answer(engine: Engine, state: State) -> None:
    panel, facts = find_panel("patching"), facts_of(engine, state.model)
    request: Any = panel.requests(state, facts)
    answer = engine.answer(request["grid"])
    later = state.with_view("patching", PatchingView(exchange="query"))
    assert panel.figure(later, facts, {"grid": answer}, {}).title.startswith("head output from the pinned run")
