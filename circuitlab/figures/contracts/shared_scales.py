"""Scales that marks share: a mark and its reference, differences, the tables of one figure; and their ends in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circuitlab.counting import number
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.marks import Heatmap, Mark, RowColumn, Rows, Tokens

Levels = tuple[float, float]
Kind = tuple[str, tuple[str, ...]]  # a column's name, and the names of its table's columns

FLOOR = 0.01  # of the compared scale: the colours of a difference span at least this share of it


def top_of(values: np.ndarray, least: float = 0.0) -> float:
    """The largest finite magnitude, and no less than `least`."""
    finite = np.abs(values[np.isfinite(values)])
    return max(float(finite.max()) if finite.size and finite.max() > 0 else 1.0 if not least else 0.0, least)


def scale_of(change: np.ndarray, *levels: Levels) -> float:
    """Where the colours of a difference end, either way: at its largest magnitude, and not below `FLOOR` of both sides' scale.

    A small change is pale then, as it is small beside the values themselves.
    """
    return top_of(change, FLOOR * max(min(high - low, max(abs(low), abs(high))) for low, high in levels))


def size_of(*values: np.ndarray) -> float:
    """The largest finite magnitude in all of them, 0 where there is none."""
    return max((float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in values), default=0.0)


def shared(mark: Mark, ref_mark: Mark | None) -> Mark:
    """The mark on the scale of both marks."""
    if isinstance(mark, Rows) and isinstance(ref_mark, Rows):
        columns = memo((*mark.columns, *ref_mark.columns), "shared", lambda: _shared_columns(mark.columns, ref_mark.columns))
        return mark if columns is mark.columns else replace(mark, columns=columns)
    if not isinstance(mark, Heatmap | Tokens) or type(mark) is not type(ref_mark) or mark.rgb is not None:
        return mark
    assert isinstance(ref_mark, Heatmap | Tokens)
    if ref_mark.rgb is not None or ref_mark.map != mark.map or mark.unit != ref_mark.unit:
        return mark
    levels = union(mark.levels, ref_mark.levels)
    return mark if levels == mark.levels else replace(mark, levels=levels)


def union(a: Levels, b: Levels) -> Levels:
    """The narrowest levels that contain both."""
    return min(a[0], b[0]), max(a[1], b[1])


def _shared_columns(columns: tuple[RowColumn, ...], ref_columns: tuple[RowColumn, ...]) -> tuple[RowColumn, ...]:
    partners = {c.name: c for c in ref_columns if c.bar or c.map is not None}
    scaled = lambda c: replace(c, levels=union(c.levels, partners[c.name].levels)) if c.bar or c.map is not None else c
    on_both = tuple(scaled(c) if c.name in partners else c for c in columns)
    return columns if all(a.levels == b.levels for a, b in zip(columns, on_both, strict=True)) else on_both


def floored(change: np.ndarray, top: float) -> str:
    """For a caption, where colours end above the largest change; "" where they end at it."""
    largest = size_of(change)
    return f", {figured(largest)} at most: colours to {FLOOR:.0%} of the scale of both" if largest < top * (1 - 1e-6) else ""


def tables_on_one_scale(grid: tuple[tuple[Mark, ...], ...]) -> tuple[tuple[Mark, ...], ...]:
    """Coloured columns of one name in tables with the same columns have one scale; the last of these tables shows the key."""
    levels: dict[Kind, Levels] = {}
    last: dict[Kind, Mark] = {}
    for table in (mark for row in grid for mark in row if isinstance(mark, Rows)):
        for column in _coloured(table):
            kind = _kind(table, column)
            levels[kind], last[kind] = union(levels.get(kind, column.levels), column.levels), table

    def scaled(table: Mark) -> Mark:
        if not isinstance(table, Rows):
            return table
        columns = tuple(c if c.map is None else replace(c, levels=levels[_kind(table, c)]) for c in table.columns)
        return replace(table, columns=columns, key=any(last[_kind(table, c)] is table for c in _coloured(table)))

    return tuple(tuple(map(scaled, row)) for row in grid)


def _coloured(table: Rows) -> tuple[RowColumn, ...]:
    return tuple(c for c in table.columns if c.map is not None)


def _kind(table: Rows, column: RowColumn) -> Kind:
    return column.name, tuple(c.name for c in table.columns)


def differences_on_one_scale(compared: dict[Mark, Mark]) -> dict[Mark, Mark]:
    """Differences by the marks they are taken of: maps and texts that share a scale share one in the difference as well."""
    changed = {mark: change for mark, change in compared.items() if isinstance(change, Heatmap | Tokens) and change is not mark}
    tops: dict[tuple[object, ...], float] = {}
    scale = lambda mark: (mark.levels, mark.map, mark.unit)
    for mark, change in changed.items():
        tops[scale(mark)] = max(tops.get(scale(mark), 0.0), change.levels[1])
    wider = lambda change, top: change if change.levels[1] == top else replace(change, levels=(-top, top))
    return {mark: wider(change, tops[scale(mark)]) if mark in changed else change for mark, change in compared.items()}


def colours(mark: Mark) -> str:
    """The scale of a difference that has no colour bar."""
    if (isinstance(mark, Heatmap) and mark.colour_bar) or not isinstance(mark, Heatmap | Tokens):
        return ""
    return f", {ends(mark)}: orange more, blue less"


def figured(value: float, figures: int = 3) -> str:
    """A number to `figures` significant figures: what is not zero is not written as zero."""
    return number(value, f".{figures}g")


def ends(mark: Heatmap | Tokens) -> str:
    """Where the colours of a difference end, in words."""
    return f"± {figured(mark.levels[1], 2)} {mark.unit.removeprefix('Δ').strip()}".strip()
