"""What can be drawn, as data: nine marks, frozen numpy arrays, no Qt.

Every drawn item has an id (a tuple of whole numbers) which a click gives back. Marks are compared by identity of their
arrays: a mark whose arrays are the same objects as last time is not drawn again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

ColourMap = Literal["magnitude", "signed", "loss"]
Gesture = Literal["hover", "click", "shift-click", "double-click", "leave"]


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis: what it counts, and a label for each step (tokens, head names), `()` for plain numbers.

    `tokens` marks labels as token text, set in the mono face with visible spaces. `spans`: (first step, one past the last, name)
    of ranges that have a name in common; these are then written, ruled off, in place of the labels of single steps. `thin`:
    labels that do not fit side by side are left out, not turned; `bare`: nothing is written, the plot below has the same axis.
    """

    label: str = ""
    ticks: tuple[str, ...] = ()
    tokens: bool = False
    log: bool = False
    spans: tuple[tuple[int, int, str], ...] = ()
    thin: bool = False
    bare: bool = False


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


class _Frozen:
    """Arrays of a mark cannot be written to: they are compared by identity."""

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)


@dataclass(frozen=True, eq=False)
class Heatmap(_Frozen):
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


@dataclass(frozen=True, eq=False)
class Points(_Frozen):
    """A scatter. `x`, `y` [n]; `hues` [n] int (see `circuitlab.figures.hues`), or `values` [n] on a colour map; `ids` [n, k] int.

    `labels` [n] str for hover and, where few, beside the points; `tips` [n]: what the readout says in place of label and
    coordinates; `chosen` indices are ringed; `size` in px. `paths`: indices of points that are joined, in their order, each path
    in the hue of its last point; `legend` names hues: (text, hue).
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    ids: np.ndarray
    labels: tuple[str, ...] = ()
    tips: tuple[str, ...] = ()
    hues: np.ndarray | None = None
    values: np.ndarray | None = None
    levels: tuple[float, float] = (0.0, 1.0)
    map: ColourMap = "magnitude"
    size: float = 7.0
    chosen: tuple[int, ...] = ()
    x_axis: Axis = Axis()
    y_axis: Axis = Axis()
    equal: bool = False
    paths: tuple[tuple[int, ...], ...] = ()
    legend: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, eq=False)
class Lines(_Frozen):
    """Curves over a shared x. `x` [n]; `ys` [curve, n], NaN breaks a line; `hues` [curve] int, of a head; −1, −2, … are
    the plain colours in their order, as they are taken without hues. Ids are (curve,).

    `marks`: labelled vertical lines (x, text); `bands`: shaded spans of x (from, to, text); `current`: the x that is looked at.
    `steps`: ids are (curve, index into x), curve −1 where none is near; hits are then (*curve_ids[curve], *step_ids[index]) where
    these [·, k] int are given, with −1 in place of a curve's where none is near. `named`: the curves in the legend.
    """

    name: str
    x: np.ndarray
    ys: np.ndarray
    names: tuple[str, ...]
    hues: tuple[int, ...] = ()
    dashed: tuple[bool, ...] = ()
    chosen: tuple[int, ...] = ()
    marks: tuple[tuple[float, str], ...] = ()
    bands: tuple[tuple[float, float, str], ...] = ()
    current: float | None = None
    steps: bool = False
    named: tuple[int, ...] | None = None
    curve_ids: np.ndarray | None = None
    step_ids: np.ndarray | None = None
    x_axis: Axis = Axis()
    y_axis: Axis = Axis()


@dataclass(frozen=True, eq=False)
class Bars(_Frozen):
    """Horizontal bars, one a row, longest names first read. `values` [n] (signed allowed); `labels` [n]; ids are (i,).

    `hues` [n] int or None for the neutral data colour; `tokens` says that labels are token text.
    """

    name: str
    values: np.ndarray
    labels: tuple[str, ...]
    hues: tuple[int, ...] | None = None
    unit: str = ""
    tokens: bool = False
    chosen: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Edges(_Frozen):
    """A graph. Nodes: `xy` [n, 2], `labels`, `hues` [n]; edges: `ends` [m, 2] int, `weights` [m] in 0..1 (width, opacity).

    `kinds` [m] int: 0 Q, 1 K, 2 V (colour and dash); `values` [m] in `unit`: what the readout says in place of the weight.
    Hits are (0, node) or (1, edge), or (0, *node_ids[node]) and (1, *edge_ids[edge]) where these [·, k] int are given.
    `badges` [n]: a few words above a node, "" for none; `hints` [n]: what else the readout says of it. `rows`: (y, text)
    names a row of nodes at the left edge.
    """

    name: str
    xy: np.ndarray
    labels: tuple[str, ...]
    hues: np.ndarray
    ends: np.ndarray
    weights: np.ndarray
    kinds: np.ndarray
    chosen_nodes: tuple[int, ...] = ()
    chosen_edges: tuple[int, ...] = ()
    values: np.ndarray | None = None
    unit: str = ""
    node_ids: np.ndarray | None = None
    edge_ids: np.ndarray | None = None
    badges: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    rows: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Tokens(_Frozen):
    """Running text, one box a token, coloured by value. `texts` [n] display text; `values` [n], NaN uncoloured.

    `ids_text` [n]: what stands in the tooltip (raw text, id, index). Hits are (position,). `row` is the locked or hovered
    token; `rgb` [n, 3] uint8 in place of the colour map; `heading`: a line above.
    """

    name: str
    texts: tuple[str, ...]
    values: np.ndarray
    levels: tuple[float, float] = (0.0, 1.0)
    map: ColourMap = "magnitude"
    unit: str = ""
    tips: tuple[str, ...] = ()
    row: int | None = None
    locked: bool = False
    rgb: np.ndarray | None = None
    heading: str = ""


@dataclass(frozen=True, eq=False)
class RowColumn(_Frozen):
    """One column of `Rows`: `values` numbers or str [n]; `digits` after the point; `bar` draws the value as a bar behind it.

    `tokens` says that the text is token text (mono, plain, visible spaces); `levels` with `map` tints the cell.
    """

    name: str
    values: np.ndarray
    digits: int = 3
    unit: str = ""
    tokens: bool = False
    bar: bool = False
    map: ColourMap | None = None
    levels: tuple[float, float] = (0.0, 1.0)
    tip: str = ""


@dataclass(frozen=True, eq=False)
class Rows(_Frozen):
    """A table that sorts, filters and copies. `ids` [n, k] int; hits are a row's id. `chosen` are row indices.

    `heading`: a line above.
    """

    name: str
    columns: tuple[RowColumn, ...]
    ids: np.ndarray
    chosen: tuple[int, ...] = ()
    sort: tuple[int, Literal["up", "down"]] | None = None
    searchable: bool = False
    heading: str = ""


@dataclass(frozen=True, eq=False)
class Dials(_Frozen):
    """Clock hands, a dial each. `angles` [n] radians from upright, clockwise; `labels` [n] beneath where there is room;
    `tips` [n]: the readout. Ids are (i,).
    """

    name: str
    angles: np.ndarray
    labels: tuple[str, ...] = ()
    tips: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Prose(_Frozen):
    """Paragraphs, each with a word or two that lead it (in bold), "" for none; `formula`: a line above them. Nothing to pick."""

    name: str
    paragraphs: tuple[tuple[str, str], ...]
    formula: str = ""


Mark = Heatmap | Points | Lines | Bars | Edges | Tokens | Rows | Dials | Prose


@dataclass(frozen=True, eq=False)
class Figure:
    """Rows of marks, top to bottom, left to right. `weights`: relative heights of the rows, `()` = by content.

    `caption`: conventions, sample, remainder. `shown`: (k, n) where something was pruned. `why_empty`: one sentence saying
    why there is nothing, with what to do next; then `grid` is empty, or has what to
    click. `compared`: the reference pin is in it already, and the caption says how.
    """

    grid: tuple[tuple[Mark, ...], ...] = ()
    title: str = ""
    caption: str = ""
    shown: tuple[int, int] | None = None
    why_empty: str = ""
    weights: tuple[float, ...] = ()
    compared: bool = False

    def marks(self) -> tuple[Mark, ...]:
        """All marks, row by row."""
        return tuple(mark for row in self.grid for mark in row)

    def find(self, name: str) -> Mark | None:
        """The mark called `name`."""
        return next((m for m in self.marks() if m.name == name), None)


@dataclass(frozen=True)
class Hit:
    """A gesture on a drawn item: which mark, which id. On "leave" the id is empty."""

    mark: str
    id: tuple[int, ...] = field(default=())
    gesture: Gesture = "click"


def empty(why: str, title: str = "") -> Figure:
    """A figure that says why there is nothing to see."""
    return Figure(title=title, why_empty=why)


def ids(*columns: np.ndarray) -> np.ndarray:
    """Columns of whole numbers as an `ids` array [n, k]."""
    made = np.stack([np.asarray(c, dtype=np.int64) for c in columns], axis=1)
    made.setflags(write=False)
    return made
