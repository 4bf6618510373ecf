"""What a panel asks in a State, as one value: made once where it is sent to the engine, and handed to the figure."""

from __future__ import annotations

from dataclasses import dataclass

from circuitlab.figures.contracts.facts import Facts, Requests, Why
from circuitlab.state.state import State


@dataclass(frozen=True, eq=False)
class Question:
    """What a panel asks of one model: in this `state`, with these `facts`, its `requests` by role, or why it asks nothing.

    `refused`: why analyses refuse requests that are left out, as the panel draws without them.
    """

    state: State
    facts: Facts
    requests: Requests | Why
    refused: tuple[str, ...] = ()

    @property
    def by_role(self) -> Requests:
        """The requests, none where the panel says why it asks nothing."""
        return {} if isinstance(self.requests, Why) else self.requests


@dataclass(frozen=True, eq=False)
class Questions:
    """The question of a State, and that of its reference: None while it was not asked, a text where it has no counterpart."""

    now: Question
    ref: Question | str | None = None

    def of(self, state: State, facts: Facts) -> bool:
        """Whether the first is the question of this very State and these facts."""
        return self.now.state is state and self.now.facts is facts
