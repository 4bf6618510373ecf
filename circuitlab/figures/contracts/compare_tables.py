"""A table beside the same table of the reference: columns before and after, the change where a row is the same thing in both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import floor, log10
from typing import Any

import numpy as np

from circuitlab.analysis.ordering import descending
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.pinned import SAME, Pinned
from circuitlab.figures.contracts.shared_scales import FLOOR, size_of, top_of
from circuitlab.figures.marks import RowColumn, Rows
from circuitlab.figures.marks.texts import ALONE

FINER = 3  # digits that a column of small changes has more than the column that changed
PLAIN = 2  # columns of plain numbers that are compared where none of a table is drawn as bars or colours


def keys_of(ids: np.ndarray) -> list[tuple[int, ...]]:
    """The ids of items as tuples, by which those of two marks are matched."""
    return [tuple(key) for key in ids.tolist()]


def rows_difference(here: Rows, there: Rows, pin: Pinned) -> tuple[Rows, str] | None:
    """Columns before and after beside the measured ones; the change only where a row is the same thing in both.

    A ranking is one of changes then: by their size, the largest first.
    """
    if not len(here.ids) or here.ids.shape[1] != there.ids.shape[1]:
        return None
    alone = here
    if here.including is not None and there.including is not None:  # what one lists the other has to know
        further = _carried(there, pin, pin.ours), _carried(here, pin, pin.theirs)
        key = here.key
        here, there = here.including(further[0]), there.including(further[1])
        here = replace(here, key=key)
    of = (*here.columns, *there.columns, here.ids, there.ids)
    columns, said, order = memo(of, ("rows", pin.label, pin.same_ids, here.ranked), lambda: _columns(here, there, pin))
    if columns == here.columns:
        return alone, said
    if order is None:
        return replace(here, columns=columns), said
    place = {int(old): new for new, old in enumerate(order)}
    keys = memo((here.ids, order), "ranked", lambda: here.ids[order])
    chosen = tuple(place[i] for i in here.chosen if i in place)
    strong = tuple(place[i] for i in here.strong if i in place)
    return replace(
        here, columns=columns, ids=keys, chosen=chosen, strong=strong, sort=None, gap=None
    ), f"{said}, the largest change first"


def _carried(rows: Rows, pin: Pinned, to: Callable[[int], int | None]) -> np.ndarray:
    """Its ids as the other side has them; those of tokens only where one is written so."""
    if pin.same_ids or not any(c.tokens for c in rows.columns):
        return rows.ids
    tokens = [i for i in map(to, rows.ids[:, 0].tolist()) if i is not None]
    return np.array(tokens, dtype=np.int64)[:, None]


def _columns(here: Rows, there: Rows, pin: Pinned) -> tuple[tuple[RowColumn, ...], str, np.ndarray | None]:
    """Columns, words, and the order of the rows where it is another."""
    rows = _same_rows(here, there, pin)
    if (rows < 0).all() and np.isnan(here.absent):
        return here.columns, f"not compared: {pin.label} lists none of these rows", None
    ref_columns = {c.name: c for c in there.columns}
    ours = [c for c in here.columns if c.name in ref_columns]
    ref_text = lambda c: np.where(rows >= 0, ref_columns[c.name].values[np.maximum(rows, 0)] if len(there.ids) else "", "")
    words = [c for c in ours if c.values.dtype == object and c.name]
    named = next(iter(words), None)
    same = rows >= 0 if named is None else (rows >= 0) & (ref_text(named) == named.values)
    numbers = [c for c in ours if c.values.dtype.kind == "f"]
    measured = [c for c in numbers if c.bar or c.map is not None] or numbers
    sums = here.ids[:, 0] == ALONE
    before = {c.name: _where(rows, ref_columns[c.name].values, np.where(sums, np.nan, here.absent)) for c in measured}
    same = same | ((rows < 0) & np.isfinite(here.absent))
    change = {c.name: np.where(same, c.values - before[c.name], np.nan) for c in measured}
    moved = [c for c in measured if np.nan_to_num(change[c.name]).any() or not same.any()]
    moved = moved if any(c.bar or c.map is not None for c in moved) else moved[:PLAIN]
    other = [c for c in words if (np.where(rows >= 0, ref_text(c), c.values) != c.values).any()]
    columns = list[RowColumn]()
    for column in here.columns:
        if column in moved:  # the change first: it is what the table is about, and in sight where there is little room
            columns += _beside(column, before[column.name], change[column.name], pin, column is moved[0])
            continue
        columns.append(column)
        if column in other:
            columns.append(RowColumn(f"{column.name} in {pin.label}", ref_text(column).astype(object), tokens=column.tokens))
    if not moved and not other:
        return here.columns, f"columns: {SAME} {pin.label}", None
    order = descending(change[moved[0].name], by_size=True) if here.ranked and moved else None
    columns = columns if order is None else [replace(c, values=c.values[order]) for c in columns]
    alone = bool(((rows < 0) & ~sums & np.isnan(here.absent)).any())
    words_of = f"columns: {pin.label} beside now" + (", Δ now minus it" if moved else "")
    words_of += ", empty where it does not list the row" if alone else ""
    return tuple(columns), words_of, order


def _where(rows: np.ndarray, values: np.ndarray, absent: np.ndarray) -> np.ndarray:
    """The values of these rows, [row] `absent` for −1."""
    return np.where(rows >= 0, values[np.maximum(rows, 0)], absent) if len(values) else absent.copy()


def _beside(column: RowColumn, before: np.ndarray, change: np.ndarray, pin: Pinned, first: bool) -> list[RowColumn]:
    """The change, the column, and beside the first one, for want of room no other, what it was in the reference."""
    most = size_of(change)
    finer = 1 - floor(log10(most)) if most else 0
    top = top_of(change, FLOOR * size_of(column.values, before))
    delta = RowColumn(
        "Δ" if first else f"Δ {column.name}",
        change,
        digits=min(max(column.digits, finer), column.digits + FINER),
        map="signed",
        levels=(-top, top),
        tip=f"now minus {pin.label}",
    )
    tip = f"{column.name} in {pin.label}; empty where it is not listed there"
    return [delta, column, RowColumn(f"in {pin.label}", before, digits=column.digits, tip=tip)] if first else [delta, column]


def _same_rows(here: Rows, there: Rows, pin: Pinned) -> np.ndarray:
    """[row]: the reference's row of the same id, −1 for none. Of another vocabulary the one row that is written so."""
    ours: list[Any] = keys_of(here.ids[:, : here.keyed or None])
    theirs: list[Any] = keys_of(there.ids[:, : there.keyed or None])
    texts = [c.name for c in here.columns if c.tokens]
    if texts and not pin.same_ids:
        ours, theirs = _spelled(here, texts), _spelled(there, texts)
        twice = {key for keys in (ours, theirs) for key, n in Counter(keys).items() if n > 1}
        place = {key: i for i, key in enumerate(theirs)}
        return np.array([-1 if key in twice else place.get(key, -1) for key in ours])
    place = {key: i for i, key in reversed(list(enumerate(theirs)))}
    return np.array([-1 if key[0] == ALONE else place.get(key, -1) for key in ours])


def _spelled(rows: Rows, names: list[str]) -> list[tuple[str, ...]]:
    columns = [c.values for c in rows.columns if c.name in names]
    return [tuple(map(str, cells)) for cells in zip(*columns, strict=True)]
