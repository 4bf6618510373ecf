"""Prefetching: likely next requests are computed while no other work is waiting, and stopped for it; they only fill the cache."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.gui.work.job import StoppableContext
from circuitlab.model.subject import ModelRef

log = logging.getLogger("circuitlab.prefetch")
MOST_BYTES = 64 * 2**20  # of one answer: what may be requested next must not push out of the cache what is on the screen


class Prefetch(QObject):
    """Computes one request after another while `idle()`; `submit(lane, work)` runs work on the thread of a lane.

    A model that is not open is opened on the thread of models, so that no answer waits for it.
    """

    _ended = Signal(object)

    def __init__(
        self, engine: Engine, idle: Callable[[], bool], submit: Callable[[str, Callable[[], None]], object], parent: QObject
    ) -> None:
        super().__init__(parent)
        self._engine, self._idle, self._submit = engine, idle, submit
        self._queue: deque[Request] = deque()
        self._stop: threading.Event | None = None  # of the prefetch under way, set to stop it; None while there is none
        self._ended.connect(self._continue)

    @property
    def busy(self) -> bool:
        """Whether a prefetch is being computed."""
        return self._stop is not None or bool(self._queue)

    def queue(self, requests: Iterable[Request]) -> None:
        """Compute these requests next, in place of the earlier ones."""
        self._queue = deque(r for r in requests if self._engine.cached(r) is None)
        self.go_on()

    def step_aside(self) -> None:
        """Stop the prefetch under way: other work is waiting."""
        if self._stop is not None:
            self._stop.set()

    def drop(self) -> None:
        """Drop all requests."""
        self._queue.clear()
        self.step_aside()

    def go_on(self) -> None:
        """Begin the next prefetch, unless other work is waiting."""
        if self._stop is not None or not self._queue or not self._idle():
            return
        self._stop = stop = threading.Event()
        ref = self._queue[0].subject.model
        is_open = self._engine.store.peek(ref) is not None
        request = self._queue.popleft() if is_open else None

        def work() -> None:
            failed: ModelRef | None = None
            try:
                if stop.is_set():
                    pass
                elif request is None:
                    self._engine.store.open(ref)
                    failed = ref if self._engine.store.peek(ref) is None else None  # closed again for lack of room: do not retry
                elif self._engine.check(request) <= MOST_BYTES:
                    self._engine.answer(request, StoppableContext(stop.is_set))
            except Exception as error:  # a real request for it will report the error
                failed = ref if request is None else None
                log.debug("ahead of time, %s: %s", ref.name if request is None else request.analysis.name, error)
            self._ended.emit(failed)

        self._submit("models" if request is None else request.analysis.lane, work)

    @Slot(object)
    def _continue(self, failed: ModelRef | None) -> None:
        """On the GUI thread: drop the requests to a model that could not be opened, and go on with the others."""
        self._stop = None
        self._queue = deque(r for r in self._queue if r.subject.model != failed)
        self.go_on()
