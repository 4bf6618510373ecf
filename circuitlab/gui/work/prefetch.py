"""Prefetch: likely next requests are computed while no other work is waiting, and stopped for it. It only fills the cache."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.analysis.base import NullContext
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.errors import Cancelled
from circuitlab.model.subject import ModelRef

log = logging.getLogger("circuitlab.prefetch")
AT_MOST = 64 * 2**20  # bytes: what somebody may want must not push out what somebody looks at


class _Idle(NullContext):
    """The `Ctx` of a prefetch, which stops as soon as other work is waiting."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Stop if somebody wants the lane."""
        if self._stopped.is_set():
            raise Cancelled


class Prefetch(QObject):
    """One request after another, while `idle()`; `submit(lane, work)` runs work on the thread of a lane.

    A model that is not open is opened on the thread of models, so that nobody waits for it.
    """

    _ended = Signal(object)

    def __init__(
        self, engine: Engine, idle: Callable[[], bool], submit: Callable[[str, Callable[[], None]], object], parent: QObject
    ) -> None:
        super().__init__(parent)
        self._engine, self._idle, self._submit = engine, idle, submit
        self._later: deque[Request] = deque()
        self._stopped: threading.Event | None = None  # of the one under way; set: it is to stop
        self._ended.connect(self._hear)

    @property
    def busy(self) -> bool:
        """Whether a prefetch is being computed."""
        return self._stopped is not None or bool(self._later)

    def want(self, requests: Iterable[Request]) -> None:
        """These next; earlier wishes are dropped."""
        self._later = deque(r for r in requests if self._engine.cached(r) is None)
        self.go_on()

    def step_aside(self) -> None:
        """Stop: other work is waiting."""
        if self._stopped is not None:
            self._stopped.set()

    def drop(self) -> None:
        """Nothing is wished for any more."""
        self._later.clear()
        self.step_aside()

    def go_on(self) -> None:
        """Begin the next prefetch, unless other work is waiting."""
        if self._stopped is not None or not self._later or not self._idle():
            return
        self._stopped = stopped = threading.Event()
        ref = self._later[0].subject.model
        opened = self._engine.store.peek(ref) is not None
        request = self._later.popleft() if opened else None

        def work() -> None:
            failed: ModelRef | None = None
            try:
                if stopped.is_set():
                    pass
                elif request is None:
                    self._engine.store.open(ref)
                    failed = ref if self._engine.store.peek(ref) is None else None  # no room: not again and again
                elif self._engine.check(request) <= AT_MOST:
                    self._engine.answer(request, _Idle(stopped))
            except Exception as error:  # a real request for it will report the error
                failed = ref if request is None else None
                log.debug("ahead of time, %s: %s", ref.name if request is None else request.analysis.name, error)
            self._ended.emit(failed)

        self._submit("models" if request is None else request.analysis.lane, work)

    @Slot(object)
    def _hear(self, failed: ModelRef | None) -> None:
        """On the GUI thread; of a model that cannot be opened nothing is wished for."""
        self._stopped = None
        self._later = deque(r for r in self._later if r.subject.model != failed)
        self.go_on()
