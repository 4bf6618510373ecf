"""Two answers of one analysis in one table: each number now, in the reference, and now minus the reference.

Rows are matched by their key: the first columns that are not measured numbers, as few as distinguish all rows, with the text of
a token beside its id, so that ids of different vocabularies do not match. A row on one side only has no value on the other and no
difference: tables list the largest entries, the others were not computed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from circuitlab.analysis.base import Column, Table
from circuitlab.engine.export_data import AnswerExport, described, table_text

REFERENCE, CHANGE = "reference", "Δ"


@dataclass(frozen=True, eq=False)
class Difference:
    """`now` and `reference` are answers of one analysis; `table` has both."""

    now: AnswerExport
    reference: AnswerExport
    table: Table

    def described(self) -> dict[str, Any]:
        """Descriptions of both sides, as plain values."""
        return {"now": described(self.now), REFERENCE: described(self.reference)}

    def data(self, form: str) -> bytes:
        """As csv, json or npz: the columns by their titles."""
        columns = {c.title: c for c in self.table.columns}
        if form == "npz":
            out = io.BytesIO()
            about = np.array(json.dumps(self.described(), ensure_ascii=False))
            np.savez_compressed(out, **{name: _stored(c) for name, c in columns.items()}, about=about)  # type: ignore[arg-type]
            return out.getvalue()
        if form == "json":
            cells = {name: [_finite(v) for v in c.cells()] for name, c in columns.items()}
            return (json.dumps({**self.described(), "columns": cells}, ensure_ascii=False) + "\n").encode("utf-8")
        head = "".join(f"# {k}: {json.dumps(v, ensure_ascii=False)}\n" for k, v in self.described().items())
        return (head + table_text(self.table)).encode("utf-8")


def differences(now: Mapping[str, AnswerExport], reference: Mapping[str, AnswerExport]) -> dict[str, Difference]:
    """The difference of every role that both sides have and whose rows can be matched."""
    by_role: dict[str, Difference] = {}
    for role in now.keys() & reference.keys():
        table = compared(now[role].table(), reference[role].table())
        if table is not None:
            by_role[role] = Difference(now[role], reference[role], table)
    return {role: by_role[role] for role in now if role in by_role}


def compared(now: Table, reference: Table) -> Table | None:
    """Both tables in one, rows in the order of the first, then of the second; None if no columns identify the rows."""
    if [c.name for c in now.columns] != [c.name for c in reference.columns]:
        return None
    now, reference = _named_first(now), _named_first(reference)
    n = _keys(now, reference)
    if not n:
        return None
    rows, others = _rows(now, n), _rows(reference, n)
    keys = list(dict.fromkeys((*rows, *others)))
    places, other_places = (np.array([side.get(key, -1) for key in keys], np.int64) for side in (rows, others))
    columns = [_key_column(now.columns[i], [key[i] for key in keys]) for i in range(n)]
    for column, other in zip(now.columns[n:], reference.columns[n:], strict=True):
        columns += _sides(column, _taken(column, places), _taken(other, other_places))
    return Table(tuple(columns))


def _measured(column: Column) -> bool:
    return column.values.dtype.kind in "fc" or column.of == "count"


def _named_first(table: Table) -> Table:
    """Move a leading column of ranks after the columns that identify the rows."""
    return Table(
        tuple(sorted(table.columns, key=_measured)) if table.columns and table.columns[0].of == "count" else table.columns
    )


def _keys(now: Table, reference: Table) -> int:
    """How many leading columns identify a row; 0 if none do."""
    for n in range(1, len(now.columns) + 1):
        if _measured(now.columns[n - 1]):
            return 0
        after = now.columns[n : n + 1]
        if now.columns[n - 1].of in ("token", "position") and after and after[0].name.endswith("token"):
            continue  # its text too
        if all(len(_rows(table, n)) == table.n_rows for table in (now, reference)):
            return n
    return 0


def _rows(table: Table, n: int) -> dict[tuple[Any, ...], int]:
    """Row by its first `n` cells."""
    return {key: i for i, key in enumerate(zip(*(c.values.tolist() for c in table.columns[:n]), strict=True))}


def _key_column(column: Column, cells: list[Any]) -> Column:
    return replace(column, values=np.array(cells, dtype=column.values.dtype if column.values.dtype.kind in "iub" else object))


def _taken(column: Column, places: np.ndarray) -> np.ndarray:
    """The column's values at these rows; NaN or None if there is no row (−1) or no value."""
    numbers = column.values.dtype.kind in "fc" or column.of == "count"
    values = np.append(
        column.values.astype(float if column.of == "count" else column.values.dtype if numbers else object), np.nan
    )
    if column.of in ("token", "position", "count"):
        values = np.array([np.nan if v is None or v < 0 else v for v in values], dtype=values.dtype)
    if not numbers:
        values[-1] = None
        values = np.array([None if isinstance(v, float) and v != v else v for v in values], dtype=object)
    return values[places]


def _sides(column: Column, values: np.ndarray, other_values: np.ndarray) -> list[Column]:
    """A measured column: now, reference and difference; any other: now and reference."""
    unit = column.unit
    both = [Column(column.name, values, unit), Column(f"{column.name}, {REFERENCE}", other_values, unit)]
    return [*both, Column(f"{CHANGE} {column.name}", values - other_values, unit)] if _measured(column) else both


def _stored(column: Column) -> np.ndarray:
    """The column in a dtype that numpy stores without pickling."""
    if column.values.dtype.kind != "O":
        return column.values
    return np.array(["" if v is None else str(v) for v in column.values.tolist()] or [""])[: len(column.values)]


def _finite(value: Any) -> Any:
    if isinstance(value, complex):
        return [_finite(value.real), _finite(value.imag)]
    return None if isinstance(value, float) and not np.isfinite(value) else value
