"""The induction panel's picture in the text: where a head looks from the query, and what that adds to the out token."""

from __future__ import annotations

import numpy as np

from circuitlab.analysis.attention import AttentionResult
from circuitlab.analysis.base import find_analysis
from circuitlab.analysis.token_attribution import TokenAttributionParams, TokenAttributionResult
from circuitlab.engine.request import Answer
from circuitlab.figures.common import caption, captions, destination, once, quoted, top_level
from circuitlab.figures.marks import Figure, RowColumn, Rows, Tokens, ids
from circuitlab.figures.panel import Answers, Facts
from circuitlab.session.state import State


def text_page(state: State, facts: Facts, now: Answers) -> Figure:
    """Where the head looks from the query, and what that does to the out token."""
    answer = now["attention"]
    result, effect = answer.result, now["effect"].result if "effect" in now else None
    assert isinstance(result, AttentionResult)
    head, texts = answer.request.params.heads[0], facts.tokens(answer.request.subject.tokens)
    query = effect.position if isinstance(effect, TokenAttributionResult) else destination(state)
    row = once(answer, ("row", query), lambda: result.values[0, query].copy())
    key = int(np.nanargmax(row))
    where = Tokens("attention", texts, row, (0.0, 1.0), unit="attention", row=query, locked=True, tips=_tips(texts, "attention"))
    if effect is None:
        refused = find_analysis("token_attribution").refuse(facts.config, TokenAttributionParams())
        return Figure(((where,),), f"{head} from {query} {quoted(texts[query])}", caption(answer, refused or ""))
    assert isinstance(effect, TokenAttributionResult)
    values = once(now["effect"], "values", lambda: effect.values[0].astype(np.float32))
    top = top_level(values)
    out = int(effect.ids[0, 0])
    follows = query + 1 if query + 1 < len(texts) else None
    raised = Tokens("effect", texts, values, (-top, top), "signed", "logit", row=follows, tips=_tips(texts, "effect"))
    name = quoted(facts.token_text(out)) if out >= 0 else "the direction"
    roles = _roles(now["effect"], facts, query, key, out, row, values)
    title = (
        f"{head} from {quoted(texts[query])} looks at {quoted(texts[key])} ({row[key]:.2f}) and adds {values[key]:+.2f} to {name}"
    )
    words = "first text: where the head looks from the query (boxed) · second: what each source adds to the out token"
    return Figure(
        ((where,), (raised,), (roles,)), title.replace("-", "−"), captions((answer, now["effect"]), words), weights=(1, 1, 1.3)
    )


def _tips(texts: tuple[str, ...], what: str) -> tuple[str, ...]:
    return tuple(f"{i} {t}: {what}" for i, t in enumerate(texts))


def _roles(answer: Answer, facts: Facts, query: int, key: int, out: int, row: np.ndarray, effect: np.ndarray) -> Rows:
    """Query, key and out token in a table."""

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        assert isinstance(answer.result, TokenAttributionResult)
        tokens = answer.result.tokens
        shown = [int(tokens[query]), int(tokens[key]), out]
        words = [facts.token_text(i) if i >= 0 else "direction" for i in shown]
        columns = (
            RowColumn(
                "", np.array(["query", "key", "out"], dtype=object), tip="Where it is read, where it looks, what is measured"
            ),
            RowColumn("position", np.array([str(query), str(key), "next" if out >= 0 else ""], dtype=object)),
            RowColumn("token", np.array(words, dtype=object), tokens=True),
            RowColumn("attention", np.array([row[query], row[key], np.nan]), digits=2),
            RowColumn("logit", np.array([effect[query], effect[key], np.nansum(effect)]), digits=2, tip="out: from all sources"),
        )
        return columns, ids(np.array([query, key, query]), np.array([0, 1, 2]))

    columns, keys = once(answer, ("roles", query, key), make)
    return Rows("roles", columns, keys)
