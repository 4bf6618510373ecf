"""Waiting for a server that may say nothing: a call of a library is made on a thread of its own, and left there once nobody
waits.

A library's own limits count the silence, and hold a worker for as long; whoever cancels is answered at once here. The thread ends
with the call's own limit, and does not keep the process from ending.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from circuitlab.errors import BadMachine, Cancelled

T = TypeVar("T")
SILENCE = 30.0  # s without an answer
_LOOK = 0.05  # s between looks at whether anybody still waits


def asked(call: Callable[[], T], cancelled: Callable[[], bool]) -> T:
    """What a call answers. Raises `Cancelled`, `BadMachine` where nothing comes within `SILENCE`, and what the call raises."""
    answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put((True, call()))
        except BaseException as error:
            answers.put((False, error))

    threading.Thread(target=work, name="circuitlab-ask", daemon=True).start()
    good, answer = _next(answers, cancelled)
    if not good:
        raise answer
    return answer


def heard(chunks: Callable[[], Iterator[bytes]], cancelled: Callable[[], bool]) -> Generator[bytes, None, None]:
    """The chunks of a stream, one ahead. Raises as `asked` does; a stream that nobody hears any more ends at its next chunk."""
    waiting: queue.Queue[tuple[bool, Any]] = queue.Queue(2)
    left = threading.Event()

    def put(good: bool, chunk: object) -> None:
        while not left.is_set():
            with suppress(queue.Full):
                waiting.put((good, chunk), timeout=_LOOK)
                return

    def work() -> None:
        try:
            for chunk in chunks():
                put(True, chunk)
                if left.is_set():
                    return
            put(True, None)
        except BaseException as error:
            put(False, error)

    threading.Thread(target=work, name="circuitlab-hear", daemon=True).start()
    try:
        while True:
            good, chunk = _next(waiting, cancelled)
            if not good:
                raise chunk
            if chunk is None:
                return
            yield chunk
    finally:
        left.set()


def _next(answers: queue.SimpleQueue[tuple[bool, Any]] | queue.Queue[tuple[bool, Any]], cancelled: Callable[[], bool]) -> Any:
    until = time.monotonic() + SILENCE
    while True:
        if cancelled():
            raise Cancelled
        with suppress(queue.Empty):
            return answers.get(timeout=_LOOK)
        if time.monotonic() > until:
            raise BadMachine(
                "The hub is silent.",
                expected="an answer from the hub",
                got=f"none within {SILENCE:g} seconds",
                remedy="Check the network, then try again: a download resumes where it stopped.",
            )
