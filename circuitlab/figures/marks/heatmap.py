"""A matrix as an image, or a contact sheet of many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from circuitlab.figures.marks.common import Axis, ColourMap, Frozen


@dataclass(frozen=True)
class Tiles:
    """A heatmap that is a contact sheet: `rows × cols` tiles of `height × width` cells, `gap` empty cells between.

    A hit gives (tile row, tile col). `chosen` are outlined.
    """

    rows: int
    cols: int
    height: int
    width: int
    gap: int = 2
    chosen: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class Heatmap(Frozen):
    """A matrix as an image. `values` [row, col] float32, NaN is left empty; row 0 on top.

    `levels` (low, high) of the colour map; "signed" maps are symmetric about 0. `rgb` [row, col, 3] uint8 in place of the
    colour map (several heads, a hue each; `values` then hold what the readout says; `legend` names the hues: (text, hue)).
    `row`, `col`: a crosshair on a selected cell, row or column. Hits are (row, col), a tile, or (*row_ids[row], *col_ids[col])
    where these [·, k] int are given. `texts` [row, col] str: token text written into a cell where it fits. `framed` [row, col]
    bool: cells with a frame round them. `hints`: what else the readout says of a cell or tile.
    """

    name: str
    values: np.ndarray
    levels: tuple[float, float]
    x: Axis = Axis()
    y: Axis = Axis()
    map: ColourMap = "magnitude"
    unit: str = ""
    rgb: np.ndarray | None = None
    legend: tuple[tuple[str, int], ...] = ()
    row: int | None = None
    col: int | None = None
    tiles: Tiles | None = None
    colour_bar: bool = True
    square: bool = True
    row_ids: np.ndarray | None = None
    col_ids: np.ndarray | None = None
    hatched: np.ndarray | None = None
    texts: np.ndarray | None = None
    framed: np.ndarray | None = None
    hints: Mapping[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
