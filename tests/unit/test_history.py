"""Undo and redo where bursts of typing meet steps back."""

from __future__ import annotations

from circuitlab.model.subject import ModelRef
from circuitlab.state.history import History
from circuitlab.state.state import State

REF = ModelRef("file:m")


def _at(i: int) -> State:
    return State(REF, tokens=(i,))


def test_typing_on_after_undo_does_not_write_over_the_step_that_was_reached() -> None:
    history = History(_at(0))
    history.push(_at(1), "typing", "typing")
    history.push(_at(2), "select")
    history.undo()
    history.push(_at(3), "typing", "typing")
    history.push(_at(4), "typing", "typing")
    assert history.undo() == _at(1)
    assert history.undo() == _at(0)


def test_another_step_ends_a_burst() -> None:
    history = History(_at(0))
    for i, merge in ((1, "typing"), (2, "drag"), (3, "drag"), (4, "typing")):
        history.push(_at(i), merge, merge)
    assert [history.undo() for _ in range(4)] == [_at(3), _at(1), _at(0), None]
    assert [history.redo() for _ in range(4)] == [_at(1), _at(3), _at(4), None]


def test_what_changes_nothing_is_no_step_and_keeps_what_was_undone() -> None:
    history = History(_at(0))
    history.push(_at(1), "x")
    history.undo()
    history.push(_at(0), "x")
    assert history.redo() == _at(1)


def test_what_came_after_a_state_is_gathered_to_one_step_or_none() -> None:
    history = History(_at(0))
    for i in (1, 2, 3, 4):
        history.push(_at(i), f"step {i}")
    history.undo()
    history.gather(lambda state: state == _at(1), "leaving")
    assert (history.value, history.before, history.after) == (_at(3), _at(1), None)
    history.push(_at(5), "left", "leaving")
    assert (history.value, history.before, history.undo_label) == (_at(5), _at(1), "left")
    history.gather(lambda state: state == _at(0), "leaving")
    history.push(_at(0), "left", "leaving")
    assert (history.value, history.before, history.undo_label) == (_at(0), None, ""), "back where it began: no step"
    for i in (6, 0):
        history.push(_at(i), f"step {i}")
    history.gather(lambda state: state == _at(0), "leaving")
    assert (history.value, history.before, history.undo_label) == (_at(0), None, "")
    history.gather(lambda state: state == _at(9), "leaving")
    assert history.value == _at(0), "of a state that is not there nothing is known"


def test_of_what_is_gathered_the_rest_stays_a_step_of_its_own() -> None:
    history = History(("home", 0))
    for place, text, label in (("a", 0, "go"), ("a", 1, "write"), ("b", 1, "go on"), ("b", 2, "write more"), ("c", 2, "look")):
        history.push((place, text), label)
    history.gather(lambda value: value == ("home", 0), "leaving", lambda value: ("home", value[1]))
    assert (history.value, history.before) == (("c", 2), ("home", 2))
    history.push(("home", 2), "left", "leaving")
    assert (history.value, history.undo_label) == (("home", 2), "write more"), "back where it began: no step"
    assert [history.undo() for _ in range(3)] == [("home", 1), ("home", 0), None]
    assert [history.redo() for _ in range(3)] == [("home", 1), ("home", 2), None]


def test_undo_goes_back_five_hundred_states_and_no_further() -> None:
    history = History(0)
    for i in range(1, 701):
        history.push(i, str(i))
    steps = 0
    while history.before is not None:
        history.undo()
        steps += 1
    assert (steps, history.value) == (499, 201)
