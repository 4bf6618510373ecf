"""A matrix as an image, or a contact sheet of many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from circuitlab.figures.marks.common import FLAGS, NUMBERS, TEXT, WHOLE, Axis, Colour, ColourMap, Frozen


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

    def extent(self) -> tuple[int, int]:
        """Rows and columns of cells."""
        down, across = (n * (size + self.gap) - self.gap for n, size in ((self.rows, self.height), (self.cols, self.width)))
        return max(down, 0), max(across, 0)

    def turned(self) -> Tiles:
        """The sheet with its rows of tiles as columns."""
        chosen = tuple((col, row) for row, col in self.chosen)
        return replace(self, rows=self.cols, cols=self.rows, chosen=chosen)

    def turn(self, sheet: np.ndarray) -> np.ndarray:
        """[row, col, …] cells of this sheet with its rows of tiles as columns; each tile stays as it is."""
        (down, across), empty = self.turned().extent(), np.nan if sheet.dtype.kind == "f" else 255
        turned = np.full((down, across, *sheet.shape[2:]), empty, dtype=sheet.dtype)
        high, wide = self.height + self.gap, self.width + self.gap
        for row, col in np.ndindex(self.rows, self.cols):
            tile = sheet[row * high : row * high + self.height, col * wide : col * wide + self.width]
            turned[col * high : col * high + self.height, row * wide : row * wide + self.width] = tile
        return turned


@dataclass(frozen=True, eq=False)
class Heatmap(Frozen):
    """A matrix as an image. `values` [row, col] float32, NaN is left empty; row 0 on top.

    `levels` (low, high) of the colour map; "signed" maps are symmetric about 0. `rgb` [row, col, 3] uint8 in place of the
    colour map (several heads, a hue each; `values` then hold what the readout says; `legend` names every colour: (text, hue), or
    (text, colour on white)).
    `row`, `col`: a crosshair on a selected cell, row or column. Hits are (row, col), a tile, or (*row_ids[row], *col_ids[col])
    where these [·, k] int are given. `texts` [row, col] str: token text written into a cell where it fits. `framed` [row, col]
    bool: cells with a frame round them. `hints`: what else the readout says of a cell or tile. `struck`: cells or tiles that
    are crossed, (row, col) each. `blank`: what the readout says of a cell without a value. `turns`: where its rows are more than
    its columns it may be drawn with the rows across, in a room that is wide and low; hits and readouts stay those of this mark.
    """

    name: str
    values: np.ndarray
    levels: tuple[float, float]
    x: Axis = Axis()
    y: Axis = Axis()
    map: ColourMap = "magnitude"
    unit: str = ""
    rgb: np.ndarray | None = None
    legend: tuple[tuple[str, int | Colour], ...] = ()
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
    struck: tuple[tuple[int, int], ...] = ()
    blank: str = "empty"
    turns: bool = False

    def turned(self) -> Heatmap:
        """The same with its rows as columns. Each tile stays as it is."""
        swap = lambda cells: None if cells is None else np.ascontiguousarray(np.swapaxes(cells, 0, 1))
        cells = swap if self.tiles is None else self.tiles.turn
        return replace(
            self,
            values=cells(self.values),
            rgb=None if self.rgb is None else cells(self.rgb),
            x=self.y,
            y=self.x,
            row=self.col,
            col=self.row,
            row_ids=self.col_ids,
            col_ids=self.row_ids,
            tiles=None if self.tiles is None else self.tiles.turned(),
            hatched=swap(self.hatched),
            texts=swap(self.texts),
            framed=swap(self.framed),
            hints={(col, row): words for (row, col), words in self.hints.items()},
            struck=tuple((col, row) for row, col in self.struck),
        )

    def check(self) -> None:
        """Axes, ids and what is written into cells are of as many rows and columns as there are."""
        self.shaped("values", NUMBERS, None, None)
        self.levelled()
        n, m = self.values.shape
        self.shaped("rgb", "u", n, m, 3)
        self.shaped("texts", TEXT, n, m)
        self.shaped("hatched", FLAGS, n, m)
        self.shaped("framed", FLAGS, n, m)
        rows, cols = (n, m) if self.tiles is None else (self.tiles.rows, self.tiles.cols)
        if self.tiles is not None and self.values.size:
            self.shaped("values", NUMBERS, *(self.tiles.extent()))
            for axis, count in enumerate((rows, cols)):
                self.within("chosen tiles", count, (place[axis] for place in self.tiles.chosen))
        self.indexed("row", rows)
        self.indexed("col", cols)
        self.worded("y ticks", self.y.ticks)
        self.worded("x ticks", self.x.ticks)
        self.counted("y ticks", rows, self.y.ticks)
        self.counted("x ticks", cols, self.x.ticks)
        for axis, count in ((self.y, rows), (self.x, cols)):
            self.within("spans", count + 1, (end for first, stop, _ in axis.spans for end in (first, stop)))
        for axis, count in enumerate((rows, cols)):
            self.within("struck", count, (place[axis] for place in self.struck))
        self.shaped("row_ids", WHOLE, rows, None)
        self.shaped("col_ids", WHOLE, cols, None)
        if (self.row_ids is None) != (self.col_ids is None):
            raise self.refuse("row_ids and col_ids", "both, or none", "one of them")
