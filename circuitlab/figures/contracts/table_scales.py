"""Tables of one figure with coloured cells: one scale for columns of the same name, and one colour key."""

from __future__ import annotations

from dataclasses import replace

from circuitlab.figures.marks import Mark, RowColumn, Rows

Kind = tuple[str, tuple[str, ...]]


def on_one_scale(grid: tuple[tuple[Mark, ...], ...]) -> tuple[tuple[Mark, ...], ...]:
    """Coloured columns of one name in tables with the same columns have one scale; the last of these tables shows the key."""
    levels: dict[Kind, tuple[float, float]] = {}
    last: dict[Kind, Mark] = {}
    for table in (mark for row in grid for mark in row if isinstance(mark, Rows)):
        for column in _coloured(table):
            low, high = levels.get(_kind(table, column), column.levels)
            levels[_kind(table, column)] = min(low, column.levels[0]), max(high, column.levels[1])
            last[_kind(table, column)] = table

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
