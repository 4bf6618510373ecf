"""The table of a sweep: a row for each number of each cell, in the order of the plan, from the journal.

It holds nothing that differs between two runs of the same sweep, so that it is the same byte for byte however often the work was
stopped, and wherever it was done. What does differ (seconds, machines, versions), and what would be said in every row of a cell,
stands in `cells.csv`, a row for each cell; `cell` joins the two.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from circuitlab.disk.files import write_whole
from circuitlab.engine.codec import to_json
from circuitlab.engine.request import needs
from circuitlab.sweep.journal import Journal, Line
from circuitlab.sweep.measures import from_line
from circuitlab.sweep.plan import Cell, Plan
from circuitlab.sweep.work import refusal

TABLE, CELLS = "table.csv", "cells.csv"
LEFT = "not yet"  # the status of a cell that nobody has answered
SHORT = 12  # hex digits of the weights' hash in the table; `cells.csv` has all
PARAMETER = "set."  # before the name of a parameter's column, as in the declaration
_BEFORE = ("cell", "model", "step", "final", "weights", "edit", "dtype", "raw", "bos", "analysis")
_AFTER = ("value", "unit", "weight", "status", "error")
_OF_SUMMARY = ("n", "mean", "sd", "se", "weighted_by")  # names that its axes must leave free

Row = list[object]


def line_of(cell: Cell, journal: Journal) -> Line:
    """What is known of a cell: its line, or why it cannot be asked, or that it is not answered yet."""
    if cell.why is not None:
        return {"cell": cell.key, **refusal(cell.why)}
    return journal.line(cell.key) or {"cell": cell.key, "status": LEFT}


def place(cell: Cell) -> list[object]:
    """Where a cell stands in the grid: the columns up to the analysis."""
    point, presented = cell.point, cell.presented
    weights = "" if point.identity is None else f"sha256:{point.identity.weights[:SHORT]}"  # no reader takes it for a number
    bos = presented.bos if presented.bos is not None else "model"
    row = [cell.key, point.name, point.step, point.final, weights, cell.edit]
    return [*row, presented.conventions.dtype, presented.raw, bos, cell.grid.analysis.name]


class Layout:
    """The columns of a table: those of the grid, the axes of what was measured, the numbers."""

    def __init__(self, plan: Plan, journal: Journal) -> None:
        self.parameters = plan.parameters
        fixed = (*_BEFORE, *map(_column, self.parameters), "prompts", "prompt", "metric")
        axes: dict[str, bool] = {}  # whether all entries are whole numbers
        for cell in plan.cells:
            for axis, numbers in _axes_of(line_of(cell, journal)):
                axes[axis] = axes.get(axis, True) and numbers
        taken = {*fixed, *_AFTER, *_OF_SUMMARY}
        self.axes = {axis: f"{axis} axis" if axis in taken else axis for axis in axes}
        self.whole = {self.axes[axis] for axis, numbers in axes.items() if numbers}
        self.summary_columns = (*fixed[1:-2], "metric", *self.axes.values())
        self.columns = (*fixed, *self.axes.values(), *_AFTER)

    def before(self, cell: Cell) -> Row:
        """The columns of a cell up to its prompt."""
        parameters = dict(cell.params)
        given = ["", ""] if cell.given is None else [cell.given.source, cell.given.number]
        return [*place(cell), *(parameters.get(name, "") for name in self.parameters), *given]

    def summary_before(self, cell: Cell) -> Row:
        """`before` without what tells cells apart that differ in the prompt alone."""
        return self.before(cell)[1:-1]

    def at(self, entries: Mapping[str, int | str]) -> Row:
        """The columns of the axes."""
        return [entries.get(axis, "") for axis in self.axes]

    def rows(self, cell: Cell, line: Line) -> Iterator[Row]:
        """The rows of a cell: one for each number, or one that says why there is none."""
        before, status, error = self.before(cell), line["status"], line.get("error", "")
        if not line.get("metrics"):
            yield [*before, "", *([""] * len(self.axes)), None, "", None, status, error]
        for measure in map(from_line, line.get("metrics", ())):
            for at, value, unit in measure.rows():
                yield [*before, measure.name, *self.at(at), value, unit, line.get("weight"), status, error]


def _column(parameter: str) -> str:
    return parameter if parameter == "seed" else f"{PARAMETER}{parameter}"


def _axes_of(line: Line) -> Iterator[tuple[str, bool]]:
    return (pair for measure in map(from_line, line.get("metrics", ())) for pair in measure.columns.items())


def table_rows(plan: Plan, journal: Journal, layout: Layout) -> Iterator[Row]:
    """Every row of the table, in the order of the plan."""
    for cell in plan.cells:
        yield from layout.rows(cell, line_of(cell, journal))


def write_table(folder: Path, plan: Plan, journal: Journal, layout: Layout) -> None:
    """Write `table.csv` and `cells.csv`, each whole. Raises `BadMachine`."""
    write_whole(folder / TABLE, csv_writer(layout.columns, lambda: table_rows(plan, journal, layout)))
    write_whole(
        folder / CELLS, csv_writer(_CELL_COLUMNS, lambda: (_cell_row(cell, line_of(cell, journal)) for cell in plan.cells))
    )


def csv_writer(columns: tuple[str, ...], rows: Callable[[], Iterator[Row]]) -> Callable[[IO[bytes]], None]:
    """What writes these rows under these columns to an open file."""

    def write(file: IO[bytes]) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([cell_text(value) for value in row] for row in rows())
        text.flush()
        text.detach()

    return write


def cell_text(value: object) -> object:
    """A value as it stands in a file: nothing for None, true and false as in the declaration, floats so that they come back."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else repr(value) if isinstance(value, float) else value


_CELL_COLUMNS = tuple(
    "cell model step final edit analysis prompts prompt text tokens request weights config conventions remainder remainder_of"
    " versions threads device worker seconds arrays status error".split()
)


def _cell_row(cell: Cell, line: Line) -> Row:
    point, given, request, remainder = cell.point, cell.given, cell.request, line.get("remainder")
    identity = point.identity
    head = [cell.key, point.name, point.step, point.final, cell.edit, cell.grid.analysis.name]
    prompt = ["", "", ""] if given is None else [given.source, given.number, given.text]
    hashes = ["", ""] if identity is None else [identity.weights, identity.config]
    left = ["", ""] if remainder is None else [remainder["size"], remainder["of"]]
    versions = "; ".join(" ".join(pair) for pair in line.get("versions", ()))
    ran = [versions, *(line.get(name, "") for name in ("threads", "device", "worker", "seconds", "arrays"))]
    about = [None if request is None else len(request.subject.tokens), _asked(cell)]
    return [
        *head,
        *prompt,
        *about,
        *hashes,
        " · ".join(line.get("conventions", ())),
        *left,
        *ran,
        line["status"],
        line.get("error", ""),
    ]


def _asked(cell: Cell) -> str:
    """The request as JSON: what `lab` takes to ask it again."""
    request = cell.request
    if request is None:
        return ""
    reads = needs(request.analysis, request.params)
    asked = {"analysis": request.analysis.name, "version": request.analysis.version, "params": to_json(request.params)}
    asked |= {"model": request.subject.model.named(1), "checkpoint": request.subject.model.checkpoint}
    asked |= {"conventions": to_json(request.subject.conventions)}
    asked |= {"edits": to_json(request.edits)} if reads != "weights" else {}
    asked |= {"tokens": list(request.subject.tokens)} if reads == "tokens" else {}
    return json.dumps(asked, ensure_ascii=False, separators=(",", ":"))
