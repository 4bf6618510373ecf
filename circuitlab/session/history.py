"""Undo and redo as a list of whole States. Answers stay cached in the engine, so stepping back recomputes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from circuitlab.session.state import State

LONGEST = 500


@dataclass(frozen=True)
class Step:
    """A recorded state, the label of the change that led to it, and the burst of changes it merges with."""

    state: State
    label: str
    merge: str = ""


class History:
    """The recorded states and the current one among them; at most `LONGEST`, the oldest are dropped."""

    def __init__(self, state: State) -> None:
        self._steps: list[Step] = [Step(state, "start")]
        self._at = 0
        self._walked = False  # a step reached by undo or redo is not merged with the next change of its burst

    @property
    def state(self) -> State:
        """The current state."""
        return self._steps[self._at].state

    @property
    def before(self) -> State | None:
        """The state that undo leads to, None at the beginning."""
        return self._steps[self._at - 1].state if self._at else None

    @property
    def after(self) -> State | None:
        """The state that redo leads to, None at the end."""
        return self._steps[self._at + 1].state if self._at + 1 < len(self._steps) else None

    @property
    def undo_label(self) -> str:
        """The label of the change that undo takes back, "" for none."""
        return self._steps[self._at].label if self._at else ""

    @property
    def redo_label(self) -> str:
        """The label of the change that redo makes again, "" for none."""
        return self._steps[self._at + 1].label if self._at + 1 < len(self._steps) else ""

    def push(self, state: State, label: str, merge: str = "") -> None:
        """Record a state and drop what was undone. It replaces the current step if both have the same non-empty `merge`."""
        if state == self.state:
            return
        del self._steps[self._at + 1 :]
        joins = merge and self._at > 0 and not self._walked and self._steps[self._at].merge == merge
        self._walked = False
        if joins and state == self._steps[self._at - 1].state:
            del self._steps[self._at]  # the burst is back where it began: no step at all
        elif joins:
            self._steps[self._at] = Step(state, label, merge)
        else:
            self._steps.append(Step(state, label, merge))
        del self._steps[: max(0, len(self._steps) - LONGEST)]
        self._at = len(self._steps) - 1

    def gather(self, start: State, merge: str) -> None:
        """Merge every step after `start` into one, which the next change of the burst `merge` replaces.

        Nothing happens if `start` is not among the recorded states.
        """
        first = next((i for i in range(self._at - 1, -1, -1) if self._steps[i].state == start), None)
        if first is not None:
            now = self._steps[self._at]
            self._steps[first + 1 :] = [] if now.state == start else [replace(now, merge=merge)]
            self._at, self._walked = len(self._steps) - 1, False

    def mend(self, state: State) -> None:
        """Replace the current state without recording a step."""
        self._steps[self._at] = replace(self._steps[self._at], state=state)

    def undo(self) -> State | None:
        """Step back and return the state; None at the beginning."""
        if self._at == 0:
            return None
        self._at, self._walked = self._at - 1, True
        return self.state

    def redo(self) -> State | None:
        """Step forward and return the state; None at the end."""
        if self._at + 1 >= len(self._steps):
            return None
        self._at, self._walked = self._at + 1, True
        return self.state
