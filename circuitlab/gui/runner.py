"""The worker threads: two lanes and one for files, results through queued signals.

live  cheap work while typing and dragging: the newest request of a slot waits, the running one finishes (conflate)
slow  work of seconds and minutes: a new request of the slot cancels the running one (restart); `tick` lets live go first
io    opening, hashing, writing files

A request holds everything it needs; workers never read the document. A result whose serial is not its slot's newest is dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.analysis.base import Result, find_analysis
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Provenance, Request
from circuitlab.errors import Cancelled

log = logging.getLogger("circuitlab.runner")
PARTIAL_EVERY = 0.1  # s


@dataclass(eq=False)
class Job:
    """One piece of work: what the Jobs dock lists and what can be cancelled."""

    slot: str
    serial: int
    title: str
    lane: str
    work: Callable[[Job], Any]
    began: float = 0.0
    done: int = 0
    total: int = 0
    text: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)


class _Ctx:
    """The way from an analysis on a worker to the window."""

    previous: Result | None = None

    def __init__(self, runner: Runner, job: Job, request: Request) -> None:
        self._runner, self._job, self._request = runner, job, request
        self._last = 0.0

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Say how far; stop if cancelled; the slow lane lets the live lane go first."""
        if self._job.cancelled.is_set():
            raise Cancelled
        self._job.done, self._job.total, self._job.text = done, total, text
        if self._job.lane == "slow":
            while self._runner.live_busy.is_set() and not self._job.cancelled.wait(0.01):
                pass
        now = time.monotonic()
        if now - self._last >= PARTIAL_EVERY:
            self._last = now
            self._runner.told.emit("progress", self._job, None)

    def partial(self, result: Result) -> None:
        """Show a snapshot."""
        answer = Answer(self._request, result, False, Provenance())
        self._runner.told.emit("partial", self._job, answer)


class Runner(QObject):
    """`ask(slot, request)`; answers come as `answered(slot, Answer)`, partial ones too, errors as `failed(slot, error)`.

    `finished(slot, value)` answers `do(slot, title, work)`; `jobs_changed()` when something starts, moves or ends.
    """

    answered = Signal(str, object)
    finished = Signal(str, object)
    failed = Signal(str, object)
    jobs_changed = Signal()
    told = Signal(str, object, object)

    def __init__(self, engine: Engine, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.engine = engine
        self.live_busy = threading.Event()
        self._pools = {
            lane: ThreadPoolExecutor(1, thread_name_prefix=f"circuitlab-{lane}") for lane in ("live", "slow", "io")
        }
        self._serials: dict[str, int] = {}
        self._waiting: dict[str, Job] = {}
        self._running: dict[str, Job] = {}
        self._closed = False
        self.told.connect(self._hear)

    @property
    def jobs(self) -> list[Job]:
        """What runs and what waits."""
        return [*self._running.values(), *self._waiting.values()]

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits."""
        return bool(self._running or self._waiting)

    def ask(self, slot: str, request: Request) -> Answer | None:
        """The answer at once if it is in the cache, else None and `answered` later. The newest request of a slot wins."""
        found = self.engine.cached(request)
        if found is not None:
            self._forget(slot)
            return found
        lane = find_analysis(request.analysis).lane
        title = f"{request.analysis} · {request.subject.model.name}"
        self._submit(slot, title, lane, lambda job: self.engine.answer(request, _Ctx(self, job, request)))
        return None

    def do(self, slot: str, title: str, work: Callable[[Job], Any], lane: str = "io") -> None:
        """Other work on a lane: opening, exporting, continuing a text. `work` gets its job, whose `cancelled` it may look at."""
        self._submit(slot, title, lane, work)

    def _forget(self, slot: str) -> None:
        """What is under way for a slot no longer matters."""
        self._serials[slot] = self._serials.get(slot, 0) + 1
        waiting = self._waiting.pop(slot, None)
        for job in (waiting, self._running.get(slot)):
            if job is not None and job.lane != "live":
                job.cancelled.set()

    def _submit(self, slot: str, title: str, lane: str, work: Callable[[Job], Any]) -> None:
        if self._closed:
            return
        self._forget(slot)
        job = Job(slot, self._serials[slot], title, lane, work)
        self._waiting[slot] = job
        self._next(lane)
        self.jobs_changed.emit()

    def _next(self, lane: str) -> None:
        """Start the oldest waiting job of a lane if the lane is free."""
        if any(j.lane == lane for j in self._running.values()):
            return
        job = next((j for j in self._waiting.values() if j.lane == lane), None)
        if job is None:
            if lane == "live":
                self.live_busy.clear()
            return
        del self._waiting[job.slot]
        self._running[job.slot] = job
        if lane == "live":
            self.live_busy.set()
        job.began = time.monotonic()
        self._pools[lane].submit(self._run, job)

    def _run(self, job: Job) -> None:
        """On the worker."""
        try:
            if job.cancelled.is_set():
                raise Cancelled
            self.told.emit("done", job, job.work(job))
        except BaseException as error:  # whatever happens on a worker belongs in the window, not on a dead thread
            self.told.emit("failed", job, error)

    @Slot(str, object, object)
    def _hear(self, kind: str, job: Job, value: Any) -> None:
        """On the GUI thread: pass on what is still wanted."""
        current = self._serials.get(job.slot) == job.serial
        if kind == "progress":
            self.jobs_changed.emit()
            return
        if kind == "partial":
            if current:
                self.answered.emit(job.slot, value)
            return
        if self._running.get(job.slot) is job:
            del self._running[job.slot]
        self._next(job.lane)
        if current and not self._closed:
            self._deliver(kind, job, value)
        self.jobs_changed.emit()

    def _deliver(self, kind: str, job: Job, value: Any) -> None:
        if kind == "done" and isinstance(value, Answer):
            self.answered.emit(job.slot, value)
        elif kind == "done":
            self.finished.emit(job.slot, value)
        elif isinstance(value, Cancelled):
            log.info("%s cancelled", job.title)
            self.failed.emit(job.slot, value)
        else:
            log.error("%s: %s", job.title, value, exc_info=value)
            self.failed.emit(job.slot, value)

    @Slot()
    def cancel_all(self) -> None:
        """Stop what can be stopped."""
        for job in self.jobs:
            self.cancel(job)

    def cancel(self, job: Job) -> None:
        """Stop one job; what it has computed is kept by the engine."""
        job.cancelled.set()
        if self._waiting.get(job.slot) is job:
            del self._waiting[job.slot]
        self.jobs_changed.emit()

    def close(self) -> None:
        """Cancel everything and wait for the threads."""
        self._closed = True
        self._waiting.clear()
        self.cancel_all()
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
