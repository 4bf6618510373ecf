"""The training panel on a toy series: every page draws, a click is a checkpoint, and what has no series says why."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QSize

from circuitlab.draw.export.pictures import render
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.figures.contracts.common import number
from circuitlab.figures.contracts.hues import head_hue, hue_rgb
from circuitlab.figures.contracts.panel import Why, facts_of, find_panel
from circuitlab.figures.marks import Figure, Heatmap, Hit, Lines, Points
from circuitlab.figures.panels.training.pages import NO_HEADS, ZERO_ON_LOG
from circuitlab.figures.panels.training.panel import TrainingView
from circuitlab.figures.panels.training.points import between, short
from circuitlab.model.records.series_measures import GONE, HEAD_ARRAYS, SeriesMeasures
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.render import figure_of
from circuitlab.state.state import Pin, State
from tests.models import directory
from tests.series_files import lay_beside
from tests.words import lacks_series

PANEL = find_panel("training")
PAGES = ("curves", "loss by index", "plane", "zeroed heads", "heads")
STEPS, TOKENS = (0, 10, 20, 40, 80, 80), (0, 1000, 2000, 4000, 8000, 8000)
SAID = {"texts": 9, "context": 12, "early": [2, 3], "late": [10, 11], "samples": 3, "block": 5, "seed": 7, "half": 5}
SAID |= {"sha256": {"tokens": "aa" * 32}}
Bench = tuple[Engine, State]


def measures(layers: int = 2, seed: int = 0) -> SeriesMeasures:
    """Six points, the score on repeated tokens falling from the third to the fourth; `prefix_matching` of L1H1 rising there."""
    rng, n = np.random.default_rng(seed), len(STEPS)
    widths = {"loss_by_index": 11, "repeated_loss_by_index": 10, "repeated_text_loss_by_index": 10, "token_loss": 30}
    arrays = {name: rng.normal(4, 0.01, (n, width)).astype(np.float32) for name, width in widths.items()}
    arrays["repeated_loss_by_index"][3:, 5:] -= 3
    arrays["loss"] = arrays["loss_by_index"].mean(axis=1)
    arrays |= {name: rng.uniform(0, 0.1, (n, layers, 4)).astype(np.float32) for name in HEAD_ARRAYS}
    if layers > 1:
        arrays["prefix_matching"][3:, 1, 1] = 0.9
    return SeriesMeasures(STEPS, TOKENS, (0, 1, 2, 3, 4, None), arrays, SAID)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = directory(tmp_path_factory.mktemp("m") / "toy")
    lay_beside(folder, measures())
    return Engine(ModelStore()), State(ModelRef(f"file:{folder}")).with_tokens((0, 5, 9)).select(heads=(Head(1, 1),))


def at(state: State, checkpoint: int | None) -> State:
    """The state at a checkpoint of its model."""
    return replace(state, model=replace(state.model, checkpoint=checkpoint))


def drawn(bench: Bench, state: State | None = None, compare: Any = "now", **view: Any) -> Figure:
    """The figure; of a checkpoint whose weights are not there, too: only the final ones are open."""
    engine, state = bench[0], state or bench[1]
    state = replace(state.with_view("training", TrainingView(**view)), compare=compare)
    facts = facts_of(engine, replace(state.model, checkpoint=None))
    asked = PANEL.requests(state, facts)
    if isinstance(asked, Why):
        return PANEL.figure(state, facts, {}, {})
    now = {role: engine.answer(request) for role, request in asked.items()}
    return PANEL.figure(state, facts, now, now if compare != "now" else {})


def hit_ids(mark: Any) -> list[tuple[int, ...]]:
    """All ids that a click on a mark can give."""
    if isinstance(mark, Points):
        return [tuple(row) for row in mark.ids.tolist()]
    rows, cols = (mark.curve_ids, mark.step_ids) if isinstance(mark, Lines) else (mark.row_ids, mark.col_ids)
    assert rows is not None and cols is not None
    return [(*row, *col) for row in rows.tolist() for col in cols.tolist()]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("checkpoint", [0, 3, None])
def test_every_page_draws_and_a_click_on_it_is_a_checkpoint(bench: Bench, page: Any, checkpoint: int | None) -> None:
    state = at(bench[1], checkpoint)
    models = state.model.source.partition(":")[2]  # none of the shipped ones beside it
    figure = drawn(bench, state, page=page, models=models)
    assert figure.grid and figure.title and figure.caption
    render(figure, QSize(520, 300))
    for mark in figure.marks():
        for one in {hit_ids(mark)[0], hit_ids(mark)[-1]}:
            for gesture in ("click", "double-click"):
                picked = PANEL.pick(state, Hit(mark.name, one, gesture))  # type: ignore[arg-type]
                assert picked.model == replace(state.model, checkpoint=None if one[2] < 0 else one[2])
                assert picked.selection.head == (Head(one[0], one[1]) if one[0] >= 0 else state.selection.head)
            for gesture in ("hover", "leave"):
                assert PANEL.pick(state, Hit(mark.name, one, gesture)) is state, "hovering opens no model"  # type: ignore[arg-type]


def test_what_is_asked_does_not_depend_on_the_checkpoint_the_text_or_a_cut(bench: Bench) -> None:
    state = bench[1]
    facts = facts_of(bench[0], state.model)
    asked = PANEL.requests(state, facts)
    assert PANEL.requests(at(state, 2).with_tokens((1, 2, 3, 4)), facts) == asked
    assert not isinstance(asked, Why) and asked["series"].subject.model.checkpoint is None


def test_curves_show_what_was_measured_the_band_and_the_checkpoint(bench: Bench) -> None:
    made, figure = measures(), drawn(bench, at(bench[1], 2))
    loss, score, heads = (figure.find(name) for name in ("loss", "in-context score", "heads"))
    assert isinstance(loss, Lines) and isinstance(score, Lines) and isinstance(heads, Lines)
    np.testing.assert_array_equal(loss.ys[0], made["loss"])
    np.testing.assert_array_equal(heads.ys, made["prefix_matching"].reshape(6, 8).T)
    repeated = made["repeated_loss_by_index"].astype(float)
    np.testing.assert_allclose(score.ys[0], repeated[:, 6:].mean(axis=1) - repeated[:, :5].mean(axis=1))
    assert heads.chosen == (5,) and heads.named is not None and heads.named[0] == 5
    for mark in (loss, score, heads):
        assert mark.x.tolist() == list(TOKENS) and mark.current == 2000
        assert [band[:2] for band in mark.bands] == [(2000, 4000)]
        assert mark.x_axis.log and mark.x_axis.bare == (mark is not heads)
    assert "step 20" in figure.title
    largest = np.unravel_index(made["prefix_matching"][2].argmax(), (2, 4))
    assert str(Head(int(largest[0]), int(largest[1]))) in figure.title
    assert len(re.findall(r"\d+\.\d+ nats", figure.title)) == 2, "numbers have their unit"
    assert re.search(r"\d\.\d\d\s\w+\s3\s×\s5\s×\s2", figure.title), "Heads has another sample"
    of_weights = drawn(bench, at(bench[1], 2), score="copying").title
    assert re.search(r"L\dH\d", of_weights) and "×" not in of_weights
    assert loss.hues[0] == score.hues[2], "the loss on text has the colour that text has below"
    assert re.search(r"\b9\b[^·]*\b12 tokens", figure.caption) and ZERO_ON_LOG in figure.caption
    over_steps = drawn(bench, over="steps", log=False).find("loss")
    assert isinstance(over_steps, Lines) and over_steps.x.tolist() == list(STEPS)
    assert over_steps.bands[0][:2] == (20, 40) and not over_steps.x_axis.log
    text = drawn(bench, context="text").find("in-context score")
    assert isinstance(text, Lines) and len(text.ys) == 1 and not text.bands


def test_a_caption_begins_with_the_page_and_leaves_out_what_does_not_concern_it(bench: Bench) -> None:
    said = {page: drawn(bench, page=page).caption for page in ("curves", "loss by index", "zeroed heads", "heads")}
    assert said["curves"].startswith(ZERO_ON_LOG) and not said["zeroed heads"].startswith(ZERO_ON_LOG)
    for page, caption in said.items():
        assert ("least squares" in caption) == (page == "loss by index"), page
        assert ("in-context score on text" in caption) == (page in ("curves", "zeroed heads")), page
        assert "seed 7" in caption, page


def test_maps_stand_in_the_order_of_training(bench: Bench) -> None:
    made, figure = measures(), drawn(bench, at(bench[1], 4), page="loss by index")
    loss, slope = figure.find("loss by index"), figure.find("slope by index")
    assert isinstance(loss, Heatmap) and isinstance(slope, Heatmap)
    np.testing.assert_array_equal(loss.values[1:], made["loss_by_index"].T)
    assert np.isnan(loss.values[0]).all(), "the first token has no loss"
    assert slope.map == "signed" and slope.levels[0] == -slope.levels[1] < 0
    assert loss.col == 4 and loss.x.ticks == ("0", "1000", "2000", "4000", "8000", "8000")
    heads = drawn(bench, page="heads", score="copying").find("heads")
    assert isinstance(heads, Heatmap) and (heads.row, heads.col) == (5, 5)
    np.testing.assert_array_equal(heads.values, made["copying"].reshape(6, 8).T)
    zeroed = drawn(bench, page="zeroed heads", on="text").find("zeroed")
    assert isinstance(zeroed, Lines)
    np.testing.assert_array_equal(zeroed.ys, made["zeroed_text"].reshape(6, 8).T)


def test_the_plane_joins_each_training_and_a_click_on_another_model_opens_nothing(bench: Bench, tmp_path: Path) -> None:
    other = directory(tmp_path / "other", n_layers=1)
    lay_beside(other, measures(1, seed=4))
    plane = drawn(bench, at(bench[1], 1), page="plane", models=str(other)).find("plane")
    assert isinstance(plane, Points) and plane.hues is not None
    assert plane.paths == (tuple(range(6)), tuple(range(6, 12)))
    assert [text for text, _ in plane.legend] == ["toy", "other"] and len(set(plane.hues.tolist())) == 2
    assert plane.chosen == (1,) and plane.labels[1] == "step 10"
    theirs = tuple(plane.ids[8].tolist())
    assert PANEL.pick(bench[1], Hit("plane", theirs)) is bench[1]  # type: ignore[arg-type]
    assert len({tuple(row) for row in plane.ids.tolist()}) == 12
    late = drawn(bench, page="plane", models=str(other), first=0.002).find("plane")
    assert isinstance(late, Points) and len(late.x) == 8


def test_a_point_whose_weights_were_not_kept_opens_nothing(bench: Bench) -> None:
    state = at(bench[1], 0)
    assert PANEL.pick(state, Hit("loss", (-1, -1, GONE))) is state
    assert "were not kept" in PANEL.why_not(state, Hit("loss", (-1, -1, GONE)))
    for hit in (Hit("loss", (-1, -1, 0)), Hit("loss", (-1, -1, GONE), "hover"), Hit("loss", ()), Hit("other", (-1, -1, GONE))):
        assert not PANEL.why_not(state, hit)
    chosen = PANEL.pick(state, Hit("heads", (1, 1, GONE)))
    assert chosen.model == state.model and chosen.selection.head == Head(1, 1)


def test_heads_are_chosen_and_added_without_leaving_the_checkpoint(bench: Bench) -> None:
    state = at(bench[1], 2)
    chosen = PANEL.pick(state, Hit("heads", (0, 3, 4), "shift-click"))
    assert chosen.selection.heads == (Head(1, 1), Head(0, 3)) and chosen.model.checkpoint == 2
    assert PANEL.pick(state, Hit("heads", (1, 1, 2))) is state
    assert PANEL.pick(state, Hit("loss", (-1, -1))) is state


def test_the_pins_checkpoint_is_marked_and_a_difference_says_that_nothing_differs(bench: Bench) -> None:
    state = replace(at(bench[1], 3), pins=(Pin("early on", at(bench[1], 1).subject),))
    loss = drawn(bench, state).find("loss")
    assert isinstance(loss, Lines) and loss.marks == ((1000.0, "pin, step 10"),)
    plane = drawn(bench, state, page="plane", models=state.model.source.partition(":")[2]).find("plane")
    assert isinstance(plane, Points) and plane.chosen == (3, 1) and plane.labels[1] == "pin, step 10"
    elsewhere = replace(state, pins=(Pin("other", replace(state.subject, model=ModelRef("file:/other", 1))),))
    loss = drawn(bench, elsewhere).find("loss")
    assert isinstance(loss, Lines) and not loss.marks


def test_a_model_without_layers_has_curves_but_no_heads(tmp_path: Path) -> None:
    folder = directory(tmp_path / "zero", n_layers=0)
    lay_beside(folder, measures(0))
    bench = Engine(ModelStore()), State(ModelRef(f"file:{folder}"))
    assert [mark.name for mark in drawn(bench).marks()] == ["loss", "in-context score"]
    for page in ("loss by index", "plane"):
        assert drawn(bench, page=page, models=str(folder)).grid
    for page in ("zeroed heads", "heads"):
        assert NO_HEADS in drawn(bench, page=page).why_empty


@pytest.mark.parametrize("page", PAGES)
def test_a_model_without_a_series_says_why_and_what_to_do(tmp_path: Path, page: Any) -> None:
    bench = Engine(ModelStore()), State(ModelRef(f"file:{directory(tmp_path / 'bare')}"))
    why = drawn(bench, page=page).why_empty
    assert lacks_series(why) and "attn-only-2l" in why and "circuitlab measure" in why


def test_a_name_that_was_not_measured_is_said(bench: Bench, tmp_path: Path) -> None:
    assert "bare" in drawn(bench, page="plane", models=str(directory(tmp_path / "bare"))).why_empty
    assert "77" in drawn(bench, at(bench[1], 77)).title


def test_the_same_answers_give_the_same_arrays(bench: Bench) -> None:
    """Moving the slider draws no curve again."""
    for page in PAGES:
        models = bench[1].model.source.partition(":")[2]
        first, second = (drawn(bench, at(bench[1], i), page=page, models=models) for i in (1, 4))
        for a, b in zip(first.marks(), second.marks(), strict=True):
            if isinstance(a, Lines) and isinstance(b, Lines):
                assert a.x is b.x and a.ys is b.ys and a.x_axis is b.x_axis and a.y_axis is b.y_axis
            if isinstance(a, Heatmap) and isinstance(b, Heatmap):
                assert a.values is b.values and a.x is b.x and a.levels == b.levels
            if isinstance(a, Points) and isinstance(b, Points):
                assert a.x is b.x and a.hues is b.hues and a.x_axis is b.x_axis


def test_a_figure_of_a_real_series_is_asked_for_as_the_window_does(bench: Bench) -> None:
    figure = figure_of(bench[0], PANEL, bench[1])
    assert figure.find("heads") is not None


def cielab(rgb: tuple[int, int, int]) -> np.ndarray:
    """CIE 1976 L*a*b* of an sRGB colour, white D65."""
    c = np.array(rgb) / 255
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    x, y, z = np.cbrt(xyz / (0.9505, 1.0, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("dark", [False, True])
def test_heads_of_small_models_have_colours_of_their_own(dark: bool) -> None:
    for layers, heads, least in ((1, 4, 24), (2, 4, 20), (4, 4, 10), (2, 8, 8), (2, 12, 8)):
        of = [cielab(hue_rgb(head_hue(Head(i, j)), dark)) for i in range(layers) for j in range(heads)]
        apart = [float(np.linalg.norm(a - b)) for a, b in combinations(of, 2)]
        assert min(apart) > least, (layers, heads, min(apart))


def test_a_number_that_rounds_to_nothing_has_no_sign() -> None:
    assert [number(v) for v in (-0.001, 0.001, -0.01, -2.0)] == ["0.00", "0.00", "−0.01", "−2.00"]
    assert (number(-0.2, "+.2f"), number(-1e-7, ".1e"), number(-3, "d"), number(-np.inf)) == ("−0.20", "−1.0e−07", "−3", "−inf")


def test_numbers_of_tokens_in_running_text() -> None:
    numbers = (0, 512, 131072, 999_999, 8388608, 28672000, 1.5e8)
    assert "; ".join(map(short, numbers)) == "0; 512; 131 k; 1 M; 8.39 M; 28.7 M; 150 M"
    assert [between(*pair) for pair in ((7.68e6, 9.73e6), (5e5, 2e6), (100, 400))] == ["7.68–9.73 M", "500 k–2 M", "100–400"]


def test_other_models_lie_over_the_curves_of_this_one(bench: Bench, tmp_path: Path) -> None:
    """The papers' own figures, one model against another: a curve a model, through its own points alone."""
    folder = directory(tmp_path / "other")
    there = measures(seed=3)
    lay_beside(folder, replace(there, tokens=(0, 500, 2000, 3000, 9000, 9000)))
    alone, both = drawn(bench), drawn(bench, models=str(folder), context="text", score="previous token")
    assert [mark.name for mark in both.marks()] == [mark.name for mark in alone.marks()]
    names = ("toy", "other")
    early, late = np.array(SAID["early"]), np.array(SAID["late"])
    for own, tokens, i in ((measures(), TOKENS, 0), (there, (0, 500, 2000, 3000, 9000, 9000), 1)):
        by_index = own["loss_by_index"].astype(float)
        window = lambda ends: by_index[:, ends[0] - 1 : ends[1]].mean(axis=1)  # noqa: B023
        wanted = {
            "loss": own["loss"],
            "in-context score": window(late) - window(early),
            "heads": own["previous_token"].reshape(6, -1).max(axis=1),
        }
        for mark in both.marks():
            assert isinstance(mark, Lines) and mark.joined and mark.names == names
            curve = mark.ys[i]
            assert set(mark.x[np.isfinite(curve)].tolist()) == set(tokens)
            for t in set(tokens):
                last = max(k for k, seen in enumerate(tokens) if seen == t)
                assert curve[mark.x.tolist().index(t)] == pytest.approx(wanted[mark.name][last], rel=1e-5)
    mark = both.find("loss")
    assert isinstance(mark, Lines) and mark.curve_ids is not None and mark.step_ids is not None
    state, where = bench[1], mark.x.tolist()
    for row, t, wanted_point in ((0, 2000, 2), (1, 2000, None), (0, 500, None)):
        hit = Hit("loss", (*mark.curve_ids[row].tolist(), *mark.step_ids[where.index(t)].tolist()))
        picked = PANEL.pick(state, hit)
        assert picked.model.checkpoint == wanted_point, "a point of another model, or between points, opens nothing"
    assert "toy" in both.title and "other" in both.title
    assert drawn(bench, models="no such model").why_empty
