"""Several trainings in the same plots: one layer against two, vanilla keys against smeared keys.

Each plot has a curve for each model: the loss on text, the in-context score, the best head by a score (as in Olsson et al.
2022). A curve goes through the points of its own model only; the band is the phase change of the open model.
"""

from __future__ import annotations

import numpy as np

from circuitlab.analysis.training.scores import best
from circuitlab.analysis.training.series import KINDS, TEXT, TrainingSeriesResult
from circuitlab.caption_parts import About
from circuitlab.counting import number
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import with_error
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.marks import Axis, Figure, Lines, ids
from circuitlab.figures.panels.training.pages import ZERO_ON_LOG, with_conventions
from circuitlab.figures.panels.training.points import (
    OWN,
    Over,
    bands,
    current_point,
    kind_of,
    labels,
    model_hues,
    phase_words,
    time,
)
from circuitlab.model.records.series_measures import GONE
from circuitlab.state.state import State


def overlay(state: State, answer: Answer[TrainingSeriesResult], score: str, context: str, over: Over, log: bool) -> Figure:
    """Plots of loss, in-context score and best head, with a curve for each model."""
    result = answer.result
    kind = kind_of(context)
    band_labels = labels(result, kind)
    rows = (
        _lines(state, answer, "loss", result.loss, "loss, nats", band_labels["loss"], kind, over, log, 0),
        _lines(
            state,
            answer,
            "in-context score",
            result.scores[:, kind],
            "score, nats",
            band_labels["in-context score"],
            kind,
            over,
            log,
            1,
        ),
        _lines(
            state,
            answer,
            "heads",
            best(result.of(score)),
            score.replace("_", " "),
            band_labels.get(score, ""),
            kind,
            over,
            log,
            2,
        ),
    )
    last = [result.points(m)[-1] for m in range(len(result.names))]
    ends = [f"{name} {number(float(result.scores[i, kind]))}" for name, i in zip(result.names, last, strict=True)]
    controlled = [
        f"{name} {with_error(*_controlled(result, i))}"
        for name, i in zip(result.names, last, strict=True)
        if kind == TEXT and np.isfinite(result.controlled[i])
    ]
    notes = (
        f"in-context score on {KINDS[kind]}; the best head of each model; a curve goes through the points of its own model",
        f"minus a model without layers{_over(result, last)}: {', '.join(controlled)}" if controlled else "",
        _apart(result) if kind == TEXT else "",
        ZERO_ON_LOG if log else "",
        *(f"{name}: {phase_words(result, kind, m)}" for m, name in enumerate(result.names)),
    )
    title = f"{KINDS[kind]}, in-context score at the end, nats: {', '.join(ends)}"
    return Figure(
        tuple((row,) for row in rows),
        title,
        with_conventions(answer, notes, About.SLOPE, About.PHASE_CHANGE),
        weights=(1.0, 1.0, 1.0),
    )


def _controlled(result: TrainingSeriesResult, at: int) -> tuple[float, float]:
    """(score minus the control's, standard error) over texts with losses of their own; else over all texts, error NaN."""
    if np.isfinite(result.each_controlled_error[at]):
        return float(result.each_controlled[at]), float(result.each_controlled_error[at])
    return float(result.controlled[at]), float("nan")


def _over(result: TrainingSeriesResult, last: list[int]) -> str:
    """The number of texts that the paired differences are taken over."""
    counts = sorted({int(result.n_each[i]) for i in last if result.n_each[i] > 1})
    return f", over {' or '.join(map(str, counts))} texts, paired" if counts else ""


def _apart(result: TrainingSeriesResult) -> str:
    """The first model's last score minus each other model's, paired by text."""
    own, *others = result.names
    differences = [
        f"{own} minus {name} {with_error(float(result.between[0, i]), float(result.between_error[0, i]))}"
        for i, name in enumerate(others, 1)
        if np.isfinite(result.between[0, i])
    ]
    return f"text by text: {', '.join(differences)}" if differences else ""


def _lines(
    state: State,
    answer: Answer[TrainingSeriesResult],
    name: str,
    values: np.ndarray,
    label: str,
    band_label: str,
    kind: int,
    over: Over,
    log: bool,
    row: int,
) -> Lines:
    """A curve for each model through values [point]; only the lowest plot labels the axis of time."""
    result = answer.result
    every, axis = time(answer, over, log, row < 2)
    x, place = memo(answer, ("times", over), lambda: np.unique(every, return_inverse=True))
    n, at = len(result.names), current_point(result, state.model)

    def curves() -> np.ndarray:
        ys = np.full((n, len(x)), np.nan)
        ys[result.model, place] = values
        return ys

    def steps() -> np.ndarray:
        """[time, 1] the open model's checkpoint that a click chooses, `GONE` where it has none."""
        own = np.full(len(x), GONE)
        first = result.points(0)
        own[place[first]] = result.checkpoint[first]
        return ids(own)

    return Lines(
        name=name,
        x=x,
        ys=memo(answer, ("models", name, label, kind, over), curves),
        names=result.names,
        hues=model_hues(result.names),
        bands=bands(answer, kind, over, band_label),
        current=None if at is None else float(every[at]),
        steps=True,
        joined=True,
        named=tuple(range(n)),  # in every plot: dashes distinguish them without colour
        curve_ids=memo(answer, "models' ids", lambda: ids(OWN - np.arange(n), np.full(n, -1))),
        step_ids=memo(answer, ("steps", over), steps),
        x_axis=axis,
        y_axis=memo(answer, ("y axis", label), lambda: Axis(label)),
    )
