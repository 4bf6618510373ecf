"""Pages of the training panel: curves, loss by index, zero-ablated heads, heads over training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from circuitlab.analysis.ordering import descending
from circuitlab.analysis.training.series import KINDS, RANDOM, TEXT, TrainingSeriesResult
from circuitlab.caption_parts import About, about_of, sense_of
from circuitlab.counting import number
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import caption, with_error
from circuitlab.figures.contracts.hues import head_hue
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.marks import Axis, ColourMap, Figure, Heatmap, Lines, ids
from circuitlab.figures.panels.training.points import (
    OWN,
    Over,
    bands,
    columns,
    covers_all_texts,
    current_point,
    kind_of,
    labels,
    phase_words,
    pinned_point,
    place_ids,
    score_by_text,
    step_label,
    time,
)
from circuitlab.model.subject import Head
from circuitlab.state.state import State

NO_HEADS = "a model without layers has no heads"
ZERO_ON_LOG = "step 0 cannot be drawn on a logarithmic axis"
ON_RANDOM = ("prefix_matching", "previous_token", "duplicate_token", "first_token")
NAMED = 4  # heads named in a plot, or more if more are chosen
ENDS = 90.0  # per cent of the cells of a map that the colour scale spans


def with_conventions(answer: Answer, notes: tuple[str, ...], *without: About) -> tuple[str, ...]:
    """The page's own notes first, since a narrow panel shows only the beginning; then the conventions that concern it."""
    return (*filter(None, notes), *(part for part in caption(answer) if about_of(part) not in without))


def curves(state: State, answer: Answer[TrainingSeriesResult], score: str, context: str, over: Over, log: bool) -> Figure:
    """Plots of loss, in-context score and head scores over the same time."""
    result, kind = answer.result, kind_of(context)
    kinds = tuple(range(len(KINDS))) if context == "all" else (kind,)
    loss = memo(answer, "loss", lambda: result.loss[None].copy())
    with_control = context == "text" and np.isfinite(result.controlled).any() and bool(result.shapes[0, 0])

    def scores() -> np.ndarray:
        by_kind = result.scores[:, kinds].T
        return np.vstack([by_kind, result.controlled[None]]) if with_control else by_kind.copy()

    in_context = memo(answer, ("context", kinds, with_control), scores)
    band_labels, headless = labels(result, kind), not result.shapes[0, 0]
    plots = TrainingPlots(state, answer, over, log, kind)
    rows = [
        plots.lines(
            "loss", loss, ("loss on text",), "loss, nats", band_labels["loss"], bare=True, pin=True, hues=_plain((TEXT,))
        ),
        plots.lines(
            "in-context score",
            in_context,
            (*_names(kinds), *(("minus a model without layers",) if with_control else ())),
            "score, nats",
            band_labels["in-context score"],
            bare=not headless,
            hues=(*_plain(kinds), *((-1 - len(KINDS),) if with_control else ())),
            named=tuple(range(len(kinds) + with_control)),
        ),
    ]
    rows += [] if headless else [plots.heads("heads", score, score.replace("_", " "), band_labels.get(score, ""))]
    at = current_point(result, state.model)
    by_text = score_by_text(result, at) if at is not None and TEXT in kinds else ""
    notes = (by_text and f"score on text {by_text}", ZERO_ON_LOG if log else "", NO_HEADS if headless else "", *_phases(result))
    title = f"{step_label(result, state)}: {_numbers(result, state, kinds, score)}"
    caption_parts = with_conventions(answer, notes, About.SLOPE)
    return Figure(tuple((row,) for row in rows), title, caption_parts, weights=(0.8, 1.0, 1.35)[: len(rows)])


def _plain(kinds: tuple[int, ...]) -> tuple[int, ...]:
    """A hue for each kind of text, the same in every plot."""
    return tuple(-1 - k for k in kinds)


def _names(kinds: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"on {KINDS[k]}" for k in kinds)


def _numbers(result: TrainingSeriesResult, state: State, kinds: tuple[int, ...], measure: str) -> str:
    """For titles: loss, in-context score and the largest head score at the current checkpoint."""
    at = current_point(result, state.model)
    if at is None:
        return "choose another checkpoint"
    parts = [f"loss {number(result.loss[at])} nats"]
    if kinds == (TEXT,) and np.isfinite(result.scores[at, TEXT]):
        errors = (result.each_error[at], result.each_controlled_error[at]) if covers_all_texts(result, at) else (np.nan, np.nan)
        parts.append(f"in-context {with_error(result.scores[at, TEXT], errors[0])} nats (text)")
        if np.isfinite(result.controlled[at]) and result.shapes[0, 0]:
            parts.append(f"{with_error(result.controlled[at], errors[1])} nats minus a model without layers")
    else:
        parts.append(f"in-context {number(result.scores[at, kinds[0]])} nats ({KINDS[kinds[0]]})")
    return ", ".join([*parts, *filter(None, [_best(result, measure, at)])])


def _best(result: TrainingSeriesResult, measure: str, at: int) -> str:
    """The head with the largest score at a point, that score, and the random tokens it was measured on; "" if there is none."""
    layers, heads = result.shapes[0].tolist()
    values = result.of(measure)[at, :layers, :heads]
    if not values.size or not np.isfinite(values).any():
        return ""
    layer, head = np.unravel_index(int(np.nanargmax(values)), values.shape)
    sample = next(filter(None, (sense_of(part).brief for part in result.conventions)), "")
    on = f" on {sample}".replace(" ", "\u00a0") if sample and measure in ON_RANDOM else ""
    return f"best head {Head(int(layer), int(head))} ({measure.replace('_', ' ')} {number(values[layer, head])}{on})"


def _phases(result: TrainingSeriesResult) -> tuple[str, ...]:
    """For captions: the phase change on each kind of text."""
    return tuple(f"on {name}: {phase_words(result, k)}" for k, name in enumerate(KINDS))


@dataclass(frozen=True, eq=False)
class TrainingPlots:
    """What plots along a training share: the axis of time, the band of the phase change, the checkpoints that are marked."""

    state: State
    answer: Answer[TrainingSeriesResult]
    over: Over
    log: bool
    kind: int

    def lines(
        self,
        name: str,
        ys: np.ndarray,
        names: tuple[str, ...],
        label: str,
        band_label: str,
        bare: bool = False,
        pin: bool = False,
        **more: Any,
    ) -> Lines:
        """Curves [curve, point]; `label` on the axis, `band_label` beside the band; without `curve_ids` they choose no head."""
        answer, result = self.answer, self.answer.result
        x, axis = time(answer, self.over, self.log, bare)
        at, pin_point = current_point(result, self.state.model), pinned_point(result, self.state)
        if "curve_ids" not in more:
            more["curve_ids"] = memo(answer, ("no head", len(ys)), lambda: ids(np.full(len(ys), OWN), np.full(len(ys), -1)))
        return Lines(
            name,
            x,
            ys,
            names,
            marks=() if pin_point is None else ((float(x[pin_point[0]]), pin_point[1] if pin else ""),),
            bands=bands(answer, self.kind, self.over, band_label),
            current=None if at is None else float(x[at]),
            x_axis=axis,
            y_axis=memo(answer, ("y axis", label), lambda: Axis(label)),
            steps=True,
            step_ids=place_ids(answer),
            **more,
        )

    def heads(self, name: str, measure: str, label: str, band_label: str) -> Lines:
        """A curve for each head; chosen heads are emphasised, and named together with the largest."""
        answer, result = self.answer, self.answer.result
        heads = heads_of(result)
        ys = memo(answer, ("heads", measure), lambda: _by_head(result, measure))
        chosen = tuple(i for i, head in enumerate(heads) if head in self.state.selection.heads)
        largest = memo(answer, ("largest", measure), lambda: descending(np.abs(np.nan_to_num(ys)).max(axis=1)).tolist())
        return self.lines(
            name,
            ys,
            tuple(map(str, heads)),
            label,
            band_label,
            hues=tuple(map(head_hue, heads)),
            chosen=chosen,
            named=tuple(dict.fromkeys((*chosen, *largest)))[: max(NAMED, len(chosen))],
            curve_ids=memo(answer, "head ids", lambda: _head_ids(heads)),
        )


def _head_ids(heads: tuple[Head, ...]) -> np.ndarray:
    return ids(np.array([h.layer for h in heads]), np.array([h.head for h in heads]))


def heads_of(result: TrainingSeriesResult) -> tuple[Head, ...]:
    """All heads of the first model."""
    layers, heads = result.shapes[0].tolist()
    return tuple(Head(i, j) for i in range(layers) for j in range(heads))


def _by_head(result: TrainingSeriesResult, measure: str) -> np.ndarray:
    """[head, point] a measure of the first model."""
    layers, heads = result.shapes[0].tolist()
    return result.of(measure)[result.points(0), :layers, :heads].reshape(len(result.points(0)), -1).T.copy()


def loss_by_index(state: State, answer: Answer[TrainingSeriesResult]) -> Figure:
    """Maps of the loss and its slope [index of the token, point], training from left to right."""
    result = answer.result
    parts: tuple[tuple[str, np.ndarray, ColourMap, str], ...] = (
        ("loss by index", result.loss_by_index, "loss", "nats"),
        ("slope by index", result.derivative, "signed", "nats"),
    )
    maps = tuple(_over_time(state, answer, *part) for part in parts)
    title = f"{step_label(result, state)} · loss by index of the token, and its slope d loss / d ln(index)"
    notes = (
        f"columns: checkpoints, evenly spaced; colours span {ENDS:g}% of the cells; negative slope: a longer context helps",
        "slope in nats for each factor e of the index",
    )
    return Figure(tuple((m,) for m in maps), title, with_conventions(answer, notes, About.IN_CONTEXT, About.PHASE_CHANGE))


def _with_first(values: np.ndarray) -> np.ndarray:
    """[position, point] from values [point, index], with NaN for the first token, which has no loss."""
    return np.vstack([np.full((1, len(values)), np.nan), values.T]).astype(np.float32)


def _over_time(
    state: State, answer: Answer[TrainingSeriesResult], name: str, values: np.ndarray, colours: ColourMap, label: str
) -> Heatmap:
    """A map with a column for each point of the training; its colour scale leaves out the most extreme cells."""
    result = answer.result
    cells = memo(answer, ("map", name), lambda: _with_first(values[result.points(0)]))
    bare = colours == "loss"
    return Heatmap(
        name,
        cells,
        memo(answer, ("levels", name), lambda: _levels(cells, colours == "signed")),
        x=columns(answer, bare),
        y=memo(answer, ("index", name), lambda: Axis(name.replace("by", "at"))),
        map=colours,
        unit=label,
        square=False,
        col=current_point(result, state.model),
        row_ids=memo(answer, ("rows", len(cells)), lambda: ids(np.full(len(cells), OWN), np.full(len(cells), -1))),
        col_ids=place_ids(answer),
    )


def _levels(values: np.ndarray, signed: bool) -> tuple[float, float]:
    """The limits of the colour scale: those of the middle `ENDS` % of the cells, symmetric about zero if signed."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return (-1.0, 1.0) if signed else (0.0, 1.0)
    if signed:
        top = float(np.percentile(np.abs(finite), ENDS)) or 1.0
        return -top, top
    low, high = np.percentile(finite, [(100 - ENDS) / 2, 100 - (100 - ENDS) / 2])
    return float(low), float(high) if high > low else float(low) + 1.0


def zeroed(state: State, answer: Answer[TrainingSeriesResult], on: str, over: Over, log: bool) -> Figure:
    """The rise of the loss when each head is zero-ablated, over training."""
    result = answer.result
    title = f"{step_label(result, state)} · rise of the loss on {on} without each head"
    if not result.shapes[0, 0]:
        return Figure(title="Training", why_empty=f"There is no head to ablate: {NO_HEADS}. See the other pages.")
    measure, kind = ("zeroed_text", TEXT) if on == "text" else ("zeroed_repeated", RANDOM)
    lines = TrainingPlots(state, answer, over, log, kind).heads("zeroed", measure, "rise of the loss, nats", "phase change")
    notes = "attention patterns held as in the whole model", ZERO_ON_LOG if log else ""
    return Figure(((lines,),), title, with_conventions(answer, notes, About.SLOPE))


def heads_over_training(state: State, answer: Answer[TrainingSeriesResult], score: str) -> Figure:
    """A map of the score of every head (rows) at every checkpoint (columns)."""
    result = answer.result
    if not result.shapes[0, 0]:
        return Figure(title="Training", why_empty=f"There is no head to follow: {NO_HEADS}. See the other pages.")
    heads = heads_of(result)
    values = memo(answer, ("rows", score), lambda: _by_head(result, score).astype(np.float32))
    signed = bool(np.nanmin(values, initial=0.0) < -0.05)
    at = current_point(result, state.model)
    chart = Heatmap(
        "heads",
        values,
        (-1.0, 1.0) if signed else (0.0, 1.0),
        x=columns(answer),
        y=memo(answer, "names", lambda: Axis("head", tuple(map(str, heads)))),
        map="signed" if signed else "magnitude",
        unit="score",
        square=False,
        row=next((i for i, h in enumerate(heads) if h == state.selection.head), None),
        col=at,
        row_ids=memo(answer, "head ids", lambda: _head_ids(heads)),
        col_ids=place_ids(answer),
    )
    best = "" if at is None else _best(result, score, at)
    title = " · ".join(filter(None, (step_label(result, state), best)))
    notes = ("columns: checkpoints, evenly spaced",)
    return Figure(((chart,),), title, with_conventions(answer, notes, About.SLOPE, About.IN_CONTEXT, About.PHASE_CHANGE))
