"""The boundary for faults of the program in work of several parts: one part has an error, the others go on.

    try:
        with part():
            …                               # one step of a report
    except CircuitLabError as error:        # an `Unforeseen` for whatever nobody has foreseen
        …

A fault is logged with its traceback where it is met, once. `met()` collects those of a command, whose exit status is then 1.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from circuitlab.disk import paths
from circuitlab.errors import CircuitLabError, reason

log = logging.getLogger("circuitlab.unforeseen")
_MET: ContextVar[list[Unforeseen] | None] = ContextVar("met", default=None)


class Unforeseen(CircuitLabError):
    """A fault of the program in one part of the work; `__cause__` is what was raised. `name`: of the part, "" where whoever
    catches it names it.
    """

    name = ""


@contextmanager
def part(name: str = "") -> Iterator[None]:
    """Makes an `Unforeseen` of any exception that is not raised on purpose. `name`: of the part, in front of the reason.

    A reader of the output that has gone away is no fault, and goes through as it is.
    """
    try:
        yield
    except (CircuitLabError, BrokenPipeError):
        raise
    except Exception as cause:
        log.error("%s", name or reason(cause), exc_info=cause)
        remedy = f"This is a bug in CircuitLab. Report it with its traceback, which is in {paths.log_file()}."
        error = Unforeseen(": ".join(filter(None, (name, reason(cause)))), remedy=remedy)
        error.name = name
        if (faults := _MET.get()) is not None:
            faults.append(error)
        raise error from cause


@contextmanager
def met() -> Iterator[list[Unforeseen]]:
    """A list of the faults that the parts of a command meet, whose tracebacks go to the log's file."""
    handler = _LogFile(logging.ERROR)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    faults: list[Unforeseen] = []
    token = _MET.set(faults)
    log.addHandler(handler)
    try:
        yield faults
    finally:
        log.removeHandler(handler)
        _MET.reset(token)


class _LogFile(logging.Handler):
    """Appends to the log's file, as the window does; where none can be written, to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record with its traceback."""
        text = self.format(record)
        if write_log(text) == text:
            print(text, file=sys.stderr)


def write_log(text: str) -> str:
    """Append lines to the log's file; where they are, in words: the lines themselves where no file can be written."""
    where = paths.log_file()
    try:
        paths.private_folder(where.parent)
        with open(where, "a", encoding="utf-8", errors="backslashreplace", opener=paths.private_file) as file:
            file.write(f"{text.rstrip()}\n")
    except OSError:
        return text
    return f"The details are in {where}."
