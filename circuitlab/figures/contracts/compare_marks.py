"""One mark beside the same mark of the reference: a signed difference, columns before and after, or one shared scale.

Items are matched by what they are (token by the alignment of the prompts, head and row by id or name), never by where they happen
to stand. What has no partner is left empty. A mark that cannot be compared comes back with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from circuitlab.figures.contracts.compare_tables import keys_of, rows_difference
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.pinned import OF_NOW, SAME, Pinned
from circuitlab.figures.contracts.shared_scales import FLOOR, floored, scale_of, size_of, top_of
from circuitlab.figures.marks import Axis, Bars, Dials, Edges, Heatmap, Lines, Mark, Points, Prose, Rows, Tokens

PINNED_HUE = 2 * 4096 + 5  # of the reference's points where both are drawn, unlike any head's of a small model


def difference(here: Mark, there: Mark | None, pin: Pinned) -> tuple[Mark, str]:
    """The mark of now against the reference's, and how it was made; or the mark as it is, and why ("not compared: …")."""
    if there is None or type(here) is not type(there):
        return here, f"not compared: {pin.label} has no such part"
    if isinstance(here, Dials | Prose):  # angles have no signed difference that reads as one; words are of what is shown
        return here, f"{here.name}: {OF_NOW}"
    compared = _DIFFERENCES[type(here)](here, there, pin)
    if compared is None:
        other = "size" if pin.same_ids else "size, or other tokens"
        return here, f"not compared: {pin.label} has another {other}"
    if _unmoved(here, there, compared[0]):
        return here, f"{here.name}: {SAME} {pin.label}"
    if _rounding(here, compared[0], pin):
        return here, f"{here.name}: {SAME} {pin.label} but for rounding"
    return compared


def _rounding(here: Mark, compared: Mark, pin: Pinned) -> bool:
    """Whether what differs is no more than float32 leaves of another way to compute the same."""
    if not (pin.rounding and isinstance(here, Heatmap | Tokens | Bars) and isinstance(compared, Heatmap | Tokens | Bars)):
        return False
    change = np.abs(compared.values[np.isfinite(compared.values)])
    return bool(change.size) and float(change.max()) <= pin.rounding * top_of(here.values)


def _unmoved(here: Mark, there: Mark, compared: Mark) -> bool:
    """Whether nothing that is drawn differs."""
    if isinstance(compared, Heatmap | Tokens | Bars):
        return not np.nan_to_num(compared.values).any() and bool(np.isfinite(compared.values).any())
    if isinstance(here, Lines) and isinstance(there, Lines):
        return np.array_equal(here.ys, there.ys, equal_nan=True)
    if isinstance(here, Points) and isinstance(there, Points):
        return np.array_equal(here.x, there.x, equal_nan=True) and np.array_equal(here.y, there.y, equal_nan=True)
    return False


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
    taken = values[np.ix_(np.maximum(rows, 0), np.maximum(cols, 0))].astype(np.float32)
    taken[rows < 0], taken[:, cols < 0] = np.nan, np.nan
    return taken


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
    return made, f"map: now minus {pin.label}{floored(change, top)}"


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
    return made, f"text: now minus {pin.label}{floored(change, top)}"


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


def _curves(mark: Lines, indices_kept: list[int]) -> Lines:
    """Some of its curves, solid, in the colours that they had."""
    place = {old: new for new, old in enumerate(indices_kept)}
    hues = mark.hues or tuple(-1 - i for i in range(len(mark.ys)))
    indices = lambda of: tuple(place[i] for i in of if i in place)
    return replace(
        mark,
        ys=memo((mark.ys,), ("curves", tuple(indices_kept)), lambda: mark.ys[indices_kept]),
        names=tuple(mark.names[i] for i in indices_kept),
        hues=tuple(hues[i] for i in indices_kept),
        dashed=(),
        chosen=indices(mark.chosen),
        named=None if mark.named is None else indices(mark.named),
        curve_ids=None if mark.curve_ids is None else mark.curve_ids[indices_kept],
    )


def _bars(here: Bars, there: Bars, pin: Pinned) -> tuple[Mark, str] | None:
    ref_values = dict(zip(there.labels, there.values.tolist(), strict=True))
    make = lambda: np.array([value - ref_values.get(name, 0.0) for name, value in zip(here.labels, here.values, strict=True)])
    change = memo((here.values, there.values), "bars", make)
    return replace(here, values=change, unit=f"Δ {here.unit}".strip()), f"bars: now minus {pin.label}"


def _points(here: Points, there: Points, pin: Pinned) -> tuple[Mark, str] | None:
    """How far each item moved along both axes; where items have no name of their own (eigenvalues), both sets."""
    if here.equal:
        made = memo((here.x, there.x), ("both", here.tips), lambda: _both(here, there, pin))
        return made, f"one other colour: {pin.label}"
    place = {key: i for i, key in enumerate(keys_of(there.ids))}
    rows = np.array([place.get(key, -1) for key in keys_of(here.ids)])
    if rows.max(initial=-1) < 0:
        return None

    def moved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(rows >= 0, a - b[np.maximum(rows, 0)], np.nan)

    x, y = memo((here.x, here.y, there.x, there.y), "moved", lambda: (moved(here.x, there.x), moved(here.y, there.y)))
    axes = {f"{side}_axis": Axis(f"Δ {getattr(here, f'{side}_axis').label}") for side in "xy"}
    alone = int((rows < 0).sum())
    unmatched = f", {alone} not listed there" if alone else ""
    return replace(here, x=x, y=y, **axes), f"points: how far each moved since {pin.label}{unmatched}"


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
        return [(*key, int(kind)) for key, kind in zip(keys_of(of), mark.kinds, strict=True)]

    def make() -> tuple[np.ndarray, np.ndarray]:
        value = lambda mark: mark.weights if mark.values is None else mark.values
        ref_values = dict(zip(keys(there), value(there).tolist(), strict=True))
        change = np.array([v - ref_values.get(key, np.nan) for key, v in zip(keys(here), value(here).tolist(), strict=True)])
        return change, np.nan_to_num(np.abs(change) / top_of(change, FLOOR * size_of(value(here), value(there))))

    change, weights = memo((here.ends, here.weights, there.ends, there.weights), "edges", make)
    made = replace(here, values=change, weights=weights, unit=f"Δ {here.unit}".strip())
    return made, f"edges: size of the change since {pin.label}, its sign under the pointer; those not listed there are left out"


_DIFFERENCES: dict[type[Any], Callable[[Any, Any, Pinned], tuple[Mark, str] | None]] = {
    Heatmap: _heatmap,
    Tokens: _tokens,
    Lines: _lines,
    Bars: _bars,
    Points: _points,
    Edges: _edges,
    Rows: rows_difference,
}
