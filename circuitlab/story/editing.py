"""A story edited: steps added, taken anew, moved, deleted. Each of the other steps goes on showing what it showed.

A step's words are said over those before it, so that what stands before it cannot change without them: a step that comes to stand
behind other words is `restated` over these, without its model being open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from circuitlab.story.restating import restated, same_view
from circuitlab.story.setup import Play, Setup, Views
from circuitlab.story.story import Step, Story, over_all

Shown = tuple[Step, Setup]  # a step, and the complete setup that it shows


def with_step(story: Story, at: int, title: str, whole: Setup, views: Views) -> Story:
    """The story with a new step at `at`, which shows the complete setup `whole`."""
    shown = _shown(story)
    step = Step(title, setup=restated(whole, over_all(story.steps[:at]), views))
    return _retold(story, [*shown[:at], (step, whole), *shown[at:]], views)


def with_view(story: Story, at: int, whole: Setup, views: Views) -> Story:
    """The story whose step `at` shows the complete setup `whole` instead of what it showed.

    A film that it plays stays unless `whole` has another one, and so do words that this version does not know.
    """
    shown, own = _shown(story), story.steps[at].setup or Setup()
    whole = replace(whole, play=whole.play or own.play, unknown=own.unknown)
    step = replace(story.steps[at], setup=restated(whole, over_all(story.steps[:at]), views))
    return _retold(story, [*shown[:at], (step, whole), *shown[at + 1 :]], views)


def without_step(story: Story, at: int, views: Views) -> Story:
    """The story without its step `at`."""
    shown = _shown(story)
    return _retold(story, [*shown[:at], *shown[at + 1 :]], views)


def with_step_moved(story: Story, at: int, to: int, views: Views) -> Story:
    """The story with its step `at` at the place `to`."""
    shown = _shown(story)
    moved = shown.pop(at)
    return _retold(story, [*shown[:to], moved, *shown[to:]], views)


def with_words(story: Story, at: int, **words: str) -> Story:
    """The story with another `title`, `text` or `aside` at step `at`."""
    steps = list(story.steps)
    steps[at] = replace(steps[at], **words)  # type: ignore[arg-type]
    return replace(story, steps=tuple(steps))


def with_film(story: Story, at: int, play: Play | None) -> Story:
    """The story whose step `at` plays another film, or none; a step of text alone then shows what the one before it does."""
    steps = list(story.steps)
    steps[at] = replace(steps[at], setup=replace(steps[at].setup or Setup(), play=play))
    return replace(story, steps=tuple(steps))


def _shown(story: Story) -> list[Shown]:
    return [(step, story.setup(number)) for number, step in enumerate(story.steps)]


def _retold(story: Story, shown: Sequence[Shown], views: Views) -> Story:
    """The story of these steps, each with the words that show its setup where it stands now."""
    steps: list[Step] = []
    before = Setup()
    for step, whole in shown:
        after = before if step.setup is None else step.setup.over(before)
        if not same_view(after, whole, views):
            words = restated(whole, before, views)
            step, after = replace(step, setup=words), words.over(before)
        steps.append(step)
        before = after
    return replace(story, steps=tuple(steps))
