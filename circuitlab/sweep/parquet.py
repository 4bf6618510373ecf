"""The table of a sweep as Parquet, with the types of its columns: pyarrow, which is imported when one is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType

from circuitlab.disk.files import whole
from circuitlab.errors import BadMachine
from circuitlab.sweep.journal import Journal
from circuitlab.sweep.plan import Plan
from circuitlab.sweep.table import Layout, Row, table_rows

PARQUET = "table.parquet"
ROWS = 100_000  # that are held at a time
_KINDS = {"step": "int64", "prompt": "int64", "final": "bool_", "raw": "bool_", "value": "float64", "weight": "float64"}


def need_pyarrow() -> ModuleType:
    """pyarrow. Raises `BadMachine` without it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise BadMachine(
            "Parquet needs a library that is not installed.",
            expected="pyarrow",
            got="not installed",
            remedy='pip install "circuitlab[table]", or take table.csv.',
        ) from error
    return pyarrow


def write_parquet(folder: Path, plan: Plan, journal: Journal, layout: Layout) -> None:
    """Write `table.parquet` whole: the rows of `table.csv`. Raises `BadMachine`."""
    pyarrow = need_pyarrow()
    kinds = [_KINDS.get(name, "int64" if name in layout.whole else "string") for name in layout.columns]
    schema = pyarrow.schema([(name, getattr(pyarrow, kind)()) for name, kind in zip(layout.columns, kinds, strict=True)])
    rows = table_rows(plan, journal, layout)
    with whole(folder / PARQUET) as beside, pyarrow.parquet.ParquetWriter(beside, schema) as writer:
        for some in _pieces(rows):
            columns = zip(*some, strict=True)
            arrays = [
                pyarrow.array([_plain(v, kind) for v in c], f.type) for c, kind, f in zip(columns, kinds, schema, strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


def _pieces(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while some := list(islice(rows, ROWS)):
        yield some


def _plain(value: object, kind: str) -> object:
    """A value for a column of this kind; what is empty in the CSV is null."""
    if value is None or value == "":
        return None
    return (str(value).lower() if isinstance(value, bool) else str(value)) if kind == "string" else value
