"""A failing list of events made short: pieces are left out for as long as it still fails (Zeller and Hildebrandt 2002, ddmin)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def shrunk(events: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool], tries: int) -> tuple[T, ...]:
    """The events that are left when no piece can be taken out any more, or after `tries` plays."""
    size = max(1, len(events) // 2)
    while tries > 0 and events:
        at = 0
        smaller = events
        while at < len(smaller) and tries > 0:
            without = smaller[:at] + smaller[at + size :]
            tries -= 1
            if fails(without):
                smaller = without
            else:
                at += size
        if size == 1 and smaller == events:
            break
        events, size = smaller, max(1, size // 2)
    return events
