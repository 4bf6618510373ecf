"""The summary of a sweep: mean and spread over the prompts of each source, for every number and everything else alike.

    mean = Σ wᵢ xᵢ / Σ wᵢ      sd² = n/(n − 1) · Σ wᵢ (xᵢ − mean)² / Σ wᵢ      s.e. = sd · √(Σ wᵢ²) / Σ wᵢ

as in `analysis/behaviour/over_prompts.py`: w is 1, or the tokens that a mean loss is over; with equal weights s.e. is sd/√n.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np

from circuitlab.analysis.behaviour.over_prompts import statistics
from circuitlab.disk.files import write_whole
from circuitlab.sweep.journal import Journal, Line
from circuitlab.sweep.measures import Measure, from_line
from circuitlab.sweep.plan import Cell, Plan
from circuitlab.sweep.table import Layout, Row, csv_writer, line_of

SUMMARY = "summary.csv"
_AFTER = ("n", "mean", "sd", "se", "unit", "weighted_by")


def write_summary(folder: Path, plan: Plan, journal: Journal, layout: Layout) -> None:
    """Write `summary.csv` whole. Raises `BadMachine`."""
    columns = (*layout.summary_columns, *_AFTER)
    write_whole(folder / SUMMARY, csv_writer(columns, lambda: summary_rows(plan, journal, layout)))


def summary_rows(plan: Plan, journal: Journal, layout: Layout) -> Iterator[Row]:
    """A row for each number of each group of cells that differ in the prompt alone, in the order of the plan."""
    alike = lambda cell: (
        id(cell.point),
        cell.edit,
        id(cell.presented),
        id(cell.grid),
        cell.params,
        cell.given and cell.given.source,
    )
    for _, cells in groupby(plan.cells, alike):
        yield from _of_group(list(cells), journal, layout)


def _of_group(cells: list[Cell], journal: Journal, layout: Layout) -> Iterator[Row]:
    lines = [line_of(cell, journal) for cell in cells]
    for measures, weights in _by_metric(lines):
        first = measures[0]
        values = np.array([m.values for m in measures], dtype=np.float64)
        mean, sd, n = statistics(values, weights)
        error = standard_error(values, weights, sd)
        by = "tokens" if weights is not None else ""
        for (at, _, unit), *numbers in zip(first.rows(), n, mean, sd, error, strict=True):
            count, *rest = numbers
            plain = [None if np.isnan(one) else float(one) for one in rest]
            yield [*layout.summary_before(cells[0]), first.name, *layout.at(at), int(count), *plain, unit, by]


def standard_error(values: np.ndarray, weights: np.ndarray | None, sd: np.ndarray) -> np.ndarray:
    """Of the mean over the first axis without NaN, from its `sd`: see the module."""
    w = np.ones(len(values)) if weights is None else weights
    w = np.where(np.isnan(values), 0, w.reshape(-1, *(1,) * (values.ndim - 1)))
    whole = w.sum(axis=0)
    return sd * np.sqrt((w**2).sum(axis=0)) / np.where(whole > 0, whole, 1)


def _by_metric(lines: Iterable[Line]) -> Iterator[tuple[list[Measure], np.ndarray | None]]:
    """(the same metric of each cell, its weights or None) of all metrics: of one name, with the same axes."""
    groups: dict[object, list[tuple[Measure, float | None]]] = {}
    for line in lines:
        for measure in map(from_line, line.get("metrics", ())):
            groups.setdefault((measure.name, measure.axes), []).append((measure, line.get("weight")))
    for group in groups.values():
        weights = [weight for _, weight in group]
        yield [m for m, _ in group], None if None in weights else np.array(weights, dtype=np.float64)
