"""Ablation and circuit panels: what stands in their marks is what the analyses gave; estimates are marked; clicks select."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.base import NullContext
from circuitlab.analysis.interventions.ablation import AblationParams, AblationResult
from circuitlab.analysis.interventions.circuit_faithfulness import KeepOnlyParams, KeepOnlyResult
from circuitlab.counting import ranked
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.panel import Why, facts_of, find_panel
from circuitlab.figures.marks import Bars, Heatmap, Hit, Points, Rows, Tokens
from circuitlab.figures.panels.ablation import AblationView
from circuitlab.figures.panels.circuit.panel import KeepOnlyView
from circuitlab.model.subject import Head, ModelRef, Subject, Target
from circuitlab.report.render import figure_of
from circuitlab.state.state import Pin, State
from tests.figures.drawing import drawn
from tests.models import CONFIGS, directory

TOKENS = (0, 5, 9, 5, 7, 5, 9, 8)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    ref = ModelRef(f"file:{directory(tmp_path_factory.mktemp('m') / 'model', CONFIGS['gpt2'])}")
    return State(ref).with_tokens(TOKENS).select(heads=(Head(1, 2),))


def answer(engine: Engine, state: State, params: AblationParams) -> AblationResult:
    return engine.answer(Request.named("ablation", params, state.subject)).result  # type: ignore[return-value]


def test_the_map_the_ranking_and_the_text_hold_the_exact_effects(engine: Engine, state: State) -> None:
    found, figure = answer(engine, state, AblationParams()), drawn(engine, state, "ablation")
    heat, rows, text = figure.find("map"), figure.find("ranking"), figure.find("text")
    assert isinstance(heat, Heatmap) and isinstance(rows, Rows) and isinstance(text, Tokens)
    np.testing.assert_allclose(heat.values, found.effect, rtol=1e-6)
    assert heat.levels == (-np.abs(heat.values).max(), np.abs(heat.values).max())
    assert heat.y.ticks == ("L0", "L1")
    order = rows.columns[1].values
    assert (np.diff(np.abs(order)) <= 0).all()
    for key, name, value in zip(rows.ids.tolist(), rows.columns[0].values, order, strict=True):
        assert name == str(Head(*key))
        assert value == found.effect[tuple(key)]
    np.testing.assert_array_equal(text.values, found.token_change[1, 2])
    assert "without L1H2" in figure.title
    assert "zero ablation" in figure.caption
    for head in (Head(0, 3), Head(1, 2)):  # of the same answer: what is remembered of one head is not another's
        text = drawn(engine, state.select(heads=(head,)), "ablation").find("text")
        assert isinstance(text, Tokens)
        np.testing.assert_array_equal(text.values, found.token_change[head])


def test_estimates_are_marked_in_the_map_the_ranking_the_title_and_the_caption(engine: Engine, state: State) -> None:
    class First(NullContext):
        def __init__(self) -> None:
            self.kept: list[AblationResult] = []

        def partial(self, result: Any) -> None:
            self.kept.append(result)

    watcher, fresh = First(), state.with_tokens((*TOKENS, 3, 4) * 4)
    request = Request.named("ablation", AblationParams(), fresh.subject)
    made = engine.answer(request, watcher)
    partial = replace(made, result=watcher.kept[1], complete=False)
    panel, facts = find_panel("ablation"), facts_of(engine, state.model)
    figure = panel.figure(fresh, facts, {"each": partial}, {})
    heat, rows = figure.find("map"), figure.find("ranking")
    assert isinstance(heat, Heatmap) and isinstance(rows, Rows)
    assert heat.y.ticks == ("≈ L0", "≈ L1")
    assert all(name.endswith("≈") for name in rows.columns[0].values)
    assert "≈" in figure.title
    assert "0 of 8 exact" in figure.caption
    assert figure.find("text") is None  # an estimate says nothing of single tokens
    begun = panel.figure(fresh, facts, {"each": replace(made, result=watcher.kept[0], complete=False)}, {}).find("map")
    assert isinstance(begun, Heatmap)
    assert np.isnan(begun.values[0]).all() and np.isfinite(begun.values[1]).all()
    half = replace(made, result=watcher.kept[2], complete=False)
    heat = panel.figure(fresh, facts, {"each": half}, {}).find("map")
    assert isinstance(heat, Heatmap)
    assert heat.y.ticks == ("≈ L0", "L1")


@pytest.mark.parametrize(
    ("view", "params"),
    [
        (AblationView(how="mean"), AblationParams(how="mean")),
        (AblationView(frozen=True), AblationParams(frozen=True)),
        (AblationView(effect="second half"), AblationParams(effect="second_half")),
        (AblationView(effect="target"), AblationParams(effect="target", target=Target((4,)), position=7)),
    ],
)
def test_controls_are_parameters(engine: Engine, state: State, view: AblationView, params: AblationParams) -> None:
    aimed = state.select(target=Target((4,)))
    heat = drawn(engine, aimed, "ablation", view).find("map")
    assert isinstance(heat, Heatmap)
    np.testing.assert_allclose(heat.values, answer(engine, aimed, params).effect, rtol=1e-6)


def test_a_sweep_follows_a_locked_position_and_no_hovering(engine: Engine, state: State) -> None:
    panel, facts = find_panel("ablation"), facts_of(engine, state.model)
    shown = state.with_view("ablation", AblationView(effect="target"))
    asked = lambda s: panel.requests(s, facts)["each"].params.position  # type: ignore[index]
    assert asked(shown.select(destination=3)) == 7
    assert asked(shown.select(destination=3, locked=True)) == 3
    plain = state.select(destination=3, locked=True)
    assert panel.requests(plain, facts)["each"].params == AblationParams()  # type: ignore[index]


def test_sets_show_all_together_each_and_pairs_by_what_is_beyond_the_sum(engine: Engine, state: State) -> None:
    heads = (Head(1, 2), Head(0, 1), Head(0, 3))
    chosen = state.select(heads=heads)
    figure = drawn(engine, chosen, "ablation", AblationView(page="sets"))
    rows, text = figure.find("sets"), figure.find("text")
    assert isinstance(rows, Rows) and isinstance(text, Tokens)
    together = answer(engine, chosen, AblationParams(what="set", heads=tuple(sorted(heads))))
    pairs = answer(engine, chosen, AblationParams(what="pairs", heads=tuple(sorted(heads))))
    names, values, sums, beyond = (c.values for c in rows.columns)
    assert names[0] == "L0H1 + L0H3 + L1H2"
    assert values[0] == together.set_effect[0]
    assert beyond[0] == pytest.approx(together.set_effect[0] - sum(together.effect[h] for h in heads))
    assert [together.effect[h] for h in sorted(heads)] == values[1:4].tolist()
    assert np.isnan(sums[1:4]).all()
    assert (np.diff(np.abs(beyond[4:])) <= 0).all()
    wanted = {f"{a} + {b}": e for (a, b), e in zip(combinations(sorted(heads), 2), pairs.set_effect, strict=True)}
    assert dict(zip(names[4:], values[4:], strict=True)) == wanted
    np.testing.assert_array_equal(text.values, together.set_change[0])
    assert "first-order" not in figure.caption


def test_a_difference_is_now_minus_the_reference(engine: Engine, state: State) -> None:
    other = state.with_tokens((*TOKENS[:-1], 6))
    compared = replace(state, pins=(Pin("before", other.subject),), compare="difference")
    heat = drawn(engine, compared, "ablation").find("map")
    assert isinstance(heat, Heatmap)
    wanted = answer(engine, state, AblationParams()).effect - answer(engine, other, AblationParams()).effect
    np.testing.assert_allclose(heat.values, wanted, rtol=1e-5, atol=1e-7)


def test_every_empty_place_says_what_to_do(engine: Engine, state: State) -> None:
    cases = [
        (state.with_tokens(()), "ablation", None, "Type some text"),
        (state.with_tokens((3,)), "ablation", None, "single token"),
        (state.with_tokens((3, 4)), "ablation", AblationView(effect="in-context score"), "too short"),
        (state, "ablation", AblationView(how="resample"), "pin"),
        (state, "ablation", AblationView(page="sets"), "Shift-click"),
        (state.select(heads=(Head(9, 9),)), "keep_only", None, "Choose the heads"),
        (state.with_tokens((3,)), "keep_only", None, "single token"),
        (state.with_tokens(()), "keep_only", None, "Type some text"),
    ]
    for shown, name, view, words in cases:
        panel, facts = find_panel(name), facts_of(engine, shown.model)
        shown = shown if view is None else shown.with_view(name, view)
        if isinstance(why := panel.requests(shown, facts), Why):
            assert words in why.text
            figure = panel.figure(shown, facts, {}, {})
        else:
            figure = figure_of(engine, panel, shown)
        assert words in figure.why_empty
        assert not figure.grid


def test_resampling_takes_the_pinned_text(engine: Engine, state: State) -> None:
    source = (0, 3, 3, 4)
    pinned = replace(state, pins=(Pin("other", Subject(state.model, source)),))
    heat = drawn(engine, pinned, "ablation", AblationView(how="resample")).find("map")
    assert isinstance(heat, Heatmap)
    wanted = answer(engine, state, AblationParams(how="resample", source=source)).effect
    np.testing.assert_allclose(heat.values, wanted, rtol=1e-6)


def test_clicks_choose_heads_and_tokens(state: State) -> None:
    pick = find_panel("ablation").pick
    assert pick(state, Hit("map", (0, 3))).selection.heads == (Head(0, 3),)
    assert pick(state, Hit("ranking", (0, 3), "shift-click")).selection.heads == (Head(1, 2), Head(0, 3))
    assert pick(state, Hit("text", (4,))).selection.destination == 4
    three = state.select(heads=(Head(1, 2), Head(0, 3), Head(0, 1)))
    assert pick(three, Hit("sets", (0, 1, 0, 3))).selection.heads == (Head(0, 1), Head(0, 3), Head(1, 2))
    assert pick(three, Hit("sets", (0, 1, -1, -1))).selection.heads == (Head(0, 1), Head(1, 2), Head(0, 3))
    assert pick(state, Hit("sets", (-1,) * 4)) is state


def test_the_circuit_stands_among_random_sets(engine: Engine, state: State) -> None:
    heads = (Head(1, 2), Head(0, 1))
    chosen = state.select(heads=heads)
    figure = drawn(engine, chosen, "keep_only", KeepOnlyView(samples=6, seed=3))
    request = Request.named("keep_only", KeepOnlyParams(tuple(sorted(heads)), samples=6, seed=3), chosen.subject)
    found = engine.answer(request).result
    assert isinstance(found, KeepOnlyResult)
    plane, bars = figure.find("plane"), figure.find("minimality")
    assert isinstance(plane, Points) and isinstance(bars, Bars)
    np.testing.assert_allclose(plane.x, 100 * np.array([found.faithfulness, *found.random_faithfulness]))
    np.testing.assert_allclose(plane.y, 100 * np.array([found.completeness, *found.random_completeness]))
    assert plane.chosen == (0,)
    assert plane.ids[0].tolist() == [0, 1, 1, 2]
    for key, members in zip(plane.ids[1:].tolist(), found.random_members, strict=True):
        assert members.ravel().tolist() == key
    assert bars.labels == ("without L0H1", "without L1H2")
    np.testing.assert_allclose(bars.values, 100 * found.minimality, atol=0.051)
    rank, n = found.rank("faithfulness")
    assert ranked(*rank, n) in figure.title
    assert "seed 3" in figure.caption


def test_a_circuit_of_heads_that_change_nothing_says_so(engine: Engine, tmp_path: Path) -> None:
    from circuitlab.model.saving import random_tensors, save_directory

    tensors = random_tensors(CONFIGS["gpt2"], 0, 0.35)
    silent = {k: v * (0 if k.endswith("W_O") else 1) for k, v in tensors.items()}
    save_directory(tmp_path / "m", CONFIGS["gpt2"], silent, None)
    figure = drawn(engine, State(ModelRef(f"file:{tmp_path / 'm'}")).with_tokens(TOKENS), "keep_only")
    assert "changes nothing" in figure.why_empty


def test_a_point_makes_its_set_the_circuit_and_a_bar_leads(state: State) -> None:
    pick, chosen = find_panel("keep_only").pick, state.select(heads=(Head(1, 2), Head(0, 1)))
    assert pick(chosen, Hit("plane", (0, 0, 1, 3))).selection.heads == (Head(0, 0), Head(1, 3))
    assert pick(chosen, Hit("minimality", (0,))).selection.heads == (Head(0, 1), Head(1, 2))
    assert pick(chosen, Hit("minimality", (2,))) is chosen
    assert pick(chosen, Hit("plane", (0, 0), "hover")) is chosen


def test_what_is_asked_is_small_until_a_set_is_chosen(engine: Engine, state: State) -> None:
    panel, facts = find_panel("ablation"), facts_of(engine, state.model)
    many = state.select(heads=tuple(Head(i % 2, i // 2) for i in range(8))).with_view("ablation", AblationView(page="sets"))
    asked = panel.requests(many, facts)
    assert not isinstance(asked, Why)
    assert set(asked) == {"set", "pairs"}
