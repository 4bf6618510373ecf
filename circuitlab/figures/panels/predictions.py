"""What the model predicts after the selected token, and where the token that really follows stands."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from circuitlab.analysis.behaviour.predictions import PredictionsParams, PredictionsResult, predictions
from circuitlab.counting import probability, ranked
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import caption, destination, prompt_of, quoted, texts, token_at
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, ids
from circuitlab.state.state import State

NONE = ids(np.empty(0))  # tokens


@dataclass(frozen=True)
class PredictionsView:
    """The controls of the predictions table."""

    k: int = control(20, label="Top", tip="How many tokens are listed", low=1, high=200)


def requests(state: State, facts: Facts) -> Requests | Why:
    """The top tokens at the selected position."""
    view: PredictionsView = state.view("predictions", PredictionsView)
    # all logits beside a reference: then both probabilities of each token that either side lists are computed
    params = PredictionsParams(destination(state), max(1, view.k), whole=state.reference is not None)
    return {"predictions": Request(predictions, params, state.subject)}


def _rows(answer: Answer[PredictionsResult], k: int, facts: Facts, also: np.ndarray = NONE) -> Rows:
    """The `k` most probable tokens, and the tokens `also` that a reference lists."""
    result = answer.result

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        tokens, ranks, logits, p = result.listed(k, also[:, 0])
        columns = (
            RowColumn("#", ranks, digits=0),
            RowColumn("token", texts(tokens, facts), tokens=True),
            RowColumn("p", p, digits=4, bar=True, levels=(0.0, 1.0), tip="probability", reads="probability"),
            RowColumn("logit", logits, digits=2),
            RowColumn("id", tokens, digits=0, spare=True),
        )
        return columns, ids(tokens)

    columns, keys = memo(answer, ("rows", k, also.tobytes()), make)
    follows = tuple(np.flatnonzero(keys[:, 0] == result.actual).tolist())
    again = lambda also: _rows(answer, k, facts, also)
    return Rows("tokens", columns, keys, strong=follows, ranked=True, including=again, total=result.n_vocab)


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """A table of tokens."""
    answer = answers.of("predictions", predictions)
    result, view = answer.result, state.view("predictions", PredictionsView)
    rows = _rows(answer, max(1, view.k), facts)
    selected = tuple(np.flatnonzero(rows.ids[:, 0] == state.selection.token).tolist())
    rows = rows if selected == rows.chosen else replace(rows, chosen=selected)
    actual = _actual(result, facts, len(prompt_of(answer)))
    return Figure(((rows,),), f"after {token_at(result.position, prompt_of(answer), facts)}", caption(answer, *actual))


def _actual(result: PredictionsResult, facts: Facts, n: int) -> tuple[str, str]:
    """The entropy, and the token that follows in the prompt of `n` tokens."""
    entropy = f"entropy {result.entropy:.2f} nats"
    if result.actual < 0:
        last = result.position == n - 1
        return entropy, "end of the prompt" if last else "a token follows that the model cannot predict"
    follows = f"follows: {quoted(facts.token_text(result.actual))}"
    rank = ranked(result.actual_rank, result.actual_equal)
    return entropy, f"{follows} {rank}, p {probability(np.exp(result.actual_log_prob))}"


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
        equation="p = softmax(norm(x_L) W_U + b_U);  rank = tokens with a larger logit + 1, equal ones alike",
        source="Elhage et al. 2021",
        help="The most probable next tokens at the selected position; the one that really follows is set in bold.",
        needs_tokens="Type some text in the Prompt to see what comes next.",
        requests=requests,
        draw=draw,
        pick=pick,
        area="right",
        shortcut="Ctrl+3",
        order=30,
    )
)
