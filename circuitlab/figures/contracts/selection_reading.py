"""What panels of the weights read from the selection: a head or a pair, a token; and their subject, which has no prompt."""

from __future__ import annotations

from dataclasses import replace

from circuitlab.analysis.behaviour.over_prompts import of_one_prompt
from circuitlab.analysis.circuits.factors import refuse_inexact
from circuitlab.errors import Refused
from circuitlab.figures.contracts.common import destination, rotates
from circuitlab.figures.contracts.facts import WITHOUT_HEADS, Facts, Why
from circuitlab.figures.marks import Hit
from circuitlab.model.subject import Head, Subject
from circuitlab.state.state import Kind, State

EDITED = "With interventions"
EDITED_TIP = "Random tokens with the interventions that are on, as the prompt always has them"


def of_weights(state: State) -> Subject:
    """The subject without tokens and interventions: a reading of the weights does not depend on the prompt."""
    return replace(state.subject, tokens=(), edits=())


def of_own_texts(state: State, edited: bool) -> tuple[Subject, bool]:
    """(the subject of a measurement on texts of its own, whether it has interventions): with those that are on where `edited`.

    What belongs to the prompt alone, as it names positions, is left out.
    """
    edits = tuple(edit for edit in state.subject.edits if edited and not of_one_prompt(edit))
    return replace(state.subject, tokens=(), edits=edits), bool(edits)


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
    """Why a head that the open model does not have is not shown, and what to do; nothing can be done where it has none."""
    return Why(f"This model has no {head}: choose one in All heads.") if facts.config.n_layers else Why(WITHOUT_HEADS)


def selected_heads(state: State, facts: Facts) -> tuple[Head, ...]:
    """Chosen heads that the model has, the leading one first."""
    return tuple(h for h in state.selection.heads if has_head(h, facts))


def selected_edge(state: State, facts: Facts) -> tuple[Head, Head] | None:
    """(source, destination) of the chosen edge of the composition graph, where the model has them."""
    edge = state.selection.edge
    return edge if edge is not None and all(has_head(h, facts) for h in edge) else None


def pair_name(head: Head, earlier: Head | None, *kinds: Kind) -> str:
    """The name in a title of a request's head, or of its composition with an earlier head through Q, K or V."""
    return str(head) if earlier is None else f"{head} composed with {earlier} ({', '.join(kinds)})"


def token_read(state: State, facts: Facts) -> int | None:
    """The token whose rows tables show: the chosen one, else the prompt's at the selected position; None without either."""
    token = state.selection.token
    if token is not None and 0 <= token < facts.config.d_vocab:
        return token
    return state.tokens[destination(state)] if state.tokens else None


def distance_read(distance: int, facts: Facts) -> int:
    """The distance between positions that a rotary model can be read at; 0 for any other."""
    return min(distance, facts.config.n_ctx - 1) if rotates(facts) else 0


def pick_token(state: State, hit: Hit, *tables: str) -> State:
    """A token that is clicked in one of the tables, or chosen in the search line, becomes the token whose rows tables show."""
    if hit.gesture not in ("click", "double-click") or not hit.id or hit.mark not in ("search", *tables):
        return state
    return state.select(token=hit.id[0])


def pick_edge(state: State, source: Head, destination: Head, kind: Kind) -> State:
    """Choose a pair of heads, the later one leading; choosing the same pair again releases it."""
    selection = state.selection
    if selection.edge == (source, destination) and selection.edge_kind == kind:
        return state.without_edge()
    return state.with_edge(source, destination, kind)
