"""State and history."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from circuitlab.state.history import LONGEST, History
from circuitlab.state.state import Pin, State

REF = ModelRef("builtin:attn-only-2l")


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
