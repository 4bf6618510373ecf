"""Attribution: what every head and every other part adds to the target, and which earlier tokens it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from circuitlab.analysis.attribution.direct_attribution import (
    DirectAttributionParams,
    DirectAttributionResult,
    direct_attribution,
)
from circuitlab.analysis.attribution.token_attribution import TokenAttributionParams, TokenAttributionResult, token_attribution
from circuitlab.analysis.ordering import descending
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import (
    caption,
    destination,
    digits,
    pick_position,
    prompt_of,
    quoted,
    texts,
    token_at,
    top_level,
)
from circuitlab.figures.contracts.heads import head_map, head_rank, pick_head
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import selected_heads
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, Tokens, ids
from circuitlab.model.subject import Head
from circuitlab.state.state import State

MOST_HEADS = 4  # columns of their own
TOKENS = ("tokens",)


@dataclass(frozen=True)
class AttributionView:
    """The controls of the attribution panel."""

    page: Literal["parts", "tokens"] = control("parts", label="Page", kind="tabs")
    direction: Literal["which tokens raised this", "what this token raised"] = control(
        "which tokens raised this",
        label="Show",
        tip="The sources of one prediction, or the predictions that one source acts on",
        when="page",
        values=TOKENS,
    )
    through: Literal["chosen heads", "all heads"] = control(
        "chosen heads", label="Through", tip="Whose contributions colour the text", when="page", values=TOKENS
    )


def _view(state: State) -> AttributionView:
    return state.view("attribution", AttributionView)


def sources(view: AttributionView) -> bool:
    """Whether the sources of one destination are shown, not the destinations of one source."""
    return view.direction == "which tokens raised this"


def read_position(state: State, view: AttributionView) -> int:
    """The destination that is explained; or the source that is followed: the selected one, else the position that is read."""
    chosen_source = state.selection.source
    return destination(state) if sources(view) or chosen_source is None else min(chosen_source, len(state.tokens) - 1)


def target_name(target_ids: np.ndarray, facts: Facts) -> str:
    """A target by its ids [2]: ‘a’, ‘a’ − ‘b’, or the direction."""
    if target_ids[0] < 0:
        return "the direction"
    first = quoted(facts.token_text(int(target_ids[0])))
    return first if target_ids[1] < 0 else f"{first} − {quoted(facts.token_text(int(target_ids[1])))}"


def requests(state: State, facts: Facts) -> Requests | Why:
    """Every part at the selected position, or every token through all heads: choosing heads needs no new request."""
    view, target = _view(state), state.selection.target
    params = DirectAttributionParams(target, "one", destination(state))
    if view.page == "parts":
        return {"parts": Request(direct_attribution, params, state.subject)}
    direction = "sources" if sources(view) else "destinations"
    by_token = TokenAttributionParams(target, read_position(state, view), (), direction)
    return {"tokens": Request(token_attribution, by_token, state.subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The page that is open."""
    if _view(state).page == "parts":
        return _parts(state, facts, answers.of("parts", direct_attribution))
    return _tokens(state, facts, answers.of("tokens", token_attribution))


def _parts(state: State, facts: Facts, answer: Answer[DirectAttributionResult]) -> Figure:
    result, head = answer.result, state.selection.head
    values = memo(answer, "heads", lambda: np.ascontiguousarray(result.heads[:, :, result.at], dtype=np.float32))
    top = memo(answer, "top", lambda: top_level(values))
    inside = head.layer < values.shape[0] and head.head < values.shape[1]
    heat = head_map(state, values, (-top, top), map="signed", unit="logit")
    rows = memo(answer, "others", lambda: _others(result))
    title = _title(facts, answer, head if inside else None)
    return Figure(((heat, rows),), title, caption(answer))


def _signed(value: float) -> str:
    return number(value, "+.2f")


def _title(facts: Facts, answer: Answer[DirectAttributionResult], head: Head | None) -> str:
    """The target with its logit, then the leading head's own entry of the answer with its rank."""
    result = answer.result
    after = token_at(int(result.positions[result.at]), prompt_of(answer), facts)
    title = f"{target_name(result.ids[result.at], facts)} after {after}: {_signed(result.total[result.at])}"
    by_head = result.heads[:, :, result.at]
    if head is None or np.isnan(by_head).any():
        return title
    return f"{title}, of it {head} {_signed(by_head[head])} ({head_rank(by_head, head)})"


def _short(name: str) -> str:
    """A part's name as a narrow column takes it."""
    return name.replace("attention bias", "b_O")


def _others(result: DirectAttributionResult) -> Rows:
    """All heads of each layer and every other part in the order of the model, below what they add up to."""
    names, values, at = list[str](), list[float](), result.at
    layer_of = lambda name: int(name.rpartition("L")[2]) if name.rpartition("L")[2].isdecimal() else None
    layers, listed = result.heads.shape[0], 0
    for name, value in zip(result.names, result.others[:, at], strict=True):
        layer = layer_of(name)
        until = layers if name == result.names[-1] else listed if layer is None else layer + (not name.startswith("intervention"))
        for i in range(listed, until):
            names.append(f"heads L{i}")
            values.append(float(result.heads[i, :, at].sum()))
        listed = max(listed, until)
        names.append(name)
        values.append(float(value))
    names = ["target", "sum of parts", *(_short(name) for name in names[:-1]), "constant"]
    logits = np.array([float(result.total[at]), float(np.sum(values)), *values])
    top = top_level(logits)
    columns = (
        RowColumn("part", np.array(names, dtype=object)),
        RowColumn("logit", logits, digits=digits(top), bar=True, levels=(-top, top), tip="what it adds directly"),
    )
    return Rows("others", columns, ids(np.arange(len(names))), strong=(0, 1))


# --- which tokens -----------------------------------------------------------------------------------------------------


def _of_heads(result: TokenAttributionResult, heads: tuple[Head, ...]) -> np.ndarray:
    """[pos] summed over these heads, NaN where none of them sees."""
    rows = [int(np.flatnonzero((result.heads == np.array(h)).all(axis=1))[0]) for h in heads]
    values = result.values[rows]
    return np.where(np.isnan(values).all(axis=0), np.nan, np.nansum(values, axis=0)).astype(np.float32)


def _tokens(state: State, facts: Facts, answer: Answer[TokenAttributionResult]) -> Figure:
    result, view, heads = answer.result, _view(state), selected_heads(state, facts)
    prompt, of_sources = prompt_of(answer), answer.request.params.direction == "sources"
    every = view.through == "all heads" or not heads
    values = memo(answer, ("text", heads, every), lambda: result.summed if every else _of_heads(result, heads))
    top = top_level(values)
    tokens = facts.tokens(prompt)
    text = Tokens(
        name="text",
        texts=memo(answer, ("texts", prompt), lambda: tokens),
        values=memo(answer, ("values", heads, every), lambda: values.astype(np.float32)),
        levels=(-top, top),
        map="signed",
        unit="logit",
        tips=memo(answer, ("tips", prompt), lambda: tuple(f"{i} {t} (id {prompt[i]})" for i, t in enumerate(tokens))),
        row=result.position,
        locked=state.selection.locked,
    )
    rows = memo(answer, ("rows", heads, prompt), lambda: _positions(result, facts, prompt, heads))
    names = "all heads" if every else number_of(len(heads), "head") if len(heads) > MOST_HEADS else " + ".join(map(str, heads))
    token = f"{result.position} {quoted(tokens[result.position])}"
    if of_sources:
        target = target_name(result.ids[0], facts)
        title = f"{names} added {number(np.nansum(values), '+.2f')} to {target} after {token}: from where"
    else:
        title = f"what {token} did through {names} to the token after each position"
    return Figure(((text,), (rows,)), title, caption(answer, _sum_line(result)), weights=(1.0, 1.6))


def _sum_line(result: TokenAttributionResult) -> str:
    """Sources, what interventions write, and everything else, adding up to the target."""
    if np.isnan(result.total):
        return "one source alone: its contributions need not add up to a logit"
    signed = lambda value: number(value, "+.3f")
    by_edits = f" + written by interventions {signed(result.placed.sum())}" if result.placed.any() else ""
    by_sources = f"sources through all heads {signed(np.nansum(result.summed))}{by_edits}"
    return f"{by_sources} + everything else {signed(result.rest)} = target {signed(result.total)}"


def _positions(result: TokenAttributionResult, facts: Facts, prompt: tuple[int, ...], heads: tuple[Head, ...]) -> Rows:
    """One row a position, the largest contribution first; a column for each chosen head and for all heads."""
    lead = _of_heads(result, heads) if heads else result.summed
    computed = np.flatnonzero(~np.isnan(result.summed))
    order = computed[descending(lead[computed], by_size=True)]
    per_head = {str(h): _of_heads(result, (h,)) for h in heads[:MOST_HEADS]}
    several = {"chosen heads": lead} if len(heads) > 1 else {}
    top = max(top_level(v[computed]) for v in (*per_head.values(), *several.values(), result.summed))
    columns = [
        RowColumn("#", order, digits=0),
        RowColumn("token", texts(np.array(prompt)[order], facts), tokens=True),
    ]
    if len(result.ids) > 1:
        targets = [target_name(result.ids[i - result.position], facts).strip("‘’") for i in order]
        columns.append(RowColumn("raised", np.array(targets, dtype=object), tokens=True, tip="the target after this position"))
    for name, values in (*several.items(), *per_head.items(), ("all heads", result.summed)):
        columns.append(RowColumn(name, values[order], digits=digits(top), bar=True, levels=(-top, top), tip="logit"))
    return Rows("positions", tuple(columns), ids(order), ranked=True, total=len(prompt))


def pick(state: State, hit: Hit) -> State:
    """The map chooses heads; the text reads a position; a row of the table is the other end."""
    if hit.mark == "map" and len(hit.id) == 2:
        return pick_head(state, Head(*hit.id), hit.gesture)
    if hit.mark == "text" and sources(_view(state)):
        return pick_position(state, hit)
    if hit.mark == "text" and hit.id and hit.gesture in ("click", "double-click"):
        return state.select(source=hit.id[0])
    if hit.mark == "positions" and hit.id and hit.gesture in ("click", "double-click"):
        if sources(_view(state)):
            return state.select(source=hit.id[0], destination=destination(state), locked=True)
        return state.select(source=read_position(state, _view(state)), destination=hit.id[0], locked=True)
    return state


PANEL: Panel = register(
    Panel(
        name="attribution",
        title="Attribution",
        view=AttributionView,
        equation="logit = Σ_parts part · D' + constant;  a head: z_h W_O^h · D';  from source s: A[d,s] · (v_s W_O^h · D')",
        source="Elhage et al. 2021, A Mathematical Framework for Transformer Circuits, “Path expansion trick”",
        help="The target's logit is a sum of what every part wrote into the stream [pos, d_model], read along the target's "
        "direction D' at the recorded scale of the final norm. Parts: each head on the map, everything else beside it, the sum "
        "above beside the target itself. Tokens: what a head contributes, split over the tokens that it attended to. "
        "Orange raises, blue lowers. Click a head to choose it, a row to follow that position.",
        needs_tokens="Type some text in the Prompt to see what adds to its next token.",
        requests=requests,
        draw=draw,
        pick=pick,
        area="bottom",
        order=122,
        opens="attention",
    )
)
