"""Undo and redo: a list of whole States. Results stay in the engine, so stepping back costs no computing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from circuitlab.session.state import State

LONGEST = 500


@dataclass(frozen=True)
class Step:
    """A recorded state and what led to it."""

    state: State
    label: str
    merge: str = ""


class History:
    """The states so far and where we stand among them; at most `LONGEST`, the oldest dropped."""

    def __init__(self, state: State) -> None:
        self._steps: list[Step] = [Step(state, "start")]
        self._at = 0
        self._walked = False  # a step that was reached by undo or redo is not written over by the next of its burst

    @property
    def state(self) -> State:
        """The state we stand at."""
        return self._steps[self._at].state

    @property
    def before(self) -> State | None:
        """Where undo would lead, None at the beginning."""
        return self._steps[self._at - 1].state if self._at else None

    @property
    def after(self) -> State | None:
        """Where redo would lead, None at the end."""
        return self._steps[self._at + 1].state if self._at + 1 < len(self._steps) else None

    @property
    def undo_label(self) -> str:
        """What undo would take back, "" for nothing."""
        return self._steps[self._at].label if self._at else ""

    @property
    def redo_label(self) -> str:
        """What redo would do again, "" for nothing."""
        return self._steps[self._at + 1].label if self._at + 1 < len(self._steps) else ""

    def push(self, state: State, label: str, merge: str = "") -> None:
        """Record a state. What had been undone is forgotten. A step with the same non-empty `merge` is replaced, not added."""
        if state == self.state:
            return
        del self._steps[self._at + 1 :]
        joins = merge and self._at > 0 and not self._walked and self._steps[self._at].merge == merge
        self._walked = False
        if joins and state == self._steps[self._at - 1].state:
            del self._steps[self._at]  # where it began: no step at all
        elif joins:
            self._steps[self._at] = Step(state, label, merge)
        else:
            self._steps.append(Step(state, label, merge))
        del self._steps[: max(0, len(self._steps) - LONGEST)]
        self._at = len(self._steps) - 1

    def gather(self, start: State, merge: str) -> None:
        """Make one step of all that came after `start`, which the next one of the burst `merge` replaces; nothing without it."""
        first = next((i for i in range(self._at - 1, -1, -1) if self._steps[i].state == start), None)
        if first is not None:
            now = self._steps[self._at]
            self._steps[first + 1 :] = [] if now.state == start else [replace(now, merge=merge)]
            self._at, self._walked = len(self._steps) - 1, False

    def mend(self, state: State) -> None:
        """The state we stand at, said anew; no step of its own."""
        self._steps[self._at] = replace(self._steps[self._at], state=state)

    def undo(self) -> State | None:
        """Step back; None at the beginning."""
        if self._at == 0:
            return None
        self._at, self._walked = self._at - 1, True
        return self.state

    def redo(self) -> State | None:
        """Step forward; None at the end."""
        if self._at + 1 >= len(self._steps):
            return None
        self._at, self._walked = self._at + 1, True
        return self.state
