"""What panels of the weights read from the selection: a head or a pair, a token; and their subject, which has no text."""

from __future__ import annotations

from dataclasses import replace

from circuitlab.analysis.circuits.factors import refuse_inexact
from circuitlab.errors import Refused
from circuitlab.figures.contracts.common import destination, rotates
from circuitlab.figures.contracts.facts import WITHOUT_HEADS, Facts, Why
from circuitlab.figures.marks import Hit
from circuitlab.model.subject import Head, Subject
from circuitlab.session.state import Kind, State


def of_weights(state: State) -> Subject:
    """The subject without tokens and interventions: a weight view stays as it is while the text changes."""
    return replace(state.subject, tokens=(), edits=())


def weights_refusal(facts: Facts) -> Why | None:
    """Why the weights of this model cannot be read without a text, None where they can."""
    reason = refuse_inexact(facts.config)
    return None if reason is None else Why(Refused(reason).what)


def has_head(head: Head, facts: Facts) -> bool:
    """Whether the open model has this head."""
    return 0 <= head.layer < facts.config.n_layers and 0 <= head.head < facts.config.n_heads


def leading_head(state: State, facts: Facts) -> Head | Why:
    """The leading head, or why there is none."""
    head = state.selection.head
    return head if has_head(head, facts) else no_head(head, facts)


def no_head(head: Head, facts: Facts) -> Why:
    """Why a head that the open model has not is not shown, and what to do: nothing where it has none at all."""
    return Why(f"This model has no {head}: choose one in All heads.") if facts.config.n_layers else Why(WITHOUT_HEADS)


def selected_heads(state: State, facts: Facts) -> tuple[Head, ...]:
    """Chosen heads that the model has, the leading one first."""
    return tuple(h for h in state.selection.heads if has_head(h, facts))


def selected_edge(state: State, facts: Facts) -> tuple[Head, Head] | None:
    """(source, destination) of the chosen edge of the composition graph, where the model has them."""
    edge = state.selection.edge
    return edge if edge is not None and all(has_head(h, facts) for h in edge) else None


def pair_name(head: Head, behind: Head | None, *ways: Kind) -> str:
    """What a title calls a head, or a head read behind an earlier one through its Q, K or V, as a request has them."""
    return str(head) if behind is None else f"{head} behind {behind} ({', '.join(ways)})"


def token_read(state: State, facts: Facts) -> int | None:
    """The token that tables are read at: the one asked for, else the prompt's at the selected position. None without any."""
    token = state.selection.token
    if token is not None and 0 <= token < facts.config.d_vocab:
        return token
    return state.tokens[destination(state)] if state.tokens else None


def distance_read(distance: int, facts: Facts) -> int:
    """The distance between positions that a rotary model can be read at; 0 for any other."""
    return min(distance, facts.config.n_ctx - 1) if rotates(facts) else 0


def pick_token(state: State, hit: Hit, *tables: str) -> State:
    """A token clicked in one of the tables, or found by the search line, becomes the one that every table is read at."""
    if hit.gesture not in ("click", "double-click") or not hit.id or hit.mark not in ("search", *tables):
        return state
    return state.select(token=hit.id[0])


def pick_edge(state: State, source: Head, destination: Head, kind: Kind) -> State:
    """Choose a pair of heads: the later one leads. The same pair again lets go of it."""
    selection = state.selection
    if selection.edge == (source, destination) and selection.edge_kind == kind:
        return state.without_edge()
    return state.with_edge(source, destination, kind)
