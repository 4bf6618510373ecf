"""Tables of a figure whose cells are in no answer's table: they are exported as they are drawn."""

from __future__ import annotations

from circuitlab.analysis.base import Column, Table
from circuitlab.engine.export_data import table_text
from circuitlab.figures.marks import Figure, Rows


def own_tables(figure: Figure) -> dict[str, Table]:
    """By the name of the mark, with the columns that there is no room for."""
    of = lambda mark: Table(tuple(Column(column.copied_name, column.values, column.unit) for column in mark.columns))
    return {mark.name: of(mark) for mark in figure.marks() if isinstance(mark, Rows) and mark.own}


def own_files(figure: Figure) -> dict[str, bytes]:
    """The same as CSV."""
    return {f"{name}.csv": table_text(table).encode("utf-8") for name, table in own_tables(figure).items()}
