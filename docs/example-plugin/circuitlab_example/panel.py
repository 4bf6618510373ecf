"""The panel of `repeated_loss`: a row for the tokens that have been there before, and one for the new ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circuitlab.engine.request import Request
from circuitlab.figures.contracts.common import caption
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, ids
from circuitlab.state.state import State
from circuitlab_example.repeated_loss import KINDS, RepeatedLossParams, repeated_loss


@dataclass(frozen=True)
class RepeatedLossView:
    """The controls."""

    digits: int = control(3, label="Digits", tip="Digits of the loss", low=0, high=6)


def requests(state: State, facts: Facts) -> Requests | Why:
    """The losses of the prompt."""
    if not state.tokens:
        return Why("Type some text in the Prompt to see the loss of what it repeats.")
    return {"losses": Request(repeated_loss, RepeatedLossParams(), state.subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """A table."""
    answer = answers.of("losses", repeated_loss)
    view: RepeatedLossView = state.view("repeated_loss_panel", RepeatedLossView)

    def make() -> Rows:
        columns = (
            RowColumn("tokens", np.array(KINDS, dtype=object)),
            RowColumn("count", answer.result.count, digits=0),
            RowColumn("loss (nats)", answer.result.loss, digits=view.digits, tip="mean of −ln p"),
        )
        return Rows("losses", columns, ids(np.arange(len(KINDS))))

    return Figure(((memo(answer, ("rows", view.digits), make),),), "Loss of repeated and new tokens", caption(answer))


def pick(state: State, hit: Hit) -> State:
    """Nothing can be chosen."""
    return state


PANEL = register(
    Panel(
        name="repeated_loss_panel",
        title="Repeated loss",
        view=RepeatedLossView,
        equation="mean L = |R|/n · mean_R L + |N|/n · mean_N L",
        source="Olsson et al. 2022",
        help="The mean loss of tokens that the prompt has had before, beside that of tokens which are new in it.",
        requests=requests,
        draw=draw,
        pick=pick,
        area="right",
    )
)
