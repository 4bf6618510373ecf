"""A sweep on a cluster of Dask: the same work, whose orders travel and whose outcomes come back. Dask keeps the queue, and gives
what a lost worker had to another one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from circuitlab.analysis.base import Ctx
from circuitlab.child_process import several
from circuitlab.errors import BadMachine, UsageError, cause
from circuitlab.interrupts import kept_from_children, pass_on
from circuitlab.sweep.crews import WAIT, Batches
from circuitlab.sweep.work import Machine, Order, Outcome, work

WITHIN = 30.0  # s in which a scheduler answers
ALONE = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}  # its web pages, for this machine alone; else :8787 for all
AHEAD = 2  # batches for each thread of the cluster that are sent before others are back


class Cluster:
    """The workers of a scheduler at `address`, or without one `size` processes of this machine, which share the memory budget.

    On a cluster the budget is that of each worker.
    """

    def __init__(self, machine: Machine, address: str = "", size: int = 0) -> None:
        self._distributed, self._address = need_distributed(), address
        self.size = size or 1
        self._machine = replace(machine, memory=machine.memory // self.size)
        self._stack = contextlib.ExitStack()

    def outcomes(self, orders: Sequence[Order], ctx: Ctx) -> Generator[Outcome, None, None]:
        """As they are finished. Raises `BadMachine` where there is no scheduler, or a batch has lost several workers."""
        with self._stack:
            client = self._stack.enter_context(self._client())
            yield from self._finished(client, Batches(orders))

    def _client(self) -> Any:
        dask = self._distributed
        try:
            if self._address:
                return dask.Client(self._address, timeout=WITHIN, set_as_default=False)
            self._stack.enter_context(several())
            with kept_from_children():
                local = dask.LocalCluster(
                    n_workers=self.size, threads_per_worker=1, processes=True, scheduler_kwargs=ALONE, memory_limit=0
                )
                self._stack.enter_context(local)
            return dask.Client(local, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            if isinstance(error, ValueError):
                raise UsageError(
                    "That is not the address of a scheduler.",
                    expected="HOST:8786, as `dask scheduler` prints it",
                    got=self._address,
                    remedy="Correct the address.",
                ) from error
            raise BadMachine(
                "The scheduler of the cluster does not answer.",
                expected=f"a scheduler at {self._address or 'this machine'}",
                got=cause(error),
                remedy="Start one with `dask scheduler`, and workers with `dask worker ADDRESS`.",
            ) from error

    def _finished(self, client: Any, batches: Batches) -> Generator[Outcome, None, None]:
        running, back = set[Any](), threading.Event()
        while True:
            threads = max(1, sum(worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()))
            self.size = threads
            while len(running) < AHEAD * threads and (batch := batches.next()):
                future = client.submit(work, self._machine, batch, pure=False)
                future.add_done_callback(lambda _: back.set())
                running.add(future)
            if not running:
                return
            back.wait(WAIT)
            back.clear()
            pass_on()
            for future in [one for one in running if one.done()]:
                running.discard(future)
                finished = self._result(future)
                batches.seen(finished)
                yield from finished

    def _result(self, future: Any) -> list[Outcome]:
        try:
            return future.result()
        except self._distributed.scheduler.KilledWorker as error:
            raise BadMachine(
                "Several workers of the cluster ended in the midst of the same cells.",
                expected="workers that go on",
                got=f"{error.allowed_failures + 1} that did not, perhaps for lack of memory",
                remedy="Give workers more memory, or --budget less, and run the same command again: what was done is kept.",
            ) from error


def need_distributed() -> ModuleType:
    """Dask's distributed. Raises `BadMachine` without it."""
    try:
        import distributed
        import distributed.scheduler
    except ImportError as error:
        raise BadMachine(
            "A cluster needs a library that is not installed.",
            expected="distributed",
            got="not installed",
            remedy='pip install "circuitlab[cluster]", or use --workers on this machine.',
        ) from error
    return distributed
