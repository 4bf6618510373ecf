"""Term importance, induction, head finder: what stands in their marks is what the analyses gave; a click selects."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

from circuitlab.analysis.attention.copying_on_random_tokens import CopyingHeadScoreParams
from circuitlab.analysis.attention.head_scores import HeadScoresParams
from circuitlab.analysis.attention.prefix_matching import PrefixStripeParams
from circuitlab.analysis.attribution.term_importance import TermImportanceParams, listed_orders
from circuitlab.analysis.attribution.token_attribution import TokenAttributionParams, token_attribution
from circuitlab.analysis.behaviour.in_context import InContextParams
from circuitlab.analysis.circuits.own_tokens import OwnTokensParams
from circuitlab.analysis.composition.scores import CompositionParams
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams
from circuitlab.draw.painted.tokens import TokensMark
from circuitlab.draw.plots.points import PointsMark
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Refused
from circuitlab.figures.contracts.hues import head_hue, hue_rgb
from circuitlab.figures.contracts.panel import Why, facts_of, find_panel
from circuitlab.figures.contracts.selection_reading import of_weights
from circuitlab.figures.marks import Figure, Heatmap, Hit, Lines, Points, Rows, Tokens
from circuitlab.figures.panels.head_finder import TABLE, HeadFinderView, Score, short
from circuitlab.figures.panels.induction.panel import ELSEWHERE, InductionView
from circuitlab.figures.panels.induction.text import roles_of
from circuitlab.figures.panels.term_importance import TermImportanceView, _what
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.render import figure_of
from circuitlab.state.state import Pin, State
from tests.figures.drawing import drawn
from tests.models import CONFIGS, TINY, directory

TOKENS = (0, 5, 9, 5, 7, 5, 9, 5)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    ref = ModelRef(f"file:{directory(tmp_path_factory.mktemp('m') / 'model', CONFIGS['attention-only'])}")
    return State(ref).with_tokens(TOKENS).select(heads=(Head(1, 2),))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("t") / "text.txt"
    path.write_text("one two three one two three " * 12, encoding="utf-8")
    return str(path)


def answer(engine: Engine, state: State, name: str, params: Any, weights: bool = False) -> Any:
    return engine.answer(Request.named(name, params, of_weights(state) if weights else state.subject)).result


def column(rows: Any, name: str) -> Any:
    assert isinstance(rows, Rows)
    return next(c.values for c in rows.columns if c.name == name)


def test_term_importance_shows_orders_layers_and_heads(engine: Engine, state: State) -> None:
    result = answer(engine, state, "term_importance", TermImportanceParams(heads=True))
    figure = drawn(engine, state, "term_importance", TermImportanceView(heads=True))
    np.testing.assert_array_equal(column(figure.find("orders"), "takes away"), result.reduction)
    np.testing.assert_allclose(column(figure.find("orders"), "per term"), result.reduction / [1, 8, 16])
    parts = figure.find("parts")
    assert isinstance(parts, Rows)
    alone, last = column(parts, "alone"), column(parts, "added last")
    for i, (layer, head) in enumerate(parts.ids.tolist()):
        wanted = result.layer_reduction[:, layer] if head < 0 else result.head_reduction[:, layer, head]
        assert (alone[i], last[i]) == tuple(wanted)
    assert [parts.ids[i].tolist() for i in parts.chosen] == [[1, 2]]
    assert "noise" in figure.caption and "remainder" in figure.caption
    assert figure.title.startswith("Loss 5.56 →")  # ln 260
    bare = drawn(engine, state, "term_importance").find("parts")
    assert isinstance(bare, Rows) and bare.ids.tolist() == [[0, -1], [1, -1]]


def test_term_importance_on_a_file_has_errors_and_says_of_how_many(engine: Engine, state: State, text: str) -> None:
    figure = drawn(engine, state, "term_importance", TermImportanceView("file", text, 3))
    assert np.isfinite(column(figure.find("orders"), "±")).all()
    assert re.search(r"\b3\b.*\b48\b.*text\.txt", figure.caption)
    cut = replace(state, edits=((Intervention("zero", Site("result", 0)), True),))
    without = drawn(engine, cut, "term_importance", TermImportanceView("file", text, 3))
    assert column(without.find("parts"), "alone")[0] == 0
    asked = find_panel("term_importance").requests(
        state.with_view("term_importance", TermImportanceView("file")), facts_of(engine, state.model)
    )
    assert isinstance(asked, Why) and "file" in asked.text


def test_term_importance_beside_a_pin(engine: Engine, state: State) -> None:
    pinned = replace(state, pins=(Pin("before", state.with_tokens((0, 3, 4, 3, 4)).subject),), compare="difference")
    orders = drawn(engine, pinned, "term_importance").find("orders")
    there = answer(engine, state.with_tokens((0, 3, 4, 3, 4)), "term_importance", TermImportanceParams())
    np.testing.assert_array_equal(column(orders, "in before"), there.reduction)
    np.testing.assert_allclose(column(orders, "Δ"), column(orders, "takes away") - there.reduction)


def test_a_row_of_a_head_chooses_it(state: State) -> None:
    pick = find_panel("term_importance").pick
    assert pick(state, Hit("parts", (0, 3))).selection.head == Head(0, 3)
    assert pick(state, Hit("parts", (0, -1))) is state
    assert pick(state, Hit("orders", (1,))) is state


@pytest.mark.parametrize("on", ["random", "prompt", "file"])
def test_the_loss_by_index_with_its_repetitions(engine: Engine, state: State, text: str, on: Any) -> None:
    view = InductionView("loss", on, file=text, texts=3)
    figure = drawn(engine, state, "induction", view)
    lines = figure.find("loss")
    assert isinstance(lines, Lines)
    params = {"random": InContextParams(texts=3), "prompt": InContextParams(on="prompt")}
    if on == "file":
        assert "3 pieces" in figure.caption and len(lines.ys) == 3
        return
    result = answer(engine, state, "in_context", params[on], weights=on == "random")
    np.testing.assert_array_equal(lines.ys[0], result.loss)
    if on == "random":
        np.testing.assert_allclose(lines.ys[2] - lines.ys[0], result.spread)
        np.testing.assert_allclose(lines.ys[1], np.where(result.spread > result.loss, 0, result.loss - result.spread))
        assert "0 at least" in lines.names[1], "no loss is below 0"
        assert [m[0] for m in lines.marks] == [1, 24]  # BOS, 23 tokens twice
        first, second = result.repetitions.mean(axis=0)
        assert f"repetition 2: {second:.2f} nats" in figure.title
        assert ("above a uniform guess, 5.56 nats" in figure.caption) == (first > np.log(260))
        assert first > np.log(260), "said of the model of these tests"
    slope = drawn(engine, state, "induction", replace(view, curve="slope")).find("loss")
    assert isinstance(slope, Lines)
    np.testing.assert_array_equal(slope.ys[0], result.derivative)


def test_interventions_and_the_pin_show_in_the_loss(engine: Engine, state: State) -> None:
    cut = replace(state, edits=((Intervention("zero", Site("result", 1)), True),))
    view = InductionView("loss", texts=2)
    plain, edited = (drawn(engine, s, "induction", view).find("loss") for s in (state, cut))
    assert isinstance(plain, Lines) and isinstance(edited, Lines)
    assert not np.allclose(plain.ys[0][1:], edited.ys[0][1:])
    compared = replace(cut, pins=(Pin("whole", state.subject),), compare="difference")
    both = drawn(engine, compared, "induction", view).find("loss")
    assert isinstance(both, Lines) and both.names == ("now", "whole")
    np.testing.assert_array_equal(both.ys, [edited.ys[0], plain.ys[0]])


@pytest.mark.parametrize("on", ["random", "prompt"])
def test_the_stripe_is_coloured_where_the_source_followed_a_like_token(engine: Engine, state: State, on: Any) -> None:
    figure = drawn(engine, state, "induction", InductionView("stripe", on))
    heat, mass = figure.find("stripe"), figure.find("mass")
    assert isinstance(heat, Heatmap) and isinstance(mass, Tokens) and heat.rgb is not None
    result = answer(engine, state, "prefix_stripe", PrefixStripeParams(Head(1, 2), on))
    tokens, A = result.tokens.tolist(), result.pattern
    full = np.array(hue_rgb(head_hue(Head(1, 2))))
    other = max(np.array(ELSEWHERE), key=lambda ink: np.abs(ink - full).sum())
    sums = []
    for d in range(len(tokens)):
        targets = [s for s in range(1, d + 1) if tokens[s - 1] == tokens[d]]
        for s in range(len(tokens)):
            ink, strength = (full, 0.16 + 0.84 * A[d, s]) if s in targets else (other, A[d, s])
            np.testing.assert_allclose(heat.rgb[d, s], 255 - strength * (255 - ink), atol=1)
        if targets:
            sums.append(A[d, targets].sum())
            assert mass.values[d] == pytest.approx(sums[-1], abs=1e-6)
        else:
            assert np.isnan(mass.values[d])
    assert f"{np.mean(sums):.2f}" in figure.title
    assert [colour for _, colour in heat.legend] == [tuple(full), tuple(other)], "every colour of the map has a name"
    if on == "prompt":
        np.testing.assert_allclose(A, engine_pattern(engine, state), atol=1e-5)


def engine_pattern(engine: Engine, state: State) -> np.ndarray:
    model = engine.store.open(state.model)
    from circuitlab.model.forward import forward

    return forward(model.weights(state.conventions), state.tokens).get("pattern", 1, (2,))[0].numpy()


def test_the_stripe_is_the_sample_of_the_scores(engine: Engine, state: State) -> None:
    scores = answer(engine, state, "head_scores", HeadScoresParams(block=9, repeats=2, samples=1, seed=3), weights=True)
    for layer, head in ((0, 0), (1, 3)):
        stripe = answer(engine, state, "prefix_stripe", PrefixStripeParams(Head(layer, head), block=9, seed=3), weights=True)
        assert stripe.score == pytest.approx(scores.of("prefix_matching")[layer, head], abs=1e-6)
    none = answer(engine, state.with_tokens((1, 2, 3)), "prefix_stripe", PrefixStripeParams(Head(0, 0), "prompt"))
    assert np.isnan(none.score) and none.table().n_rows == 3
    with pytest.raises(BadInput):
        answer(engine, state, "prefix_stripe", PrefixStripeParams(Head(7, 0)))


@pytest.mark.parametrize("on", ["random", "prompt"])
def test_heads_stand_by_prefix_matching(engine: Engine, state: State, on: Any) -> None:
    rows = drawn(engine, state, "induction", InductionView("heads", on)).find("heads")
    params = HeadScoresParams() if on == "random" else HeadScoresParams(on="text")
    result = answer(engine, state, "head_scores", params, weights=on == "random")
    copying = answer(engine, state, "copying_head_score", CopyingHeadScoreParams(), weights=True)
    assert isinstance(rows, Rows)
    places = tuple(rows.ids.T)
    np.testing.assert_array_equal(column(rows, "prefix"), result.of("prefix_matching")[places])
    np.testing.assert_array_equal(column(rows, "control"), result.control[0][places])
    np.testing.assert_array_equal(column(rows, "previous"), result.of("previous_token")[places])
    np.testing.assert_array_equal(column(rows, "copying"), copying.of("repeated")[places])
    assert (np.diff(column(rows, "prefix")) <= 0).all()


@pytest.mark.parametrize("read", [None, 3])
def test_the_text_shows_where_the_head_looks_and_what_that_adds(engine: Engine, state: State, read: int | None) -> None:
    there = state.select(destination=read, locked=read is not None)
    figure = drawn(engine, there, "induction", InductionView("text"))
    where, raised, roles = (figure.find(n) for n in ("attention", "effect", "roles"))
    assert isinstance(where, Tokens) and isinstance(raised, Tokens)
    query = 7 if read is None else read
    effect = answer(engine, state, "token_attribution", TokenAttributionParams(position=query, heads=(Head(1, 2),)))
    wanted = np.where(np.arange(8) <= query, engine_pattern(engine, state)[query], np.nan)
    np.testing.assert_allclose(where.values, wanted, atol=1e-5)
    np.testing.assert_allclose(raised.values, effect.values[0], rtol=1e-6)
    assert where.row == query and raised.row == (None if read is None else 4)
    key = int(np.nanargmax(where.values))
    places = [key - 1, key, query] if key else [key, query]
    assert column(roles, "position").tolist() == [*map(str, places), "next"]
    assert column(roles, "").tolist() == [*(["key"] if key else []), "source", "destination", "out"]
    assert (where.named, where.arrows) == roles_of(key, query)
    assert ("prefix matching" in figure.caption) == (key > 0 and TOKENS[key - 1] == TOKENS[query])
    facts = facts_of(engine, state.model)
    assert column(roles, "token")[-1] == facts.token_text(int(effect.ids[0, 0]))
    if read == 3:
        assert int(effect.ids[0, 0]) == TOKENS[4]
    assert column(roles, "logit")[-1] == pytest.approx(effect.summed[: query + 1].sum(), rel=1e-4)


@pytest.mark.parametrize(
    ("source", "query", "named", "arrows"),
    [
        (3, 7, ((2, "key"), (3, "source"), (7, "destination")), ((2, 3), (3, 7))),
        (0, 7, ((0, "source"), (7, "destination")), ((0, 7),)),
        (7, 7, ((7, "source = destination"),), ()),
    ],
)
def test_key_source_and_destination_have_their_arrows(source: int, query: int, named: Any, arrows: Any) -> None:
    """The key, the token before the source, goes into the source; the source is moved to the destination."""
    assert roles_of(source, query) == (named, arrows)


def test_arrows_and_words_stand_above_the_text(view: Any) -> None:
    """In the accent, over the boxes; without them a line takes no more room than before."""
    texts = tuple(f"tok{i}" for i in range(12))
    plain = Tokens("text", texts, np.full(12, np.nan, np.float32))
    words, arrows = replace(plain, named=((2, "key"), (9, "destination"))), replace(plain, arrows=((2, 3), (3, 9)))
    heights, inks = [], []
    for mark in (plain, words, arrows):
        view.show_figure(Figure(((mark,),)))
        (widget,) = view.findChildren(TokensMark)
        heights.append(widget.content_height(560))
        image = widget.viewport().grab().toImage()
        accent, paper = (widget.theme.colour(name).getRgb()[:3] for name in ("accent", "background"))
        blends = [tuple(share * a + (1 - share) * b for a, b in zip(accent, paper, strict=True)) for share in (0.75, 1.0)]
        pixels = [image.pixelColor(x, y).getRgb()[:3] for y in range(60) for x in range(image.width())]
        inks.append(sum(any(sum(abs(a - b) for a, b in zip(c, ink, strict=True)) < 40 for ink in blends) for c in pixels))
    assert heights[2] == heights[1] > heights[0]
    assert min(inks[1:]) > inks[0] + 40, "words alone are seen, and arrows alone"


def test_pages_without_a_text_say_what_to_do(engine: Engine, state: State) -> None:
    facts, panel = facts_of(engine, state.model), find_panel("induction")
    for view in (
        InductionView("text"),
        InductionView("loss", "prompt"),
        InductionView("stripe", "prompt"),
        InductionView("heads", "file"),
    ):
        asked = panel.requests(state.with_tokens(()).with_view("induction", view), facts)
        assert isinstance(asked, Why) and asked.text.endswith(".")
    assert isinstance(panel.requests(state.with_view("induction", InductionView("loss", "file")), facts), Why)


def test_induction_clicks(state: State) -> None:
    pick = find_panel("induction").pick
    assert pick(state, Hit("heads", (0, 1))).selection.head == Head(0, 1)
    assert pick(state, Hit("attention", (3,))).selection.destination == 3
    assert pick(state, Hit("stripe", (3, 2))) is state  # random tokens are not the prompt's
    own = pick(state.with_view("induction", InductionView("stripe", "prompt")), Hit("stripe", (3, 2)))
    assert (own.selection.destination, own.selection.source, own.selection.locked) == (3, 2, True)


def finder_values(engine: Engine, state: State) -> dict[str, np.ndarray]:
    scores = answer(engine, state, "head_scores", HeadScoresParams(), weights=True)
    copying = answer(engine, state, "copying_head_score", CopyingHeadScoreParams(), weights=True)
    weights = answer(engine, state, "copying_scores", CopyingScoresParams(diagonal="none"), weights=True)
    own = answer(engine, state, "own_tokens", OwnTokensParams(), weights=True)
    pairs = answer(engine, state, "composition", CompositionParams(), weights=True)
    k = pairs.scores[pairs.kinds.index("K")]
    return {
        "prefix matching": scores.of("prefix_matching"),
        "entropy": scores.of("entropy"),
        "copying (repeated)": copying.of("repeated"),
        "copying (unrepeated)": copying.of("unrepeated"),
        "OV copying": weights.copying,
        "own token in top 10": own.top10,
        "own token first": own.top1,
        "QK positivity": weights.qk_positivity,
        "K-composition, largest": np.array([[np.nan] * 4, k[1, :, 0].max(axis=1)]),
        "layer": np.array([[0.0] * 4, [1.0] * 4]),
    }


@pytest.mark.parametrize(
    ("y", "x", "colour"),
    [
        ("prefix matching", "copying (repeated)", "layer"),
        ("OV copying", "K-composition, largest", "entropy"),
        ("QK positivity", "copying (unrepeated)", "prefix matching"),
    ],
)
def test_the_plane_has_the_scores_that_were_asked_for(engine: Engine, state: State, y: Any, x: Any, colour: Any) -> None:
    values = finder_values(engine, state)
    figure = drawn(engine, state, "head_finder", HeadFinderView(y=y, x=x, colour=colour))
    if "prefix" not in f"{y} {x}":
        assert figure.find("plane").controls is None  # type: ignore[union-attr]
    points = figure.find("plane")
    assert isinstance(points, Points) and points.values is not None
    places = tuple(points.ids.T)
    np.testing.assert_array_equal(points.y, values[y][places])
    np.testing.assert_allclose(points.x, values[x][places], rtol=1e-6)
    np.testing.assert_allclose(points.values, values[colour][places], rtol=1e-6)
    assert (np.diff(points.y) <= 0).all()
    placed = int(np.isfinite(values[y] + values[x]).sum())
    assert len(points.x) == placed
    assert figure.shown == (None if placed == 8 else (placed, 8))
    rank = int((values[y] > values[y][1, 2]).sum()) + 1
    assert figure.title.startswith(f"L1H2 · {y} ") and f"(rank {rank})" in figure.title
    assert [points.ids[i].tolist() for i in points.chosen] == [[1, 2]]


def test_the_plane_shows_the_control_and_never_zooms_into_noise(engine: Engine, state: State, view: Any) -> None:
    scores = answer(engine, state, "head_scores", HeadScoresParams(), weights=True)
    own = answer(engine, state, "own_tokens", OwnTokensParams(), weights=True)
    figure = drawn(engine, state, "head_finder", HeadFinderView())
    points = figure.find("plane")
    assert isinstance(points, Points) and points.controls is not None and points.sight is not None
    places = tuple(points.ids.T)
    np.testing.assert_allclose(points.controls[:, 1], scores.control[0][places], rtol=1e-6)
    np.testing.assert_allclose(points.controls[:, 0], own.top10[places], rtol=1e-6)
    assert points.sight == (0, 1, 0, 1) and "control" in figure.caption and "chance" in figure.caption
    small = replace(points, x=points.x * 1e-3, y=points.y * 1e-3, controls=points.controls * 1e-3)
    view.resize(640, 480)
    view.show_figure(replace(figure, grid=((small,),)))
    (mark,) = view.findChildren(PointsMark)
    (x0, x1), (y0, y1) = mark.full_range()
    assert x0 <= 0 and y0 <= 0 and x1 >= 1 and y1 >= 1


def test_the_slider_keeps_the_highest(engine: Engine, state: State) -> None:
    figure = drawn(engine, state, "head_finder", HeadFinderView(top=3))
    points, prefix = figure.find("plane"), finder_values(engine, state)["prefix matching"]
    assert isinstance(points, Points)
    np.testing.assert_array_equal(points.y, np.sort(prefix.ravel())[::-1][:3])
    assert figure.shown == (3, 8)


def test_the_table_has_copying_prefix_matching_and_depth(engine: Engine, state: State) -> None:
    values, rows = finder_values(engine, state), drawn(engine, state, "head_finder", HeadFinderView("table")).find("table")
    assert isinstance(rows, Rows) and len(rows.ids) == 8
    places = tuple(rows.ids.T)
    assert {name for name in get_args(Score) if name != "layer"} == set(TABLE)
    shown = {c.name for c in rows.columns}
    assert {short(name) for name in TABLE} <= shown and "control" in shown
    for name in values:
        if name in TABLE:
            np.testing.assert_allclose(column(rows, short(name)), values[name][places], rtol=1e-6)
    assert (np.diff(column(rows, "prefix")) <= 0).all()
    control = answer(engine, state, "head_scores", HeadScoresParams(), weights=True).control[0]
    np.testing.assert_array_equal(column(rows, "control"), control[places])
    assert column(rows, "layer").tolist() == [f"{layer + 1} / 2" for layer in places[0]]
    assert find_panel("head_finder").pick(state, Hit("table", (0, 3))).selection.head == Head(0, 3)
    assert find_panel("head_finder").pick(state, Hit("plane", (0, 3), "shift-click")).selection.heads == (Head(1, 2), Head(0, 3))


def test_scores_that_a_model_refuses_are_left_out_or_named(engine: Engine, tmp_path: Path) -> None:
    ref = ModelRef(f"file:{directory(tmp_path / 'm', CONFIGS['post-residual'])}")
    state = State(ref).with_tokens(TOKENS)
    facts, panel = facts_of(engine, ref), find_panel("head_finder")
    asked = panel.requests(state.with_view("head_finder", HeadFinderView()), facts)
    assert isinstance(asked, Why) and "norm" in asked.text
    table = drawn(engine, state, "head_finder", HeadFinderView("table"))
    assert "left out" in table.caption and table.find("table") is not None
    text = drawn(engine, state, "induction", InductionView("text"))
    reason = token_attribution.refuse(facts.config, TokenAttributionParams())
    assert reason is not None and Refused(reason).what in text.caption
    assert text.find("attention") is not None and text.find("effect") is None
    assert drawn(engine, state, "induction", InductionView("heads")).find("heads") is not None


@pytest.mark.parametrize("tokens", [(1,), (1, 2)])
def test_short_prompts_draw_or_say_why(engine: Engine, state: State, tokens: Any) -> None:
    short, facts = state.with_tokens(tokens), facts_of(engine, state.model)
    for name, views in {
        "term_importance": (TermImportanceView(),),
        "induction": tuple(InductionView(page, "prompt") for page in ("loss", "stripe", "heads", "text")),
        "head_finder": (HeadFinderView(on="text"), HeadFinderView("table", on="text")),
    }.items():
        for view in views:
            there = short.with_view(name, view)
            if isinstance(find_panel(name).requests(there, facts), Why):
                continue
            figure = figure_of(engine, find_panel(name), there)
            assert figure.grid or figure.why_empty


def test_of_a_deep_model_the_number_of_chains_is_not_a_row_of_digits() -> None:
    """Thirty layers of nine heads: C(30, 5) 9⁵ chains of five heads and more, 1.0e30 in all."""
    orders, terms = listed_orders(replace(TINY, n_layers=30, n_heads=9, n_kv_heads=9), 4)
    result: Any = SimpleNamespace(orders=np.array(orders), terms=np.array(terms), name=lambda i: f"order {orders[i]}")
    words = [_what(result, i, facts_of(Engine(ModelStore()), ModelRef("builtin:attn-only-2l"))) for i in range(len(orders))]
    assert words[2:4] == ["virtual heads (35,235)", "chains of 3 (2,959,740)"] and words[-1].endswith("(1.0e+30)")
