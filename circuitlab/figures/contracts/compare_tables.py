"""A table beside the same table of the reference: columns before and after, and the change where a row means the same in both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import floor, log10

import numpy as np

from circuitlab.analysis.ordering import descending
from circuitlab.caption_parts import Essential, reworded
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.pinned import SAME, Pinned, TheSame
from circuitlab.figures.contracts.shared_scales import FLOOR, size_of, top_of
from circuitlab.figures.marks import RowColumn, Rows
from circuitlab.figures.marks.texts import ALONE

FINER = 3  # more digits for a column of small changes than for the column that changed
PLAIN = 2  # columns of plain numbers that are compared where none of a table is drawn as bars or colours


def keys_of(ids: np.ndarray) -> list[tuple[int, ...]]:
    """The ids of items as tuples, by which the items of two marks are matched."""
    return [tuple(key) for key in ids.tolist()]


def rows_difference(table: Rows, ref_table: Rows, pin: Pinned) -> tuple[Rows, str] | None:
    """The table with columns of the reference and of the change, and a sentence about it; None where rows cannot be matched.

    The change is given only where a row means the same in both. A ranking becomes one by the size of the change, largest first.
    """
    if not len(table.ids) or table.ids.shape[1] != ref_table.ids.shape[1]:
        return None
    now_alone = table
    if table.including is not None and ref_table.including is not None:  # each side lists the rows of the other as well
        ref_rows, own_rows = _ids_of_other(ref_table, pin, pin.to_ours), _ids_of_other(table, pin, pin.to_theirs)
        table, ref_table = replace(table.including(ref_rows), key=table.key), ref_table.including(own_rows)
    sources = (*table.columns, *ref_table.columns, table.ids, ref_table.ids)
    columns, words, order = memo(
        sources, ("rows", pin.label, pin.same_ids, table.ranked), lambda: _columns(table, ref_table, pin)
    )
    if columns == table.columns:
        return now_alone, words
    if order is None:
        return replace(table, columns=columns), words
    place = {int(old): new for new, old in enumerate(order)}
    keys = memo((table.ids, order), "ranked", lambda: table.ids[order])
    chosen = tuple(place[i] for i in table.chosen if i in place)
    strong = tuple(place[i] for i in table.strong if i in place)
    ranked = replace(table, columns=columns, ids=keys, chosen=chosen, strong=strong, sort=None, gap=None)
    return ranked, reworded(words, f"{words}, the largest change first")


def _ids_of_other(rows: Rows, pin: Pinned, to: Callable[[int], int | None]) -> np.ndarray:
    """The ids of its rows in the other side's vocabulary, without tokens that it lacks."""
    if pin.same_ids or not any(c.tokens for c in rows.columns):
        return rows.ids
    tokens = [i for i in map(to, rows.ids[:, 0].tolist()) if i is not None]
    return np.array(tokens, dtype=np.int64)[:, None]


def _columns(table: Rows, ref_table: Rows, pin: Pinned) -> tuple[tuple[RowColumn, ...], str, np.ndarray | None]:
    """Columns, a sentence about them, and the order of the rows where it changes."""
    rows = _same_rows(table, ref_table, pin)
    if (rows < 0).all() and np.isnan(table.absent):
        return table.columns, Essential(f"not compared: {pin.label} lists none of these rows"), None
    ref_columns = {c.name: c for c in ref_table.columns}
    shared = [c for c in table.columns if c.name in ref_columns]
    ref_text = lambda c: np.where(rows >= 0, ref_columns[c.name].values[np.maximum(rows, 0)] if len(ref_table.ids) else "", "")
    texts = [c for c in shared if c.values.dtype == object and c.name]
    name_column = next(iter(texts), None)
    same = rows >= 0 if name_column is None else (rows >= 0) & (ref_text(name_column) == name_column.values)
    numbers = [c for c in shared if c.values.dtype.kind == "f"]
    measured = [c for c in numbers if c.bar or c.map is not None] or numbers
    sums = table.ids[:, 0] == ALONE
    before = {c.name: _where(rows, ref_columns[c.name].values, np.where(sums, np.nan, table.absent)) for c in measured}
    same = same | ((rows < 0) & np.isfinite(table.absent))
    change = {c.name: np.where(same, c.values - before[c.name], np.nan) for c in measured}
    moved = [c for c in measured if np.nan_to_num(change[c.name]).any() or not same.any()]
    moved = moved if any(c.bar or c.map is not None for c in moved) else moved[:PLAIN]
    reworded = [c for c in texts if (np.where(rows >= 0, ref_text(c), c.values) != c.values).any()]
    columns = list[RowColumn]()
    for column in table.columns:
        if column in moved:  # the change first: the table is about it, and a narrow table shows its first columns
            columns += _beside(column, before[column.name], change[column.name], pin, column is moved[0], column is numbers[0])
            continue
        columns.append(column)
        if column in reworded:
            columns.append(RowColumn(f"{column.name} in {pin.label}", ref_text(column).astype(object), tokens=column.tokens))
    if not moved and not reworded:
        return table.columns, TheSame(f"columns: {SAME} {pin.label}"), None
    order = descending(change[moved[0].name], by_size=True) if table.ranked and moved else None
    columns = columns if order is None else [replace(c, values=c.values[order]) for c in columns]
    unmatched = bool(((rows < 0) & ~sums & np.isnan(table.absent)).any())
    words = f"columns: {pin.label} beside now" + (", Δ now minus it" if moved else "")
    words += ", empty where it does not list the row" if unmatched else ""
    return tuple(columns), Essential(words) if moved else words, order


def _where(rows: np.ndarray, values: np.ndarray, absent: np.ndarray) -> np.ndarray:
    """[row] the values in these rows, those of `absent` [row] for −1."""
    return np.where(rows >= 0, values[np.maximum(rows, 0)], absent) if len(values) else absent.copy()


def _beside(column: RowColumn, before: np.ndarray, change: np.ndarray, pin: Pinned, first: bool, bare: bool) -> list[RowColumn]:
    """The change and the column; for the first column only, as room is short, its values in the reference too.

    `bare`: no other numbers stand before these, so that their headers need not name the column.
    """
    of = "" if bare else f"{column.name} "
    largest = size_of(change)
    finer = 1 - floor(log10(largest)) if largest else 0
    top = top_of(change, FLOOR * size_of(column.values, before))
    delta = RowColumn(
        f"Δ {of}".rstrip(),
        change,
        digits=min(max(column.digits, finer), column.digits + FINER),
        bar=column.bar,
        map=None if column.bar else "signed",
        levels=(-top, top),
        tip=f"now minus {pin.label}",
        reads="change",
        alone=f"Δ {column.name} (now − {pin.label})",
    )
    tip = f"{column.name} in {pin.label}; empty where it is not listed there"
    then = RowColumn(
        f"{of}in {pin.label}", before, digits=column.digits, tip=tip, reads=column.reads, alone=f"{column.name} in {pin.label}"
    )
    now = replace(column, bar=False)  # bars beside those of the change would pass for it
    return [delta, now, then] if first else [delta, now]


def _same_rows(table: Rows, ref_table: Rows, pin: Pinned) -> np.ndarray:
    """[row]: the reference's row of the same id, −1 for none; in another vocabulary the only row with the same texts."""
    keys: Sequence[tuple[object, ...]] = keys_of(table.ids[:, : table.keyed or None])
    ref_keys: Sequence[tuple[object, ...]] = keys_of(ref_table.ids[:, : ref_table.keyed or None])
    token_columns = [c.name for c in table.columns if c.tokens]
    if token_columns and not pin.same_ids:
        keys, ref_keys = _row_texts(table, token_columns), _row_texts(ref_table, token_columns)
        repeated = {key for side in (keys, ref_keys) for key, n in Counter(side).items() if n > 1}
        place = {key: i for i, key in enumerate(ref_keys)}
        return np.array([-1 if key in repeated else place.get(key, -1) for key in keys])
    place = {key: i for i, key in reversed(list(enumerate(ref_keys)))}
    return np.array([-1 if key[0] == ALONE else place.get(key, -1) for key in keys])


def _row_texts(rows: Rows, names: list[str]) -> list[tuple[str, ...]]:
    columns = [c.values for c in rows.columns if c.name in names]
    return [tuple(map(str, cells)) for cells in zip(*columns, strict=True)]
