"""Stories edited: whatever is added, taken anew, moved or deleted, every other step goes on showing what it showed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuitlab.lessons.lesson import files, read
from circuitlab.state.state import State
from circuitlab.story.capture import setup_of
from circuitlab.story.editing import with_step, with_step_moved, with_view, with_words, without_step
from circuitlab.story.resolver import Resolver
from circuitlab.story.restating import restated, same_view
from circuitlab.story.setup import LAYOUT, Setup
from circuitlab.story.story import Step, Story
from circuitlab.story.words import table_of
from tests.unit.test_capture import BY_HAND, UNSHRUNK, VIEWS, names_of, resolver, states, words

__all__ = ["resolver"]
FEW = settings(UNSHRUNK, max_examples=20)
LAYOUTS = (
    Setup(),
    Setup(show=("attention",)),
    Setup(arrange="Explore", show=("heads", "spectra")),
    Setup(show=("a",), alone=True),
    Setup(show=("heads", "attention"), stage=("attention",)),
)


def placed(setup: Setup, layout: Setup) -> Setup:
    return replace(setup, **{name: getattr(layout, name) for name in LAYOUT})


@FEW
@given(data=st.data())
def test_a_state_captured_alone_is_said_over_any_words(resolver: Resolver, data: st.DataObject) -> None:
    names = names_of(resolver)
    first, state = data.draw(states(resolver)), data.draw(states(resolver))
    before = data.draw(st.sampled_from(BY_HAND)).over(setup_of(first, Setup(), names, VIEWS))
    before = placed(before, data.draw(st.sampled_from(LAYOUTS)))
    layout = data.draw(st.sampled_from(LAYOUTS[1:]))
    whole = placed(setup_of(state, Setup(), names, VIEWS), layout).over(Setup())
    said = restated(whole, before, VIEWS)
    there = said.over(before)
    assert resolver.state(there) == state and same_view(there, whole, VIEWS)
    assert [getattr(there, name) for name in LAYOUT] == [getattr(layout, name) for name in LAYOUT]
    assert table_of(restated(there, there, VIEWS)) == {}, "said once"


@FEW
@given(data=st.data())
def test_after_any_edits_every_step_shows_what_it_showed(resolver: Resolver, data: st.DataObject) -> None:
    names = names_of(resolver)
    shown: list[State] = []
    story = Story("Mine")
    for _ in range(data.draw(st.integers(3, 8))):
        n = len(shown)
        edit = data.draw(st.sampled_from(["add", "add", "take", "move", "delete", "words"])) if n else "add"
        at = data.draw(st.integers(0, n - 1)) if n else 0
        if edit in ("add", "take"):
            state = data.draw(states(resolver))
            whole = placed(setup_of(state, Setup(), names, VIEWS, ids=True), data.draw(st.sampled_from(LAYOUTS[1:]))).over(
                Setup()
            )
            story = with_step(story, at, f"step {n}", whole, VIEWS) if edit == "add" else with_view(story, at, whole, VIEWS)
            shown[at : at + (edit == "take")] = [state]
        elif edit == "move":
            to = data.draw(st.integers(0, n - 1))
            story = with_step_moved(story, at, to, VIEWS)
            shown.insert(to, shown.pop(at))
        elif edit == "delete":
            story = without_step(story, at, VIEWS)
            del shown[at]
        else:
            story = with_words(story, at, text="words", aside="mine")
            assert (story.steps[at].text, story.steps[at].aside) == ("words", "mine")
        assert [resolver.state(story.setup(i)) for i in range(len(story.steps))] == shown


def test_only_what_stands_behind_the_edit_is_said_anew() -> None:
    steps = (
        Step("one", setup=words('model = "m"\ntext = "ab"\nheads = "best prefix_matching"\nshow = ["attention"]')),
        Step("two", setup=words('cut = ["L0H1"]\n[view.attention]\nshow = "scores"')),
        Step("three"),
        Step("four", setup=words('pin = "before"\ncut = []')),
    )
    story = Story("", steps)
    whole = [story.setup(i) for i in range(4)]
    without = without_step(story, 1, VIEWS)
    assert without.steps[0] is steps[0]
    assert without.steps[1].setup == words('cut = ["L0H1"]\n[view.attention]\nshow = "scores"'), "a text stands for its view now"
    assert without.steps[2] is steps[3], "what it says over the step before is what it said"
    first = with_step_moved(story, 3, 0, VIEWS)
    assert [table_of(step.setup or Setup()) for step in first.steps[2:]] == [
        table_of(step.setup or Setup()) for step in steps[1:3]
    ]
    for at, was in ((0, 3), (1, 0), (2, 1), (3, 2)):
        assert same_view(first.setup(at), whole[was], VIEWS)
    assert first.setup(0).heads == ("best prefix_matching",), "what is chosen live stays so"


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_the_steps_of_a_lesson_in_any_order_show_what_they_did(path: object) -> None:
    story: Story = read(path)  # type: ignore[arg-type]
    whole = [story.setup(i) for i in range(len(story.steps))]
    last = len(story.steps) - 1
    for at, to in ((last, 0), (0, last), (last // 2, 0)):
        moved = with_step_moved(story, at, to, VIEWS)
        order = list(range(last + 1))
        order.insert(to, order.pop(at))
        for i, was in enumerate(order):
            assert same_view(moved.setup(i), whole[was], VIEWS), (at, to, moved.steps[i].title)


def test_a_view_taken_anew_keeps_its_film_and_what_is_not_known() -> None:
    film = replace(words('model = "m"\ntext = "ab"\nplay = [0, "final"]'), unknown={"colour": "red"})
    story = Story("", (Step("one", setup=film),))
    taken = with_view(story, 0, words('model = "m"\ntext = "cab"'), VIEWS).steps[0].setup
    assert taken is not None and (taken.prompt, taken.play, taken.unknown) == ("cab", (0, "final"), {"colour": "red"})


def test_a_control_that_only_the_step_before_sets_is_set_back() -> None:
    before = words('model = "m"\ntext = "ab"\n[view.composition]\nform = "list"')
    whole = words('model = "m"\ntext = "ab"\n[view.composition]\ntop = 5')
    assert table_of(restated(whole, before, VIEWS)) == {"view": {"composition": {"top": 5, "form": "auto"}}}
