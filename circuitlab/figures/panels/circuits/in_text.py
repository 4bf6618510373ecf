"""The page of skip-trigrams in use: the sources that a head made use of in text, and places where it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from circuitlab.analysis.attribution.skip_trigrams_in_text import SkipTrigramsInTextResult
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import caption, digits, quoted, texts, top_level
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Facts
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, empty, ids
from circuitlab.state.state import State

SHOWN = 4  # destinations and outs in a row
BEFORE, AFTER, LEADING = 4, 2, 6  # tokens of an example: before and after its source, and up to its destination
USED, EXAMPLES = "used", "examples"  # marks
ABOUT = 4  # numbers of an example's id before its tokens: source row, destination, source, whether it begins with BOS


def used_page(state: State, facts: Facts, answer: Answer[SkipTrigramsInTextResult]) -> Figure:
    """One row a source, and examples of the chosen one, or of the first."""
    result, head = answer.result, answer.request.params.head
    if not len(result.source) or not result.predicted:
        return empty("The text is too short: type some more.", "Circuits")
    row = next(iter(np.flatnonzero(result.source == state.selection.token).tolist()), 0)
    used, examples = _used(facts, answer, row), _examples(facts, answer, row)
    parts = {"listed": float(result.logit.sum()), "other sources": result.others, "BOS": result.bos}
    parts |= {"placed by interventions": result.placed} if result.placed else {}
    whole = f"{head} on the {number_of(result.predicted, 'token')} that came, in logits: {number(result.total, '.1f')} = "
    whole += " + ".join(f"{number(value, '.1f')} {name}" for name, value in parts.items())
    title = f"{head} · skip-trigrams in use · {quoted(facts.token_text(int(result.source[row])))}"
    return Figure(((used,), (examples,)), title, caption(answer, whole), weights=(3, 1))


def _used(facts: Facts, answer: Answer[SkipTrigramsInTextResult], row: int) -> Rows:
    result = answer.result

    def make() -> tuple[RowColumn, ...]:
        together = lambda lists: np.array([" ".join(texts(r[r >= 0][:SHOWN], facts)) for r in lists], dtype=object)
        top, logits = top_level(result.nats), digits(top_level(result.logit))
        by_weights = "Rank of the source among all tokens, by ‖QK[:, s]‖ · ‖OV[s, :]‖"
        least = f"{answer.request.params.least:g}"
        return (
            RowColumn("source", texts(result.source, facts), tokens=True),
            RowColumn("… destinations", together(result.destination), tip="Where it was used, most nats first"),
            RowColumn("→ outs", together(result.out), tip="The tokens that came, most nats first"),
            RowColumn("nats", result.nats, digits=digits(top), map="signed", levels=(-top, top), tip="Gained where it was used"),
            RowColumn("uses", result.count, digits=0, tip=f"Destinations that attend to it with {least} or more"),
            RowColumn("logits", result.logit, digits=logits, tip="Attention × OV on the tokens that came"),
            *(
                (RowColumn("by weights", result.weights_rank, digits=0, tip=by_weights),)
                if (result.weights_rank > 0).all()
                else ()
            ),
            RowColumn("attention", result.attention, digits=1, tip="Summed over all destinations", spare=True),
        )

    columns, total = memo(answer, USED, make), _n_sources(result, facts)
    return Rows(USED, columns, ids(result.source), chosen=(row,), searchable=True, ranked=True, total=total)


def _n_sources(result: SkipTrigramsInTextResult, facts: Facts) -> int:
    """How many sources occur in the texts: the listed ones are some of them. BOS is none where the model prepends it."""
    occurring = set(result.texts[result.texts >= 0].tolist())
    return len(occurring - {facts.bos} if facts.config.prepend_bos else occurring)


def _examples(facts: Facts, answer: Answer[SkipTrigramsInTextResult], row: int) -> Rows:
    result = answer.result

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        places = [place for place in result.example[row].tolist() if place[0] >= 0]
        n = len(places)
        keys = np.full((n, ABOUT + result.texts.shape[1]), -1, dtype=np.int64)
        for key, (text, source, destination) in zip(keys, places, strict=True):
            key[:ABOUT] = row, destination, source, int(result.texts[text, 0]) == facts.bos
            key[ABOUT : ABOUT + destination + 2] = result.texts[text, : destination + 2]
        excerpts = [_excerpt(result.texts[text].tolist(), s, d, facts.token_text) for text, s, d in places]
        columns = (
            RowColumn("source … destination → out", np.array(excerpts, dtype=object), tip="Click one to put it into the Prompt"),
            RowColumn("nats", result.example_nats[row, :n], digits=2),
            RowColumn("logits", result.example_logit[row, :n], digits=2),
        )
        return columns, keys

    columns, keys = memo(answer, (EXAMPLES, row), make)
    source = quoted(facts.token_text(int(result.source[row])))
    return Rows(EXAMPLES, columns, keys, heading=f"{source} in use")


def _excerpt(text: list[int], source: int, destination: int, name: Callable[[int], str]) -> str:
    """The tokens round a source in brackets, round its destination, and the one that came."""
    marked = [f"[{name(t)}]" if i == source else name(t) for i, t in enumerate(text[: destination + 1])]
    first, after, last = max(0, source - BEFORE), source + 1 + AFTER, destination + 1 - LEADING
    if source == destination or last <= after:
        middle = marked[first:]
    else:
        middle = [*marked[first:after], "…", *marked[last:]]
    return f"{'… ' if first else ''}{' '.join(middle)} → {name(text[destination + 1])}"


def pick_example(state: State, hit: Hit) -> State:
    """The piece of the text up to the example's out, with its destination and its source chosen."""
    if hit.mark != EXAMPLES or hit.gesture not in ("click", "double-click") or len(hit.id) <= ABOUT:
        return state
    _, destination, source, begins = hit.id[:ABOUT]
    tokens = tuple(t for t in hit.id[ABOUT:] if t >= 0)
    if tokens != state.tokens:
        state = replace(state, bos=bool(begins), front="").with_tokens(tokens)
    return state.select(destination=destination, source=source, locked=True)
