"""How far a call is, once it takes longer than a second; and Ctrl+C, or the notebook's interrupt, in the midst of it.

In a notebook and on a terminal a bar of tqdm is shown where tqdm is installed, and a line elsewhere; nothing where neither is
looking: in scripts whose output goes to a file, in the window, in output for other programs. `progress(False)` switches it off.

An interrupt does not end work where it happens to be, which could leave a request marked as being computed: it waits for the
next `tick`, at most 0.2 s, and is then raised as `KeyboardInterrupt`. What was computed until then is kept for the next attempt.
A second one is raised at once.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from circuitlab.analysis.base import Ctx, NullContext
from circuitlab.errors import Cancelled
from circuitlab.terminal import on_one_line, overwrite

AFTER, EVERY = 1.0, 0.2  # s: when it is shown first, and how often it changes
_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
_on = True


def progress(on: bool = True) -> None:
    """Whether calls that take longer than a second show how far they are. They do, unless this says otherwise."""
    global _on
    _on = on


@contextmanager
def working(title: str) -> Iterator[Ctx]:
    """The `Ctx` of a call: shows progress under this title, and is cancelled by an interrupt.

    Raises `KeyboardInterrupt` in place of the `Cancelled` that an interrupt leads to, and where it came too late to cancel.
    """
    with _interrupts() as interrupt:
        ctx = _Working(title, interrupt)
        try:
            yield ctx
        except Cancelled:
            if interrupt.is_set():
                raise KeyboardInterrupt from None
            raise
        finally:
            ctx.close()
    if interrupt.is_set():
        raise KeyboardInterrupt


class _Working(NullContext):
    """Says how far it is, from the first second on, and ends what was interrupted."""

    def __init__(self, title: str, interrupt: threading.Event) -> None:
        self._title, self._interrupt = title, interrupt
        self._next = time.monotonic() + AFTER
        self._shown: Shown | None = None

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Shown at most every `EVERY` seconds. Raises `Cancelled` after an interrupt."""
        if self._interrupt.is_set():
            raise Cancelled("The computation was interrupted.")
        now = time.monotonic()
        if _on and now >= self._next:
            self._next = now + EVERY
            self._shown = self._shown or _display(self._title)
            self._shown.show(done, total, text)

    def close(self) -> None:
        """Take away what was shown."""
        if self._shown is not None:
            self._shown.close()


# -- what shows it ------------------------------------------------------------------------------------------------------------


class Shown(Protocol):
    """Something that shows progress."""

    def show(self, done: int, total: int, text: str) -> None:
        """`done` of `total`, and what is being done."""
        ...

    def close(self) -> None:
        """Take it away."""
        ...


def _display(title: str) -> Shown:
    if not (_in_notebook() or sys.stderr.isatty()):
        return _Nothing()
    return _Bar(title) if importlib.util.find_spec("tqdm") else _Line(title)


def _in_notebook() -> bool:
    """Whether cells of a notebook are being executed."""
    ipython = sys.modules.get("IPython")
    return getattr(ipython.get_ipython() if ipython else None, "kernel", None) is not None


class _Nothing:
    def show(self, done: int, total: int, text: str) -> None:
        """Nobody looks."""

    def close(self) -> None:
        """Nothing to take away."""


class _Line:
    """One line, written over."""

    def __init__(self, title: str) -> None:
        self._title, self._width = title, 0

    def show(self, done: int, total: int, text: str) -> None:
        """`attention: forward pass 3/12`."""
        self._write(on_one_line(f"{self._title}: {text} {done:,}/{total:,}"))

    def close(self) -> None:
        """An empty line is left."""
        self._write("")

    def _write(self, line: str) -> None:
        if sys.stderr.isatty():
            overwrite(line)
            return
        sys.stderr.write("\r" + line.ljust(self._width) + ("" if line else "\r"))  # a notebook knows no escape that erases
        sys.stderr.flush()
        self._width = len(line)


class _Bar:
    """A bar of tqdm: the notebook's own where its widgets are installed, and text elsewhere."""

    def __init__(self, title: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on widgets that are not installed
            from tqdm.auto import tqdm

            self._bar: Any = tqdm(total=1, desc=on_one_line(title), leave=False, bar_format=_BAR)

    def show(self, done: int, total: int, text: str) -> None:
        """Parts of the work have totals of their own."""
        self._bar.total, self._bar.n = max(total, 1), min(done, max(total, 1))
        self._bar.set_postfix_str(on_one_line(text), refresh=False)
        self._bar.refresh()

    def close(self) -> None:
        """The bar goes."""
        self._bar.close()


# -- interrupts -----------------------------------------------------------------------------------------------------------------

_waiting: threading.Event | None = None  # of the outermost call


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Inside, the first interrupt sets this event; not where a handler of somebody else stands, nor on another thread."""
    global _waiting
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event()
    elif _waiting is not None:
        yield _waiting
    elif signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield threading.Event()
    else:
        interrupt = _waiting = threading.Event()

        def once(number: int, frame: FrameType | None) -> None:
            if interrupt.is_set():
                signal.default_int_handler(number, frame)
            interrupt.set()

        signal.signal(signal.SIGINT, once)
        try:
            yield interrupt
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _waiting = None
