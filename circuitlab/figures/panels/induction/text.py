"""The text page of the induction panel: where a head attends from the destination, and what that adds to the out token.

The terms are those of Elhage et al. 2021: the head attends from the *destination* to the *source*. It finds the source by its
*key*, which in an induction head is the token before the source, moved there by a previous-token head; it adds to *out*.
"""

from __future__ import annotations

import numpy as np

from circuitlab.analysis.attention.pattern import AttentionResult
from circuitlab.analysis.attribution.token_attribution import TokenAttributionResult
from circuitlab.counting import number, probability
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import caption, captions, destination, quoted, top_level
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Facts
from circuitlab.figures.marks import Figure, RowColumn, Rows, Tokens, ids
from circuitlab.state.state import State


def text_page(
    state: State, facts: Facts, answer: Answer[AttentionResult], effect_answer: Answer[TokenAttributionResult] | None
) -> Figure:
    """The head's attention from the destination and, if `effect_answer` is given, what each source adds to the out token."""
    result = answer.result
    head, texts = answer.request.params.heads[0], facts.tokens(answer.request.subject.tokens)
    query = destination(state) if effect_answer is None else effect_answer.result.position
    row = memo(answer, ("row", query), lambda: result.values[0, query].copy())
    source = int(np.nanargmax(row))
    names, arrows = roles_of(source, query)
    where = Tokens(
        "attention",
        texts,
        row,
        (0.0, 1.0),
        unit="attention",
        row=query,
        locked=True,
        tips=_tips(texts, "attention"),
        named=names,
        arrows=arrows,
    )
    matched = _matched(answer.request.subject.tokens, source, query)
    if effect_answer is None:
        return Figure(((where,),), f"{head} from {query} {quoted(texts[query])}", caption(answer, matched))
    effect = effect_answer.result
    values = memo(effect_answer, "values", lambda: effect.values[0].astype(np.float32))
    top = top_level(values)
    out = int(effect.ids[0, 0])
    follows = query + 1 if query + 1 < len(texts) else None
    raised = Tokens("effect", texts, values, (-top, top), "signed", "logit", row=follows, tips=_tips(texts, "effect"))
    name = quoted(facts.token_text(out)) if out >= 0 else "the direction"
    roles = _roles(effect_answer, facts, query, source, out, row, values)
    attends = f"{head} from {quoted(texts[query])} attends to {quoted(texts[source])} ({probability(row[source], 2)})"
    title = f"{attends} and adds {number(values[source], '+.2f')} to {name}"
    note = "first text: the head's attention from the destination (boxed) · second: what each source adds to the out token"
    return Figure(
        ((where,), (raised,), (roles,)),
        title,
        captions({"attention": answer, "effect": effect_answer}, matched, note),
        weights=(1, 1, 1.3),
    )


def _tips(texts: tuple[str, ...], what: str) -> tuple[str, ...]:
    return tuple(f"{i} {t}: {what}" for i, t in enumerate(texts))


def roles_of(source: int, query: int) -> tuple[tuple[tuple[int, str], ...], tuple[tuple[int, int], ...]]:
    """Names of positions, and arrows key → source → destination; a source at position 0 has no key."""
    if source == query:
        return ((source, "source = destination"),), ()
    if source == 0:
        return ((source, "source"), (query, "destination")), ((source, query),)
    if source - 1 == query:
        return ((query, "key = destination"), (source, "source")), ((source - 1, source),)
    return ((source - 1, "key"), (source, "source"), (query, "destination")), ((source - 1, source), (source, query))


def _matched(tokens: tuple[int, ...], source: int, query: int) -> str:
    """For the caption: whether the head attends where an induction head would."""
    if source == 0:
        return "the source is the first token, so there is no key before it"
    if tokens[source - 1] == tokens[query]:
        return "key = destination's token: prefix matching"
    return "key and destination are different tokens"


def _roles(
    answer: Answer[TokenAttributionResult],
    facts: Facts,
    query: int,
    source: int,
    out: int,
    row: np.ndarray,
    effect: np.ndarray,
) -> Rows:
    """Key, source, destination and out token as a table."""

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        tokens = answer.result.tokens
        places = [*([source - 1] if source else []), source, query]
        names = [*(["key"] if source else []), "source", "destination", "out"]
        words = [*(facts.token_text(int(tokens[i])) for i in places), facts.token_text(out) if out >= 0 else "direction"]
        positions = [*map(str, places), "next" if out >= 0 else ""]
        tip = "key: the token before the source, by which it is found; source: attended to; destination: attended from"
        columns = (
            RowColumn("", np.array(names, dtype=object), tip=tip),
            RowColumn("position", np.array(positions, dtype=object)),
            RowColumn("token", np.array(words, dtype=object), tokens=True),
            RowColumn("attention", np.array([*(row[i] for i in places), np.nan]), digits=2),
            RowColumn(
                "logit", np.array([*(effect[i] for i in places), np.nansum(effect)]), digits=2, tip="out: from all sources"
            ),
        )
        return columns, ids(np.array([*places, query]), np.arange(len(names)))

    columns, keys = memo(answer, ("roles", query, source), make)
    return Rows("roles", columns, keys)
