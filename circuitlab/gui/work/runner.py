"""The worker threads: two lanes for answers, six for other work; results come back as queued signals.

live    cheap work while typing and dragging: the newest request of a slot waits, in the place of the one before it, the running
        one finishes and is shown (conflate)
slow    work of seconds and minutes: a new request of the slot cancels the running one (restart); `tick` lets live go first; of
        those that wait, the one that is in sight and takes the fewest operations is next
io      opening models and writing files
models  opening the checkpoints that are stepped to, which must not wait for a file that is being written
net     downloads, which may take long and must not hold up opening and writing
hash    reading the weights of an opened model whole, and their sha256
search  reading a session and finding its models, for which whole files may be hashed: no save waits for that
text    tokens of a prompt that a keystroke should not wait for

Likely next requests are computed while the first two lanes are idle, and stopped when they no longer are (`prefetch`).
A request holds everything it needs; workers never read the document. A result that comes after a newer one is dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot
from shiboken6 import isValid

from circuitlab.analysis.base import R
from circuitlab.engine.engine import Engine
from circuitlab.engine.freed_memory import FreedMemory
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import Cancelled, CircuitLabError
from circuitlab.gui.work.job import Job, JobCtx, WorkCtx
from circuitlab.gui.work.prefetch import Prefetch
from circuitlab.gui.work.work_slot import WorkSlot, belongs
from circuitlab.model.subject import ModelRef

log = logging.getLogger("circuitlab.runner")
LANES = ("live", "slow", "io", "models", "net", "hash", "search", "text")


class Runner(QObject):
    """`ask(slot, request)` and `do(slot, title, work)`; the slot's signals deliver the outcome (`WorkSlot`).

    `jobs_changed()`: a job has started, progressed or ended. `weights_changed(ModelRef)`: other files of a model have been read
    than before, by whoever opened it; heard before any answer that is of them.
    """

    jobs_changed = Signal()
    reported = Signal(str, object, object)
    weights_changed = Signal(object)

    def __init__(self, engine: Engine, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.engine = engine
        self.live_busy = threading.Event()
        self._pools = {lane: ThreadPoolExecutor(1, thread_name_prefix=f"circuitlab-{lane}") for lane in LANES}
        self._waiting: dict[WorkSlot, Job] = {}
        self._running: dict[WorkSlot, Job] = {}
        self._closed = False
        self._freed = FreedMemory()
        self._lead: QObject | None = None
        self.prefetch = Prefetch(engine, self._idle, lambda lane, work: self._pools[lane].submit(work), self)
        self.reported.connect(self._receive)
        engine.store.when_changed(self._weights_changed)

    @property
    def jobs(self) -> list[Job]:
        """The jobs that run, then those that wait."""
        return [*self._running.values(), *self._waiting.values()]

    @property
    def lead(self) -> QObject | None:
        """What is presented: requests of what belongs to it go first, and nothing is computed ahead. None while nothing is."""
        return self._lead

    @lead.setter
    def lead(self, lead: QObject | None) -> None:
        self._lead = lead
        if lead is not None:
            self.prefetch.drop()

    @property
    def busy(self) -> bool:
        """Whether any job runs or waits."""
        return bool(self._running or self._waiting)

    def _idle(self) -> bool:
        """Whether neither lane of answers has a job, and nobody leads: while presenting nothing is computed ahead."""
        return not self._closed and self._lead is None and not any(job.lane in ("live", "slow") for job in self.jobs)

    def ask(self, slot: WorkSlot, request: Request[R]) -> Answer[R] | None:
        """The answer if it is in the cache; else None, and the slot's `answered` later. The newest request of a slot wins."""
        answer = self.engine.cached(request)
        if answer is not None:
            self._overtake(slot)
            self._waiting.pop(slot, None)
            slot.shown = slot.serial
            return answer
        lane = request.analysis.lane
        if self._takes_over(slot, request):
            return None

        def work(job: Job) -> Answer[R]:
            job.memory = self.engine.check(request)
            return self.engine.answer(request, JobCtx(job, request, self.live_busy, self.reported.emit))

        self._submit(slot, f"{request.analysis.name.replace('_', ' ')} · {request.subject.model.name}", lane, work, request)
        return None

    def do(self, slot: WorkSlot, title: str, work: Callable[[Job], object], lane: str = "io") -> None:
        """Run other work on a lane: opening, exporting, continuing a text. `work` gets its job, and may watch its `cancelled`."""
        self._submit(slot, title, lane, work)

    def report_progress(self, job: Job, done: int, total: int, text: str) -> None:
        """Report the progress of other work; called on its worker, as often as it likes."""
        if job.set_progress(done, total, text):
            self.reported.emit("progress", job, None)

    def _weights_changed(self, ref: ModelRef) -> None:
        """On whichever thread has opened it."""
        if not self._closed:
            self.weights_changed.emit(ref)

    def ctx(self, job: Job) -> WorkCtx:
        """The `Ctx` of other work that computes."""
        return WorkCtx(job, self.live_busy, self.report_progress)

    def job_of(self, slot: WorkSlot) -> Job | None:
        """What runs for a slot, else what waits for it; None without either."""
        return self._running.get(slot) or self._waiting.get(slot)

    def _overtake(self, slot: WorkSlot) -> None:
        """Something newer counts for a slot: what runs for it is cancelled, unless on the live lane, where it finishes."""
        slot.serial += 1
        for job in (self._waiting.get(slot), self._running.get(slot)):
            if job is not None and job.lane != "live":
                job.cancelled.set()

    def _takes_over(self, slot: WorkSlot, request: Request) -> bool:
        """Whether a job that was put off answers this request: the slot gets what it has begun."""
        job = next((one for one in self.jobs if one.put_off and one.request == request), None)
        if job is None or slot in self._running:
            return False
        self._overtake(slot)
        self._hand(job, slot)
        job.put_off = False
        self.jobs_changed.emit()
        return True

    def put_off(self, slot: WorkSlot) -> None:
        """Nobody waits any more for what a slot asks: it goes on when nothing else of its lane has to, and fills the cache.

        Whoever asks the same meanwhile has it. Other work than answers is cancelled.
        """
        for job in self.jobs:
            if job.slot is slot and job.request is not None and not job.cancelled.is_set():
                self._hand(job, WorkSlot(self))
                job.put_off = True
            elif job.slot is slot:
                self.cancel(job)
        self.jobs_changed.emit()

    def _hand(self, job: Job, slot: WorkSlot) -> None:
        """Let another slot be the one that a job is for; that of one which was put off ends."""
        for jobs in (self._running, self._waiting):
            if jobs.get(job.slot) is job:
                del jobs[job.slot]
                jobs[slot] = job
        if job.put_off:
            job.slot.deleteLater()
        slot.serial += 1
        job.slot, job.serial = slot, slot.serial

    def _submit(
        self, slot: WorkSlot, title: str, lane: str, work: Callable[[Job], object], request: Request | None = None
    ) -> None:
        if self._closed:
            return
        self._overtake(slot)
        # live: each in its turn, however often the cheap ones ask
        cost = self.engine.cost(request) if request is not None and lane == "slow" else 0.0
        job, before = Job(slot, slot.serial, title, lane, work, cost, request=request), self._waiting.get(slot)
        if before is not None and before.lane != lane:
            del self._waiting[slot]
        self._waiting[slot] = job  # in the place of the one before it: at the end, those asked for first would always go first
        if lane == "slow":
            self._give_way(belongs(slot, self._lead))
        self._next(lane)
        self.jobs_changed.emit()

    def _give_way(self, to_lead: bool) -> None:
        """Stop the slow job that was put off, or runs for others than the lead where that asks.

        What it has computed is kept, and it begins again afterwards.
        """
        for job in self._running.values():
            others = job.put_off or (to_lead and not belongs(job.slot, self._lead))
            if job.lane == "slow" and not job.cancelled.is_set() and others:
                job.yields = True
                job.cancelled.set()

    def _next(self, lane: str) -> None:
        """Start the next job of a lane (`_place`), if the lane is free; prefetch if none waits."""
        if any(j.lane == lane for j in self._running.values()):
            return
        job = min((job for job in self._waiting.values() if job.lane == lane), key=self._place, default=None)
        if job is None:
            if lane == "live":
                self.live_busy.clear()
            self.prefetch.go_on()
            return
        del self._waiting[job.slot]
        self._running[job.slot] = job
        if lane == "live":
            self.live_busy.set()
        if lane in ("live", "slow"):
            self.prefetch.step_aside()
        job.started_at = time.monotonic()
        self._pools[lane].submit(self._run, job)

    def _place(self, job: Job) -> tuple[bool, bool, bool, float]:
        """Where a job stands among those that wait: the lead's, what is in sight, the cheapest; of equals the oldest is first.

        Last is what was put off.
        """
        slot = job.slot
        return not belongs(slot, self._lead), job.put_off, not (isValid(slot) and slot.in_sight()), job.cost

    def _run(self, job: Job) -> None:
        """Do a job, on its worker."""
        try:
            if job.cancelled.is_set():
                raise Cancelled
            self.reported.emit("done", job, job.work(job))
        except BaseException as error:  # whatever happens on a worker belongs in the window, not on a dead thread
            self.reported.emit("failed", job, error)
        if job.lane == "slow" and not self.live_busy.is_set():
            self._freed.give_back()

    @Slot(str, object, object)
    def _receive(self, kind: str, job: Job, value: object) -> None:
        """On the GUI thread: deliver the results that a slot still waits for, and start the next job of the lane."""
        current = job.slot.serial == job.serial
        if job.lane == "live" and kind == "done" and job.serial > job.slot.shown:
            current = True  # during a drag every answer is followed by a newer request; it is shown all the same
            job.slot.shown = job.serial
        if kind == "progress":
            self.jobs_changed.emit()
            return
        if kind == "partial":
            if current:
                self._deliver(kind, job, value)
            return
        if self._running.get(job.slot) is job:
            del self._running[job.slot]
        if job.yields and current and isinstance(value, Cancelled) and isValid(job.slot) and not self._closed:
            self._waiting[job.slot] = job.anew()
            current = False
        elif job.put_off and isValid(job.slot):
            job.slot.deleteLater()
        self._next(job.lane)
        if current and not self._closed:
            self._deliver(kind, job, value)
        self.jobs_changed.emit()

    def _deliver(self, kind: str, job: Job, value: Any) -> None:
        """Emit a result at its slot, unless the slot's owner is gone."""
        slot = job.slot
        if kind == "failed" and isinstance(value, Cancelled):
            log.info("%s cancelled", job.title)
        elif kind == "failed" and isinstance(value, CircuitLabError) and value.asks_first:
            log.info("%s waits for an answer: %s", job.title, value.what)
        elif kind == "failed":
            log.error("%s: %s", job.title, value, exc_info=value)
        if not isValid(slot):
            return
        if kind == "failed":
            slot.failed.emit(value, slot.role)
        elif isinstance(value, Answer):
            slot.answered.emit(value, slot.role)
        else:
            slot.finished.emit(value, slot.role)

    @Slot()
    def cancel_all(self) -> None:
        """Cancel every job."""
        self.prefetch.drop()
        for job in self.jobs:
            self.cancel(job)

    def cancel(self, job: Job) -> None:
        """Cancel one job; the engine keeps what it has computed."""
        job.yields = False
        job.cancelled.set()
        if self._waiting.get(job.slot) is job:
            del self._waiting[job.slot]
            if isValid(job.slot):
                job.slot.failed.emit(Cancelled(), job.slot.role)
            if job.put_off and isValid(job.slot):
                job.slot.deleteLater()
        self.jobs_changed.emit()

    def cancel_slot(self, slot: WorkSlot) -> None:
        """Cancel what runs or waits for a slot."""
        for job in self.jobs:
            if job.slot is slot:
                self.cancel(job)

    def cancel_of(self, owner: QObject) -> None:
        """Cancel what runs or waits for an owner and what belongs to it."""
        for job in self.jobs:
            if belongs(job.slot, owner):
                self.cancel(job)

    def is_busy(self, slot: WorkSlot) -> bool:
        """Whether a job runs or waits for a slot."""
        return slot in self._running or slot in self._waiting

    def close(self) -> None:
        """Cancel everything and wait for the threads."""
        self._closed = True
        self.blockSignals(True)  # no receiver is left
        self.prefetch.blockSignals(True)
        self._waiting.clear()
        self.cancel_all()
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
