"""Output of the command line: tables with the text of tokens beside their ids, and progress on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from circuitlab.analysis.base import NullContext, Table
from circuitlab.counting import number_of
from circuitlab.engine.export_data import AnswerExport
from circuitlab.engine.request import STORED_WORDS
from circuitlab.state.cuts import edit_words
from circuitlab.terminal import on_one_line, overwrite

ROWS = 40
SELDOM = 10.0  # s between two lines of progress where there is no terminal


def print_answer(export: AnswerExport) -> None:
    """Print the answer's table under a line that describes it."""
    remainder = export.answer.result.remainder
    print_head(export)
    if remainder is not None:
        print(remainder.words())
    print_table(export.table())


def print_head(export: AnswerExport, *more: str) -> None:
    """Print the line over a table: the analysis, its model, `more`, the interventions that it is under, and its conventions."""
    request, stored = export.answer.request, (STORED_WORDS,) if export.answer.provenance.stored else ()
    said = (*edit_words(request.edits), *export.answer.result.conventions, *stored)
    print(on_one_line(" · ".join((request.analysis.name, request.subject.model.name, *more, *said))))


def print_table(table: Table) -> None:
    """Print aligned columns and the first `ROWS` rows, with a note on how many rows are left out."""
    heads = [c.title for c in table.columns]
    shown = min(table.n_rows, ROWS)
    cells = [[_cell(c.values[i], c.of) for c in table.columns] for i in range(shown)]
    widths = [max([len(h), *(len(row[i]) for row in cells)]) for i, h in enumerate(heads)]
    for row in (heads, *cells):
        print("  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)).rstrip())
    if table.n_rows > shown:
        print(f"showing {shown} of {number_of(table.n_rows, 'row')}; --csv FILE writes all")


def _cell(value: Any, of: str) -> str:
    if value is None:
        return "not known"
    if of in ("token", "position", "count") and value < 0:
        return "none"
    if isinstance(value, (float, np.floating)):
        return "not computed" if np.isnan(value) else f"{value:.5g}"
    return on_one_line(str(value))


class _TerminalContext(NullContext):
    """Shows progress on one line of the terminal, which is overwritten."""

    def __init__(self, title: str) -> None:
        self._title, self._next, self.printed = title, time.monotonic() + 1.0, False

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Shown at most five times per second, and only for work that takes longer than one second."""
        now = time.monotonic()
        if now >= self._next:
            self._next, self.printed = now + 0.2, True
            overwrite(f"{self._title}: {text} {done}/{total}")


class _LoggedContext(NullContext):
    """Writes a line of progress now and then, for a file or a pipe."""

    def __init__(self, title: str) -> None:
        self._title, self._next = title, time.monotonic() + SELDOM

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Written at most every `SELDOM` seconds, and only for work that takes longer than that."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + SELDOM
            print(on_one_line(f"{self._title}: {text} {done}/{total}"), file=sys.stderr, flush=True)


@contextmanager
def progress(title: str) -> Iterator[NullContext]:
    """A `Ctx` that shows progress on a terminal, and writes a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _LoggedContext(title)
        return
    context = _TerminalContext(title)
    try:
        yield context
    finally:
        if context.printed:
            overwrite()
