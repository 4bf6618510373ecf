"""Cycles of objects are collected on the thread of the window alone: a widget destroyed by a worker crashes the process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from pyqtgraph.util.garbage_collector import GarbageCollector


@contextmanager
def collected_on_this_thread(seconds: float = 1.0) -> Iterator[None]:
    """While this lasts Python collects by a timer of this thread's events, looked at every `seconds`, and on no other thread.

    Otherwise a collection runs on whichever thread allocates, an analysis' for instance, and a closed dialog may be a cycle that
    holds objects of Qt. What exists at the beginning (modules, the window) is set aside, so that a round costs milliseconds.
    """
    gc.freeze()
    collector = GarbageCollector(seconds)
    try:
        yield
    finally:
        collector.timer.stop()
        gc.enable()
