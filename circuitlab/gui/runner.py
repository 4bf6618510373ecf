"""The worker threads: two lanes for answers, one each for files, models, the network and hashes; results by queued signals.

live    cheap work while typing and dragging: the newest request of a slot waits, the running one finishes and is shown
        (conflate)
slow    work of seconds and minutes: a new request of the slot cancels the running one (restart); `tick` lets live go first
io      opening, hashing, writing files
models  opening what is stepped or slid to, which must not wait for a file that is being written
net     downloads, which may take long and must not hold up opening and writing
hash    the sha256 of weights, read whole behind an open

What somebody may want next is computed while neither lane is wanted, and stopped when one is (prefetch).
A request holds everything it needs; workers never read the document. A result that comes after a newer one is dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.analysis.base import Quiet, Result, find_analysis
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Provenance, Request
from circuitlab.errors import Cancelled
from circuitlab.model.subject import ModelRef

log = logging.getLogger("circuitlab.runner")
LANES = ("live", "slow", "io", "models", "net", "hash")
PARTIAL_EVERY = 0.1  # s
PREFETCH_AT_MOST = 64 * 2**20  # bytes: what somebody may want must not push out what somebody looks at


@dataclass(eq=False)
class Job:
    """One piece of work: what the Jobs dock lists and what can be cancelled."""

    slot: str
    serial: int
    title: str
    lane: str
    work: Callable[[Job], Any]
    began: float = 0.0
    memory: int = 0
    done: int = 0
    total: int = 0
    text: str = ""
    told: float = 0.0  # when the window last heard how far it is
    cancelled: threading.Event = field(default_factory=threading.Event)


class _Ctx:
    """The way from an analysis on a worker to the window."""

    previous: Result | None = None

    def __init__(self, runner: Runner, job: Job, request: Request) -> None:
        self._runner, self._job, self._request = runner, job, request
        self._last = self._shown = 0.0

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
        """Show a snapshot, at most ten a second."""
        now = time.monotonic()
        if now - self._shown < PARTIAL_EVERY:
            return
        self._shown = now
        answer = Answer(self._request, result, False, Provenance())
        self._runner.told.emit("partial", self._job, answer)


class _Idle(Quiet):
    """The `Ctx` of a prefetch: stopped as soon as anything else is wanted."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Stop if somebody wants the lane."""
        if self._stopped.is_set():
            raise Cancelled


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
        self._pools = {lane: ThreadPoolExecutor(1, thread_name_prefix=f"circuitlab-{lane}") for lane in LANES}
        self._serials: dict[str, int] = {}
        self._floor: dict[str, int] = {}  # results with a serial up to this are no longer shown
        self._later: deque[Request] = deque()
        self._fetching: threading.Event | None = None  # set: the prefetch under way is to stop
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

    @property
    def prefetching(self) -> bool:
        """Whether anything is computed that nobody has asked for yet."""
        return self._fetching is not None or bool(self._later)

    def ask(self, slot: str, request: Request) -> Answer | None:
        """The answer at once if it is in the cache, else None and `answered` later. The newest request of a slot wins."""
        found = self.engine.cached(request)
        if found is not None:
            self._forget(slot)
            self._floor[slot] = self._serials[slot]
            return found
        lane = find_analysis(request.analysis).lane

        def work(job: Job) -> Answer:
            job.memory = self.engine.check(request)
            return self.engine.answer(request, _Ctx(self, job, request))

        self._submit(slot, f"{request.analysis.replace('_', ' ')} · {request.subject.model.name}", lane, work)
        return None

    def prefetch(self, requests: Iterable[Request]) -> None:
        """Compute these while neither lane has anything to do; the answers only go into the cache. Earlier wishes are dropped.

        A model that is not open is opened on the thread of models, so that nobody waits for it.
        """
        self._later = deque(r for r in requests if self.engine.cached(r) is None)
        self._fetch()

    def _fetch(self) -> None:
        wanted = any(job.lane in ("live", "slow") for job in self.jobs)
        if self._closed or self._fetching is not None or not self._later or wanted:
            return
        self._fetching = stopped = threading.Event()
        ref = self._later[0].subject.model
        opened = self.engine.store.peek(ref) is not None
        request = self._later.popleft() if opened else None

        def work() -> None:
            failed: ModelRef | None = None
            try:
                if stopped.is_set():
                    pass
                elif request is None:
                    self.engine.store.open(ref)
                    failed = ref if self.engine.store.peek(ref) is None else None  # no room: not again and again
                elif self.engine.check(request) <= PREFETCH_AT_MOST:
                    self.engine.answer(request, _Idle(stopped))
            except Exception as error:  # nobody has asked yet: whoever does will be told
                failed = ref if request is None else None
                log.debug("ahead of time, %s: %s", ref.name if request is None else request.analysis, error)
            self.told.emit("fetched", None, failed)

        self._pools["models" if request is None else find_analysis(request.analysis).lane].submit(work)

    def do(self, slot: str, title: str, work: Callable[[Job], Any], lane: str = "io") -> None:
        """Other work on a lane: opening, exporting, continuing a text. `work` gets its job, whose `cancelled` it may look at."""
        self._submit(slot, title, lane, work)

    def say(self, job: Job, done: int, total: int, text: str) -> None:
        """How far other work is; called on its worker, as often as it likes."""
        job.done, job.total, job.text = done, total, text
        now = time.monotonic()
        if now - job.told >= PARTIAL_EVERY:
            job.told = now
            self.told.emit("progress", job, None)

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
            self._fetch()
            return
        del self._waiting[job.slot]
        self._running[job.slot] = job
        if lane == "live":
            self.live_busy.set()
        if lane in ("live", "slow") and self._fetching is not None:
            self._fetching.set()
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
        if kind == "fetched":
            self._fetching = None
            self._later = deque(r for r in self._later if r.subject.model != value)
            self._fetch()
            return
        current = self._serials.get(job.slot) == job.serial
        if job.lane == "live" and kind == "done" and job.serial > self._floor.get(job.slot, 0):
            current = True  # under a drag every answer has a newer question behind it; it is shown all the same
            self._floor[job.slot] = job.serial
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
        self._later.clear()
        if self._fetching is not None:
            self._fetching.set()
        for job in self.jobs:
            self.cancel(job)

    def cancel(self, job: Job) -> None:
        """Stop one job; what it has computed is kept by the engine."""
        job.cancelled.set()
        if self._waiting.get(job.slot) is job:
            del self._waiting[job.slot]
            self.failed.emit(job.slot, Cancelled())
        self.jobs_changed.emit()

    def cancel_slot(self, slot: str) -> None:
        """Stop what runs or waits for a slot."""
        for job in self.jobs:
            if job.slot == slot:
                self.cancel(job)

    def is_busy(self, slot: str) -> bool:
        """Whether anything runs or waits for a slot."""
        return slot in self._running or slot in self._waiting

    def close(self) -> None:
        """Cancel everything and wait for the threads."""
        self._closed = True
        self.blockSignals(True)  # nobody is left to be told
        self._waiting.clear()
        self.cancel_all()
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
