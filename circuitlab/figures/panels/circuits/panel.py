"""Circuit tables: what a head, or a pair of heads, does with a token, read from the weights alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from circuitlab.analysis.attribution.skip_trigrams_in_text import SkipTrigramsInTextParams, skip_trigrams_in_text
from circuitlab.analysis.base import TextRef
from circuitlab.analysis.circuits.largest_entries import LargestEntriesParams, LargestEntriesResult, largest_entries
from circuitlab.analysis.circuits.skip_trigrams import SkipTrigramsParams, SkipTrigramsResult, skip_trigrams
from circuitlab.analysis.circuits.token_circuits import TokenCircuitsParams, TokenCircuitsResult, token_circuits
from circuitlab.analysis.circuits.token_readings import Embedding
from circuitlab.counting import number
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import (
    caption,
    captions,
    digits,
    has_mlps,
    quoted,
    reads_normed_tokens,
    rotates,
    texts,
    top_level,
)
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import (
    distance_read,
    leading_head,
    of_weights,
    pair_name,
    pick_token,
    selected_edge,
    token_read,
    weights_refusal,
)
from circuitlab.figures.contracts.shared_scales import tables_on_one_scale
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, empty, ids
from circuitlab.figures.panels.circuits.in_text import USED, pick_example, used_page
from circuitlab.model.subject import Head
from circuitlab.state.state import State

Page = Literal["tables", "triples", "bugs", "in text", "largest"]

READ_TOKENS = ("tables", "triples", "bugs", "largest")  # pages that read tokens from the weights
NONE = ids(np.empty(0))  # tokens


@dataclass(frozen=True)
class CircuitsView:
    """The controls of the circuit tables."""

    page: Page = control("tables", label="Page", kind="tabs")
    k: int = control(12, label="Top", tip="How many of the largest and of the smallest entries", low=1, high=200)
    distance: int = control(
        0,
        label="Distance",
        tip="From source to destination, in positions; 0 reads no positions",
        low=0,
        high=1_000_000,
        only=rotates,
    )
    on: Literal["prompt", "file"] = control(
        "prompt", label="On", tip="Where uses are looked for: the prompt, or pieces of a file", when="page", values=("in text",)
    )
    file: str = control("", label="File", tip="A text file, split into pieces", kind="file", when="on", values=("file",))
    texts: int = control(32, label="Texts", tip="Number of pieces of the file", low=1, high=10_000, when="on", values=("file",))
    by: Literal["nats", "logit"] = control(
        "nats",
        label="By",
        tip="Rank by what the loss is lower by, or by attention × OV on the tokens that came, where frequent tokens come first",
        when="page",
        values=("in text",),
    )
    corpus: str = control(
        "",
        label="Text",
        tip="The text that bugs are absent from; none: the one the model was trained on, where its bigrams lie beside it",
        kind="file",
        when="page",
        values=("bugs",),
    )
    after_mlp: bool = control(
        False,
        label="After first MLP",
        tip="Tokens as later heads read them: W_E + MLP₀ instead of W_E, attention left out",
        only=has_mlps,
        when="page",
        values=READ_TOKENS,
    )
    unnormalised: bool = control(
        False,
        label="W_E unnormalised",
        tip="Rows of W_E as they are stored, up to a scale per token, not as the norm before attention scales them",
        only=reads_normed_tokens,
        when="page",
        values=READ_TOKENS,
    )


def _view(state: State) -> CircuitsView:
    return state.view("circuits", CircuitsView)


def requests(state: State, facts: Facts) -> Requests | Why:
    """One row of each circuit, or the strongest of all."""
    if (why := weights_refusal(facts)) is not None:
        return why
    head = leading_head(state, facts)
    if isinstance(head, Why):
        return head
    view, edge = _view(state), selected_edge(state, facts)
    distance = distance_read(view.distance, facts)
    if view.page == "tables":
        token = token_read(state, facts)
        if token is None:
            return Why("Type a text or find a token above to read its row.")
        return _rows_of(state, facts, head, edge, token, distance)
    if view.page == "in text":
        return _in_text(state, view, head)
    subject = of_weights(state)
    if view.page == "largest":
        through = None if edge is None else edge[0]
        ov = LargestEntriesParams(head, "OV", k=100, through=through, embed=_reading(view, facts, through or head))
        qk = LargestEntriesParams(head, "QK", k=100, distance=distance, embed=_reading(view, facts, head))
        return {"OV": Request(largest_entries, ov, subject), "QK": Request(largest_entries, qk, subject)}
    source = -1 if state.selection.token is None else state.selection.token
    bugs, corpus = view.page == "bugs", TextRef(view.corpus) if view.page == "bugs" and view.corpus else None
    skip = SkipTrigramsParams(head, source=source, bugs=bugs, embed=_reading(view, facts, head), text=corpus)
    return {"skip": Request(skip_trigrams, skip, subject)}


def _reading(view: CircuitsView, facts: Facts, reader: Head) -> Embedding:
    """What stands for a token where this head reads it; those of layer 0 read before any MLP."""
    if view.after_mlp and has_mlps(facts) and reader.layer > 0:
        return "after the first MLP"
    return "tokens" if view.unnormalised and reads_normed_tokens(facts) else "normalised tokens"


def _in_text(state: State, view: CircuitsView, head: Head) -> Requests | Why:
    if view.on == "prompt":
        if len(state.tokens) < 2:
            return Why("Type a text of some tokens in the Prompt, or choose a file above.")
        return {"used": Request(skip_trigrams_in_text, SkipTrigramsInTextParams(head, by=view.by), state.subject)}
    if not view.file:
        return Why("Choose a text file above: the head's skip-trigrams are looked for in its pieces.")
    # interventions are part of a prompt; without a prompt there are none to apply
    edited = bool(state.subject.edits)
    params = SkipTrigramsInTextParams(head, "file", TextRef(view.file), texts=max(1, view.texts), by=view.by, edited=edited)
    return {"used": Request(skip_trigrams_in_text, params, state.subject if edited else of_weights(state))}


def _rows_of(state: State, facts: Facts, head: Head, edge: tuple[Head, Head] | None, token: int, distance: int) -> Requests:
    view, subject = _view(state), of_weights(state)
    behind = None if edge is None else edge[0]
    side = "query" if state.selection.edge_kind == "Q" else "key"
    embed = _reading(view, facts, behind or head)
    # whole rows beside a reference: then both values of each token that either side lists are computed
    params = TokenCircuitsParams(head, token, view.k, distance, behind, side, embed, whole=state.reference is not None)
    return {"token": Request(token_circuits, params, subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The page that is open."""
    if "token" in answers:
        return _tables(facts, answers.of("token", token_circuits))
    if "skip" in answers:
        return _skips(facts, answers.of("skip", skip_trigrams))
    if "used" in answers:
        return used_page(state, facts, answers.of("used", skip_trigrams_in_text))
    return _largest(facts, {role: answers.of(role, largest_entries) for role in answers})


def _tables(facts: Facts, answer: Answer[TokenCircuitsResult]) -> Figure:
    params: TokenCircuitsParams = answer.request.params
    token = params.token
    text = quoted(facts.token_text(token))
    headings = {
        "raises": f"OV: attended to, {text} raises",
        "attends": f"QK: {text} attends to",
        "raised": f"OV: {text} is raised by",
        "attended": f"QK: {text} is attended to by",
    }
    result = answer.result
    tables = [_ends(answer, facts, role, i, heading, token) for i, (role, heading) in enumerate(headings.items())]
    computed = [table for i, table in enumerate(tables) if not np.isnan(result.sd[i])]
    bias = [facts.token_text(int(i)) for i in result.bias_top_ids[:3]]
    note = f"query bias: attends to {' '.join(map(quoted, bias))} from any token" if bias else ""
    grid = tables_on_one_scale(tuple(tuple(computed[i : i + 2]) for i in range(0, len(computed), 2)))
    name = pair_name(params.head, params.behind, "V", "Q" if params.side == "query" else "K")
    return Figure(grid, f"{name} · {text} (id {token})", caption(answer, note))


def _ends(
    answer: Answer[TokenCircuitsResult], facts: Facts, role: str, i: int, heading: str, token: int, also: np.ndarray = NONE
) -> Rows:
    """The largest of a row or column, then the smallest, the smallest last; then the tokens `also` that a reference lists."""
    result = answer.result

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        token_ids = np.concatenate([result.top_ids[i], result.bottom_ids[i, ::-1]])
        more = np.setdiff1d(also[(also >= 0) & (also < result.rows.shape[1])], token_ids)
        values = np.concatenate([result.top[i], result.bottom[i, ::-1], result.rows[i, more]])
        token_ids = np.concatenate([token_ids, more])
        top = top_level(values)
        unit = "logit" if role in ("raises", "raised") else "score"
        tip = f"mean {number(result.mean[i], '.3g')}, sd {number(result.sd[i], '.3g')} over the vocabulary"
        columns = (
            RowColumn("token", texts(token_ids, facts), tokens=True),
            RowColumn(unit, values, digits=digits(top), map="signed", levels=(-top, top), tip=tip),
        )
        return columns, ids(token_ids)

    columns, keys = memo(answer, ("rows", role, also.tobytes()), make)
    chosen = tuple(np.flatnonzero(keys[:, 0] == token).tolist()[:1])
    again = lambda also: _ends(answer, facts, role, i, heading, token, also)
    n, k = facts.config.d_vocab, len(result.top_ids[i])
    gap = k if not also.size and 0 < k < len(keys) < n else None
    return Rows(role, columns, keys, chosen=chosen, heading=heading, ranked=True, including=again, total=n, gap=gap)


def _largest(facts: Facts, entries: Mapping[str, Answer[LargestEntriesResult]]) -> Figure:
    rows = tuple(_entries(answer, facts, role) for role, answer in entries.items())
    skipped = [f"{role}: {answer.result.skipped:.0%} of the product skipped by bounds" for role, answer in entries.items()]
    heads = dict.fromkeys(str(answer.request.params.head) for answer in entries.values())
    return Figure(tables_on_one_scale((rows,)), f"{' '.join(heads)} · largest entries", captions(entries, *skipped))


def _entries(answer: Answer[LargestEntriesResult], facts: Facts, role: str) -> Rows:
    result = answer.result

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        top = top_level(result.values)
        first, second = ("source", "raises") if role == "OV" else ("destination", "attends to")
        columns = (
            RowColumn(first, texts(result.rows_ids, facts), tokens=True),
            RowColumn(second, texts(result.cols_ids, facts), tokens=True),
            RowColumn("logit" if role == "OV" else "score", result.values, digits=digits(top), map="signed", levels=(-top, top)),
        )
        return columns, ids(result.rows_ids, result.cols_ids)

    columns, keys = memo(answer, "rows", make)
    params: LargestEntriesParams = answer.request.params
    heading = f"{role} of {pair_name(params.head, params.through, 'V')}"
    return Rows(role, columns, keys, searchable=True, heading=heading, ranked=True, total=facts.config.d_vocab**2)


def _skips(facts: Facts, answer: Answer[SkipTrigramsResult]) -> Figure:
    result = answer.result
    params: SkipTrigramsParams = answer.request.params

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        top = top_level(result.score)
        columns = (
            RowColumn("source", texts(result.source, facts), tokens=True),
            RowColumn("… destination", texts(result.destination, facts), tokens=True),
            RowColumn("→ out", texts(result.out, facts), tokens=True),
            RowColumn("score", result.score, digits=digits(top), map="signed", levels=(-top, top), tip=result.formula),
            RowColumn("QK", result.qk, digits=digits(top_level(result.qk))),
            RowColumn("OV", result.ov, digits=digits(top_level(result.ov))),
        )
        if params.bugs:
            columns += (
                RowColumn("p", result.probability, reads="probability", tip="Of the out, in a prompt of source and destination"),
                RowColumn("p without", result.without_source, reads="probability", tip="In a prompt of the destination alone"),
                RowColumn("p in text", result.in_corpus, reads="probability", tip="After the destination in the text, smoothed"),
            )
        if params.bugs and (result.followed >= 0).all():  # a stored answer of an earlier version has none
            columns += (RowColumn("of", result.followed, digits=0, tip="How many tokens follow the destination in the text"),)
        return columns, ids(result.source, result.destination, result.out)

    columns, keys = memo(answer, "rows", make)
    if not len(keys):
        return empty("No such triple: choose another head or another token.", "Circuits")
    what = "skip-trigram bugs" if params.bugs else "skip-trigrams"
    of = "" if params.source < 0 else f" from {quoted(facts.token_text(params.source))}"
    total = facts.config.d_vocab ** (3 if params.source < 0 else 2)
    rows = Rows("triples", columns, keys, searchable=True, ranked=True, total=total)
    return Figure(tables_on_one_scale(((rows,),)), f"{params.head} · {what}{of}", caption(answer, result.formula))


def pick(state: State, hit: Hit) -> State:
    """A token that is clicked in a table, or chosen in the search line, is read next; an example becomes the prompt."""
    return pick_example(pick_token(state, hit, "raises", "attends", "raised", "attended", "OV", "QK", "triples", USED), hit)


PANEL = register(
    Panel(
        name="circuits",
        title="Circuits",
        view=CircuitsView,
        equation="OV: W_E W_V W_O W_U, a row per source;  QK: W_E W_Q W_Kᵀ W_Eᵀ · scale, a row per destination",
        source="Elhage et al. 2021, A Mathematical Framework for Transformer Circuits, “OV and QK circuits”, “Skip-trigram bugs”",
        help="Click a token in any table or in the prompt to read its row. With an edge of Composition chosen, the rows "
        "are those of the later head composed with the earlier one. The page in text lists what the head makes use of in a "
        "text, with places; click one to put it into the Prompt.",
        requests=requests,
        draw=draw,
        optional="all",
        pick=pick,
        of_heads=True,
        instead="Bigram has the direct path, W_E W_U",
        area="right",
        shortcut="Ctrl+7",
        order=70,
        searches_tokens=True,
    )
)
