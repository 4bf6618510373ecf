"""A piece of work on a worker thread, and how an analysis that runs there reports to the window."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from circuitlab.analysis.base import NullContext, Result
from circuitlab.engine.request import Answer, Provenance, Request
from circuitlab.errors import Cancelled
from circuitlab.gui.work.work_slot import WorkSlot

PARTIAL_EVERY = 0.1  # s


@dataclass(eq=False)
class Job:
    """A piece of work as the Jobs panel lists it and the user can cancel it."""

    slot: WorkSlot
    serial: int
    title: str
    lane: str
    work: Callable[[Job], object]
    cost: float = 0.0  # operations, about; 0 where nobody has said
    started_at: float = 0.0  # time, 0 while it waits
    memory: int = 0
    done: int = 0
    total: int = 0
    text: str = ""
    reported_at: float = 0.0  # time of the last progress report to the window
    cancelled: threading.Event = field(default_factory=threading.Event)
    request: Request | None = None  # that it answers, None for other work
    put_off: bool = False  # nobody waits for it any more; it goes on when nothing else of its lane has to
    yields: bool = False  # cancelled to let other work go first; it begins again afterwards

    def anew(self) -> Job:
        """The same job from its beginning, with what the engine has kept of this one."""
        own = self.slot, self.serial, self.title, self.lane, self.work, self.cost
        return Job(*own, request=self.request, put_off=self.put_off)

    def set_progress(self, done: int, total: int, text: str) -> bool:
        """Note the progress, on the worker. Returns whether it is time to report it to the window."""
        self.done, self.total, self.text = done, total, text
        now = time.monotonic()
        if now - self.reported_at < PARTIAL_EVERY:
            return False
        self.reported_at = now
        return True


class JobCtx:
    """The `Ctx` of a job. `report(kind, job, value)` reaches the window; a slow job waits while `live_busy` is set."""

    previous: Result | None = None

    def __init__(
        self, job: Job, request: Request, live_busy: threading.Event, report: Callable[[str, Job, object], object]
    ) -> None:
        self._job, self._request = job, request
        self._live_busy, self._report = live_busy, report
        self._partial_at = 0.0  # time of the last partial result

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Report the progress, and let the live lane go before the slow one. Raises `Cancelled` if the job was cancelled."""
        if self._job.cancelled.is_set():
            raise Cancelled
        if self._job.set_progress(done, total, text):
            self._report("progress", self._job, None)
        if self._job.lane == "slow":
            while self._live_busy.is_set() and not self._job.cancelled.wait(0.01):
                pass

    def partial(self, result: Result) -> None:
        """Report a partial result, at most ten a second."""
        now = time.monotonic()
        if now - self._partial_at < PARTIAL_EVERY:
            return
        self._partial_at = now
        self._report("partial", self._job, Answer(self._request, result, False, Provenance()))


class WorkCtx(NullContext):
    """The `Ctx` of other work that computes: like an analysis on the slow lane it lets the live one go first.

    `report(job, done, total, text)` notes its progress.
    """

    def __init__(self, job: Job, live_busy: threading.Event, report: Callable[[Job, int, int, str], object]) -> None:
        self._job, self._live_busy, self._report = job, live_busy, report

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Report the progress. Raises `Cancelled`."""
        if self._job.cancelled.is_set():
            raise Cancelled
        self._report(self._job, done, total, text)
        while self._live_busy.is_set() and not self._job.cancelled.wait(0.01):
            pass


class StoppableContext(NullContext):
    """The `Ctx` of computations outside of requests: they end once `stopped()`, as nobody waits for them any more."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Raise `Cancelled` once it is stopped."""
        if self._stopped():
            raise Cancelled
