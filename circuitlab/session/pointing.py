"""What a gesture points at, read off the panel's own `pick`: for menus, which are about that thing, and for double-clicks.

A click on what is chosen lets go of it. A right click or the second click of a double one never does: they mean the thing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from circuitlab.model.subject import Head
from circuitlab.session.state import Selection, State

Pick = Callable[[State], State]
NOBODY = Head(-1, -1)


def on_picture_of(drawn: State | None, state: State, picked: State) -> State:
    """`picked` of `state` by a gesture on a picture drawn of `drawn`: nothing that the picture has and the state has not.

    While an answer is awaited the picture of an earlier prompt stays: its positions are those of other tokens, and its heads may
    be those of another model.
    """
    if drawn is None or picked is state or (drawn.model, drawn.tokens) == (state.model, state.tokens):
        return picked
    if drawn.model != state.model:
        return state
    old = state.selection
    return picked.select(destination=old.destination, source=old.source, locked=old.locked, token=old.token)


def pointed_at(state: State, pick: Pick) -> State:
    """The state with the thing under the pointer chosen, also where a click would let go of it."""
    picked = pick(state)
    old, new = state.selection, picked.selection
    if old.edge is not None and new.edge is None:
        return pick(state.without_edge())
    if old.destination is not None and new.destination is None:
        return pick(state.select(destination=None, source=None, locked=False))
    return picked


def aimed(state: State, pick: Pick) -> State:
    """What a menu on the thing under the pointer is about: that thing, and of the selection what it does not replace.

    An edge is meant only where one is pointed at. Of chosen heads all are meant where one of them is pointed at. Nothing else of
    the state changes, whatever a click would do; where the thing means nothing to the panel the selection is meant.
    """
    old = state.selection
    alone = replace(old.released(), token=None)
    found = pick(replace(state, selection=alone)).selection
    heads = pick(replace(state, selection=alone.with_heads(NOBODY))).selection.heads
    if found == alone and heads == (NOBODY,):
        return state
    if found.edge is not None:
        selection = replace(old, heads=found.heads, edge=found.edge, edge_kind=found.edge_kind)
    else:
        selection = _heads(old, found, heads)
    placed = found.destination is not None
    if placed:
        selection = replace(selection, destination=found.destination, source=found.source, locked=found.locked, token=None)
    elif found.source is not None:
        selection = replace(selection, source=found.source)
    if found.token is not None:
        selection = replace(selection, token=found.token)
    return replace(state, selection=selection)


def _heads(old: Selection, found: Selection, heads: tuple[Head, ...]) -> Selection:
    """The chosen heads, or the one pointed at where it is not among them."""
    chosen = old.without_edge()
    pointed = heads if NOBODY not in heads else found.heads
    if len(pointed) == 1 and pointed[0] in chosen.heads:
        return chosen
    return chosen.with_heads(*pointed)
