"""One mark beside the same mark of the reference: a signed difference, columns before and after, or one shared scale.

Items are matched by identity (tokens by the alignment of the prompts, heads and rows by id or name), never by index. An item
without a partner is left empty. A mark that cannot be compared is returned unchanged, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from circuitlab.analysis.ordering import descending
from circuitlab.caption_parts import Essential
from circuitlab.counting import number
from circuitlab.figures.contracts.compare_tables import keys_of, rows_difference
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.pinned import OF_NOW, SAME, OfNow, Pinned, TheSame
from circuitlab.figures.contracts.shared_scales import FLOOR, floored, scale_of, size_of, top_of
from circuitlab.figures.marks import Axis, Bars, Dials, Edges, Heatmap, Lines, Mark, Points, Prose, Rows, Tokens

SIGNED, KINDS = 4, "QKV"  # edges whose change is written out; what the kinds of edges are called
PINNED_HUE = 2 * 4096 + 5  # of the reference's points where both sets are drawn: no head of a small model has it


def difference(mark: Mark, ref_mark: Mark | None, pin: Pinned) -> tuple[Mark, str]:
    """The change of a mark since the reference's, and a sentence about it; or the mark unchanged, and why ("not compared: …")."""
    if ref_mark is None or type(mark) is not type(ref_mark):
        return mark, Essential(f"not compared: {pin.label} has no such part")
    if isinstance(mark, Dials | Prose):  # dials: a signed difference of angles misleads; prose is about now
        return mark, OfNow(f"{mark.name}: {OF_NOW}")
    compared = _DIFFERENCES[type(mark)](mark, ref_mark, pin)
    if compared is None:
        other = "size" if pin.same_ids else "size, or other tokens"
        return mark, Essential(f"not compared: {pin.label} has another {other}")
    if _unmoved(mark, ref_mark, compared[0]):
        return mark, TheSame(f"{mark.name}: {SAME} {pin.label}")
    if _rounding(mark, compared[0], pin):
        return mark, TheSame(f"{mark.name}: {SAME} {pin.label} but for rounding")
    return compared


def _rounding(mark: Mark, compared: Mark, pin: Pinned) -> bool:
    """Whether the change is no larger than float32 rounding between two ways to compute the same numbers."""
    if not (pin.rounding and isinstance(mark, Heatmap | Tokens | Bars) and isinstance(compared, Heatmap | Tokens | Bars)):
        return False
    change = np.abs(compared.values[np.isfinite(compared.values)])
    return bool(change.size) and float(change.max()) <= pin.rounding * top_of(mark.values)


def _unmoved(mark: Mark, ref_mark: Mark, compared: Mark) -> bool:
    """Whether nothing that is drawn differs."""
    if isinstance(compared, Heatmap | Tokens | Bars):
        return not np.nan_to_num(compared.values).any() and bool(np.isfinite(compared.values).any())
    if isinstance(mark, Lines) and isinstance(ref_mark, Lines):
        return np.array_equal(mark.ys, ref_mark.ys, equal_nan=True)
    if isinstance(mark, Points) and isinstance(ref_mark, Points):
        return np.array_equal(mark.x, ref_mark.x, equal_nan=True) and np.array_equal(mark.y, ref_mark.y, equal_nan=True)
    return False


def _partners(axis: Axis, ref_axis: Axis, length: int, ref_length: int, pin: Pinned) -> np.ndarray | None:
    """[length]: the reference's step of an axis for each of ours, −1 for none; None where they cannot be matched."""
    if axis.tokens and length == len(pin.align) and ref_length == pin.ref_length:
        return pin.align if pin.align.max(initial=-1) >= 0 else None
    if axis.tokens and not pin.same_ids and axis.ticks != ref_axis.ticks:
        return None
    if len(set(axis.ticks)) == length and len(set(ref_axis.ticks)) == ref_length and not axis.tokens:
        place = {text: i for i, text in enumerate(ref_axis.ticks)}
        return np.array([place.get(text, -1) for text in axis.ticks])
    return np.arange(length) if length == ref_length else None


def _gathered(values: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """[row, col] the values in these rows and columns, NaN for −1."""
    gathered = values[np.ix_(np.maximum(rows, 0), np.maximum(cols, 0))].astype(np.float32)
    gathered[rows < 0], gathered[:, cols < 0] = np.nan, np.nan
    return gathered


def _heatmap(mark: Heatmap, ref_mark: Heatmap, pin: Pinned) -> tuple[Mark, str] | None:
    (n_rows, n_cols), (ref_rows, ref_cols) = mark.values.shape, ref_mark.values.shape
    if mark.tiles is not None or ref_mark.tiles is not None:
        if mark.values.shape != ref_mark.values.shape or mark.tiles is None or not pin.in_place:
            return None  # a tile has a pixel a position: tiles can be subtracted only where no position moves
        rows, cols = np.arange(n_rows), np.arange(n_cols)
    else:
        down, across = _partners(mark.y, ref_mark.y, n_rows, ref_rows, pin), _partners(mark.x, ref_mark.x, n_cols, ref_cols, pin)
        if down is None or across is None or min(down.max(initial=-1), across.max(initial=-1)) < 0:
            return None
        rows, cols = down, across
    change = memo((mark.values, ref_mark.values, pin.align), "map", lambda: mark.values - _gathered(ref_mark.values, rows, cols))
    top = scale_of(change, mark.levels, ref_mark.levels)
    unit = f"Δ {mark.unit}".strip()
    without_rgb = {"rgb": None, "legend": (), "colour_bar": True} if mark.rgb is not None else {}
    change_map = replace(mark, values=change, levels=(-top, top), map="signed", unit=unit, **without_rgb)
    return change_map, f"map: now minus {pin.label}{floored(change, top)}"


def _tokens(mark: Tokens, ref_mark: Tokens, pin: Pinned) -> tuple[Mark, str] | None:
    length, ref_length = len(mark.texts), len(ref_mark.texts)
    if (length, ref_length) == (len(pin.align), pin.ref_length):
        align = pin.align
    elif length == ref_length and (pin.same_ids or mark.texts == ref_mark.texts):
        align = np.arange(length)
    else:
        return None
    if not (align >= 0).any():
        return None

    def make() -> np.ndarray:
        return mark.values - np.where(align >= 0, ref_mark.values[np.maximum(align, 0)], np.nan)

    change = memo((mark.values, ref_mark.values, align), "text", make)
    top = scale_of(change, mark.levels, ref_mark.levels)
    change_text = replace(mark, values=change, levels=(-top, top), map="signed", unit=f"Δ {mark.unit}".strip(), rgb=None)
    return change_text, f"text: now minus {pin.label}{floored(change, top)}"


def _lines(mark: Lines, ref_mark: Lines, pin: Pinned) -> tuple[Mark, str] | None:
    """The reference's curves dashed, in the colours of ours; those dashed already (a spread, a control) are left out."""
    solid = [i for i in range(len(mark.ys)) if not (mark.dashed and mark.dashed[i])] or list(range(len(mark.ys)))
    dropped_names = [name for i, name in enumerate(mark.names) if i not in solid]
    mark, ref_mark = _curves(mark, solid), _curves(ref_mark, [i for i in solid if i < len(ref_mark.ys)])
    n = len(mark.x)
    if mark.x_axis.tokens and not pin.same_ids:
        return None
    if len(ref_mark.x) < n or not np.array_equal(mark.x, ref_mark.x[:n]) or mark.y_axis.label != ref_mark.y_axis.label:
        return None
    count = min(len(mark.ys), len(ref_mark.ys))
    ys = memo((mark.ys, ref_mark.ys), "curves", lambda: np.vstack([mark.ys, ref_mark.ys[:count, :n]]))
    hues = mark.hues
    one_curve = len(mark.names) == 1
    names = ("now",) if one_curve else mark.names
    ref_names = (pin.label,) if one_curve else tuple(f"{name} in {pin.label}" for name in ref_mark.names[:count])
    dashed = (*(False,) * len(mark.ys), *(True,) * count)
    keys = mark.curve_ids
    keys = None if keys is None else np.concatenate([keys, np.full((count, keys.shape[1]), -1)])
    both = replace(mark, ys=ys, names=(*names, *ref_names), hues=(*hues, *hues[:count]), dashed=dashed, curve_ids=keys)
    return both, f"dashed: {pin.label}" + (f"; not drawn beside it: {', '.join(dropped_names)}" if dropped_names else "")


def _curves(mark: Lines, curves: list[int]) -> Lines:
    """The curves with these indices, solid, in the colours that they had."""
    place = {old: new for new, old in enumerate(curves)}
    hues = mark.hues or tuple(-1 - i for i in range(len(mark.ys)))
    new_indices = lambda old: tuple(place[i] for i in old if i in place)
    return replace(
        mark,
        ys=memo((mark.ys,), ("curves", tuple(curves)), lambda: mark.ys[curves]),
        names=tuple(mark.names[i] for i in curves),
        hues=tuple(hues[i] for i in curves),
        dashed=(),
        chosen=new_indices(mark.chosen),
        named=None if mark.named is None else new_indices(mark.named),
        curve_ids=None if mark.curve_ids is None else mark.curve_ids[curves],
    )


def _bars(mark: Bars, ref_mark: Bars, pin: Pinned) -> tuple[Mark, str] | None:
    ref_values = dict(zip(ref_mark.labels, ref_mark.values.tolist(), strict=True))
    make = lambda: np.array([value - ref_values.get(name, 0.0) for name, value in zip(mark.labels, mark.values, strict=True)])
    change = memo((mark.values, ref_mark.values), "bars", make)
    return replace(mark, values=change, unit=f"Δ {mark.unit}".strip()), f"bars: now minus {pin.label}"


def _points(mark: Points, ref_mark: Points, pin: Pinned) -> tuple[Mark, str] | None:
    """How far each item moved along both axes; both sets where items have no identity (eigenvalues)."""
    if mark.equal:
        both_sets = memo((mark.x, ref_mark.x), ("both", mark.tips), lambda: _both(mark, ref_mark, pin))
        return both_sets, f"one other colour: {pin.label}"
    place = {key: i for i, key in enumerate(keys_of(ref_mark.ids))}
    rows = np.array([place.get(key, -1) for key in keys_of(mark.ids)])
    if rows.max(initial=-1) < 0:
        return None

    def shift(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(rows >= 0, a - b[np.maximum(rows, 0)], np.nan)

    x, y = memo((mark.x, mark.y, ref_mark.x, ref_mark.y), "moved", lambda: (shift(mark.x, ref_mark.x), shift(mark.y, ref_mark.y)))
    axes = {f"{side}_axis": Axis(f"Δ {getattr(mark, f'{side}_axis').label}") for side in "xy"}
    n_unmatched = int((rows < 0).sum())
    unmatched_words = f", {n_unmatched} not listed there" if n_unmatched else ""
    return replace(mark, x=x, y=y, **axes), f"points: how far each moved since {pin.label}{unmatched_words}"


def _both(mark: Points, ref_mark: Points, pin: Pinned) -> Points:
    ref_length = len(ref_mark.x)
    tips = (*mark.tips, *(f"{pin.label}: {tip}" for tip in ref_mark.tips)) if mark.tips else ()
    labels = (*mark.labels, *("" for _ in range(ref_length))) if mark.labels else ()
    hues = None if mark.hues is None else np.concatenate([mark.hues, np.full(ref_length, PINNED_HUE)])
    values = None if mark.values is None or ref_mark.values is None else np.concatenate([mark.values, ref_mark.values])
    join = lambda a, b: np.concatenate([a, b])
    x, y, keys = join(mark.x, ref_mark.x), join(mark.y, ref_mark.y), join(mark.ids, ref_mark.ids)
    return replace(mark, x=x, y=y, ids=keys, tips=tips, labels=labels, hues=hues, values=values)


def _edges(mark: Edges, ref_mark: Edges, pin: Pinned) -> tuple[Mark, str] | None:
    def keys(edges: Edges) -> list[tuple[int, ...]]:
        edge_ids = edges.ends if edges.edge_ids is None else edges.edge_ids
        return [(*key, int(kind)) for key, kind in zip(keys_of(edge_ids), edges.kinds, strict=True)]

    def make() -> tuple[np.ndarray, np.ndarray]:
        value = lambda edges: edges.weights if edges.values is None else edges.values
        ref_values = dict(zip(keys(ref_mark), value(ref_mark).tolist(), strict=True))
        change = np.array([v - ref_values.get(key, np.nan) for key, v in zip(keys(mark), value(mark).tolist(), strict=True)])
        return change, np.nan_to_num(np.abs(change) / top_of(change, FLOOR * size_of(value(mark), value(ref_mark))))

    change, weights = memo((mark.ends, mark.weights, ref_mark.ends, ref_mark.weights), "edges", make)
    changed_edges = replace(mark, values=change, weights=weights, unit=f"Δ {mark.unit}".strip())
    words = f"wider lines: larger change since {pin.label}{_signed(mark, change)}; edges not listed there are left out"
    return changed_edges, Essential(words)


def _signed(mark: Edges, change: np.ndarray) -> str:
    """The largest changes with their signs, in words: a width has none, and on paper nothing can be pointed at."""
    order = [i for i in descending(change, by_size=True)[:SIGNED].tolist() if np.isfinite(change[i]) and change[i]]
    ends = lambda i: "–".join(mark.labels[node] for node in mark.ends[i].tolist())
    each = ", ".join(f"{KINDS[mark.kinds[i]]} {ends(i)} {number(float(change[i]), '+.2g')}" for i in order)
    return f", the largest {each}" if each else ""


_DIFFERENCES: dict[type[Any], Callable[[Any, Any, Pinned], tuple[Mark, str] | None]] = {
    Heatmap: _heatmap,
    Tokens: _tokens,
    Lines: _lines,
    Bars: _bars,
    Points: _points,
    Edges: _edges,
    Rows: rows_difference,
}
