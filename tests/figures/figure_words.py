"""Every text of a figure, as it is read: title, caption, axes, labels, tips, and the cells of tables as they are painted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
from PySide6.QtCore import Qt

from circuitlab.draw.tables._counted import n_terms
from circuitlab.draw.tables.model import RowsModel
from circuitlab.figures.contracts.panel import Panel
from circuitlab.figures.marks import Figure, Rows

READ = (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole)


def words_of(figure: Figure) -> Iterator[tuple[str, str]]:
    """(where, text), also of what a table shows of its numbers; texts of tokens, which are the prompt's, are left out."""
    for name in ("title", "caption_parts", "why_empty", "about"):
        yield from _texts(name, getattr(figure, name))
    for mark in figure.marks():
        if isinstance(mark, Rows):
            yield from _cells(mark)
        for field in fields(mark):
            if not (isinstance(mark, Rows) and field.name in ("columns", "including")) and field.name != "texts":
                yield from _texts(f"{mark.name}.{field.name}", getattr(mark, field.name))


def _texts(where: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif is_dataclass(value) and not isinstance(value, type):
        if not getattr(value, "tokens", False):
            for field in fields(value):
                yield from _texts(f"{where}.{field.name}", getattr(value, field.name))
    elif isinstance(value, Mapping):
        for one in (*value.keys(), *value.values()):
            yield from _texts(where, one)
    elif isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.dtype == object):
        for one in value if not isinstance(value, np.ndarray) else value.ravel().tolist():
            yield from _texts(where, one)


def _cells(rows: Rows) -> Iterator[tuple[str, str]]:
    model = RowsModel()
    model.show_rows(rows)
    yield f"{rows.name}.heading", rows.heading
    for at, column in enumerate(rows.columns):
        for role in READ:
            yield f"{rows.name} header", str(model.headerData(at, Qt.Orientation.Horizontal, role))
        for row in range(0 if column.tokens else min(60, model.rowCount())):
            for role in READ:
                yield f"{rows.name}, {column.name}", str(model.data(model.index(row, at), role))


def views(panel: Panel) -> Iterator[Any]:
    """The panel's view at its defaults, and with each of its choices made, one at a time."""
    yield panel.view()
    hints = get_type_hints(panel.view)
    for field in fields(panel.view):
        kind = hints[field.name]
        choices = get_args(kind) if get_origin(kind) is Literal else (True, False) if kind is bool else ()
        yield from (replace(panel.view(), **{field.name: c}) for c in choices if c != getattr(panel.view(), field.name))


def rows_counted(figure: Figure) -> tuple[int, int]:
    """(rows that are listed without sums over others, rows that there are) of the one table that counts them."""
    (rows,) = (mark for mark in figure.marks() if isinstance(mark, Rows) and mark.total)
    return n_terms(rows, range(len(rows.ids))), rows.total
