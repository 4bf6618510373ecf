"""The thing under the pointer, found through a panel's own `pick`: for context menus, which are about it, and double clicks.

A click on what is selected deselects it. A right click and the second click of a double click never do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from circuitlab.model.subject import Head
from circuitlab.state.state import Selection, State

Pick = Callable[[State], State]
NO_HEAD = Head(-1, -1)


def without_stale_positions(drawn: State | None, state: State, picked: State) -> State:
    """`picked`, which a gesture made of `state` on a picture of the state `drawn`, without what only that picture has.

    While an answer is computed the picture of the earlier prompt stays. Its positions are those of other tokens, and its heads
    may be those of another model. A gesture that brings a prompt of its own brings that prompt's positions.
    """
    if drawn is None or picked is state or (drawn.model, drawn.tokens) == (state.model, state.tokens):
        return picked
    if drawn.model != state.model:
        return state
    if picked.tokens != state.tokens:
        return picked
    old = state.selection
    return picked.select(destination=old.destination, source=old.source, locked=old.locked, token=old.token)


def pointed_at(state: State, pick: Pick) -> State:
    """The state with the thing under the pointer selected, even if a click would deselect it."""
    picked = pick(state)
    old, new = state.selection, picked.selection
    if old.edge is not None and new.edge is None:
        return pick(state.without_edge())
    if old.destination is not None and new.destination is None:
        return pick(state.select(destination=None, source=None, locked=False))
    return picked


def menu_state(state: State, pick: Pick) -> State:
    """The state whose selection a context menu is about: the thing under the pointer, and what it leaves of the selection.

    An edge stays selected only if one is under the pointer. If the pointer is on one of several selected heads, all of them stay.
    Nothing but the selection changes, whatever a click would do; if the panel has nothing under the pointer, nothing does.
    """
    old = state.selection
    alone = replace(old.released(), token=None)
    picked = pick(replace(state, selection=alone)).selection
    heads = pick(replace(state, selection=alone.with_heads(NO_HEAD))).selection.heads
    if picked == alone and heads == (NO_HEAD,):
        return state
    if picked.edge is not None:
        selection = old.with_edge(*picked.edge, picked.edge_kind, *picked.heads)
    else:
        selection = _heads(old, picked, heads)
    if picked.destination is not None:
        selection = replace(selection, destination=picked.destination, source=picked.source, locked=picked.locked, token=None)
    elif picked.source is not None:
        selection = replace(selection, source=picked.source)
    if picked.token is not None:
        selection = replace(selection, token=picked.token)
    return replace(state, selection=selection)


def entry_taken(state: State, aimed: State, offered: State) -> State:
    """What a menu's entry about `aimed` makes of `state`: all that it offers, with the selection that `state` has.

    Of the selection only what the entry itself changes is taken over, as the target of *Measure*.
    """
    now, meant, new = state.selection, aimed.selection, offered.selection
    own = {field.name: getattr(new, field.name) for field in fields(Selection)}
    changed = {name: value for name, value in own.items() if value != getattr(meant, name)}
    return replace(offered, selection=replace(now, **changed))


def _heads(old: Selection, picked: Selection, heads: tuple[Head, ...]) -> Selection:
    """The selected heads, or the head under the pointer if it is not among them."""
    chosen = old.without_edge()
    pointed = heads if NO_HEAD not in heads else picked.heads
    if len(pointed) == 1 and pointed[0] in chosen.heads:
        return chosen
    return chosen.with_heads(*pointed)
