"""The panel of theory against measurement: each number stands at its head, a click chooses head or pair."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from circuitlab.analysis.checks.theory_and_measurement import MEASURED, PREDICTED
from circuitlab.counting import number
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore, reference
from circuitlab.figures.contracts.panel import Answers, Why, facts_of, find_panel
from circuitlab.figures.marks import Hit, Lines, Points, Rows
from circuitlab.figures.panels.theory.pair import Pair, correlation_words, short
from circuitlab.figures.panels.theory.panel import TheoryView
from circuitlab.model.records.series import METRICS
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.answer_data import MOST_ROWS
from circuitlab.report.content import report_of
from circuitlab.report.render import figure_of
from circuitlab.session_files.session import ModelEntry, Session
from circuitlab.state.state import State
from circuitlab.story.arrangements import FRONTS
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from tests.models import directory
from tests.series_files import keep_scaled
from tests.words import lacks_series

PANEL = find_panel("theory")
Bench = tuple[Engine, State]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    path = directory(tmp_path_factory.mktemp("m") / "model", n_ctx=64)
    return Engine(ModelStore()), State(ModelRef(f"file:{path}"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Checkpoints at steps 0, 3 and 9 of a model that was trained for 12."""
    path = directory(tmp_path_factory.mktemp("t") / "model", n_ctx=64)
    keep_scaled(path, {0: 0.2, 3: 0.7, 9: 0.9})
    (path / METRICS).write_text('{"step": 12}')
    return Engine(ModelStore()), State(ModelRef(f"file:{path}"))


def answered(engine: Engine, state: State):
    (request,) = PANEL.requests(state, facts_of(engine, state.model)).values()  # type: ignore[union-attr]
    return engine.answer(request).result


@pytest.mark.parametrize("ranks", [False, True])
def test_every_point_and_row_stands_at_its_head(bench: Bench, ranks: bool) -> None:
    engine, state = bench
    state = state.with_view("theory", TheoryView(predicted="OV copying", measured="ablation", ranks=ranks)).with_heads(Head(1, 2))
    figure, result = figure_of(engine, PANEL, state), answered(engine, state)
    points, rows = figure.find("plane"), figure.find("heads")
    assert isinstance(points, Points) and isinstance(rows, Rows)
    x, y = result.of("OV copying"), result.of("ablation")
    place = lambda values, at: 1 + (values > values[at]).sum()
    columns = {c.name: c.values for c in rows.columns}
    assert len(points.x) == len(rows.ids) == 8
    apart = columns["rank measured − predicted"]
    for i, key in enumerate(map(tuple, points.ids.tolist())):
        assert points.labels[i] == str(Head(*key)) and str(Head(*key)) in points.tips[i]
        expected = ((x < x[key]).sum(), (y < y[key]).sum()) if ranks else (x[key], y[key])
        np.testing.assert_allclose((points.x[i], points.y[i]), expected)
        row = rows.ids.tolist().index(list(key))
        assert columns["head"][row] == str(Head(*key))
        assert (columns["rank predicted"][row], columns["rank measured"][row]) == (place(x, key), place(y, key))
        assert apart[row] == columns["rank measured"][row] - columns["rank predicted"][row]
    assert (np.diff(np.abs(apart)) <= 0).all(), "those that part most come first"
    assert {c.digits for c in rows.columns if "rank" in c.name} == {0}, "no two are equal"
    assert [points.ids[i].tolist() for i in points.chosen] == [rows.ids[i].tolist() for i in rows.chosen] == [[1, 2]]
    first = Head(*rows.ids[0].tolist())
    assert re.search(rf"part most: {first} \(predicted {columns['rank predicted'][0]:g}, ", figure.caption)
    assert "nats" in points.y_axis.label or ranks
    assert "ρ" in figure.title and "8 heads" in figure.title and "L1H2" in figure.title
    assert PANEL.pick(state, Hit("plane", (0, 3))).selection.heads == (Head(0, 3),)
    assert PANEL.pick(state, Hit("heads", (0, 3), "shift-click")).selection.heads == (Head(1, 2), Head(0, 3))


def test_correlations_list_every_pair_and_a_click_chooses_one(bench: Bench) -> None:
    engine, state = bench
    state = state.with_view("theory", TheoryView(page="correlations"))
    rows, result = figure_of(engine, PANEL, state).find("correlations"), answered(engine, state)
    assert isinstance(rows, Rows)
    columns = {c.name: c.values for c in rows.columns}
    assert len(rows.ids) == len(PREDICTED) * len(MEASURED)
    for row, (i, j) in enumerate(map(tuple, rows.ids.tolist())):
        assert (columns["predicted"][row], columns["measured"][row]) == (short(PREDICTED[i]), short(MEASURED[j]))
        for name, array in (("ρ", result.rho), ("from", result.low), ("to", result.high)):
            np.testing.assert_equal(columns[name][row], array[i, j])
        assert (row in rows.strong) == bool(result.low[i, j] > 0 or result.high[i, j] < 0)
    clicked = PANEL.pick(state, Hit("correlations", (3, 1)))
    view = clicked.view("theory", TheoryView)
    assert (view.page, view.predicted, view.measured) == ("correlations", PREDICTED[3], MEASURED[1])
    assert PANEL.pick(clicked, Hit("correlations", (3, 1))) is clicked
    assert PANEL.pick(clicked, Hit("correlations", (3, 1), "double-click")).view("theory", TheoryView).page == "heads"
    assert figure_of(engine, PANEL, clicked).find("correlations").chosen == (3 * len(MEASURED) + 1,)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("numbers", "written"),
    [
        ((0.9975, 0.985, 0.9996, 30), ["0.9975", "0.9850", "0.9996"]),
        ((1.0, 0.83, 1.0, 8), ["1.00", "0.83", "1.00"]),
        ((-0.83, -0.98, -0.18, 8), ["−0.83", "−0.98", "−0.18"]),
        ((1.0, -0.82, 1.0, 4), ["1.00", "−0.82", "1.00"]),
    ],
)
def test_a_correlation_below_1_is_not_written_as_1(numbers: tuple[float, float, float, int], written: list[str]) -> None:
    text = correlation_words(*numbers)
    assert re.findall(r"−?\d\.\d+", text) == written and "95\N{NO-BREAK SPACE}%" in text
    assert ("exclude 0" in text) == (numbers[3] < 6)


@pytest.mark.parametrize(("heads", "layers"), [(4, 2), (3, 2), (5, 1), (3, 1)])
def test_what_intervals_can_tell_is_said_of_those_that_can(tmp_path: Path, heads: int, layers: int) -> None:
    path = directory(tmp_path / "m", n_layers=layers, n_heads=heads, n_kv_heads=heads, n_ctx=64)
    engine, state = Engine(ModelStore()), State(ModelRef(f"file:{path}")).with_view("theory", TheoryView(page="correlations"))
    result, caption = answered(engine, state), figure_of(engine, PANEL, state).caption
    some, telling = int(np.isfinite(result.low).sum()), int((np.isfinite(result.low) & (result.n >= 6)).sum())
    assert (f"one in 20 of the {telling} intervals" in caption) == ("bold" in caption) == (telling > 0)
    assert ("no interval can exclude 0" in caption) == (telling < some)
    assert telling in (0, some) or f"{some - telling} of {some}" in caption


@pytest.mark.parametrize("page", ["heads", "correlations", "training"])
def test_a_report_lists_first_what_is_drawn(trained: Bench, page: str) -> None:
    engine, state = trained
    pair = "positivity through earlier heads", "ablation"
    view = {"theory": {"page": page, "predicted": pair[0], "measured": pair[1]}}
    session = Session(
        {"m": ModelEntry(state.model)}, Setup(model="m"), Story("", (Step("Pair", setup=Setup(show=("theory",), view=view)),))
    )
    (section,) = report_of(session, engine, FRONTS).sections
    data = section.figures[0].data
    assert len(data) == (4 if page == "training" else 1)
    for one in data:
        shown = [row[:3] for row in one.table.cells]
        pairs = [row[:2] for row in shown]
        assert len(shown) == MOST_ROWS < one.table.rows, "not all are shown"
        if page == "correlations":
            assert len(set(pairs[:20])) == len(PREDICTED) * len(MEASURED) == 20, "the first rows, as many as paper has"
        else:
            assert pairs[:8] == [pair] * 8 and [row[2] for row in shown[:8]] == [
                str(Head(i, h)) for i in (0, 1) for h in range(4)
            ]
            assert pair not in pairs[8:]


def test_what_is_not_computed_says_why(bench: Bench, tmp_path: Path) -> None:
    engine, _ = bench
    view = TheoryView(predicted="K-composition")
    one = State(ModelRef(f"file:{directory(tmp_path / 'one', n_layers=1, n_ctx=64)}")).with_view("theory", view)
    assert "one layer" in figure_of(engine, PANEL, one).why_empty
    _, two = bench
    assert "previous-token score" in figure_of(engine, PANEL, two.with_view("theory", view)).why_empty
    constructed = State(reference("rope-induction"))
    assert "1 head" in figure_of(engine, PANEL, constructed).title, "the other one's map is 0, where no token is first"
    assert "no correlation" in figure_of(engine, PANEL, constructed).title


def test_along_the_training_every_checkpoint_is_asked_the_same(trained: Bench) -> None:
    engine, state = trained
    state = state.with_view("theory", TheoryView(page="training", predicted="OV copying", measured="ablation", log=False))
    state = state.with_heads(Head(1, 2))
    figure, facts = figure_of(engine, PANEL, state), facts_of(engine, state.model)
    alone = state.with_view("theory", TheoryView(predicted="OV copying", measured="ablation"))
    results = []
    for checkpoint in (0, 1, 2, None):
        at = replace(alone, model=replace(state.model, checkpoint=checkpoint))
        (request,) = PANEL.requests(at, facts_of(engine, at.model)).values()  # type: ignore[union-attr]
        assert engine.cached(request) is not None, "the page of the heads of that checkpoint has the same answer"
        results.append(engine.answer(request).result)
    at = PREDICTED.index("OV copying"), MEASURED.index("ablation")
    curves = [figure.find(name) for name in ("correlation", "predicted", "measured")]
    assert all(isinstance(one, Lines) and one.x.tolist() == [0, 3, 9, 12] for one in curves)
    rho, predicted, measured = curves
    np.testing.assert_array_equal(rho.ys, [[getattr(r, name)[at] for r in results] for name in ("rho", "low", "high")])  # type: ignore[union-attr]
    for curve, name in ((predicted, "OV copying"), (measured, "ablation")):
        np.testing.assert_array_equal(curve.ys, np.stack([r.of(name).ravel() for r in results], axis=1))  # type: ignore[union-attr]
        assert [curve.names[i] for i in curve.chosen] == ["L1H2"] and curve.current == 12  # type: ignore[union-attr]
    assert "at step 12" in figure.title and "8 heads" in figure.title
    assert not any("K-composition" in part for part in figure.caption_parts), "it is not what is drawn"
    with_K = figure_of(engine, PANEL, state.with_view("theory", TheoryView(page="training", predicted="K-composition")))
    assert any("not computed: K-composition" in part for part in with_K.caption_parts)
    picked = PANEL.pick(state, Hit("measured", (0, 3, 1)))
    assert picked.model.checkpoint == 1 and picked.selection.head == Head(0, 3)
    assert "at step 3" in figure_of(engine, PANEL, picked).title
    assert PANEL.pick(picked, Hit("correlation", (-1, -1, -1))).model.checkpoint is None
    some = {role: engine.answer(r) for role, r in list(PANEL.requests(state, facts).items())[:2]}  # type: ignore[union-attr]
    half = PANEL.figure(state, facts, Answers(some), {})
    assert half.find("correlation").x.tolist() == [0, 3] and "so far: 2 of 4" in half.caption  # type: ignore[union-attr]


def test_final_weights_stand_once_and_only_where_their_step_is_known(tmp_path: Path) -> None:
    engine, view = Engine(ModelStore()), TheoryView(page="training", predicted="OV copying")
    for step, steps in ((9, [3, 9]), (None, [3, 9]), (10, [3, 9, 10])):
        path = directory(tmp_path / str(step), n_ctx=64)
        keep_scaled(path, {3: 0.7, 9: 1.0})
        if step is not None:
            (path / METRICS).write_text(f'{{"step": {step}}}')
        figure = figure_of(engine, PANEL, State(ModelRef(f"file:{path}")).with_view("theory", view))
        curve = figure.find("correlation")
        assert isinstance(curve, Lines) and curve.x.tolist() == steps
        assert curve.current == step and ("no file states their step" in figure.caption) == (step is None)


def test_without_checkpoints_it_says_what_to_do(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, state = bench
    why = PANEL.requests(state.with_view("theory", TheoryView(page="training")), facts_of(engine, state.model))
    assert isinstance(why, Why) and lacks_series(why.text)
    lacking = SimpleNamespace(model="attn-only-2l", words="27 MB")
    monkeypatch.setattr("circuitlab.figures.panels.theory.training.obtainable", lambda ref: lacking)
    why = PANEL.requests(state.with_view("theory", TheoryView(page="training")), facts_of(engine, state.model))
    assert isinstance(why, Why) and "circuitlab get attn-only-2l (27 MB)" in why.text


def test_a_tie_of_heads_that_part_is_not_broken_by_their_order(bench: Bench) -> None:
    result = answered(*bench)
    predicted = np.arange(8.0).reshape(2, 4)
    for values, words, one in (
        (predicted[::-1], "L0H2 (predicted 6, measured 2) and 5 more by as many ranks", "L0H0 −4 and 7 more"),
        (
            predicted.ravel()[[7, 6, 2, 3, 4, 5, 1, 0]].reshape(2, 4),
            "L0H1 (predicted 7, measured 2) and 1 more by",
            "L0H0 −7 and 1 more",
        ),
    ):
        measured = result.measured.copy()
        measured[MEASURED.index("ablation")] = values
        quantities = result.predicted.copy()
        quantities[PREDICTED.index("OV copying")] = predicted
        tied = Pair(replace(result, predicted=quantities, measured=measured), "OV copying", "ablation")
        assert words in tied.parting_words() and tied.parting_words().endswith("of 8 ranks, 1 the largest")
        ((head, apart),), more = tied.parting(1)
        assert f"{head} {number(apart, '+g')}{more}" == one
