"""Two answers of one analysis in one table: each number now, in the reference, and now minus the reference.

Rows are matched by their key: the first columns that are not measured numbers, as few as distinguish all rows, with the text of
a token beside its id, so that ids of different vocabularies do not match. A row on one side only has no value on the other and no
difference: tables list the largest entries, the others were not computed. Where they were, as for a figure of both sides, each
side has the rows of the other too.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from circuitlab import notebook_html as html
from circuitlab.analysis.base import Column, Table
from circuitlab.counting import number_of
from circuitlab.engine.answer_frame import table_frame
from circuitlab.engine.answer_view import asked_words, table_corner
from circuitlab.engine.engine import Engine
from circuitlab.engine.export_data import AnswerExport, described, export_of, table_text
from circuitlab.engine.request import Answer, TableOf
from circuitlab.errors import CircuitLabError

if TYPE_CHECKING:
    import pandas as pd

REFERENCE, CHANGE = "reference", "Δ"
SIGN = f"now − {REFERENCE}"  # what a change is, in every file of differences
T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class Difference:
    """`now` and `reference` are answers of one analysis; `table` has both."""

    now: AnswerExport
    reference: AnswerExport
    table: Table

    def described(self) -> dict[str, object]:
        """Descriptions of both sides, of the sign of a change, and of rows that are left out, as plain values."""
        rows = {"rows": self.table.left_out} if self.table.left_out else {}
        return {"now": described(self.now), REFERENCE: described(self.reference), CHANGE: SIGN, **rows}

    def to_pandas(self) -> pd.DataFrame:
        """Its table as a data frame of pandas; units are in `attrs["units"]`, what was asked on each side in `attrs["now"]` and
        `attrs["reference"]`. Raises `BadMachine` without pandas.
        """
        sides = {"now": self.now.answer.asked(), REFERENCE: self.reference.answer.asked()}
        rows = {"rows": self.table.left_out} if self.table.left_out else {}
        return table_frame(self.table, {**sides, CHANGE: SIGN, **rows})

    def __repr__(self) -> str:
        columns = ", ".join(column.title for column in self.table.columns)
        left_out = f", {self.table.left_out}" if self.table.left_out else ""
        return f"<Difference {' − '.join(self._sides())}: {number_of(self.table.n_rows, 'row')} of {columns}{left_out}>"

    def _repr_html_(self) -> str:
        now, reference = self._sides()
        return html.box(
            html.line(html.bold(now)),
            html.line(f"minus {html.text_html(reference)}"),
            table_corner(self.table, len(self.table.columns)),
        )

    def _sides(self) -> list[str]:
        requests = (side.answer.request for side in (self.now, self.reference))
        display = self.now.display
        words = (asked_words(r.analysis.name, r.params, r.subject.model, r.edits, r.prompt, display) for r in requests)
        return [*map(" · ".join, words)]

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


def by_file_name(sides: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """The values of both sides, "now" and "ref", by their name in files: the role, after `reference-` on the reference's side."""
    name = lambda side, role: f"reference-{role}" if side == "ref" else role
    return {name(side, role): value for side, roles in sides.items() for role, value in roles.items()}


def exports_of(
    engine: Engine,
    sides: Mapping[str, Mapping[str, Answer]],
    identified: bool,
    drawn: TableOf | None = None,
    folders: bool = False,
) -> dict[str, AnswerExport | Difference]:
    """Every answer ready for export, by its name in files; after them the differences, `difference-ROLE`. `drawn`, `folders`: as
    of an `AnswerExport`."""
    exports = {s: {r: export_of(engine, a, identified, drawn, folders) for r, a in roles.items()} for s, roles in sides.items()}
    changes = differences(exports.get("now", {}), exports.get("ref", {}))
    return {**by_file_name(exports), **{f"difference-{role}": change for role, change in changes.items()}}


def differences(now: Mapping[str, AnswerExport], reference: Mapping[str, AnswerExport]) -> dict[str, Difference]:
    """The difference of every role that both sides have and whose rows can be matched."""
    by_role: dict[str, Difference] = {}
    for role in now.keys() & reference.keys():
        table = compared(*_tables(now[role], reference[role]))
        if table is not None:
            by_role[role] = Difference(now[role], reference[role], table)
    return {role: by_role[role] for role in now if role in by_role}


def _tables(now: AnswerExport, reference: AnswerExport) -> tuple[Table, Table]:
    """The tables of both, each with the rows of the other as far as they are known, where ids mean the same in both."""
    tables = now.table(), reference.table()
    if not (_same_ids(tables[0], reference.display) and _same_ids(tables[1], now.display)):
        return tables
    return now.table(reference.answer.result), reference.table(now.answer.result)


def _same_ids(table: Table, display: Callable[[int], str] | None) -> bool:
    """Whether the tokens of a table have the same text in another vocabulary."""
    pairs = [(c, text) for c, text in zip(table.columns, table.columns[1:], strict=False) if c.of == "token"]
    if display is None:
        return not any(text.name.endswith("token") for _, text in pairs)
    try:
        return all(i < 0 or display(i) == text for ids, words in pairs for i, text in _pairs(ids, words))
    except CircuitLabError:  # no such id
        return False


def _pairs(ids: Column, words: Column) -> Iterator[tuple[int, str]]:
    return zip(ids.values.tolist(), words.values.tolist(), strict=True)


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
    return Table(tuple(columns), now.left_out)


def _measured(column: Column) -> bool:
    return column.values.dtype.kind in "fc" or column.of == "count"


def _named_first(table: Table) -> Table:
    """Move a leading column of ranks after the columns that identify the rows."""
    ranked = bool(table.columns) and table.columns[0].of == "count"
    return replace(table, columns=tuple(sorted(table.columns, key=_measured))) if ranked else table


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


def _rows(table: Table, n: int) -> dict[tuple[object, ...], int]:
    """Row by its first `n` cells."""
    return {key: i for i, key in enumerate(zip(*(c.values.tolist() for c in table.columns[:n]), strict=True))}


def _key_column(column: Column, cells: list[object]) -> Column:
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
    make = lambda name, numbers: Column(name, numbers, column.unit, whole=column.of == "count")
    both = [make(column.name, values), make(f"{column.name}, {REFERENCE}", other_values)]
    return [*both, make(f"{CHANGE} {column.name}", values - other_values)] if _measured(column) else both


def _stored(column: Column) -> np.ndarray:
    """The column in a dtype that numpy stores without pickling."""
    if column.values.dtype.kind != "O":
        return column.values
    return np.array(["" if v is None else str(v) for v in column.values.tolist()] or [""])[: len(column.values)]


def _finite(value: object) -> object:
    if isinstance(value, complex):
        return [_finite(value.real), _finite(value.imag)]
    return None if isinstance(value, float) and not np.isfinite(value) else value
