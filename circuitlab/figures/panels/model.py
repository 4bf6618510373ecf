"""What the open model is, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

import numpy as np

from circuitlab.analysis.checks.model_facts import ModelFactsParams, model_facts
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.common import caption
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, register
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, ids
from circuitlab.state.state import State

LINE = 30  # characters of a value in one line: as many as a narrow dock shows
INDENT = "\u2003"


@dataclass(frozen=True)
class ModelView:
    """Nothing to choose."""


def requests(state: State, facts: Facts) -> Requests | Why:
    """The facts, which need no text."""
    return {"facts": Request(model_facts, ModelFactsParams(), state.subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """Group, name, value."""
    answer = answers.of("facts", model_facts)
    notes = [("loading", "note", note) for note in facts.notes]
    of_now = (*facts.memory_report(state.subject), *notes)  # not part of the answer: they change without a new one
    rows = memo(answer, ("rows", of_now), lambda: _rows((*answer.result.facts, *of_now)))
    return Figure(((rows,),), facts.name, caption(answer, answer.result.exactness))


def _rows(facts: tuple[tuple[str, str, str], ...]) -> Rows:
    """One line a fact under the name of its group; longer values are wrapped."""
    lines: list[tuple[str, str]] = []
    last_group = ""
    for group, name, value in facts:
        lines += [(group, "")] if group != last_group else []
        first, *rest = wrap(value, LINE, break_on_hyphens=False) or [""]
        lines += [(INDENT + name, first), *(("", line) for line in rest)]
        last_group = group
    names, values = (np.array(c, dtype=object) for c in zip(*lines, strict=True))
    return Rows("facts", (RowColumn("fact", names), RowColumn("value", values)), ids(np.arange(len(lines))))


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
        draw=draw,
        pick=pick,
        area="left",
        shortcut="Ctrl+5",
        order=50,
    )
)
