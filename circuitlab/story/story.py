"""A story: steps in their order, each with what it sets and what is said of it. Lessons, talks and bookmarks are stories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import accumulate

from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.story.setup import Setup
from circuitlab.story.values import Value


@dataclass(frozen=True)
class Step:
    """One step: its title, its Markdown, what it sets (None: text only), its values, and the speaker's own note.

    `line`: of its heading in a lesson's file, 0 for a step of no file; it is not compared. `unknown`: words of a session file
    that this version does not know, here and in `Story`.
    """

    title: str
    text: str = ""
    setup: Setup | None = None
    values: tuple[Value, ...] = ()
    aside: str = ""
    unknown: JsonObject = field(default_factory=JsonDict)
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Story:
    """Steps in their order. `about`: one line for a list; `minutes`: 0 for unknown; `tiny`: a configuration for tests."""

    title: str = ""
    steps: tuple[Step, ...] = ()
    about: str = ""
    minutes: int = 0
    tiny: str = ""
    unknown: JsonObject = field(default_factory=JsonDict)

    def setup(self, step: int) -> Setup:
        """The complete setup at a step: its own words over those of the steps before it; −1: before the first."""
        return self._setups[: step + 2][-1]

    @cached_property
    def _setups(self) -> tuple[Setup, ...]:
        """The complete setup before the first step, then at each."""
        return tuple(accumulate(self.steps, _over, initial=Setup()))


def over_all(steps: Sequence[Step]) -> Setup:
    """The words in force after these steps."""
    return reduce(_over, steps, Setup())


def _over(before: Setup, step: Step) -> Setup:
    return before if step.setup is None else step.setup.over(before)
