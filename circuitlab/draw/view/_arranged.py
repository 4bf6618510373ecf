"""A figure with its tables sorted and filtered as they are on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from circuitlab.figures.marks import Figure, Mark, Rows


def as_arranged(figure: Figure, widgets: Mapping[tuple[type, str], object]) -> Figure:
    """`widgets` draw its marks, by type and name; the caption says what a filter leaves out."""
    words: list[str] = []
    grid = tuple(tuple(_arranged(mark, widgets, words) for mark in row) for row in figure.grid)
    return replace(figure, grid=grid).with_caption(*words)


def _arranged(mark: Mark, widgets: Mapping[tuple[type, str], Any], words: list[str]) -> Mark:
    if not isinstance(mark, Rows):
        return mark
    model = widgets[Rows, mark.name].model
    order = model.order
    if np.array_equal(order, np.arange(len(mark.ids))):
        return mark
    if model.filter_text:
        words.append(f"{len(order):,} of {len(mark.ids):,} rows, those with ‘{model.filter_text}’")
    columns = tuple(replace(c, values=np.asarray(c.values)[order]) for c in mark.columns)
    chosen, strong = (tuple(np.flatnonzero(np.isin(order, rows)).tolist()) for rows in (mark.chosen, mark.strong))
    return replace(mark, columns=columns, ids=mark.ids[order], chosen=chosen, strong=strong, sort=None)
