"""Term importance: how much the terms of each order, layer and head reduce the loss, attention patterns held as recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from circuitlab.analysis.attribution.term_importance import TermImportanceParams, TermImportanceResult, term_importance
from circuitlab.analysis.base import TextRef
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import caption, has_mlps, top_level
from circuitlab.figures.contracts.heads import pick_head
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import of_weights
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, ids
from circuitlab.model.subject import Head
from circuitlab.state.state import State

NO_HEAD = -1  # in the id of the row of a whole layer


@dataclass(frozen=True)
class TermImportanceView:
    """The controls of term importance."""

    on: Literal["prompt", "file"] = control("prompt", label="On", tip="The prompt (one text), or pieces of a text file")
    file: str = control("", label="File", tip="A text file, cut into pieces", kind="file", when="on", values=("file",))
    texts: int = control(8, label="Pieces", tip="How many pieces are measured", low=1, high=10_000, when="on", values=("file",))
    heads: bool = control(False, label="Heads", tip="Each head as well: two more unembeddings for each")


def _view(state: State) -> TermImportanceView:
    return state.view("term_importance", TermImportanceView)


def requests(state: State, facts: Facts) -> Requests | Why:
    """One request; a file is measured with the enabled interventions."""
    view = _view(state)
    if view.on == "prompt":
        if len(state.tokens) < 2:
            return Why("Type some text in the Prompt, or choose a file: a loss needs a token that follows another.")
        return {"terms": Request(term_importance, TermImportanceParams(heads=view.heads), state.subject)}
    if not view.file:
        return Why("Choose a text file above: its pieces are what is measured.")
    edited = bool(state.subject.edits)
    params = TermImportanceParams(TextRef(view.file), max(1, view.texts), heads=view.heads, edited=edited)
    return {"terms": Request(term_importance, params, state.subject if edited else of_weights(state))}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """By order above, by layer and head below."""
    answer = answers.of("terms", term_importance)
    result = answer.result
    if np.isnan(result.reduction).all():
        return Figure(title="Term importance")
    path = " → ".join(f"{loss:.2f}" for loss in (result.uniform, *result.loss) if np.isfinite(loss))
    orders, parts = _orders(answer, facts), _parts(answer, state)
    heights = (len(result.orders) + 2.5, min(len(parts.ids), 8) + 2.5)  # in rows, with room for heading and scroll bar
    return Figure(((orders,), (parts,)), f"Loss {path} nats", caption(answer), weights=heights)


def _what(result: TermImportanceResult, i: int, facts: Facts) -> str:
    """What the terms of one order are, and how many."""
    if int(result.orders[i]) == 0:
        return "direct path + MLPs" if has_mlps(facts) else "direct path"
    words = {"order 1": "single heads", "order 2": "virtual heads", "order 3": "chains of 3"}
    count = float(result.terms[i])
    written = f"{int(count):,}" if count < 1e9 else number(count, ".1e")  # 30 layers have 1.0e30 chains: 31 digits are cut
    return f"{words.get(result.name(i), f'chains, {result.name(i)}')} ({written})"


def _orders(answer: Answer[TermImportanceResult], facts: Facts) -> Rows:
    result = answer.result

    def make() -> tuple[RowColumn, ...]:
        names = np.array([_what(result, i, facts) for i in range(len(result.orders))], dtype=object)
        top = top_level(result.reduction)
        per = result.reduction / result.terms
        tip = "Loss without them minus loss with them; the direct path against uniform predictions"
        return (
            RowColumn("terms (how many)", names),
            RowColumn("takes away", result.reduction, bar=True, levels=(0.0, top), tip=tip),
            *_error(result.error),
            RowColumn("per term", per, digits=4, reads="ranked", tip="Nats"),
        )

    columns = memo(answer, "orders", make)
    keys = memo(answer, "order ids", lambda: ids(result.orders))
    return Rows("orders", columns, keys, heading="Nats that each order takes off the loss, over all lower ones")


def _error(values: np.ndarray) -> list[RowColumn]:
    """The standard error, where there is one."""
    return [] if np.isnan(values).all() else [RowColumn("±", values, tip="Standard error over texts, nats")]


def _parts(answer: Answer[TermImportanceResult], state: State) -> Rows:
    result = answer.result

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        n, heads = result.head_reduction.shape[1:]
        has_heads = not np.isnan(result.head_reduction).all()
        keys = [(i, h) for i in range(n) for h in (NO_HEAD, *(range(heads) if has_heads else ()))]
        names = [f"layer {i}, {number_of(heads, 'head')}" if h == NO_HEAD else f"  {Head(i, h)}" for i, h in keys]
        of = lambda layers, by_head, b: np.array([layers[b, i] if h == NO_HEAD else by_head[b, i, h] for i, h in keys])
        both = [of(result.layer_reduction, result.head_reduction, b) for b in (0, 1)]
        errors = [of(result.layer_error, result.head_error, b) for b in (0, 1)]
        top = top_level(np.concatenate(both))
        tips = "Beside the direct path alone", "Beside the direct path and the order-1 terms of all others"
        columns = [RowColumn("order 1 of", np.array(names, dtype=object))]
        for title, value, error, tip in zip(("alone", "added last"), both, errors, tips, strict=True):
            columns += [RowColumn(title, value, bar=True, levels=(min(0.0, -top) if value.min() < 0 else 0.0, top), tip=tip)]
            columns += _error(error)
        layer, head = np.array(keys or [(0, 0)])[: len(keys)].reshape(-1, 2).T
        return tuple(columns), ids(layer, head)

    columns, keys = memo(answer, "parts", make)
    selected = {(h.layer, h.head) for h in state.selection.heads}
    chosen = tuple(i for i, key in enumerate(keys.tolist()) if tuple(key) in selected)
    return Rows("parts", columns, keys, chosen=chosen, heading="Nats that single layers and heads take off, order 1")


def pick(state: State, hit: Hit) -> State:
    """A row of a head chooses it."""
    if hit.mark == "parts" and len(hit.id) == 2 and hit.id[1] != NO_HEAD:
        return pick_head(state, Head(*hit.id), hit.gesture)
    return state


PANEL = register(
    Panel(
        name="term_importance",
        title="Term importance",
        view=TermImportanceView,
        equation="reduction of order k = loss(terms of order < k) − loss(terms of order ≤ k), patterns held as recorded",
        source="Elhage et al. 2021, A Mathematical Framework for Transformer Circuits, “Term Importance Analysis”",
        help=(
            "The model is run once to record its attention patterns, then again with these patterns held: first with every head "
            "ablated (the direct path, order 0); then each head reads that stream and adds its output (order 1, single heads); "
            "then each reads the stream with order 1 in it (order 2, pairs of heads), and so on. The fall in loss at each step "
            "is the importance of that order's terms beside all lower ones. Below, single layers and heads by their order-1 "
            "terms, alone and added last; the two differ where parts do the same work. MLP outputs and norm scales are held as "
            "recorded."
        ),
        requests=requests,
        draw=draw,
        pick=pick,
        of_heads=True,
        instead="Models side by side has how far the direct path alone gets",
        area="bottom",
        order=150,
        opens="attention",
    )
)
