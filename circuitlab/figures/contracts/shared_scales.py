"""Scales of what is compared: one for a mark and its reference, one for differences, and their ends in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.marks import Heatmap, Mark, RowColumn, Rows, Tokens

FLOOR = 0.01  # of the scale of what is compared: a difference's colours never take less of it for their whole range


def top_of(values: np.ndarray, least: float = 0.0) -> float:
    """The largest size, and no less than `least`."""
    finite = np.abs(values[np.isfinite(values)])
    return max(float(finite.max()) if finite.size and finite.max() > 0 else 1.0 if not least else 0.0, least)


def scale_of(change: np.ndarray, *levels: tuple[float, float]) -> float:
    """Where the colours of a difference end, either way: at its largest, and not below `FLOOR` of what both sides are drawn on.

    So what hardly changes is pale, as it is beside the values themselves.
    """
    return top_of(change, FLOOR * max(min(high - low, max(abs(low), abs(high))) for low, high in levels))


def size_of(*values: np.ndarray) -> float:
    """The largest finite size in all of them, 0 where there is none."""
    return max((float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in values), default=0.0)


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
    partners = {c.name: c for c in there if c.bar or c.map is not None}
    scaled = lambda c: replace(c, levels=_union(c.levels, partners[c.name].levels)) if c.bar or c.map is not None else c
    columns = tuple(scaled(c) if c.name in partners else c for c in here)
    return here if all(a.levels == b.levels for a, b in zip(here, columns, strict=True)) else columns


def floored(change: np.ndarray, top: float) -> str:
    """Said where colours end above the largest change."""
    most = size_of(change)
    return f", {figured(most)} at most: colours to {FLOOR:.0%} of the scale of both" if most < top * (1 - 1e-6) else ""


def on_one_scale(compared: dict[Mark, Mark]) -> dict[Mark, Mark]:
    """Differences (by the marks that they were made of) of maps and texts that had one scale before have one again."""
    changed = {mark: one for mark, one in compared.items() if isinstance(one, Heatmap | Tokens) and one is not mark}
    alike: dict[tuple[object, ...], float] = {}
    scale = lambda mark: (mark.levels, mark.map, mark.unit)
    for mark, one in changed.items():
        alike[scale(mark)] = max(alike.get(scale(mark), 0.0), one.levels[1])
    wider = lambda one, top: one if one.levels[1] == top else replace(one, levels=(-top, top))
    return {mark: wider(one, alike[scale(mark)]) if mark in changed else one for mark, one in compared.items()}


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
