"""What the open model is, as a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circuitlab.analysis.model_facts import ModelFactsParams, ModelFactsResult
from circuitlab.engine.request import Request
from circuitlab.figures.common import caption, once
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, ids
from circuitlab.figures.panel import Answers, Facts, Panel, Requests, Why, register
from circuitlab.session.state import State


@dataclass(frozen=True)
class ModelView:
    """Nothing to choose."""


def requests(state: State, facts: Facts) -> Requests | Why:
    """The facts, which need no text."""
    return {"facts": Request("model_facts", ModelFactsParams(), state.subject)}


def figure(state: State, facts: Facts, now: Answers, ref: Answers) -> Figure:
    """Group, name, value."""
    answer = now.get("facts")
    if answer is None:
        return Figure(title="Model")
    result = answer.result
    assert isinstance(result, ModelFactsResult)

    def make() -> Rows:
        rows = [*result.facts, *(("loading", "note", note) for note in facts.notes)]
        groups, names, values = (np.array(c, dtype=object) for c in zip(*rows, strict=True))
        shown = [g if i == 0 or groups[i - 1] != g else "" for i, g in enumerate(groups)]
        columns = (RowColumn("", np.array(shown, dtype=object)), RowColumn("fact", names), RowColumn("value", values))
        return Rows("facts", columns, ids(np.arange(len(rows))))

    return Figure(((once(answer, "rows", make),),), facts.name, caption(answer, result.exactness))


def pick(state: State, hit: Hit) -> State:
    """Nothing to pick."""
    return state


PANEL = register(
    Panel(
        name="model",
        title="Model",
        view=ModelView,
        equation="x_{l+1} = x_l + Σ_h A^h (x_l W_V^h) W_O^h (+ MLP)",
        source="Elhage et al. 2021",
        help="Sizes, options, parameter counts, and how exact a reading of the weights alone can be.",
        requests=requests,
        figure=figure,
        pick=pick,
        area="left",
        shortcut="Ctrl+5",
        order=50,
    )
)
