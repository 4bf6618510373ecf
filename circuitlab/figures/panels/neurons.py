"""Neurons: which MLP neurons matter for the target at the selected position, and what each writes in tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from circuitlab.analysis.attribution.neurons import NeuronsParams, NeuronsResult, neurons
from circuitlab.counting import number
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.common import caption, destination, digits, prompt_of, texts, token_at, top_level
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, ids
from circuitlab.figures.panels.attribution import target_name
from circuitlab.state.state import State

WRITTEN = 4  # tokens that a neuron raises most, and as many that it lowers most


@dataclass(frozen=True)
class NeuronsView:
    """The controls of the neurons."""

    page: Literal["neurons", "layers"] = control("neurons", label="Page", kind="tabs")
    k: int = control(
        30, label="Top", tip="How many are listed, the largest effects first", low=1, high=500, when="page", values=("neurons",)
    )


def requests(state: State, facts: Facts) -> Requests | Why:
    """The neurons with the largest effects at the selected position."""
    view: NeuronsView = state.view("neurons", NeuronsView)
    params = NeuronsParams(state.selection.target, destination(state), max(1, view.k), WRITTEN)
    return {"neurons": Request(neurons, params, state.subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The neurons, or the sum over all neurons of each layer."""
    answer = answers.of("neurons", neurons)
    result = answer.result
    after = token_at(result.position, prompt_of(answer), facts)
    parts = f"MLPs {number(result.mlp.sum(), '+.2f')} of {number(result.total, '+.2f')}"
    title = f"{target_name(result.ids[0], facts)} after {after}: {parts}"
    view: NeuronsView = state.view("neurons", NeuronsView)
    if view.page == "layers":
        return Figure(((memo(answer, "layers", lambda: _layers(result)),),), title, caption(answer))
    rows = memo(answer, "rows", lambda: _rows(result, facts))
    total = f"the listed neurons add {number(result.effect.sum(), '+.3f')}"
    return Figure(((rows,),), title, caption(answer, total))


def _joined(tokens: np.ndarray, facts: Facts) -> np.ndarray:
    """[n] the texts of the ids `tokens` [n, k], separated by two spaces."""
    return np.array(["  ".join(texts(row, facts)) for row in tokens], dtype=object)


def _rows(result: NeuronsResult, facts: Facts) -> Rows:
    top = top_level(result.effect)
    names = np.array([f"L{a}N{b}" for a, b in zip(result.layer, result.neuron, strict=True)], dtype=object)
    columns = (
        RowColumn("neuron", names),
        RowColumn("activation", result.activation, digits=2),
        RowColumn(
            "effect", result.effect, digits=digits(top), bar=True, levels=(-top, top), tip="activation · (W_out[n] · target)"
        ),
        RowColumn("writes towards", _joined(result.top_ids, facts), tokens=True, tip="raised most by a unit of activation"),
        RowColumn("and away from", _joined(result.bottom_ids, facts), tokens=True, tip="lowered most by a unit of activation"),
    )
    first = result.top_ids[:, 0] if result.top_ids.shape[1] else np.full(len(names), -1)
    return Rows("neurons", columns, ids(result.layer, result.neuron, first), ranked=True, total=result.n_neurons)


def _layers(result: NeuronsResult) -> Rows:
    top = top_level(result.mlp)
    columns = [
        RowColumn("layer", np.array([f"MLP L{i}" for i in range(len(result.mlp))], dtype=object)),
        RowColumn("neurons", result.summed, digits=3, tip="all neurons of the layer"),
        RowColumn("bias", result.bias, digits=3),
    ]
    if result.placed.any():
        columns.append(RowColumn("intervention", result.placed, digits=3, tip="what interventions write instead of the MLP"))
    columns.append(RowColumn("MLP", result.mlp, digits=3, bar=True, levels=(-top, top), tip="the sum: its direct contribution"))
    return Rows("layers", tuple(columns), ids(np.arange(len(result.mlp))))


def pick(state: State, hit: Hit) -> State:
    """A click on a neuron chooses, for every table, the token that it raises most."""
    if hit.mark == "neurons" and hit.gesture in ("click", "double-click") and len(hit.id) == 3 and hit.id[2] >= 0:
        return state.select(token=hit.id[2])
    return state


PANEL: Panel = register(
    Panel(
        name="neurons",
        title="Neurons",
        view=NeuronsView,
        equation="effect[n] = act[n] · (W_out[n] · D');  writes[n] = W_out[n] W_U, minus its mean over the vocabulary",
        source="Geva et al. 2022, Feed-Forward Layers Build Predictions by Promoting Concepts in the Vocabulary Space",
        help="Each MLP neuron adds its activation times a fixed row of W_out [neuron, d_model] to the stream. Effect is what "
        "that adds to the target directly, at the recorded scale of the final norm; the tokens are what the row points "
        "towards and away from. Click a neuron to choose the token that it raises most for every table.",
        needs_tokens="Type some text in the Prompt to see which neurons act on it.",
        requests=requests,
        draw=draw,
        pick=pick,
        of_heads=True,
        lacks="MLP neurons",
        area="bottom",
        order=128,
    )
)
