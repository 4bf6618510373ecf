"""Signals that tell the program to end: the window ends in order, asks nobody, and keeps what is unsaved.

Python runs its handlers between two of its own lines, and none runs while Qt waits or torch computes; of what a handler raises Qt
prints the traceback and goes on. So the handlers here do nothing: the number of a signal goes through a socket to a thread, which
tells the window, and ends the process where the window cannot or a second signal comes.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from PySide6.QtCore import QCoreApplication, QObject, Signal, Slot

PATIENCE = 20.0  # s in which the window ends in order
_DEFAULT = (signal.SIG_DFL, signal.default_int_handler)


class Ending(QObject):
    """`status`: 0, and after a signal what the shell says of a process that it has ended, 128 + its number.

    `_told(number)` brings a signal to the thread of the window. `end()` is called once.
    """

    _told = Signal(int)

    def __init__(self, end: Callable[[], object], numbers: frozenset[int]) -> None:
        super().__init__()
        self.status = 0
        self._end, self._numbers = end, numbers
        self._told.connect(self._come)

    @Slot(int)
    def _come(self, number: int) -> None:
        self.status = 128 + number
        try:
            self._end()
        finally:
            QCoreApplication.exit(self.status)  # the loops of dialogs, too

    def listen(self, near: socket.socket) -> None:
        """On a thread of its own, until the other end is closed."""
        number = self._next(near)
        if number:
            self._told.emit(number)
            near.settimeout(PATIENCE)
            with suppress(TimeoutError):
                if not self._next(near):
                    return
            os._exit(128 + number)

    def _next(self, near: socket.socket) -> int:
        while data := near.recv(1):
            if data[0] in self._numbers:
                return data[0]
        return 0


@contextmanager
def ending(end: Callable[[], object]) -> Iterator[Ending]:
    """Inside, for the event loop of a window: `end()` and the end of the loop on Ctrl+C, SIGTERM, and when the terminal is gone.

    A handler that somebody else has set stays, and a signal that is ignored, as by nohup, stays so.
    """
    named = (getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP"))
    main = threading.current_thread() is threading.main_thread()
    before = {n: handler for n in named if main and n is not None and (handler := signal.getsignal(n)) in _DEFAULT}
    told = Ending(end, frozenset(map(int, before)))
    if not before:
        yield told
        return
    near, far = socket.socketpair()
    far.setblocking(False)
    listener = threading.Thread(target=told.listen, args=(near,), name="circuitlab-signals", daemon=True)
    listener.start()
    woken = signal.set_wakeup_fd(far.fileno(), warn_on_full_buffer=False)
    for number in before:
        signal.signal(number, lambda *_: None)
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken)
        far.close()
        listener.join()
        near.close()
