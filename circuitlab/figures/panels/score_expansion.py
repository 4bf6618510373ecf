"""Why this head attends here: the score of one cell of its pattern as terms, by who wrote the query and who wrote the key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from zlib import crc32

import numpy as np

from circuitlab.analysis.attribution.score_expansion import GROUPS, ScoreExpansionParams, ScoreExpansionResult, score_expansion
from circuitlab.analysis.ordering import descending
from circuitlab.counting import number, probability
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import caption, destination, digits, head_column, quoted, top_level
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import leading_head, pick_edge
from circuitlab.figures.marks import Axis, Figure, Heatmap, Hit, RowColumn, Rows, ids
from circuitlab.model.subject import Head
from circuitlab.state.state import State

LEAST_SHARED = 0.1  # of the largest group: of a smaller sum no percentages are given
LARGEST = 200
NONE = np.empty((0, 6), dtype=np.int64)
FEW = 50  # so many rows need no search line
WRITTEN = {"none": "neither side", "Q": "the query (Q)", "K": "the key (K)", "both": "both sides"}


@dataclass(frozen=True)
class WhyHereView:
    """The controls of the score expansion."""

    page: Literal["terms", "heads", "map"] = control("terms", label="Page", kind="tabs")
    values: Literal["centred", "raw"] = control(
        "centred", label="Values", tip="Centred: minus the mean over the row's sources; softmax does not see that mean"
    )


@dataclass(frozen=True, eq=False)
class _Expansion:
    """The parts of an answer by "raw" and "centred". Arrays as in `ScoreExpansionResult`."""

    names_dest: tuple[str, ...]
    names_src: tuple[str, ...]
    heads: np.ndarray
    terms: dict[str, np.ndarray]
    groups: dict[str, np.ndarray]
    earlier: np.ndarray
    through: dict[str, np.ndarray]


def cell_of(state: State) -> tuple[int, int | None]:
    """(destination, source) of the selection; without a source the one most attended to is read (None)."""
    d, s = destination(state), state.selection.source
    return d, s if s is not None and s <= d else None


def requests(state: State, facts: Facts) -> Requests | Why:
    """The selected cell of the leading head."""
    head = leading_head(state, facts)
    if isinstance(head, Why):
        return head
    return {"expansion": Request(score_expansion, ScoreExpansionParams(head, *cell_of(state)), state.subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """Four group sums, raw and centred, above the terms, the earlier heads, or the map of all terms."""
    answer = answers.of("expansion", score_expansion)
    view: WhyHereView = state.view("why_here", WhyHereView)
    result = answer.result
    expansion, title = memo(answer, "shown", lambda: _expansion(result)), _title(facts, answer)
    if view.page == "map":
        return Figure(((_map(answer, expansion, view),),), title, caption(answer, *_colours(result)))
    below = _terms(answer, expansion, view) if view.page == "terms" else _heads(answer, expansion, view, state)
    groups = _groups(answer, expansion, view)
    if below is None:
        return Figure(((groups,),), title, caption(answer, "no earlier head: this is the first layer"))
    return Figure(((groups,), (below,)), title, caption(answer, _mean(result)), weights=(1.25, 1.0))


def _title(facts: Facts, answer: Answer[ScoreExpansionResult]) -> str:
    result, head, tokens = answer.result, answer.request.params.head, answer.request.subject.tokens
    text = lambda i: quoted(facts.token_text(tokens[i]))
    where = f"{result.destination} {text(result.destination)} → {result.source} {text(result.source)}"
    return f"{head} · {where} · A = {probability(result.attention, 2)}"


def _mean(result: ScoreExpansionResult) -> str:
    return f"score {number(result.score, '.2f')}, its row's mean {number(result.row_mean, '.2f')}"


def _colours(result: ScoreExpansionResult) -> tuple[str, str]:
    return "rows: what wrote the query, columns: what wrote the key", _mean(result)


def _expansion(result: ScoreExpansionResult) -> _Expansion:
    return _Expansion(
        result.names_dest,
        result.names_src,
        result.heads,
        {"raw": result.terms, "centred": result.centred},
        {"raw": result.groups, "centred": result.groups_centred},
        result.earlier,
        {"raw": result.through, "centred": result.through_centred},
    )


def _ends(values: np.ndarray) -> tuple[float, float]:
    """Levels of bars that share one scale: zero and both extremes of `values`."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    return (low, high) if low < high else (0.0, 1.0)


def _column(name: str, values: np.ndarray, of: np.ndarray, bar: bool, tip: str = "") -> RowColumn:
    """A column of numbers on the scale of all values `of`, with or without bars."""
    return RowColumn(name, values, digits(top_level(of)), bar=bar, levels=_ends(of), tip=tip)


def _groups(answer: Answer[ScoreExpansionResult], expansion: _Expansion, view: WhyHereView) -> Rows:
    """Four group sums and what they add up to, centred and raw."""

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        centred, raw = (np.append(expansion.groups[of], expansion.groups[of].sum()) for of in ("centred", "raw"))
        small = abs(centred[-1]) < LEAST_SHARED * np.abs(centred).max()  # a percentage of nearly zero means nothing
        share = np.full(len(centred), np.nan) if small or not centred[-1] else 100 * (centred / centred[-1])
        columns = (
            RowColumn("heads wrote", np.array([*(WRITTEN[g] for g in GROUPS), "sum"], dtype=object)),
            _column("centred", centred, centred, view.values == "centred", "minus the mean over the row's sources"),
            RowColumn("%", share, digits=0, tip="share of the centred sum; over 100 where other groups have the opposite sign"),
            _column("raw", raw, raw, view.values == "raw", "of the score itself"),
        )
        return columns, ids(np.arange(len(centred)))

    columns, keys = memo(answer, ("groups", view.values), make)
    return Rows("groups", columns, keys)


def _named(names: tuple[str, ...]) -> np.ndarray:
    """[component]: an id for each name, the same in every model and prompt."""
    return np.array([crc32(name.encode()) for name in names], dtype=np.int64)


def _terms(answer: Answer[ScoreExpansionResult], expansion: _Expansion, view: WhyHereView, also: np.ndarray = NONE) -> Rows:
    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        by = expansion.terms[view.values]
        order = descending(by, by_size=True)[:LARGEST]
        names_dest, names_src = _named(expansion.names_dest), _named(expansion.names_src)
        at_dest, at_src = ({int(name): i for i, name in enumerate(names)} for names in (names_dest, names_src))
        cells = [(at_dest[d], at_src[s]) for d, s in also[:, :2].tolist() if d in at_dest and s in at_src]
        ref_terms = np.ravel_multi_index(np.array(cells, dtype=np.int64).reshape(-1, 2).T, by.shape)
        order = np.concatenate([order, np.setdiff1d(ref_terms, order)])
        dest, src = np.unravel_index(order, by.shape)
        columns = [
            RowColumn("query from", np.array(expansion.names_dest, dtype=object)[dest]),
            RowColumn("key from", np.array(expansion.names_src, dtype=object)[src]),
        ]
        for name in ("centred", "raw"):
            values, leads = expansion.terms[name][dest, src], name == view.values
            columns.append(_column(name, values, by, leads))
        return tuple(columns), ids(names_dest[dest], names_src[src], *expansion.heads[dest].T, *expansion.heads[src].T)

    most = lambda: _most(expansion, view.values)
    columns, keys = memo(answer, ("terms", view.values, also.tobytes()), make)
    total = expansion.terms[view.values].size
    heading = memo(answer, ("most", view.values), most)
    again = lambda also: _terms(answer, expansion, view, also)
    return Rows(
        "terms",
        columns,
        keys,
        searchable=len(keys) > FEW,
        heading=heading,
        ranked=True,
        including=again,
        absent=0.0,
        total=total,
    )


def _most(expansion: _Expansion, of: str) -> str:
    """The earlier head with the largest sum of terms in which it wrote the query or the key, and that sum."""
    if not len(expansion.earlier):
        return ""
    sides = np.stack(
        [expansion.through[of][:, 0] + expansion.through[of][:, 2], expansion.through[of][:, 1] + expansion.through[of][:, 3]]
    )
    side, head = np.unravel_index(np.abs(sides).argmax(), sides.shape)
    name = Head(*map(int, expansion.earlier[head]))
    total = f"{number(sides[side, head], '.2f')} of {number(expansion.groups[of].sum(), '.2f')}"
    return f"all with the {'key' if side else 'query'} from {name}: {total}"


def _heads(answer: Answer[ScoreExpansionResult], expansion: _Expansion, view: WhyHereView, state: State) -> Rows | None:
    """Every earlier head: the terms whose query or key it wrote, with and without heads on the other side."""
    if not len(expansion.earlier):
        return None

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        values = expansion.through[view.values]
        as_query, as_key = values[:, 0] + values[:, 2], values[:, 1] + values[:, 3]
        order = descending(np.maximum(np.abs(as_query), np.abs(as_key)))
        both = np.stack([as_query, as_key])
        sums = (
            ("key", as_key, "all terms whose key this head wrote: K and both"),
            ("query", as_query, "all terms whose query this head wrote: Q and both"),
            ("K", values[:, 1], "it wrote the key, no head the query: its K terms"),
            ("Q", values[:, 0], "it wrote the query, no head the key: its Q terms"),
        )
        columns = [head_column(*expansion.earlier[order].T)]
        for name, column, tip in sums:
            columns.append(_column(name, column[order], both, len(name) > 1, tip))
        by_key = (np.abs(as_key) >= np.abs(as_query)).astype(np.int64)
        return tuple(columns), ids(*expansion.earlier[order].T, by_key[order])

    columns, keys = memo(answer, ("heads", view.values), make)
    edge = state.selection.edge
    chosen = () if edge is None else tuple(i for i, key in enumerate(keys.tolist()) if tuple(key[:2]) == edge[0])
    heading = f"{view.values} terms whose key, or query, an earlier head wrote"
    return Rows("heads", columns, keys, chosen=chosen, heading=heading, ranked=True, keyed=2)


def _map(answer: Answer[ScoreExpansionResult], expansion: _Expansion, view: WhyHereView) -> Heatmap:
    """Every term: rows what wrote the query, columns what wrote the key."""
    values = memo(answer, ("map", view.values), lambda: expansion.terms[view.values].astype(np.float32))
    top = memo(answer, ("top", view.values), lambda: top_level(values))
    return Heatmap(
        name="map",
        values=values,
        levels=(-top, top),
        map="signed",
        unit=f"{view.values} score",
        x=memo(answer, "x", lambda: Axis("key from", expansion.names_src)),
        y=memo(answer, "y", lambda: Axis("query from", expansion.names_dest)),
        row_ids=memo(answer, "ids", lambda: ids(*expansion.heads.T)),
        col_ids=memo(answer, "ids", lambda: ids(*expansion.heads.T)),
    )


def pick(state: State, hit: Hit) -> State:
    """A head in a term, in the list or on the map: the edge from it to the leading head, through the key before the query."""
    if hit.gesture not in ("click", "double-click"):
        return state
    if hit.mark == "heads" and len(hit.id) == 3:
        return pick_edge(state, Head(*hit.id[:2]), state.selection.head, "K" if hit.id[2] else "Q")
    if (hit.mark, len(hit.id)) not in (("terms", 6), ("map", 4)):
        return state
    *query, key_layer, key_head = hit.id[-4:]
    if key_layer >= 0:
        return pick_edge(state, Head(key_layer, key_head), state.selection.head, "K")
    return pick_edge(state, Head(*query), state.selection.head, "Q") if query[0] >= 0 else state


PANEL = register(
    Panel(
        name="why_here",
        title="Why here",
        view=WhyHereView,
        equation="scale · q_d · k_s = Σ over (what wrote q_d) × (what wrote k_s) = none + Q + K + both",
        source="Elhage et al. 2021, “Three kinds of composition”, “Analyzing a two-layer model” (none, Q, K and both terms)",
        help=(
            "The score of one cell of the pattern, before the softmax: the selected destination and source, or the source most "
            "attended to. Query and key are sums over what was written into the stream, so the score is a sum over pairs. "
            "none: no earlier head wrote either side; Q: an earlier head wrote the query's part; K: the key's; both: both. "
            "Centred values are minus their mean over the row's sources: only those change the pattern. An induction head lives "
            "on terms whose key was written by a previous-token head. Click a term to choose that head as an edge."
        ),
        needs_tokens="Type some text in the Prompt, then hover a token or a cell of Attention.",
        requests=requests,
        draw=draw,
        pick=pick,
        of_heads=True,
        instead="Attribution has what the direct path adds to each logit",
        area="right",
        order=130,
        opens="attention",
    )
)
