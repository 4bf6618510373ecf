"""Every head by a score: a layer × head map and the ranking, with sd and control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from circuitlab.analysis.attention.head_scores import HeadScoresParams, HeadScoresResult, head_scores, short_sample
from circuitlab.analysis.ordering import descending
from circuitlab.counting import number
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import (
    caption,
    edit_notes,
    head_column,
    hints,
    published,
    rows_of_heads,
    top_level,
    with_edit_notes,
)
from circuitlab.figures.contracts.heads import head_map, head_rank, pick_head, published_column, rank_column, sharing
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import EDITED, EDITED_TIP, of_own_texts
from circuitlab.figures.marks import Figure, Heatmap, Hit, RowColumn, Rows, empty, ids
from circuitlab.model.subject import Head
from circuitlab.state.state import State

Score = Literal[
    "prefix_matching", "previous_token", "duplicate_token", "first_token", "current_token", "entropy", "mean_distance"
]
UNITS = {"entropy": "nats", "mean_distance": "positions"}


@dataclass(frozen=True)
class HeadsView:
    """The controls of the head map."""

    score: Score = control("prefix_matching", label="Score", tip="What the heads are ranked by")
    on: Literal["random", "text"] = control("random", label="On", tip="Repeated random tokens, or the prompt itself")
    edited: bool = control(False, label=EDITED, tip=EDITED_TIP, when="on", values=("random",))


def requests(state: State, facts: Facts) -> Requests | Why:
    """All scores of all heads at once: changing the score costs nothing."""
    view: HeadsView = state.view("heads", HeadsView)
    if not state.tokens and view.on == "text":
        return Why("Type some text in the Prompt to rank the heads on it.")
    if view.on == "text":
        return {"scores": Request(head_scores, HeadScoresParams(on="text"), state.subject)}
    subject, edited = of_own_texts(state, view.edited)
    return {"scores": Request(head_scores, HeadScoresParams(edited=edited), subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The map beside the ranking."""
    answer = answers.of("scores", head_scores)
    view: HeadsView = state.view("heads", HeadsView)
    result = answer.result
    name, params = view.score.replace("_", " "), answer.request.params
    if np.isnan(result.of(view.score)).all():
        return empty(f"No position of this prompt has a target for {name}: repeat a word in it.", "Heads")
    head, values = state.selection.head, result.of(view.score)
    title = f"{name} · {head}"
    if head.layer < values.shape[0] and head.head < values.shape[1]:
        title += f" {number(values[head], '.2f')}, {head_rank(values, head)}"
    title += f" {short_sample(facts.config, params)}"
    return Figure(
        ((_map(answer, result, view, state, facts), _ranking(answer, result, view, state, facts)),),
        title,
        caption(answer, "a score is a hint, not a mechanism", sharing(facts.config), published(facts)),
    )


def _map(answer: Answer, result: HeadScoresResult, view: HeadsView, state: State, facts: Facts) -> Heatmap:
    values = memo(answer, ("map", view.score), lambda: result.of(view.score).astype(np.float32))
    top = 1.0 if view.score not in UNITS else top_level(values)
    edits = edit_notes(state, facts)
    notes = with_edit_notes(hints(facts), edits)
    unit, group = UNITS.get(view.score, "score"), facts.config.group
    return head_map(state, values, (0.0, top), group, unit=unit, hints=notes, struck=tuple(edits))


def _ranking(answer: Answer, result: HeadScoresResult, view: HeadsView, state: State, facts: Facts) -> Rows:
    known_heads = facts.known_heads()

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        i = result.names.index(view.score)
        values = result.mean[i]
        order = descending(values)
        layer, head = np.unravel_index(order, values.shape)
        top = 1.0 if view.score not in UNITS else top_level(values)
        columns = (
            RowColumn("#", rank_column(values.ravel()[order]), digits=0),
            head_column(layer, head),
            RowColumn("mean", values.ravel()[order], digits=3, bar=True, levels=(0.0, top), reads="ranked"),
            RowColumn("sd", result.spread[i].ravel()[order], digits=3, tip="standard deviation over samples"),
            RowColumn("control", result.control[i].ravel()[order], digits=3, tip="the same on unrepeated random tokens"),
        )
        return (*columns, *published_column(known_heads, layer, head)), ids(layer, head)

    columns, keys = memo(answer, ("rows", view.score, known_heads), make)
    return Rows("ranking", columns, keys, chosen=rows_of_heads(state, keys), ranked=True)


def pick(state: State, hit: Hit) -> State:
    """Choose heads on the map or in the ranking."""
    if hit.mark in ("map", "ranking") and len(hit.id) == 2:
        return pick_head(state, Head(*hit.id), hit.gesture)
    return state


PANEL = register(
    Panel(
        name="heads",
        title="Heads",
        view=HeadsView,
        equation="prefix matching: mean over d of Σ_{s ≤ d, t_{s−1} = t_d} A[d,s];  previous token: mean of A[d,d−1]",
        source="Olsson et al. 2022, In-context Learning and Induction Heads",
        help="Each score with its rank, its sd over samples, and the same on unrepeated tokens as a control.",
        requests=requests,
        draw=draw,
        pick=pick,
        of_heads=True,
        instead="Models side by side has its loss beside those of models that have some",
        area="left",
        shortcut="Ctrl+4",
        order=40,
        opens="attention",
    )
)
