"""A comparison is named by what differs."""

from __future__ import annotations

from dataclasses import replace

from circuitlab.model.intervention import Intervention
from circuitlab.model.subject import Head, ModelRef
from circuitlab.state.cuts import ablation, short_words
from circuitlab.state.reference_names import SHORT, differences, reference_name
from circuitlab.state.state import Pin, State

STATE = State(ModelRef("builtin:a"), "the cat", (1, 2))
NAMES = {ModelRef("builtin:a"): ("a",), ModelRef("builtin:b"): ("b",), ModelRef("builtin:a", 3): ("a", "step 64")}


def pinned(state: State) -> Pin:
    return Pin("", state.subject, state.selection, state.text)


def named(state: State, pin: State) -> tuple[str, ...]:
    return differences(state, pinned(pin), NAMES.__getitem__)


def test_each_thing_that_differs_is_named_and_nothing_else() -> None:
    cut: Intervention = ablation(Head(0, 1))
    edited = replace(STATE, edits=((cut, True),))
    step = replace(STATE, model=ModelRef("builtin:a", 3))
    raw = replace(STATE, conventions=replace(STATE.conventions, fold_norm=False))
    assert named(STATE, STATE) == ()
    assert named(replace(STATE, model=ModelRef("builtin:b")), STATE) == ("a",)
    assert named(step, STATE) == ("final weights",)
    assert named(STATE, step) == ("step 64",)
    assert named(replace(STATE, model=ModelRef("builtin:b")), step) == ("a · step 64",)
    assert named(STATE, STATE.with_text("one", (3,))) == ("“one”",)
    assert named(STATE, STATE.with_tokens((5, 6, 7))) == ("3 tokens",)
    assert named(edited, STATE) == ("uncut",)
    assert named(STATE, edited) == (short_words((cut,)),)
    assert len(named(STATE, raw)) == 1 and named(STATE, raw)[0] in raw.conventions.words(None)
    assert len(named(replace(edited, model=ModelRef("builtin:b")), STATE.with_text("one", (3,)))) == 3
    long = STATE.with_text("a long text of many words that does not fit", (4, 5, 6))
    assert named(STATE, long)[0].startswith("“…") and len(named(STATE, long)[0]) <= 27


def test_a_reference_is_called_by_its_short_name_or_by_what_it_has_otherwise() -> None:
    named = lambda state, pin, label="a, final weights, “a long text of many words”": reference_name(
        state, replace(pinned(pin), label=label), NAMES.__getitem__
    )
    step = replace(STATE, model=ModelRef("builtin:a", 3))
    assert named(STATE, step, "before") == "before"
    assert named(step, STATE) == "final weights"
    assert named(STATE, step) == "step 64"
    assert named(replace(STATE, model=ModelRef("builtin:b")), step) == "a step 64"
    long = STATE.with_text("a long text of many words that does not fit", (4, 5, 6))
    assert len(named(STATE, long)) <= SHORT and named(STATE, long).startswith("“…") and named(STATE, long).endswith("fit”")
    assert 1 < len(named(STATE, STATE)) <= SHORT  # nothing differs: the beginning of its own name
