"""Theory against measurement: every head by what its weights predict and by what is measured, and how far the two agree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from circuitlab.analysis.base import Table
from circuitlab.analysis.checks.theory_and_measurement import (
    MEASURED,
    PREDICTED,
    UNITS,
    TheoryAndMeasurementParams,
    TheoryAndMeasurementResult,
    theory_and_measurement,
)
from circuitlab.analysis.ordering import descending
from circuitlab.analysis.rank_correlation import TELLING
from circuitlab.caption_parts import About, Essential, about_of, essential, sense_of
from circuitlab.counting import number
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import caption, head_column, hints, published, rows_of_heads
from circuitlab.figures.contracts.heads import pick_head
from circuitlab.figures.contracts.hues import head_hue
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import of_weights
from circuitlab.figures.marks import Axis, Figure, Hit, Points, RowColumn, Rows, empty, ids
from circuitlab.figures.panels.theory.pair import Measured, Pair, Predicted, axis_of, concerning, digits_below_one, ends_of, short
from circuitlab.figures.panels.theory.training import MARKS, over_training, pick_over_training, training_requests
from circuitlab.model.subject import Head
from circuitlab.state.state import State

ROLE = "now"
APART = "rank measured − predicted"


@dataclass(frozen=True)
class TheoryView:
    """The controls of the panel."""

    page: Literal["heads", "correlations", "training"] = control(
        "heads",
        label="",
        tip="All heads by one pair of quantities, all pairs in a table, or the pair along the training",
        kind="tabs",
    )
    predicted: Predicted = control("own token in top 10", label="Predicted", tip="From the weights: to the right")
    measured: Measured = control("prefix matching", label="Measured", tip="On random tokens: upwards")
    ranks: bool = control(
        False, label="Ranks", tip="How many heads are below each, in place of values", when="page", values=("heads",)
    )
    log: bool = control(True, label="Log", tip="Steps on a logarithmic axis", when="page", values=("training",))
    frozen: bool = control(True, label="Hold patterns", tip="Ablation with the patterns of later layers held, or recomputed")


def _view(state: State) -> TheoryView:
    return state.view("theory", TheoryView)


def requests(state: State, facts: Facts) -> Requests | Why:
    """All quantities at once: another pair costs nothing."""
    view = _view(state)
    params = TheoryAndMeasurementParams(frozen=view.frozen)
    if view.page == "training":
        return training_requests(state, facts, params)
    return {ROLE: Request(theory_and_measurement, params, of_weights(state))}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The open page."""
    view = _view(state)
    if view.page == "training":
        return over_training(state, facts, answers, view.predicted, view.measured, view.log)
    answer = answers.of(ROLE, theory_and_measurement)
    pair = Pair(answer.result, view.predicted, view.measured)
    text = caption(answer, "a prediction from weights is a hint, not a mechanism", published(facts))
    if view.page == "correlations":
        title = f"{view.predicted} against {view.measured}: {pair.words}"
        return Figure(((_correlations(answer, view),),), title, (*chance_words(answer.result), *text))
    if not np.isfinite(pair.differences).any():
        return _without(answer, view)
    row = (_plane(state, answer, pair, facts), _heads(state, answer, pair))
    measured = lambda part: not set(sense_of(part).quantities).isdisjoint(MEASURED)
    text = tuple(essential(part) if measured(part) else part for part in concerning(text, *pair.quantities))
    return Figure((row,), _title(state, pair), (pair.parting_words(), *text) if pair.parting_words() else text)


def chance_words(result: TheoryAndMeasurementResult) -> tuple[str, ...]:
    """How many intervals can exclude 0 at all, and how many of them would by chance."""
    n = result.n[np.isfinite(result.low)]
    telling = int((n >= TELLING).sum())
    few = f"with fewer than {TELLING} heads no interval can exclude 0"
    if not telling:
        return (Essential(few),) if n.size else ()
    chance = f"by chance fewer than one in 20 of the {telling} intervals over {TELLING} or more heads misses 0"
    rest = (Essential(f"{few}: {n.size - telling} of {n.size}"),) if telling < n.size else ()
    return ("bold: the interval does not hold 0", Essential(chance), *rest)


def _without(answer: Answer[TheoryAndMeasurementResult], view: TheoryView) -> Figure:
    """Why no head has both quantities."""
    if not answer.complete:
        return Figure(title="Theory and measurement")
    concerns = concerning(answer.result.conventions, view.predicted, view.measured)
    why = next((part for part in concerns if about_of(part) is About.NOT_COMPUTED), "no head has both")
    return empty(f"{why[0].upper()}{why[1:]}. Other quantities have values.", "Theory and measurement")


def _title(state: State, pair: Pair) -> str:
    """The correlation, and the leading head with its values."""
    head, both = state.selection.head, pair.differences
    title = f"{pair.predicted} against {pair.measured}: {pair.words}"
    if not (head.layer < both.shape[0] and head.head < both.shape[1] and np.isfinite(both[head])):
        return title
    predicted, measured = (number(pair.result.of(name)[head], ".3f") for name in pair.quantities)
    values = f"predicted {predicted}, measured {measured}"
    return f"{title} · {head} {values}"


def _plane(state: State, answer: Answer[TheoryAndMeasurementResult], pair: Pair, facts: Facts) -> Points:
    """Every head that has both; those where they part most find room for their names first."""
    view, notes = _view(state), hints(facts)
    key = (pair.predicted, pair.measured)
    order = memo(answer, ("order", *key), lambda: _by_difference(pair))
    layer, head = np.unravel_index(order, pair.differences.shape)
    keys = memo(answer, ("ids", *key), lambda: ids(layer, head))
    first, second = pair.places(pair.predicted), pair.places(pair.measured)
    below = lambda name: len(order) - pair.places(name)
    read = below if view.ranks else pair.result.of
    x, y = memo(answer, ("points", *key, view.ranks), lambda: tuple(read(name).ravel()[order].astype(float) for name in key))
    n = len(order)

    def tip(i: int) -> str:
        at = int(layer[i]), int(head[i])
        named = zip(key, (first, second), strict=True)
        parts = [f"{name} {number(pair.result.of(name)[at], '.3g')} (rank {rank[at]:g})" for name, rank in named]
        return " · ".join(filter(None, (str(Head(*at)), *parts, _source(pair, at), notes.get(at, ""))))

    across, up = ((0.0, max(1.0, n - 1.0)) if view.ranks else ends_of(name) for name in key)
    label = lambda name: Axis(f"heads below in {name}", whole=True) if view.ranks else axis_of(name)
    return Points(
        name="plane",
        x=x,
        y=y,
        ids=keys,
        labels=tuple(str(Head(int(a), int(b))) for a, b in zip(layer, head, strict=True)),
        tips=tuple(tip(i) for i in range(n)),
        hues=memo(
            answer, ("hues", *key), lambda: np.array([head_hue(Head(int(a), int(b))) for a, b in zip(layer, head, strict=True)])
        ),
        chosen=rows_of_heads(state, keys),
        x_axis=memo(answer, ("axis", pair.predicted, view.ranks), lambda: label(pair.predicted)),
        y_axis=memo(answer, ("axis", pair.measured, view.ranks), lambda: label(pair.measured)),
        sight=(*across, *up),
    )


def _source(pair: Pair, at: tuple[int, int]) -> str:
    source = pair.result.source[at]
    return f"composes with {Head(*map(int, source))}" if pair.predicted == "K-composition" and source[0] >= 0 else ""


def _by_difference(pair: Pair) -> np.ndarray:
    """Flat indices of the heads that have both, those with the largest difference of ranks first."""
    flat = np.abs(pair.differences).ravel()
    order = descending(flat)
    return order[np.isfinite(flat[order])]


def _heads(state: State, answer: Answer[TheoryAndMeasurementResult], pair: Pair) -> Rows:
    """A row for each head that has both, those where they part most first."""
    key = (pair.predicted, pair.measured)

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        order = _by_difference(pair)
        layer, head = np.unravel_index(order, pair.differences.shape)
        flat = lambda values: np.asarray(values, float).ravel()[order]
        first, second = pair.places(pair.predicted), pair.places(pair.measured)
        known = np.concatenate([values[np.isfinite(values)] for values in (first, second)])
        halves = int(bool((known % 1).any()))  # equal values share the mean of their ranks
        columns = [
            head_column(layer, head),
            *(
                RowColumn(title, flat(pair.result.of(name)), digits=3, tip=f"{name}, {UNITS[name]}", reads="ranked")
                for title, name in (("predicted", pair.predicted), ("measured", pair.measured))
            ),
            RowColumn(
                APART,
                flat(pair.differences),
                digits=halves,
                map="signed",
                levels=(-float(max(1, len(order) - 1)), float(max(1, len(order) - 1))),
                tip="Rank measured − rank predicted, in ranks, 1 the largest; below 0: nearer the top than predicted",
                reads="change",
                alone="rank measured − rank predicted (ranks, 1 the largest)",
            ),
            RowColumn(
                "rank predicted",
                flat(first),
                digits=halves,
                tip="By what is predicted, 1 the largest",
                spare=True,
                alone="rank predicted (1 the largest)",
            ),
            RowColumn(
                "rank measured",
                flat(second),
                digits=halves,
                tip="By what is measured, 1 the largest",
                spare=True,
                alone="rank measured (1 the largest)",
            ),
        ]
        return tuple(columns), ids(layer, head)

    columns, keys = memo(answer, ("rows", *key), make)
    return Rows("heads", columns, keys, chosen=rows_of_heads(state, keys), ranked=True)


def _correlations(answer: Answer[TheoryAndMeasurementResult], view: TheoryView) -> Rows:
    """A row for each pair of quantities."""
    result, places = answer.result, [(i, j) for i in range(len(PREDICTED)) for j in range(len(MEASURED))]

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        of = lambda array: np.array([array[at] for at in places], dtype=float)
        digits = digits_below_one(result.rho, result.low, result.high)
        parted = [Pair(result, PREDICTED[i], MEASURED[j]).parting(1) for i, j in places]
        first = [f"{one[0][0]} {number(one[0][1], '+g')}{more}" if one else "" for one, more in parted]
        columns = (
            RowColumn("predicted", np.array([short(PREDICTED[i]) for i, _ in places], dtype=object)),
            RowColumn("measured", np.array([short(MEASURED[j]) for _, j in places], dtype=object)),
            RowColumn(
                "ρ", of(result.rho), digits=digits, map="signed", levels=(-1.0, 1.0), tip="Spearman's rank correlation over heads"
            ),
            RowColumn("from", of(result.low), digits=digits, tip="Lower end of the 95 % interval"),
            RowColumn("to", of(result.high), digits=digits, tip="Upper end of the 95 % interval"),
            RowColumn("heads", of(result.n), digits=0, tip="Heads that have both"),
            RowColumn(
                "part most",
                np.array(first, dtype=object),
                tip="The head, and its rank measured − rank predicted, 1 the largest",
                alone="parts most, with rank measured − rank predicted (ranks, 1 the largest)",
            ),
        )
        return columns, ids(*np.array(places).T)

    columns, keys = memo(answer, "correlations", make)
    chosen = places.index((PREDICTED.index(view.predicted), MEASURED.index(view.measured)))
    apart = tuple(i for i, at in enumerate(places) if result.low[at] > 0 or result.high[at] < 0)
    return Rows("correlations", columns, keys, chosen=(chosen,), strong=apart)


def leading(state: State, table: Table) -> np.ndarray:
    """The rows of the pair that is drawn, before those of the others; of all correlations a row for each pair."""
    view = _view(state)
    named = {column.name: column.values for column in table.columns}
    first, second = named["predicted quantity"], named["measured quantity"]
    pair = (first == view.predicted) & (second == view.measured)
    each = np.ones(len(pair), bool)
    each[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    rank = np.where(each, 0, np.where(pair, 1, 2)) if view.page == "correlations" else np.where(pair, 0, 1)
    return np.argsort(rank, kind="stable")


def pick(state: State, hit: Hit) -> State:
    """A point or a row chooses its head; a row of the correlations its pair, with a double-click the page of its heads."""
    if hit.mark in ("plane", "heads") and len(hit.id) == 2:
        return pick_head(state, Head(*hit.id), hit.gesture)
    if hit.mark in MARKS:
        return pick_over_training(state, hit)
    if hit.mark != "correlations" or len(hit.id) != 2 or hit.gesture not in ("click", "double-click"):
        return state
    view = _view(state)
    page = "heads" if hit.gesture == "double-click" else view.page
    chosen = replace(view, predicted=get_args(Predicted)[hit.id[0]], measured=get_args(Measured)[hit.id[1]], page=page)
    return state if chosen == view else state.with_view("theory", chosen)


assert get_args(Predicted) == PREDICTED and get_args(Measured) == MEASURED

PANEL = register(
    Panel(
        name="theory",
        title="Theory and measurement",
        view=TheoryView,
        equation="ρ = correlation over heads of rank(predicted from weights) with rank(measured)",
        source="Elhage et al. 2021 and Olsson et al. 2022 for what is predicted and measured; the correlation is our own",
        help=(
            "Every head is a point: to the right what its weights predict, upwards what is measured. If the theory holds, heads "
            "rise from left to right. ρ is Spearman's rank correlation, 1 where both put the heads in the same order, with its "
            "95 % interval: an interval that holds 0 says nothing about these heads, and a model of few heads has a wide one. "
            "The table begins with the heads where the two part most, by rank measured minus rank predicted, 1 the largest: "
            "below 0 (blue) a head does more than its weights predict, above 0 (orange) less. Correlations: every pair of "
            "quantities, in bold where the interval does not hold 0; a click chooses the pair, a double-click shows its heads. "
            "Training: ρ with its interval at every checkpoint, and both quantities of every head; a click on a curve chooses "
            "head and checkpoint.\n\n"
            "Own token and OV copying predict that a head copies; positivity through earlier heads and K-composition with a "
            "previous-token head predict prefix matching; both together predict what the model loses without the head. QK "
            "positivity alone predicts attention to the same token, not to what followed it: no induction head needs it. "
            "A head of the first layer has nothing to compose with, and enters only where both quantities are computed."
        ),
        requests=requests,
        draw=draw,
        optional="all",
        pick=pick,
        leading=leading,
        of_heads=True,
        instead="Models side by side has its loss beside those of models that have some",
        area="centre",
        order=66,
        opens="attention",
    )
)
