"""What the model predicts after the selected token, and where the token that really follows stands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circuitlab.analysis.predictions import PredictionsParams, PredictionsResult
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.common import caption, comparing, destination, once, quoted, texts, top_level
from circuitlab.figures.compare import short_label
from circuitlab.figures.compare_marks import by_size
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, empty, ids
from circuitlab.figures.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.vocabulary import foreign
from circuitlab.session.state import Pin, State

KNOWN = 1000  # tokens that are known of both sides while something is pinned, so that what is listed here is found there
FORMER = 3  # of the reference's most probable tokens are listed here too


@dataclass(frozen=True)
class PredictionsView:
    """The controls of the predictions table."""

    k: int = control(20, label="Top", tip="How many tokens are listed", low=1, high=200)


def requests(state: State, facts: Facts) -> Requests | Why:
    """The top tokens at the selected position."""
    if not state.tokens:
        return Why("Type some text in the Prompt to see what comes next.")
    view: PredictionsView = state.view("predictions", PredictionsView)
    k = max(1, view.k)
    params = PredictionsParams(destination(state), max(k, KNOWN) if state.pins else k)
    return {"predictions": Request("predictions", params, state.subject)}


def _result(answer: Answer) -> PredictionsResult:
    result = answer.result
    assert isinstance(result, PredictionsResult)
    return result


def _ours(there: PredictionsResult, facts: Facts, theirs: Facts | None) -> list[int]:
    """The reference's tokens as ids of this model, −1 where no one token of this vocabulary is written so."""
    if theirs is None:
        return there.ids.tolist()
    found = (facts.token_of(theirs.token_text(i)) for i in there.ids.tolist())
    return [-1 if i is None else i for i in found]


def _rows(
    result: PredictionsResult, k: int, there: PredictionsResult | None, pin: Pin | None, facts: Facts, theirs: Facts | None
) -> Rows:
    """The `k` most probable tokens; beside a reference also those that were, with their probability there, by what changed.

    `theirs`: of the reference's model where its vocabulary is another.
    """
    there_ids = [] if there is None else _ours(there, facts, theirs)
    known = {} if there is None else dict(zip(there_ids, np.exp(there.log_probs).tolist(), strict=True))
    former = there_ids[:FORMER]
    listed = np.flatnonzero((np.arange(len(result.ids)) < k) | np.isin(result.ids, former))
    found, p = result.ids[listed], np.exp(result.log_probs[listed])
    beside = ()
    if pin is not None:
        before = np.array([known.get(int(i), np.nan) for i in found])
        top = top_level(p - before)
        tip = f"probability in {pin.label}; empty where it is not among the first {KNOWN:,} there"
        order = by_size(p - before)
        listed, found, p, before = listed[order], found[order], p[order], before[order]
        change = RowColumn("Δ", p - before, digits=4, map="signed", levels=(-top, top), tip="now minus then")
        beside = (RowColumn(f"in {short_label(pin)}", before, digits=4, tip=tip), change)
    columns = (
        RowColumn("#", listed + 1, digits=0),
        RowColumn("token", texts(found, facts), tokens=True),
        RowColumn("p", p, digits=4, bar=True, levels=(0.0, 1.0), tip="probability"),
        *beside,
        RowColumn("logit", result.logits[listed], digits=2),
        RowColumn("id", found, digits=0),
    )
    return Rows("tokens", columns, ids(found), chosen=tuple(np.flatnonzero(found == result.actual).tolist()))


def figure(state: State, facts: Facts, now: Answers, ref: Answers) -> Figure:
    """A table of tokens."""
    asked = requests(state, facts)
    if isinstance(asked, Why):
        return empty(asked.text, "Predictions")
    answer = now.get("predictions")
    if answer is None:
        return Figure(title="Predictions")
    result, view = _result(answer), state.view("predictions", PredictionsView)
    found = ref.get("predictions") if comparing(state, ref) else None
    pin, there = (None, None) if found is None else (state.reference, _result(found))
    theirs = facts.others(pin.subject.model) if pin is not None and foreign(state, facts) else None
    make = lambda: _rows(result, max(1, view.k), there, pin, facts, theirs)
    rows = once(answer, ("rows", view.k, pin, theirs is None), make, there)
    token = quoted(facts.token_text(state.tokens[min(result.position, len(state.tokens) - 1)]))
    said = caption(
        answer,
        _actual(result, facts),
        "" if pin is None or there is None else _then(there, pin, theirs or facts, theirs is not None),
    )
    shown = (len(rows.ids), result.n_vocab)
    return Figure(((rows,),), f"after {result.position} {token}", said, shown, compared=pin is not None)


def _then(there: PredictionsResult, pin: Pin, facts: Facts, other_words: bool) -> str:
    """What stands beside."""
    first = quoted(facts.token_text(int(there.ids[0])))
    said = f"beside: {pin.label}, and now minus it, the largest change first"
    said += f" · most probable there: {first} {np.exp(there.log_probs[0]):.4f}"
    return f"{said} · another vocabulary: tokens are matched by what is written" if other_words else said


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
