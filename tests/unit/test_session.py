"""State, history and their JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuitlab.errors import BadInput
from circuitlab.figures.contracts.panel import panels
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from circuitlab.session.history import LONGEST, History
from circuitlab.session.state import Pin, Selection, State, Target
from circuitlab.session.state_json import state_from_text, state_to_text

VIEWS: dict[str, type[Any]] = {name: panel.view for name, panel in panels().items()}
REF = ModelRef("builtin:attn-only-2l")
positions = st.none() | st.integers(0, 300)
heads = st.builds(Head, st.integers(0, 40), st.integers(0, 40))
ids = st.lists(st.integers(0, 5000), max_size=6).map(tuple)
selections = st.builds(
    Selection,
    heads=st.lists(heads, min_size=1, max_size=3).map(tuple),
    destination=positions,
    source=positions,
    locked=st.booleans(),
    token=positions,
    edge=st.none() | st.tuples(heads, heads),
    target=st.builds(Target, ids, st.lists(st.floats(-1, 1), max_size=2).map(tuple)),
)
edits = st.sampled_from(
    [
        Intervention("zero", Site("result", 0, (1,))),
        Intervention("patch", Site("q", 1, (), (2,)), source=(1, 2), align=(0, -1)),
        Intervention("zero", Site("k", 1), path_from=Site("result", 0)),
    ]
)
conventions = st.builds(Conventions, st.booleans(), st.booleans(), st.sampled_from(["float32", "float64"]))
refs = st.builds(ModelRef, st.text(max_size=9).map("file:{}".format), st.none() | st.integers(0, 9))
states = st.builds(
    State,
    model=refs,
    text=st.text(max_size=20),
    tokens=ids,
    bos=st.booleans(),
    edits=st.lists(st.tuples(edits, st.booleans()), max_size=2).map(tuple),
    conventions=conventions,
    selection=selections,
    views=st.lists(st.sampled_from(sorted(VIEWS)), unique=True).map(lambda names: {n: VIEWS[n]() for n in names}),
    pins=st.lists(
        st.builds(Pin, st.text(max_size=5), st.builds(State, refs, tokens=ids).map(lambda s: s.subject)), max_size=2
    ).map(tuple),
    compare=st.sampled_from(["now", "reference", "difference"]),
)


@settings(max_examples=60)
@given(states)
def test_a_state_survives_its_json(state: State) -> None:
    assert state_from_text(state_to_text(state), VIEWS) == state


def test_views_of_unknown_panels_are_kept() -> None:
    state = State(REF).with_view("attention", VIEWS["attention"](leave_out_bos=True))
    text = state_to_text(state).replace('"attention"', '"from the future"')
    again = state_from_text(text, VIEWS)
    assert again.views["from the future"]["leave_out_bos"] is True
    assert state_from_text(state_to_text(again), VIEWS) == again


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"circuitlab": 2, "state": {}}',
        '{"circuitlab": 1, "state": {}}',
        '{"circuitlab": 1}',
        "[" * 5000,
    ],
)
def test_what_is_no_session_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        state_from_text(text, VIEWS)


def test_the_subject_holds_enabled_interventions_only() -> None:
    one, two = Intervention("zero", Site("z", 0)), Intervention("zero", Site("z", 1))
    assert State(REF, edits=((one, True), (two, False))).subject.edits == (one,)


def test_new_text_drops_a_selection_past_its_end() -> None:
    state = State(REF).with_text("abc", (1, 2, 3)).select(destination=2, source=1, locked=True)
    short = state.with_text("a", (1,))
    assert (short.selection.destination, short.selection.source, short.selection.locked) == (None, None, False)
    assert state.with_text("ab", (1, 2)).selection.source == 1


def test_a_pinned_subject_is_asked_with_the_same_views() -> None:
    cut = Intervention("zero", Site("z", 0))
    pinned = Subject(ModelRef("file:/other", 3), (1, 2), (cut,), Conventions(fold_norm=False, dtype="float64"))
    state = State(REF).with_text("c d e f", (5, 6, 7, 8)).with_view("x", 3).select(destination=3, heads=(Head(1, 2),))
    there = state.at(Pin("p", pinned, text="a b"))
    assert there.subject == pinned  # model, checkpoint, tokens, interventions, conventions
    assert there.text == "a b"
    assert there.views == {"x": 3}
    assert (there.selection.heads, there.selection.destination) == ((Head(1, 2),), None)


def test_the_reference_is_the_first_of_several_pins() -> None:
    first, second = (Pin(label, Subject(REF, (i,))) for i, label in enumerate(("newest", "older")))
    assert State(REF, pins=(first, second)).reference == first
    assert State(REF, pins=()).reference is None


class Walk:
    """A history beside a plain list that does the same."""

    def __init__(self) -> None:
        self.history, self.list, self.at = History(State(REF)), [State(REF)], 0

    def do(self, step: int) -> None:
        if step < 0:
            moved = self.history.undo() if step == -1 else self.history.redo()
            to = self.at + (-1 if step == -1 else 1)
            if 0 <= to < len(self.list):
                self.at = to
            else:
                assert moved is None
        else:
            state = State(REF, tokens=(step,))
            self.history.push(state, "x")
            if state != self.list[self.at]:
                self.list = [*self.list[: self.at + 1], state]
                self.at += 1
        assert self.history.value == self.list[self.at]


@given(st.lists(st.integers(-2, 4), max_size=60))
def test_history_walks_like_a_list(steps: list[int]) -> None:
    walk = Walk()
    for step in steps:
        walk.do(step)


def test_steps_of_one_burst_join_and_the_oldest_are_dropped() -> None:
    history = History(State(REF))
    for i in range(3):
        history.push(State(REF, tokens=(i,)), "typing", "typing")
    assert history.undo() == State(REF)
    for i in range(LONGEST + 20):
        history.push(State(REF, tokens=(i,)), "x")
    assert sum(1 for _ in iter(history.undo, None)) == LONGEST - 1


def test_labels_say_what_is_undone() -> None:
    history = History(State(REF))
    history.push(replace(State(REF), bos=False), "BOS off")
    assert (history.undo_label, history.redo_label) == ("BOS off", "")
    history.undo()
    assert (history.undo_label, history.redo_label) == ("", "BOS off")
