"""Virtual weights: how much of what a component writes to the residual stream another one reads, in norms and in tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from circuitlab.analysis.composition.virtual_weight import VirtualWeightParams, VirtualWeightResult, virtual_weight
from circuitlab.caption_parts import Essential
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.common import caption, destination, has_mlps, texts
from circuitlab.figures.contracts.facts import PAIR_ELSEWHERE
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import no_head, of_weights, selected_edge, selected_heads, weights_refusal
from circuitlab.figures.marks import Axis, Figure, Hit, Lines, RowColumn, Rows, ids
from circuitlab.model.subject import Head
from circuitlab.state.state import State

READ_BY_HEADS = ("QK query", "QK key", "OV")


@dataclass(frozen=True)
class VirtualView:
    """The controls of the virtual weights."""

    writer: Literal["embedding", "position", "head", "mlp"] = control("head", label="Writer")
    writer_layer: int = control(0, label="of layer", low=0, high=999, when="writer", values=("mlp",))
    reader: Literal["QK query", "QK key", "OV", "mlp", "unembedding"] = control("unembedding", label="Reader")
    reader_layer: int = control(1, label="of layer", low=0, high=999, when="reader", values=("mlp",))
    across: bool = control(False, label="Across layers", tip="Also through the layers between, patterns set to the identity")
    mlp: Literal["none", "linear", "Jacobian at the position", "mean Jacobian"] = control(
        "none",
        label="MLPs",
        tip="Left out, as W_in W_out without their nonlinearity, or as they act on small changes in this prompt",
        when="across",
        only=has_mlps,
    )


def _heads(state: State, facts: Facts, view: VirtualView) -> tuple[Head, Head] | Why:
    """(writer, reader): the chosen edge, or the chosen heads by layer."""
    edge, heads = selected_edge(state, facts), selected_heads(state, facts)
    if edge is not None:
        return edge
    if not heads:
        return no_head(state.selection.head, facts)
    if view.writer == "head" and view.reader in READ_BY_HEADS:
        first, last = min(heads), max(heads)
        if first.layer == last.layer:
            return Why(
                "Choose an edge in Composition, or Shift-click a head of another layer: one writes, the other reads.",
                PAIR_ELSEWHERE,
            )
        return first, last
    return heads[0], heads[0]


def requests(state: State, facts: Facts) -> Requests | Why:
    """The product of one writer and one reader."""
    if (why := weights_refusal(facts)) is not None:
        return why
    view: VirtualView = state.view("virtual", VirtualView)
    heads = _heads(state, facts, view)
    if isinstance(heads, Why):
        return heads
    writer, reader = heads
    params = VirtualWeightParams(
        view.writer, writer, view.writer_layer, view.reader, reader, view.reader_layer, view.across, view.mlp, k=8
    )
    if not params.recorded:
        return {"product": Request(virtual_weight, params, of_weights(state))}
    if not state.tokens:
        return Why("Type some text in the Prompt: the MLPs' Jacobians are taken there.")
    at = destination(state) if params.mlp == "Jacobian at the position" else -1
    return {"product": Request(virtual_weight, replace(params, position=at), state.subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """Norms beside singular values, directions in tokens below."""
    answer = answers.of("product", virtual_weight)
    result = answer.result
    rows = memo(answer, "facts", lambda: _facts(result))
    curve = memo(answer, "curve", lambda: _curve(result))
    directions = memo(answer, "directions", lambda: _directions(result, facts))
    grid = ((rows, curve), (directions,)) if directions is not None else ((rows, curve),)
    words = ("a direction and its sign are shared by both sides", _listed(result, facts)) if directions is not None else ()
    return Figure(grid, result.product, caption(answer, *words))


def _listed(result: VirtualWeightResult, facts: Facts) -> str:
    """How many directions and tokens the table lists of how many."""
    n, k = next(i for i in (result.left_ids, result.right_ids) if i.size).shape
    directions, tokens = number_of(len(result.singular_values), "direction"), number_of(facts.config.d_vocab, "token")
    return Essential(f"{n} of {directions}, {k} of {tokens} each")


def _facts(result: VirtualWeightResult) -> Rows:
    norms = [
        ("norm", result.norm),
        ("over both norms", result.relative),
        ("baseline", result.baseline),
        ("direct", result.direct_norm),
        ("across layers", result.across_norm),
        ("writer", result.writer_norm),
        ("reader", result.reader_norm),
    ]
    names, values = zip(*norms, strict=True)
    text = np.array([f"{number(v, '.4g')}" if np.isfinite(v) else "not computed" for v in values], dtype=object)
    return Rows(
        "norms",
        (RowColumn("Frobenius", np.array(names, dtype=object)), RowColumn("", text)),
        ids(np.arange(len(names))),
    )


def _curve(result: VirtualWeightResult) -> Lines:
    values = np.where(result.singular_values > 0, result.singular_values, np.nan)
    x = np.arange(1, len(values) + 1, dtype=float)
    return Lines("singular values", x, values[None], ("σ",), x_axis=Axis("index"), y_axis=Axis("singular value", log=True))


def _directions(result: VirtualWeightResult, facts: Facts) -> Rows | None:
    """One row for each token of a direction: what the writer writes and what the reader reads."""
    sides = [
        (n, i, v) for n, i, v in (("writes", result.left_ids, result.left), ("reads", result.right_ids, result.right)) if i.size
    ]
    if not sides:
        return None
    n, k = sides[0][1].shape
    number = np.repeat(np.arange(1, n + 1), k)
    columns = [
        RowColumn("direction", number, digits=0),
        RowColumn("σ", result.singular_values[number - 1], digits=3),
    ]
    for name, tokens, values in sides:
        top = float(np.abs(values).max()) or 1.0
        columns += [
            RowColumn(name, texts(tokens.ravel(), facts), tokens=True),
            RowColumn(f"{name} by", values.ravel(), digits=3, map="signed", levels=(-top, top)),
        ]
    return Rows("directions", tuple(columns), ids(number, np.tile(np.arange(k), n), sides[0][1].ravel()), searchable=True)


def pick(state: State, hit: Hit) -> State:
    """A click on a token of a direction chooses it for every table."""
    if hit.mark == "directions" and hit.gesture == "click" and len(hit.id) == 3:
        return state.select(token=hit.id[2])
    return state


PANEL = register(
    Panel(
        name="virtual",
        title="Virtual weights",
        view=VirtualView,
        equation="writer · reader directly;  writer · Π (I + Σ_h W_OV) (I + M) · reader across the layers, patterns the identity",
        source="Elhage et al. 2021, “Virtual weights and the residual stream as a communication channel”",
        help=(
            "Choose a writer and a reader: the edge chosen in Composition, chosen heads, embeddings, MLPs, the unembedding. The "
            "direct product is exact. Across layers it is not: every pattern is set to the identity, and MLPs are left out, "
            "taken as linear, or replaced by their Jacobian at the selected position or its mean over the prompt, norms at "
            "recorded scales. The baseline is the share of both norms that remains when writer and reader are rotated at random "
            "against what lies between them."
        ),
        requests=requests,
        draw=draw,
        pick=pick,
        of_heads=True,
        instead="Bigram has the direct path, W_E W_U",
        area="centre",
        order=100,
    )
)
