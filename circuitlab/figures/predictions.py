"""What the model predicts after the selected token, and where the token that really follows stands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circuitlab.analysis.predictions import PredictionsParams, PredictionsResult
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.common import caption, destination, once, quoted
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, empty, ids
from circuitlab.figures.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.session.state import State


@dataclass(frozen=True)
class PredictionsView:
    """The controls of the predictions table."""

    k: int = control(20, label="Top", tip="How many tokens are listed", low=1, high=200)


def requests(state: State, facts: Facts) -> Requests | Why:
    """The top tokens at the selected position."""
    if not state.tokens:
        return Why("Type some text in the Prompt to see what comes next.")
    view: PredictionsView = state.view("predictions", PredictionsView)
    params = PredictionsParams(destination(state), max(1, view.k))
    return {"predictions": Request("predictions", params, state.subject)}


def _rows(answer: Answer, facts: Facts) -> tuple[RowColumn, ...]:
    result = answer.result
    assert isinstance(result, PredictionsResult)
    names = np.array([facts.token_text(int(i)) for i in result.ids], dtype=object)
    return (
        RowColumn("#", np.arange(1, len(result.ids) + 1), digits=0),
        RowColumn("token", names, tokens=True),
        RowColumn("p", np.exp(result.log_probs), digits=4, bar=True, levels=(0.0, 1.0), tip="probability"),
        RowColumn("logit", result.logits, digits=2),
        RowColumn("id", result.ids, digits=0),
    )


def figure(state: State, facts: Facts, now: Answers, ref: Answers) -> Figure:
    """A table of tokens."""
    asked = requests(state, facts)
    if isinstance(asked, Why):
        return empty(asked.text, "Predictions")
    answer = now.get("predictions")
    if answer is None:
        return Figure(title="Predictions")
    result = answer.result
    assert isinstance(result, PredictionsResult)
    columns = once(answer, "rows", lambda: _rows(answer, facts))
    chosen = tuple(int(i) for i in np.flatnonzero(result.ids == result.actual))
    rows = Rows("tokens", columns, once(answer, "ids", lambda: ids(result.ids)), chosen=chosen)
    token = quoted(facts.token_text(state.tokens[min(result.position, len(state.tokens) - 1)]))
    shown = (len(result.ids), result.n_vocab)
    return Figure(((rows,),), f"after {result.position} {token}", caption(answer, _actual(result, facts)), shown)


def _actual(result: PredictionsResult, facts: Facts) -> str:
    entropy = f"entropy {result.entropy:.2f} nats"
    if result.actual < 0:
        return f"{entropy} · end of the prompt"
    follows = f"follows: {quoted(facts.token_text(result.actual))}"
    return f"{entropy} · {follows} rank {result.actual_rank:,}, p {np.exp(result.actual_log_prob):.4f}"


def pick(state: State, hit: Hit) -> State:
    """Choose a token."""
    if hit.mark != "tokens" or hit.gesture not in ("click", "double-click") or not hit.id:
        return state
    return state.select(token=hit.id[0])


PANEL = register(
    Panel(
        name="predictions",
        title="Predictions",
        view=PredictionsView,
        equation="p = softmax(norm(x_L) W_U + b_U);  rank = tokens with a larger logit + 1",
        source="Elhage et al. 2021",
        help="The most probable next tokens at the selected position; the one that really follows is marked.",
        requests=requests,
        figure=figure,
        pick=pick,
        area="right",
        shortcut="Ctrl+3",
        order=30,
    )
)
