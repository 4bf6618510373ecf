"""Computations in flight: a request made twice at the same time is computed once, without deadlock.

A computation holds its key; another thread with the same key waits for it. A slow computation may pause inside `tick` to let the
live lane go first. A live thread that needs what the slow one holds would then wait forever, so it does not wait for a holder
that has been paused for `PAUSED_FOR` seconds, but computes the result itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

PAUSED_FOR = 0.05  # s


class InFlight:
    """The keys being computed now, each with the thread that computes it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders: dict[Hashable, int] = {}
        self._paused_since: dict[int, float] = {}

    @contextmanager
    def alone(self, key: Hashable, waiting: Callable[[], None]) -> Iterator[None]:
        """Hold `key`, or wait until it is free; `waiting` is called meanwhile every `PAUSED_FOR` seconds and may raise."""
        me = threading.get_ident()
        if self._holders.get(key) == me:
            raise RuntimeError(f"a computation requests itself: {key!r}")
        try:  # around the taking too: an interrupt may fall right behind it
            self._take(key, waiting, me)
            yield
        finally:
            with self._changed:
                if self._holders.get(key) == me:
                    del self._holders[key]
                    self._changed.notify_all()

    def _take(self, key: Hashable, waiting: Callable[[], None], me: int) -> None:
        """Until this thread holds the key, or its holder is paused."""
        while True:
            with self._changed:
                holder = self._holders.setdefault(key, me)
                if holder == me:
                    return
                since = self._paused_since.get(holder)
                if since is not None and time.monotonic() - since >= PAUSED_FOR:
                    return
                self._changed.wait(PAUSED_FOR)
            waiting()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wrap whatever may make this thread wait for other lanes."""
        me = threading.get_ident()
        self._paused_since[me] = time.monotonic()
        try:
            yield
        finally:
            self._paused_since.pop(me, None)
