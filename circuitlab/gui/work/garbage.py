"""Garbage is collected on the thread of the window alone: a widget destroyed by a worker crashes the process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from pyqtgraph.util.garbage_collector import GarbageCollector


@contextmanager
def collected_on_this_thread(seconds: float = 1.0) -> Iterator[None]:
    """Collect garbage on this thread only, by a timer that checks every `seconds`, for as long as the context lasts.

    Otherwise a collection runs on whichever thread allocates, for instance that of an analysis, and a closed dialog may be part
    of a cycle that holds Qt objects. What exists at the start (modules, the window) is set aside, so that a collection takes
    milliseconds.
    """
    gc.freeze()
    collector = GarbageCollector(seconds)
    try:
        yield
    finally:
        collector.timer.stop()
        gc.enable()
