"""The same question asked twice at once is computed once, and nobody waits for somebody who is himself waiting.

A computation holds the flight of its key; another thread with the same key waits for it. A slow computation may stand still
inside `tick` to let the live lane go first. A live thread that needs what the slow one holds would then wait for ever: it does
not wait for a holder that has stood still for `STILL` seconds, but computes on its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

STILL = 0.05  # s


class Flights:
    """What is being computed now, and by which thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders: dict[Hashable, int] = {}
        self._still_since: dict[int, float] = {}

    @contextmanager
    def alone(self, key: Hashable, waiting: Callable[[], None]) -> Iterator[None]:
        """Hold `key`, or wait until it is free; `waiting` is called meanwhile every `STILL` seconds and may raise."""
        held = self._take(key, waiting)
        try:
            yield
        finally:
            if held:
                with self._changed:
                    del self._holders[key]
                    self._changed.notify_all()

    def _take(self, key: Hashable, waiting: Callable[[], None]) -> bool:
        """True: held by this thread now. False: its holder stands still."""
        me = threading.get_ident()
        if self._holders.get(key) == me:
            raise RuntimeError(f"a computation asks for itself: {key!r}")
        while True:
            with self._changed:
                holder = self._holders.setdefault(key, me)
                if holder == me:
                    return True
                since = self._still_since.get(holder)
                if since is not None and time.monotonic() - since >= STILL:
                    return False
                self._changed.wait(STILL)
            waiting()

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Around whatever may make this thread wait for other lanes."""
        me = threading.get_ident()
        self._still_since[me] = time.monotonic()
        try:
            yield
        finally:
            self._still_since.pop(me, None)
