"""The visible part of a figure's marks, as the word `zoom` says it: of a plot a rectangle, of a table its rows and their order.

    zoom = { "attention/attention" = [0, 4, 12, 18] }  # left, bottom, right, top in the units of the axes; cells from 0
    zoom = { "bigram/tokens" = [30, 41] }              # the first and the last visible row, counted from 0
    zoom = { "bigram/tokens" = { rows = [30, 41], sort = ["token", "up"], filter = " cat" } }    # sort = []: as they come

A name is that of a panel and of a mark in its figure. What a figure shows whole, and as it declares it, is not said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from circuitlab.disk.json_types import JsonDict
from circuitlab.story.typed_words import Refuse, is_number

Box = tuple[float, ...]  # left, bottom, right, top; or first and last row
WAYS = ("up", "down")
_KEYS = ("rows", "sort", "filter")
_EXPECTED = '{ "attention/attention" = [left, bottom, right, top] }, or of a table [first, last] or { rows, sort, filter }'


@dataclass(frozen=True)
class TablePart:
    """What is seen of a table. `rows` None: from the top; `sort` (column, "up" or "down"), () as the rows come, None as declared.

    `filter`: the text that the rows contain.
    """

    rows: tuple[int, int] | None = None
    sort: tuple[str, str] | tuple[()] | None = None
    filter: str = ""


Part = Box | TablePart
Parts = Mapping[str, Part]  # by panel and mark ("attention/attention"), or of one panel by mark


def name_of(panel: str, mark: str) -> str:
    """How the word calls a mark of a panel's figure."""
    return f"{panel}/{mark}"


def of_panel(zoom: Parts, panel: str) -> dict[str, Part]:
    """The parts of one panel, by mark."""
    begin = name_of(panel, "")
    return {name.removeprefix(begin): part for name, part in zoom.items() if name.startswith(begin)}


def read_zoom(table: Mapping[str, object], refuse: Refuse) -> Parts:
    """The parts of a table of words. Raises the error that `refuse(key, what, expected, got)` returns."""
    value = table.get("zoom", {})
    parts = {name: _part(one) for name, one in value.items()} if isinstance(value, Mapping) else {"": None}
    if None in parts.values():
        raise refuse("zoom", "zoom cannot be read.", _EXPECTED, value)
    return {name: part for name, part in parts.items() if part is not None}


def _part(value: object) -> Part | None:
    """One part, None where it cannot be read."""
    if not isinstance(value, Mapping):
        return _box(value, (2, 4))
    rows, sort, text = _box(value.get("rows"), (2,)), value.get("sort"), value.get("filter", "")
    named = isinstance(sort, (list, tuple)) and len(sort) == 2 and isinstance(sort[0], str) and sort[1] in WAYS
    good = (
        set(value) <= set(_KEYS)
        and (rows is not None or "rows" not in value)
        and (named or sort is None or sort in ([], ()))
        and isinstance(text, str)
    )
    if not good:
        return None
    return TablePart(None if rows is None else (int(rows[0]), int(rows[1])), None if sort is None else tuple(sort), text)


def _box(value: object, sizes: tuple[int, ...]) -> Box | None:
    if not isinstance(value, (list, tuple)) or len(value) not in sizes or not all(map(is_number, value)):
        return None
    return tuple(map(float, value))


def zoom_table(zoom: Parts) -> JsonDict:
    """The parts as plain values, as `read_zoom` reads them."""
    return {name: _table_part(part) if isinstance(part, TablePart) else list(part) for name, part in zoom.items()}


def _table_part(part: TablePart) -> JsonDict:
    rows = {} if part.rows is None else {"rows": list(part.rows)}
    sort = {} if part.sort is None else {"sort": list(part.sort)}
    return {**rows, **sort, **({"filter": part.filter} if part.filter else {})}
