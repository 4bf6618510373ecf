"""What may not come in between: Ctrl+C while the program is being imported and while Qt draws, garbage while it is made."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

STATUS = 130  # of a process that Ctrl+C has ended

_at_end: list[Callable[[], object]] = []
_waiting: list[int] = []  # signals that came inside `uninterrupted`


@contextmanager
def starting() -> Iterator[None]:
    """Inside, where modules are imported, Ctrl+C ends the process with status 130, and garbage is not collected.

    An interrupt that Python raises in the middle of an import becomes whatever the imported library makes of it: a traceback, an
    ImportError, a module that is half there. A handler that somebody else has set stays.
    """
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(STATUS))
    try:
        with uncollected():
            yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside, where there is no garbage yet, none is collected.

    Imports and a window that is being made only add objects, and each collection goes through all of torch's: some 0.1 s, several
    times between the command and the first picture.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def finish(status: int) -> None:
    """End the process of a command with its status, or, where Ctrl+C comes meanwhile, at once with 130.

    As Python does it: threads, what is to be done at exit, what has been printed. Then it leaves. Python would go on to take its
    modules apart, for seconds after torch and Qt, where it has no handlers and an interrupt ends the process by the signal; it
    does that, too, once a library has run code in which an interrupt was raised, whatever the status is (`pymain_main`). A
    handler that somebody else has set stays, and who is measuring or debugging gets control back.
    """
    if sys.getprofile() is not None or sys.gettrace() is not None:
        return
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(STATUS))
    ended = threading._shutdown  # type: ignore[attr-defined]  # as in multiprocessing's own processes
    acts = (ended, atexit._run_exitfuncs) if status != STATUS else _at_end
    for act in (*acts, *(stream.flush for stream in (sys.stdout, sys.stderr) if stream is not None)):
        with suppress(Exception):
            act()
    os._exit(status)


def at_end(act: Callable[[], object]) -> None:
    """Have something done when the process ends, also where Ctrl+C has ended it."""
    _at_end.append(act)
    atexit.register(act)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, Ctrl+C waits for the end, or for `pass_on`. A handler that somebody else has set stays.

    What draws is called by Qt, which ends the process where an exception leaves it, or goes on as if there had been none.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    _waiting.clear()
    signal.signal(signal.SIGINT, lambda number, frame: _waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        pass_on()


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Processes and threads that are begun inside, and whatever these begin, hear no Ctrl+C, which a terminal sends to all
    processes: it is for this one to end them. One that comes meanwhile waits for the end.

    On a system that cannot block signals they hear it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing.resource_tracker import ensure_running

    ensure_running()  # Python's own helper of spawned processes unblocks the signal where it is begun
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which raises what came before
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def pass_on() -> None:
    """Raise the `KeyboardInterrupt` that waits, if one does: where `uninterrupted` long work is between two calls of Qt."""
    if _waiting and threading.current_thread() is threading.main_thread():
        _waiting.clear()
        raise KeyboardInterrupt
