"""A head and a pair of heads are one choice, however it is made; and what a gesture points at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuitlab.model.subject import Conventions, Head, ModelRef, Target
from circuitlab.state.cuts import ablation, with_edits
from circuitlab.state.gestures import entry_taken, menu_state, pointed_at, without_stale_positions
from circuitlab.state.state import UNCUT, Pin, Selection, State

STATE = State(ModelRef("builtin:m")).with_tokens((1, 2, 3, 4, 5))
heads = st.builds(Head, st.integers(0, 3), st.integers(0, 3))
kinds = st.sampled_from(["Q", "K", "V"])
some = st.lists(heads, min_size=1, max_size=3, unique=True).map(tuple)
STEPS = st.one_of(
    st.builds(lambda h: lambda s: s.with_heads(*h), some),
    st.builds(lambda a, b, k: lambda s: s.with_edge(a, b, k), heads, heads, kinds),
    st.builds(lambda h: lambda s: s.select(heads=h), some),
    st.builds(lambda a, b, k: lambda s: s.select(edge=(a, b), edge_kind=k), heads, heads, kinds),
    st.builds(lambda h: lambda s: replace(s, selection=replace(s.selection, heads=h)), some),
    st.builds(lambda a, b: lambda s: replace(s, selection=replace(s.selection, edge=(a, b))), heads, heads),
    st.just(lambda s: s.without_edge()),
    st.just(lambda s: replace(s, selection=s.selection.released())),
)


@given(st.lists(STEPS, max_size=8))
def test_an_edge_is_chosen_only_while_its_destination_leads(steps: list[Any]) -> None:
    state = STATE
    for step in steps:
        state = step(state)
        chosen = state.selection
        assert chosen.heads
        assert chosen.edge is None or chosen.edge[1] == chosen.head
        assert chosen.edge is not None or chosen.edge_kind == "K"


def test_heads_let_go_of_an_edge_and_an_edge_brings_its_heads() -> None:
    edge = STATE.with_heads(Head(0, 3)).with_edge(Head(0, 1), Head(1, 1), "Q").selection
    assert (edge.heads, edge.edge_kind) == ((Head(1, 1), Head(0, 1)), "Q")
    assert edge.with_heads(Head(1, 1)).edge is None
    assert edge.without_edge().heads == (Head(1, 1),)
    assert replace(edge, destination=3, source=1, locked=True).released() == Selection((Head(1, 1),))
    with pytest.raises(ValueError, match="L0H0"):
        STATE.select(heads=(Head(0, 0),), edge=(Head(0, 1), Head(1, 1)))


def test_heads_given_with_an_edge_stand_after_its_destination() -> None:
    source, destination, other = Head(0, 1), Head(1, 1), Head(0, 3)
    assert STATE.with_edge(source, destination, "K").selection.heads == (destination, source)
    assert STATE.with_edge(destination, destination, "K").selection.heads == (destination,)
    chosen = STATE.selection.with_edge(source, destination, "Q", destination, other)
    assert (chosen.heads, chosen.edge, chosen.edge_kind) == ((destination, other), (source, destination), "Q")
    assert STATE.select(heads=(destination, other), edge=(source, destination)).selection.heads == (destination, other)


def toggled(state: State) -> State:
    """A click on the edge L0H1 → L1H2, as the panels have it."""
    edge = (Head(0, 1), Head(1, 2))
    return state.without_edge() if state.selection.edge == edge else state.with_edge(*edge, "K")


def cell(state: State) -> State:
    chosen = state.selection
    if (chosen.destination, chosen.source) == (3, 1):
        return state.select(destination=None, source=None, locked=False)
    return state.select(destination=3, source=1, locked=True)


def alone(head: Head) -> Any:
    return lambda state: state if state.selection.heads == (head,) else state.with_heads(head)


OTHER = STATE.with_edge(Head(0, 0), Head(1, 0), "V").select(destination=2, source=2, locked=True, token=4)


@pytest.mark.parametrize("before", [STATE, OTHER, toggled(STATE)])
def test_a_menu_on_an_edge_is_about_that_edge(before: State) -> None:
    menu = menu_state(before, toggled).selection
    assert (menu.edge, menu.edge_kind, menu.head) == ((Head(0, 1), Head(1, 2)), "K", Head(1, 2))
    assert pointed_at(before, toggled).selection.edge == menu.edge


@pytest.mark.parametrize("before", [STATE, OTHER, cell(STATE), cell(OTHER)])
def test_a_menu_on_a_cell_is_about_that_cell_and_no_edge(before: State) -> None:
    menu = menu_state(before, cell).selection
    assert (menu.destination, menu.source, menu.edge) == (3, 1, None)
    assert menu.head == before.selection.head
    assert pointed_at(before, cell).selection.destination == 3


@pytest.mark.parametrize("head", [Head(0, 3), Head(1, 0), Head(0, 0)])
def test_a_menu_on_a_head_is_about_that_head_not_the_chosen_edge(head: Head) -> None:
    menu = menu_state(OTHER, alone(head)).selection
    assert (menu.heads, menu.edge) == ((head,), None)
    assert (menu.destination, menu.source) == (2, 2)  # a place within that head


def test_of_chosen_heads_all_are_meant() -> None:
    now = STATE.select(heads=(Head(0, 0), Head(0, 1)))
    assert menu_state(now, alone(Head(0, 1))).selection.heads == now.selection.heads
    assert menu_state(now, alone(Head(1, 1))).selection.heads == (Head(1, 1),)


def test_a_menu_changes_nothing_but_what_is_selected() -> None:
    assert menu_state(OTHER, lambda state: state) is OTHER
    other = lambda state: replace(state.with_heads(Head(3, 3)), model=ModelRef("builtin:n"), compare="difference")
    menu = menu_state(OTHER, other)
    assert menu.selection.heads == (Head(3, 3),)
    assert replace(menu, selection=OTHER.selection) == OTHER


def test_an_entry_of_a_menu_does_what_it_says_where_one_points_and_leaves_the_selection() -> None:
    aimed = menu_state(OTHER, alone(Head(0, 3)))
    after = entry_taken(OTHER, aimed, with_edits(aimed, ablation(Head(0, 3))))
    assert after == with_edits(OTHER, ablation(Head(0, 3)))
    measured = entry_taken(OTHER, aimed, aimed.select(target=Target((7,))))
    assert measured == OTHER.select(target=Target((7,))), "what the entry itself chooses"


def test_a_gesture_on_the_picture_of_an_earlier_prompt_chooses_no_position() -> None:
    drawn = State(ModelRef("a"), tokens=(1, 2, 3, 4))
    now = State(ModelRef("a"), tokens=(5, 6)).select(destination=1, locked=True)
    picked = now.with_heads(Head(1, 2)).select(destination=3, source=2, locked=True)
    picked_now = without_stale_positions(drawn, now, picked)
    assert picked_now.selection.heads == (Head(1, 2),)
    assert (picked_now.selection.destination, picked_now.selection.source, picked_now.selection.locked) == (1, None, True)
    assert without_stale_positions(now, now, picked) is picked
    assert without_stale_positions(replace(drawn, model=ModelRef("b")), now, picked) is now
    assert without_stale_positions(None, now, picked) is picked


def test_the_uncut_reference_is_this_very_state_without_its_cut_and_a_pin_stays_what_it_was() -> None:
    whole = State(ModelRef("a"), "abc", (1, 2, 3))
    cut = with_edits(whole, ablation(Head(0, 1)))
    typed = replace(cut.with_text("abcd", (1, 2, 3, 4)), model=ModelRef("a", 3), conventions=Conventions(centre=False))
    for state in (cut, typed):
        pin = state.reference
        assert pin is not None
        assert (pin.label, pin.text, pin.subject) == (UNCUT, state.text, replace(state.subject, edits=()))
        assert state.pinned is None
    assert replace(cut, edits=((cut.edits[0][0], False),)).reference is None
    assert whole.reference is None
    mine = Pin("mine", whole.subject, text=whole.text)
    assert replace(typed, pins=(mine,)).reference == mine
