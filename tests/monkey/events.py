"""Events as data: drawn from a seed alone, meaningful in any window, one line of text each.

An event says what is done and carries three numbers in [0, 1) that choose where and what among the things that are there when
it is played. So a list stays playable when others are taken out of it, which is what makes it possible to shrink one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

# How often each kind comes, relative to the others.
WEIGHTS = {
    "click": 16,
    "shift-click": 3,
    "double-click": 4,
    "right-click": 6,
    "hover": 8,
    "wheel": 4,
    "drag": 6,
    "key": 10,
    "type": 8,
    "command": 16,
    "control": 10,
    "undo": 5,
    "redo": 3,
    "model": 1,
    "resize": 1,
    "settle": 2,
}


@dataclass(frozen=True)
class Event:
    """One thing done to the window; `a`, `b`, `c` in [0, 1) choose among what is there."""

    kind: str
    a: float
    b: float
    c: float

    def __str__(self) -> str:
        return f"{self.kind} {self.a:.4f} {self.b:.4f} {self.c:.4f}"


def parsed(line: str) -> Event:
    """The event of a line that `str(event)` wrote. Raises `ValueError`."""
    kind, a, b, c = line.split()
    if kind not in WEIGHTS:
        raise ValueError(f"no event is called {kind}")
    return Event(kind, float(a), float(b), float(c))


def drawn(seed: int, count: int) -> tuple[Event, ...]:
    """The first `count` events of a seed."""
    rng = random.Random(seed)
    kinds, weights = tuple(WEIGHTS), tuple(WEIGHTS.values())
    number = lambda: round(rng.random() * 0.9999, 4)
    return tuple(Event(rng.choices(kinds, weights)[0], number(), number(), number()) for _ in range(count))


def as_text(events: Iterable[Event]) -> str:
    """One event a line."""
    return "".join(f"{event}\n" for event in events)


def from_text(text: str) -> tuple[Event, ...]:
    """The events of `as_text`; empty lines and `#` lines are passed over. Raises `ValueError`."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(parsed(line) for line in lines if line and not line.startswith("#"))
