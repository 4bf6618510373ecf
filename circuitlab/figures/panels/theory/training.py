"""Theory against measurement along a training: the correlation at every checkpoint, and both quantities of every head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from circuitlab.analysis.checks.theory_and_measurement import (
    MEASURED,
    PREDICTED,
    TheoryAndMeasurementParams,
    TheoryAndMeasurementResult,
    theory_and_measurement,
)
from circuitlab.analysis.ordering import descending
from circuitlab.analysis.rank_correlation import TELLING
from circuitlab.caption_parts import About, Essential, about_of, sense_of, whose
from circuitlab.counting import number_of
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import Refused
from circuitlab.figures.contracts.common import caption
from circuitlab.figures.contracts.facts import Answers, Facts, Requests, Why
from circuitlab.figures.contracts.heads import pick_head
from circuitlab.figures.contracts.hues import head_hue
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.selection_reading import of_weights
from circuitlab.figures.marks import Axis, Figure, Hit, Lines, ids
from circuitlab.figures.panels.theory.pair import Pair, axis_of, concerning
from circuitlab.model.archives.offering import how_to_get, obtainable
from circuitlab.model.subject import Head
from circuitlab.state.state import State

MARKS = ("correlation", "predicted", "measured")
FINAL = -1  # in place of a checkpoint's index: the final weights
NAMED = 4  # heads named in a plot, or more if more are chosen
NONE = "This model has no checkpoint series: open attn-only-2l, which has one, or keep checkpoints while training a model."


def _points(facts: Facts) -> tuple[tuple[int, int], ...]:
    """(checkpoint or `FINAL`, training step) along the training; without final weights whose step no file states."""
    points, last = tuple(enumerate(facts.steps)), facts.steps_trained
    return points if last is None or _final_is_last(facts) else (*points, (FINAL, last))


def _final_is_last(facts: Facts) -> bool:
    """Whether the final weights are those of the last checkpoint, which is then there once."""
    return facts.steps_trained is not None and facts.steps_trained <= facts.steps[-1]


def training_requests(state: State, facts: Facts, params: TheoryAndMeasurementParams) -> Requests | Why:
    """The same question to every checkpoint: what is asked of one alone is the same request, and its answer the same."""
    if not facts.steps:
        archive = obtainable(state.model)
        absent = "The checkpoints of this model are not on this machine: "
        return Why(NONE if archive is None else f"{absent}{how_to_get(archive)}.")
    if (reason := theory_and_measurement.refuse(facts.config, params)) is not None:
        return Why(Refused(reason).what)
    model = lambda at: replace(state.model, checkpoint=None if at == FINAL else at)
    subject = lambda at: replace(of_weights(state), model=model(at))
    return {f"step {step}": Request(theory_and_measurement, params, subject(at)) for at, step in _points(facts)}


@dataclass(frozen=True, eq=False)
class _Training:
    """The answers that have come, in the order of training: `checkpoints` and `steps` [point]; `total` of all points.

    `last`: the checkpoint whose weights are the final ones, `FINAL` for none.
    """

    answers: tuple[Answer[TheoryAndMeasurementResult], ...]
    checkpoints: np.ndarray
    steps: np.ndarray
    total: int
    last: int

    @classmethod
    def of(cls, facts: Facts, answers: Answers) -> _Training:
        """Those of the points that have an answer."""
        points = _points(facts)
        here = [(at, step) for at, step in points if f"step {step}" in answers]
        each = tuple(answers.of(f"step {step}", theory_and_measurement) for _, step in here)
        last = points[-1][0] if _final_is_last(facts) else FINAL
        return cls(each, np.array([at for at, _ in here]), np.array([step for _, step in here], dtype=float), len(points), last)

    def at(self, state: State) -> int | None:
        """The index of the current checkpoint's point; None where it has none, or its answer has not come."""
        wanted = self.last if state.model.checkpoint is None else state.model.checkpoint
        places = np.flatnonzero(self.checkpoints == wanted)
        return int(places[0]) if places.size else None

    def correlations(self, predicted: str, measured: str) -> np.ndarray:
        """[(ρ, low, high), point]."""
        at = PREDICTED.index(predicted), MEASURED.index(measured)
        return np.array([[getattr(one.result, name)[at] for one in self.answers] for name in ("rho", "low", "high")], dtype=float)

    def by_head(self, quantity: str) -> np.ndarray:
        """[head, point] of a quantity."""
        return np.stack([one.result.of(quantity).ravel() for one in self.answers], axis=1)


def over_training(state: State, facts: Facts, answers: Answers, predicted: str, measured: str, log: bool) -> Figure:
    """ρ with its interval, and below it the predicted and the measured quantity of each head, over the same steps."""
    training = _Training.of(facts, answers)
    correlations = memo(training.answers, ("ρ", predicted, measured), lambda: training.correlations(predicted, measured))
    x = memo(training.answers, "steps", lambda: training.steps)
    plots = _Plots(state, training, x, log)
    rows = (
        plots.lines(
            "correlation",
            correlations,
            ("ρ", "95 % interval", "its upper end"),
            Axis("ρ"),
            hues=(-1, -1, -1),
            dashed=(False, True, True),
            named=(0, 1),
            curve_ids=memo(training.answers, "no head", lambda: ids(np.full(3, -1), np.full(3, -1))),
        ),
        plots.heads("predicted", predicted),
        plots.heads("measured", measured, bare=False),
    )
    at = training.at(state)
    title = f"{predicted} against {measured}"
    if at is not None:
        title += f" at step {int(training.steps[at]):,}: {Pair(training.answers[at].result, predicted, measured).words}"
    return Figure(
        tuple((row,) for row in rows),
        title,
        tuple(_caption(facts, training, correlations, log, predicted, measured)),
        weights=(0.9, 1.0, 1.2),
    )


def _caption(facts: Facts, training: _Training, correlations: np.ndarray, log: bool, *pair: str) -> Iterator[str]:
    n = len(training.answers)
    if n < training.total or not all(answer.complete for answer in training.answers):
        complete = sum(answer.complete for answer in training.answers)
        yield Essential(f"so far: {complete} of {number_of(training.total, 'checkpoint')}")
    apart = int(((correlations[1] > 0) | (correlations[2] < 0)).sum())
    at = PREDICTED.index(pair[0]), MEASURED.index(pair[1])
    if max(int(answer.result.n[at]) for answer in training.answers) < TELLING:
        yield Essential(f"with fewer than {TELLING} heads no interval can exclude 0")
    else:
        yield f"the interval does not hold 0 at {apart} of {number_of(n, 'checkpoint')}"
    if facts.steps_trained is None:
        yield "the final weights are left out: no file states their step"
    if log and not training.steps.all():
        yield "step 0 cannot be drawn on a logarithmic axis"
    said = {str(i): concerning(caption(answer), *pair) for i, answer in enumerate(training.answers)}
    for part, of in whose(said).items():
        if about_of(part) is About.PROGRESS:
            continue
        yield Essential(f"at {len(of)} of {number_of(n, 'checkpoint')} {part}", sense_of(part)) if of else part


@dataclass(frozen=True, eq=False)
class _Plots:
    """What the plots share: the steps, the current checkpoint, the chosen heads."""

    state: State
    training: _Training
    x: np.ndarray
    log: bool

    def lines(self, name: str, ys: np.ndarray, names: tuple[str, ...], y_axis: Axis, bare: bool = True, **more: Any) -> Lines:
        """Curves [curve, point]."""
        of, at = self.training.answers, self.training.at(self.state)
        return Lines(
            name,
            self.x,
            ys,
            names,
            current=None if at is None else float(self.x[at]),
            x_axis=memo(of, ("x axis", self.log, bare), lambda: Axis("training steps", log=self.log, bare=bare)),
            y_axis=memo(of, ("y axis", name, y_axis.label), lambda: y_axis),
            steps=True,
            step_ids=memo(of, "places", lambda: ids(self.training.checkpoints)),
            **more,
        )

    def heads(self, name: str, quantity: str, bare: bool = True) -> Lines:
        """A curve for each head; chosen heads are emphasised, and named together with the largest."""
        of, (layers, heads) = self.training.answers, self.training.answers[0].result.predicted.shape[1:]
        every = tuple(Head(i, h) for i in range(layers) for h in range(heads))
        ys = memo(of, ("heads", quantity), lambda: self.training.by_head(quantity))
        chosen = tuple(i for i, head in enumerate(every) if head in self.state.selection.heads)
        largest = memo(of, ("largest", quantity), lambda: descending(np.abs(np.nan_to_num(ys)).max(axis=1)).tolist())
        return self.lines(
            name,
            ys,
            tuple(map(str, every)),
            axis_of(quantity),
            bare,
            hues=tuple(map(head_hue, every)),
            chosen=chosen,
            named=tuple(dict.fromkeys((*chosen, *largest)))[: max(NAMED, len(chosen))],
            curve_ids=memo(of, "head ids", lambda: ids(*np.array(every).T)),
        )


def pick_over_training(state: State, hit: Hit) -> State:
    """A click chooses the checkpoint that it points at and, on the curve of a head, that head."""
    if hit.mark not in MARKS or len(hit.id) != 3 or hit.gesture not in ("click", "shift-click", "double-click"):
        return state
    layer, head, checkpoint = hit.id
    chosen = pick_head(state, Head(layer, head), hit.gesture) if layer >= 0 else state
    if hit.gesture == "shift-click":
        return chosen
    model = replace(state.model, checkpoint=None if checkpoint == FINAL else checkpoint)
    return chosen if model == state.model else replace(chosen, model=model)
