"""One mark beside the same mark of the reference: a signed difference, columns before and after, or one shared scale.

Items are matched by what they are (token by the alignment of the prompts, head and row by id or name), never by where they happen
to stand. What has no partner is left empty. A mark that cannot be compared comes back with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import floor, log10
from typing import Any

import numpy as np

from circuitlab.analysis.ordering import descending
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.marks import Axis, Bars, Dials, Edges, Heatmap, Lines, Mark, Points, Prose, RowColumn, Rows, Tokens
from circuitlab.figures.marks.texts import ALONE

SAME, OF_NOW = "the same in", "of now"  # why a mark is drawn as it is
FLOOR = 0.01  # of the scale of what is compared: a difference's colours never take less of it for their whole range
FINER = 3  # digits that a column of small changes has more than the column that changed
PLAIN = 2  # columns of plain numbers that are compared where none of a table is drawn as bars or colours
PINNED_HUE = 2 * 4096 + 5  # of the reference's points where both are drawn, unlike any head's of a small model


@dataclass(frozen=True, eq=False)
class Pinned:
    """What a comparison knows of the reference: its name, and `align` [pos], its position for each of ours (−1: none).

    `same_ids`: whether token ids mean the same texts there. `rounding`: the share of a mark's size up to which a change is
    rounding: what it would draw is then drawn as it is, and said to be the same. `ours`, `theirs`: the token here, or there, that
    is written as one of the other vocabulary, None for none.
    """

    label: str
    align: np.ndarray
    n_there: int
    rounding: float = 0.0
    same_ids: bool = True
    ours: Callable[[int], int | None] = int
    theirs: Callable[[int], int | None] = int

    @property
    def in_place(self) -> bool:
        """Whether each of our positions belongs to the same position there."""
        return pin_is_identity(self.align, self.n_there)


def pin_is_identity(align: np.ndarray, n_there: int) -> bool:
    """Whether an alignment moves nothing."""
    return len(align) == n_there and bool(np.array_equal(align, np.arange(n_there)))


def difference(here: Mark, there: Mark | None, pin: Pinned) -> tuple[Mark, str]:
    """The mark of now against the reference's, and how it was made; or the mark as it is, and why ("not compared: …")."""
    if there is None or type(here) is not type(there):
        return here, f"not compared: {pin.label} has no such part"
    if isinstance(here, Dials | Prose):  # angles have no signed difference that reads as one; words are of what is shown
        return here, f"{here.name}: {OF_NOW}"
    made = _MADE[type(here)](here, there, pin)
    if made is None:
        other = "size" if pin.same_ids else "size, or other tokens"
        return here, f"not compared: {pin.label} has another {other}"
    if _unmoved(here, there, made[0]):
        return here, f"{here.name}: {SAME} {pin.label}"
    if _rounding(here, made[0], pin):
        return here, f"{here.name}: {SAME} {pin.label} but for rounding"
    return made


def _rounding(here: Mark, made: Mark, pin: Pinned) -> bool:
    """Whether what differs is no more than float32 leaves of another way to compute the same."""
    if not (pin.rounding and isinstance(here, Heatmap | Tokens | Bars) and isinstance(made, Heatmap | Tokens | Bars)):
        return False
    change = np.abs(made.values[np.isfinite(made.values)])
    return bool(change.size) and float(change.max()) <= pin.rounding * _top(here.values)


def _unmoved(here: Mark, there: Mark, made: Mark) -> bool:
    """Whether nothing that is drawn differs."""
    if isinstance(made, Heatmap | Tokens | Bars):
        return not np.nan_to_num(made.values).any() and bool(np.isfinite(made.values).any())
    if isinstance(here, Lines) and isinstance(there, Lines):
        return np.array_equal(here.ys, there.ys, equal_nan=True)
    if isinstance(here, Points) and isinstance(there, Points):
        return np.array_equal(here.x, there.x, equal_nan=True) and np.array_equal(here.y, there.y, equal_nan=True)
    return False


def shared(here: Mark, there: Mark | None) -> Mark:
    """The mark on the scale of both."""
    if isinstance(here, Rows) and isinstance(there, Rows):
        columns = memo((*here.columns, *there.columns), "shared", lambda: _shared_columns(here.columns, there.columns))
        return here if columns is here.columns else replace(here, columns=columns)
    if not isinstance(here, Heatmap | Tokens) or type(here) is not type(there) or here.rgb is not None:
        return here
    assert isinstance(there, Heatmap | Tokens)
    if there.rgb is not None or there.map != here.map or here.unit != there.unit:
        return here
    levels = _union(here.levels, there.levels)
    return here if levels == here.levels else replace(here, levels=levels)


def _union(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return min(a[0], b[0]), max(a[1], b[1])


def _shared_columns(here: tuple[RowColumn, ...], there: tuple[RowColumn, ...]) -> tuple[RowColumn, ...]:
    known = {c.name: c for c in there if c.bar or c.map is not None}
    scaled = lambda c: replace(c, levels=_union(c.levels, known[c.name].levels)) if c.bar or c.map is not None else c
    found = tuple(scaled(c) if c.name in known else c for c in here)
    return here if all(a.levels == b.levels for a, b in zip(here, found, strict=True)) else found


def _top(values: np.ndarray, least: float = 0.0) -> float:
    """The largest size, and no less than `least`."""
    finite = np.abs(values[np.isfinite(values)])
    return max(float(finite.max()) if finite.size and finite.max() > 0 else 1.0 if not least else 0.0, least)


def scale_of(change: np.ndarray, *levels: tuple[float, float]) -> float:
    """Where the colours of a difference end, either way: at its largest, and not below `FLOOR` of what both sides are drawn on.

    So what hardly changes is pale, as it is beside the values themselves.
    """
    return _top(change, FLOOR * max(min(high - low, max(abs(low), abs(high))) for low, high in levels))


def _size(*values: np.ndarray) -> float:
    return max((float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in values), default=0.0)


def _partners(here: Axis, there: Axis, n: int, m: int, pin: Pinned) -> np.ndarray | None:
    """[n]: the reference's step of an axis for each of ours, −1 for none; None where they cannot be matched."""
    if here.tokens and n == len(pin.align) and m == pin.n_there:
        return pin.align if pin.align.max(initial=-1) >= 0 else None
    if here.tokens and not pin.same_ids and here.ticks != there.ticks:
        return None
    if len(set(here.ticks)) == n and len(set(there.ticks)) == m and not here.tokens:
        place = {text: i for i, text in enumerate(there.ticks)}
        return np.array([place.get(text, -1) for text in here.ticks])
    return np.arange(n) if n == m else None


def _taken(values: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    found = values[np.ix_(np.maximum(rows, 0), np.maximum(cols, 0))].astype(np.float32)
    found[rows < 0], found[:, cols < 0] = np.nan, np.nan
    return found


def _heatmap(here: Heatmap, there: Heatmap, pin: Pinned) -> tuple[Mark, str] | None:
    (n, m), (n_there, m_there) = here.values.shape, there.values.shape
    if here.tiles is not None or there.tiles is not None:
        if here.values.shape != there.values.shape or here.tiles is None or not pin.in_place:
            return None  # tiles are small pictures of the prompt: only those of aligned positions lie on each other
        rows, cols = np.arange(n), np.arange(m)
    else:
        down, across = _partners(here.y, there.y, n, n_there, pin), _partners(here.x, there.x, m, m_there, pin)
        if down is None or across is None or min(down.max(initial=-1), across.max(initial=-1)) < 0:
            return None
        rows, cols = down, across
    change = memo((here.values, there.values, pin.align), "map", lambda: here.values - _taken(there.values, rows, cols))
    top = scale_of(change, here.levels, there.levels)
    unit = f"Δ {here.unit}".strip()
    plain = {"rgb": None, "legend": (), "colour_bar": True} if here.rgb is not None else {}
    made = replace(here, values=change, levels=(-top, top), map="signed", unit=unit, **plain)
    return made, f"map: now minus {pin.label}{_floored(change, top)}"


def _floored(change: np.ndarray, top: float) -> str:
    """Said where colours end above the largest change."""
    most = _size(change)
    return f", {figured(most)} at most: colours to {FLOOR:.0%} of the scale of both" if most < top * (1 - 1e-6) else ""


def on_one_scale(made: dict[Mark, Mark]) -> dict[Mark, Mark]:
    """Differences (by the marks that they were made of) of maps and texts that had one scale before have one again."""
    changed = {mark: one for mark, one in made.items() if isinstance(one, Heatmap | Tokens) and one is not mark}
    alike: dict[tuple[object, ...], float] = {}
    scale = lambda mark: (mark.levels, mark.map, mark.unit)
    for mark, one in changed.items():
        alike[scale(mark)] = max(alike.get(scale(mark), 0.0), one.levels[1])
    wider = lambda one, top: one if one.levels[1] == top else replace(one, levels=(-top, top))
    return {mark: wider(one, alike[scale(mark)]) if mark in changed else one for mark, one in made.items()}


def colours(mark: Mark) -> str:
    """The scale of a difference that has no colour bar."""
    if (isinstance(mark, Heatmap) and mark.colour_bar) or not isinstance(mark, Heatmap | Tokens):
        return ""
    return f", {ends(mark)}: orange more, blue less"


def figured(value: float, figures: int = 3) -> str:
    """A size in so many figures: what is not zero is not written as zero."""
    return f"{value:.{figures}g}".replace("-", "−")


def ends(mark: Heatmap | Tokens) -> str:
    """Where the colours of a difference end, in words."""
    return f"± {figured(mark.levels[1], 2)} {mark.unit.removeprefix('Δ').strip()}".strip()


def _tokens(here: Tokens, there: Tokens, pin: Pinned) -> tuple[Mark, str] | None:
    n, m = len(here.texts), len(there.texts)
    if (n, m) == (len(pin.align), pin.n_there):
        align = pin.align
    elif n == m and (pin.same_ids or here.texts == there.texts):
        align = np.arange(n)
    else:
        return None
    if not (align >= 0).any():
        return None

    def make() -> np.ndarray:
        return here.values - np.where(align >= 0, there.values[np.maximum(align, 0)], np.nan)

    change = memo((here.values, there.values, align), "text", make)
    top = scale_of(change, here.levels, there.levels)
    made = replace(here, values=change, levels=(-top, top), map="signed", unit=f"Δ {here.unit}".strip(), rgb=None)
    return made, f"text: now minus {pin.label}{_floored(change, top)}"


def _lines(here: Lines, there: Lines, pin: Pinned) -> tuple[Mark, str] | None:
    """The reference's curves dashed, in the colours of ours; what was dashed before (a spread, a control) gives way."""
    solid = [i for i in range(len(here.ys)) if not (here.dashed and here.dashed[i])] or list(range(len(here.ys)))
    gone = [name for i, name in enumerate(here.names) if i not in solid]
    here, there = _curves(here, solid), _curves(there, [i for i in solid if i < len(there.ys)])
    n = len(here.x)
    if here.x_axis.tokens and not pin.same_ids:
        return None
    if len(there.x) < n or not np.array_equal(here.x, there.x[:n]) or here.y_axis.label != there.y_axis.label:
        return None
    count = min(len(here.ys), len(there.ys))
    ys = memo((here.ys, there.ys), "curves", lambda: np.vstack([here.ys, there.ys[:count, :n]]))
    hues = here.hues
    alone = len(here.names) == 1
    ours = ("now",) if alone else here.names
    theirs = (pin.label,) if alone else tuple(f"{name} in {pin.label}" for name in there.names[:count])
    dashed = (*(False,) * len(here.ys), *(True,) * count)
    keys = here.curve_ids
    keys = None if keys is None else np.concatenate([keys, np.full((count, keys.shape[1]), -1)])
    made = replace(here, ys=ys, names=(*ours, *theirs), hues=(*hues, *hues[:count]), dashed=dashed, curve_ids=keys)
    return made, f"dashed: {pin.label}" + (f"; not drawn beside it: {', '.join(gone)}" if gone else "")


def _curves(mark: Lines, kept: list[int]) -> Lines:
    """Some of its curves, solid, in the colours that they had."""
    place = {old: new for new, old in enumerate(kept)}
    hues = mark.hues or tuple(-1 - i for i in range(len(mark.ys)))
    indices = lambda of: tuple(place[i] for i in of if i in place)
    return replace(
        mark,
        ys=memo((mark.ys,), ("curves", tuple(kept)), lambda: mark.ys[kept]),
        names=tuple(mark.names[i] for i in kept),
        hues=tuple(hues[i] for i in kept),
        dashed=(),
        chosen=indices(mark.chosen),
        named=None if mark.named is None else indices(mark.named),
        curve_ids=None if mark.curve_ids is None else mark.curve_ids[kept],
    )


def _bars(here: Bars, there: Bars, pin: Pinned) -> tuple[Mark, str] | None:
    known = dict(zip(there.labels, there.values.tolist(), strict=True))
    make = lambda: np.array([value - known.get(name, 0.0) for name, value in zip(here.labels, here.values, strict=True)])
    change = memo((here.values, there.values), "bars", make)
    return replace(here, values=change, unit=f"Δ {here.unit}".strip()), f"bars: now minus {pin.label}"


def _keys(ids: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(key) for key in ids.tolist()]


def _points(here: Points, there: Points, pin: Pinned) -> tuple[Mark, str] | None:
    """How far each item moved along both axes; where items have no name of their own (eigenvalues), both sets."""
    if here.equal:
        made = memo((here.x, there.x), ("both", here.tips), lambda: _both(here, there, pin))
        return made, f"one other colour: {pin.label}"
    place = {key: i for i, key in enumerate(_keys(there.ids))}
    rows = np.array([place.get(key, -1) for key in _keys(here.ids)])
    if rows.max(initial=-1) < 0:
        return None

    def moved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(rows >= 0, a - b[np.maximum(rows, 0)], np.nan)

    x, y = memo((here.x, here.y, there.x, there.y), "moved", lambda: (moved(here.x, there.x), moved(here.y, there.y)))
    axes = {f"{side}_axis": Axis(f"Δ {getattr(here, f'{side}_axis').label}") for side in "xy"}
    alone = int((rows < 0).sum())
    said = f", {alone} not listed there" if alone else ""
    return replace(here, x=x, y=y, **axes), f"points: how far each moved since {pin.label}{said}"


def _both(here: Points, there: Points, pin: Pinned) -> Points:
    n = len(there.x)
    tips = (*here.tips, *(f"{pin.label}: {tip}" for tip in there.tips)) if here.tips else ()
    labels = (*here.labels, *("" for _ in range(n))) if here.labels else ()
    hues = None if here.hues is None else np.concatenate([here.hues, np.full(n, PINNED_HUE)])
    values = None if here.values is None or there.values is None else np.concatenate([here.values, there.values])
    join = lambda a, b: np.concatenate([a, b])
    x, y, keys = join(here.x, there.x), join(here.y, there.y), join(here.ids, there.ids)
    return replace(here, x=x, y=y, ids=keys, tips=tips, labels=labels, hues=hues, values=values)


def _edges(here: Edges, there: Edges, pin: Pinned) -> tuple[Mark, str] | None:
    def keys(mark: Edges) -> list[tuple[int, ...]]:
        of = mark.ends if mark.edge_ids is None else mark.edge_ids
        return [(*key, int(kind)) for key, kind in zip(_keys(of), mark.kinds, strict=True)]

    def make() -> tuple[np.ndarray, np.ndarray]:
        value = lambda mark: mark.weights if mark.values is None else mark.values
        known = dict(zip(keys(there), value(there).tolist(), strict=True))
        change = np.array([v - known.get(key, np.nan) for key, v in zip(keys(here), value(here).tolist(), strict=True)])
        return change, np.nan_to_num(np.abs(change) / _top(change, FLOOR * _size(value(here), value(there))))

    change, weights = memo((here.ends, here.weights, there.ends, there.weights), "edges", make)
    made = replace(here, values=change, weights=weights, unit=f"Δ {here.unit}".strip())
    return made, f"edges: size of the change since {pin.label}, its sign under the pointer; those not listed there are left out"


def _rows(here: Rows, there: Rows, pin: Pinned) -> tuple[Mark, str] | None:
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
    found = [i for i in map(to, rows.ids[:, 0].tolist()) if i is not None]
    return np.array(found, dtype=np.int64)[:, None]


def _columns(here: Rows, there: Rows, pin: Pinned) -> tuple[tuple[RowColumn, ...], str, np.ndarray | None]:
    """Columns, words, and the order of the rows where it is another."""
    rows = _same_rows(here, there, pin)
    if (rows < 0).all() and np.isnan(here.absent):
        return here.columns, f"not compared: {pin.label} lists none of these rows", None
    known = {c.name: c for c in there.columns}
    ours = [c for c in here.columns if c.name in known]
    said = lambda c: np.where(rows >= 0, known[c.name].values[np.maximum(rows, 0)] if len(there.ids) else "", "")
    words = [c for c in ours if c.values.dtype == object and c.name]
    named = next(iter(words), None)
    same = rows >= 0 if named is None else (rows >= 0) & (said(named) == named.values)
    numbers = [c for c in ours if c.values.dtype.kind == "f"]
    measured = [c for c in numbers if c.bar or c.map is not None] or numbers
    sums = here.ids[:, 0] == ALONE
    before = {c.name: _where(rows, known[c.name].values, np.where(sums, np.nan, here.absent)) for c in measured}
    same = same | ((rows < 0) & np.isfinite(here.absent))
    change = {c.name: np.where(same, c.values - before[c.name], np.nan) for c in measured}
    moved = [c for c in measured if np.nan_to_num(change[c.name]).any() or not same.any()]
    moved = moved if any(c.bar or c.map is not None for c in moved) else moved[:PLAIN]
    other = [c for c in words if (np.where(rows >= 0, said(c), c.values) != c.values).any()]
    made = list[RowColumn]()
    for column in here.columns:
        if column in moved:  # the change first: it is what the table is about, and in sight where there is little room
            made += _beside(column, before[column.name], change[column.name], pin, column is moved[0])
            continue
        made.append(column)
        if column in other:
            made.append(RowColumn(f"{column.name} in {pin.label}", said(column).astype(object), tokens=column.tokens))
    if not moved and not other:
        return here.columns, f"columns: {SAME} {pin.label}", None
    order = descending(change[moved[0].name], by_size=True) if here.ranked and moved else None
    made = made if order is None else [replace(c, values=c.values[order]) for c in made]
    alone = bool(((rows < 0) & ~sums & np.isnan(here.absent)).any())
    words_of = f"columns: {pin.label} beside now" + (", Δ now minus it" if moved else "")
    words_of += ", empty where it does not list the row" if alone else ""
    return tuple(made), words_of, order


def _where(rows: np.ndarray, values: np.ndarray, absent: np.ndarray) -> np.ndarray:
    """The values of these rows, [row] `absent` for −1."""
    return np.where(rows >= 0, values[np.maximum(rows, 0)], absent) if len(values) else absent.copy()


def _beside(column: RowColumn, before: np.ndarray, change: np.ndarray, pin: Pinned, first: bool) -> list[RowColumn]:
    """The change, the column, and beside the first one, for want of room no other, what it was in the reference."""
    most = _size(change)
    finer = 1 - floor(log10(most)) if most else 0
    top = _top(change, FLOOR * _size(column.values, before))
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
    ours: list[Any] = _keys(here.ids[:, : here.keyed or None])
    theirs: list[Any] = _keys(there.ids[:, : there.keyed or None])
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


_MADE: dict[type[Any], Callable[[Any, Any, Pinned], tuple[Mark, str] | None]] = {
    Heatmap: _heatmap,
    Tokens: _tokens,
    Lines: _lines,
    Bars: _bars,
    Points: _points,
    Edges: _edges,
    Rows: _rows,
}
