"""Undo and redo as a list of whole values. Answers stay cached in the engine, so stepping back recomputes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

T = TypeVar("T")
LONGEST = 500


@dataclass(frozen=True)
class Step(Generic[T]):
    """A recorded value, the label of the change that led to it, and the burst of changes it merges with."""

    value: T
    label: str
    merge: str = ""


class History(Generic[T]):
    """The recorded values and the current one among them; at most `LONGEST`, the oldest are dropped."""

    def __init__(self, value: T) -> None:
        self._steps: list[Step[T]] = [Step(value, "start")]
        self._at = 0
        self._walked = False  # a step reached by undo or redo is not merged with the next change of its burst

    @property
    def value(self) -> T:
        """The current value."""
        return self._steps[self._at].value

    @property
    def before(self) -> T | None:
        """The value that undo leads to, None at the beginning."""
        return self._steps[self._at - 1].value if self._at else None

    @property
    def after(self) -> T | None:
        """The value that redo leads to, None at the end."""
        return self._steps[self._at + 1].value if self._at + 1 < len(self._steps) else None

    @property
    def undo_label(self) -> str:
        """The label of the change that undo takes back, "" for none."""
        return self._steps[self._at].label if self._at else ""

    @property
    def redo_label(self) -> str:
        """The label of the change that redo makes again, "" for none."""
        return self._steps[self._at + 1].label if self._at + 1 < len(self._steps) else ""

    def push(self, value: T, label: str, merge: str = "") -> None:
        """Record a value and drop what was undone. It replaces the current step if both have the same non-empty `merge`."""
        if value == self.value:
            return
        del self._steps[self._at + 1 :]
        joins = merge and self._at > 0 and not self._walked and self._steps[self._at].merge == merge
        self._walked = False
        if joins and value == self._steps[self._at - 1].value:
            del self._steps[self._at]  # the burst is back where it began: no step at all
        elif joins:
            self._steps[self._at] = Step(value, label, merge)
        else:
            self._steps.append(Step(value, label, merge))
        del self._steps[: max(0, len(self._steps) - LONGEST)]
        self._at = len(self._steps) - 1

    def gather(self, is_start: Callable[[T], bool], merge: str, back: Callable[[T], T] | None = None) -> None:
        """Merge every step after the last value that `is_start` into one, which the next change of the burst `merge` replaces.

        `back(value)`: the value without what is merged; steps that differ in the rest stay steps of their own. By default nothing
        of a value is left. Nothing happens if there is no such value among the recorded ones.
        """
        first = next((i for i in range(self._at - 1, -1, -1) if is_start(self._steps[i].value)), None)
        if first is None:
            return
        kept, later = self._steps[: first + 1], self._steps[first + 1 : self._at + 1]
        if back is not None:
            for step in later:
                if (value := back(step.value)) != kept[-1].value:
                    kept.append(replace(step, value=value))
        if later[-1].value != kept[-1].value:
            kept.append(replace(later[-1], merge=merge))
        self._steps, self._at, self._walked = kept, len(kept) - 1, False

    def mend(self, value: T) -> None:
        """Replace the current value without recording a step."""
        self._steps[self._at] = replace(self._steps[self._at], value=value)

    def undo(self) -> T | None:
        """Step back and return the value; None at the beginning."""
        if self._at == 0:
            return None
        self._at, self._walked = self._at - 1, True
        return self.value

    def redo(self) -> T | None:
        """Step forward and return the value; None at the end."""
        if self._at + 1 >= len(self._steps):
            return None
        self._at, self._walked = self._at + 1, True
        return self.value
