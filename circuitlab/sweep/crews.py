"""Who answers the cells of a sweep: this process, or several of its own. Outcomes come back in any order, and are written by one.

Orders go out in batches that take about `BATCH` seconds, so that what is lost with a worker is small, and what is said to it is
little beside its work. There is no queue and no retry here: a worker that ends breaks the sweep off, with all that was done.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing.connection import wait as wait_for
from typing import Protocol

from circuitlab.analysis.base import Ctx
from circuitlab.child_process import several
from circuitlab.engine.engine import Engine
from circuitlab.errors import BadMachine
from circuitlab.interrupts import kept_from_children, pass_on
from circuitlab.sweep.work import Machine, Order, Outcome, outcomes, work

BATCH = 1.0  # s of work that are sent at once
MOST = 64  # cells that are
WAIT = 0.2  # s between two looks at whether somebody interrupts


class Crew(Protocol):
    """Somebody who answers orders. `size`: how many work at once."""

    size: int

    def outcomes(self, orders: Sequence[Order], ctx: Ctx) -> Generator[Outcome, None, None]:
        """The outcome of each order, in any order. Raises `KeyboardInterrupt`, `BadMachine`."""
        ...


class Alone:
    """This process, with an engine that has planned the sweep."""

    size = 1

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def outcomes(self, orders: Sequence[Order], ctx: Ctx) -> Generator[Outcome, None, None]:
        """One after another."""
        yield from outcomes(self._engine, orders, ctx)


class Processes:
    """Several processes of this machine, which share the memory budget; each opens weights for itself, once."""

    def __init__(self, size: int, machine: Machine) -> None:
        self.size = size
        self._machine = replace(machine, memory=machine.memory // size)

    def outcomes(self, orders: Sequence[Order], ctx: Ctx) -> Generator[Outcome, None, None]:
        """As they are finished. When it is left, the processes end at once."""
        with several() as context:
            yield from self._outcomes(ProcessPoolExecutor(self.size, context, _prepared), orders)

    def _outcomes(self, pool: ProcessPoolExecutor, orders: Sequence[Order]) -> Generator[Outcome, None, None]:
        try:
            yield from _finished(pool, self._machine, Batches(orders), 2 * self.size)
        except BrokenProcessPool as error:
            raise BadMachine(
                "A process of this sweep has ended.",
                expected=f"{self.size} processes that go on",
                got="one that was killed, perhaps for lack of memory",
                remedy="Run the same command again, with fewer workers or a smaller budget: what was done is kept.",
            ) from error
        finally:
            processes = list((pool._processes or {}).values())  # there is no other way to end one that works
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            for process in processes:
                process.join()


def _finished(pool: ProcessPoolExecutor, machine: Machine, batches: Batches, most: int) -> Generator[Outcome, None, None]:
    running: set[Future[list[Outcome]]] = set()
    while True:
        while len(running) < most and (batch := batches.next()):
            with kept_from_children():  # also while they import, before they are `_prepared`
                running.add(pool.submit(work, machine, batch))
        if not running:
            return
        done, running = wait(running, WAIT, FIRST_COMPLETED)
        pass_on()
        for future in done:
            finished = future.result()
            batches.seen(finished)
            yield from finished


class Batches:
    """Orders in batches of about `BATCH` seconds: of one at first, of more where they turn out to be quick."""

    def __init__(self, orders: Sequence[Order]) -> None:
        self._orders, self._next = orders, 0
        self._seconds: dict[str, float] = {}  # of the slowest cell of an analysis, as of late

    def next(self) -> tuple[Order, ...]:
        """The next batch, () at the end."""
        start, seconds = self._next, 0.0
        while self._next < len(self._orders) and self._next - start < MOST:
            seconds += self._seconds.get(self._orders[self._next].request.analysis.name, BATCH)
            if seconds > BATCH and self._next > start:
                break
            self._next += 1
        return tuple(self._orders[start : self._next])

    def seen(self, finished: Sequence[Outcome]) -> None:
        """Learn how long these took."""
        for one in finished:
            name, seconds = one.line.get("analysis", ""), one.line.get("seconds", 0.0)
            self._seconds[name] = max(seconds, 0.5 * self._seconds.get(name, 0.0))


def _prepared() -> None:
    """In a process of the crew: an interrupt is the parent's to handle, and without a parent there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)
