"""What follows a token by the direct path alone, beside what followed it in the training text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circuitlab.analysis.circuits.bigram import BigramParams, BigramResult, bigram
from circuitlab.counting import number
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.common import caption, quoted, texts
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import of_weights, pick_token, token_read, weights_refusal
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, ids
from circuitlab.state.state import State


@dataclass(frozen=True)
class BigramView:
    """The controls of the bigram table."""

    k: int = control(30, label="Top", tip="How many next tokens are listed", low=1, high=500)


def requests(state: State, facts: Facts) -> Requests | Why:
    """The row of one token."""
    if (why := weights_refusal(facts)) is not None:
        return why
    token = token_read(state, facts)
    if token is None:
        return Why("Type a text or find a token above to see what follows it.")
    view: BigramView = state.view("bigram", BigramView)
    return {"bigram": Request(bigram, BigramParams(token, view.k), of_weights(state))}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """A table of tokens."""
    answer = answers.of("bigram", bigram)
    result = answer.result
    columns, keys = memo(answer, "rows", lambda: _columns(result, facts))
    numbers = [f"symmetry of W_E W_U {number(result.symmetry, '.3f')}"] if np.isfinite(result.symmetry) else []
    if np.isfinite(result.correlation):
        row, rows = number(result.correlation, ".3f"), number(result.correlation_all, ".3f")
        numbers.append(f"correlation with the corpus {row} in this row, {rows} over all rows, each centred")
    title = f"after {quoted(facts.token_text(answer.request.params.token))} by W_E W_U alone"
    rows = Rows("tokens", columns, keys, searchable=True, total=facts.config.d_vocab)
    return Figure(((rows,),), title, caption(answer, *numbers))


def _columns(result: BigramResult, facts: Facts) -> tuple[tuple[RowColumn, ...], np.ndarray]:
    columns = [
        RowColumn("token", texts(result.ids, facts), tokens=True),
        RowColumn("logit", result.logits, digits=2),
        RowColumn("p", result.probabilities, digits=4, reads="probability"),
        RowColumn("ln p", np.log(result.probabilities), digits=2, tip="of the direct path, in nats"),
    ]
    if np.isfinite(result.corpus_log_probs).any():
        tip = "ln p of the training text's bigrams, in nats"
        columns.append(RowColumn("corpus", result.corpus_log_probs, digits=2, tip=tip))
    return tuple(columns), ids(result.ids)


def pick(state: State, hit: Hit) -> State:
    """A token that is clicked in the table, or chosen in the search line, is read next."""
    return pick_token(state, hit, "tokens")


PANEL = register(
    Panel(
        name="bigram",
        title="Bigram",
        view=BigramView,
        equation="logits = W_E[t] W_U, the path through no head: a model of zero layers",
        source="Elhage et al. 2021, “Zero-layer transformers”",
        help="Click a token to see what follows it. Models shipped with the bigrams of their training text have a corpus column.",
        requests=requests,
        draw=draw,
        pick=pick,
        area="right",
        shortcut="Ctrl+9",
        order=90,
        searches_tokens=True,
    )
)
