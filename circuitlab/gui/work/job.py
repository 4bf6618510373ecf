"""One piece of work on a worker thread, and the way from an analysis on it to the window."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from circuitlab.analysis.base import Result
from circuitlab.engine.request import Answer, Provenance, Request
from circuitlab.errors import Cancelled
from circuitlab.gui.work.work_slot import WorkSlot

PARTIAL_EVERY = 0.1  # s


@dataclass(eq=False)
class Job:
    """What the Jobs dock lists and what can be cancelled."""

    slot: WorkSlot
    serial: int
    title: str
    lane: str
    work: Callable[[Job], Any]
    began: float = 0.0
    memory: int = 0
    done: int = 0
    total: int = 0
    text: str = ""
    reported: float = 0.0  # time of the last progress report to the window
    cancelled: threading.Event = field(default_factory=threading.Event)

    def moved(self, done: int, total: int, text: str) -> bool:
        """Note how far it is, on its worker; whether it is time that the window hears of it."""
        self.done, self.total, self.text = done, total, text
        now = time.monotonic()
        if now - self.reported < PARTIAL_EVERY:
            return False
        self.reported = now
        return True


class JobCtx:
    """The `Ctx` of a job: `tell(kind, job, value)` is heard by the window; a slow job waits while `live_busy` is set."""

    previous: Result | None = None

    def __init__(self, job: Job, request: Request, live_busy: threading.Event, tell: Callable[[str, Job, Any], object]) -> None:
        self._job, self._request = job, request
        self._live_busy, self._tell = live_busy, tell
        self._shown = 0.0

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Say how far; stop if cancelled; the slow lane lets the live lane go first."""
        if self._job.cancelled.is_set():
            raise Cancelled
        if self._job.moved(done, total, text):
            self._tell("progress", self._job, None)
        if self._job.lane == "slow":
            while self._live_busy.is_set() and not self._job.cancelled.wait(0.01):
                pass

    def partial(self, result: Result) -> None:
        """Show a snapshot, at most ten a second."""
        now = time.monotonic()
        if now - self._shown < PARTIAL_EVERY:
            return
        self._shown = now
        self._tell("partial", self._job, Answer(self._request, result, False, Provenance()))
