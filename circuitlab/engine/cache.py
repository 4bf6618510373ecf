"""One least-recently-used store with a bound in bytes, safe to use from several threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


class Cache:
    """Values by key, the least recently used ones dropped when their bytes exceed `limit`.

    A value larger than the limit is not stored at all. `get` never blocks for longer than a dictionary look-up.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, tuple[object, int]] = OrderedDict()
        self._nbytes = 0

    @property
    def limit(self) -> int:
        """The bound in bytes. A lower one drops at once what is over it."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        with self._lock:
            self._limit = limit
            self._make_room()

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return self._nbytes

    def get(self, key: Hashable) -> Any | None:
        """The value, which becomes the most recently used; None if it is not cached."""
        with self._lock:
            entry = self._held.get(key)
            if entry is None:
                return None
            self._held.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: object, nbytes: int) -> None:
        """Store a value, replacing any other under this key."""
        with self._lock:
            self._drop(key)
            if nbytes > self._limit:
                return
            self._held[key] = (value, nbytes)
            self._nbytes += nbytes
            self._make_room()

    def _make_room(self) -> None:
        while self._nbytes > self._limit:
            self._drop(next(iter(self._held)))

    def _drop(self, key: Hashable) -> None:
        old = self._held.pop(key, None)
        if old is not None:
            self._nbytes -= old[1]

    def newest(self, matches: Callable[[object], bool]) -> list[Any]:
        """Keys that pass `matches`, most recently used first."""
        with self._lock:
            return [key for key in reversed(self._held) if matches(key)]

    def drop(self, matches: Callable[[object], bool]) -> None:
        """Drop the values whose keys pass `matches`."""
        with self._lock:
            for key in [key for key in self._held if matches(key)]:
                self._drop(key)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._held.clear()
            self._nbytes = 0
