"""Points, lines, bars, graphs and dials."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circuitlab.figures.marks.common import NUMBERS, WHOLE, Axis, ColourMap, Frozen


@dataclass(frozen=True, eq=False)
class Points(Frozen):
    """A scatter. `x`, `y` [n]; `hues` [n] int (`figures/contracts/hues.py`), or `values` [n] on a colour map; `ids` [n, k] int.

    `labels` [n] str under the pointer and, where there are few, beside the points: the first ones find room first. `tips` [n]:
    what the readout says in place of label and coordinates. `chosen` indices are ringed; `size` in px. `paths`: indices of points
    that are joined, in their order, each path in the hue of its last point; `legend` names hues: (text, hue).
    `sight` (x low, x high, y low, y high) is in view whatever the points are, so that noise is not drawn large; `controls`
    [n, 2]: where each point would stand by its control, a ring that a line joins to it, NaN for none. `origin`: lines through
    x = 0 and y = 0, and the half where x > 0 is tinted; `rings`: (radius, text) of circles round the origin.
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
    sight: tuple[float, float, float, float] | None = None
    controls: np.ndarray | None = None
    origin: bool = False
    rings: tuple[tuple[float, str], ...] = ()

    def check(self) -> None:
        """One of everything for each point."""
        self.shaped("x", NUMBERS, None)
        n = len(self.x)
        self.shaped("y", NUMBERS, n)
        self.shaped("hues", WHOLE, n)
        self.shaped("values", NUMBERS, n)
        self.shaped("ids", WHOLE, n, None)
        self.counted("labels", n)
        self.counted("tips", n)
        self.shaped("controls", NUMBERS, n, 2)
        self.within("chosen", n)
        self.within("paths", n, (i for path in self.paths for i in path))
        self.levelled()


@dataclass(frozen=True, eq=False)
class Lines(Frozen):
    """Curves over a shared x. `x` [n]; `ys` [curve, n], NaN breaks a line; `hues` [curve] int, of a head; −1, −2, … are
    the plain colours in their order, as they are taken without hues. Ids are (curve,).

    `marks`: labelled vertical lines (x, text); `bands`: shaded spans of x (from, to, text); `current`: the x that is looked at.
    `steps`: ids are (curve, index into x), curve −1 where none is near; hits are then (*curve_ids[curve], *step_ids[index]) where
    these [·, k] int are given, with −1 in place of a curve's where none is near. `named`: the curves in the legend. `joined`: NaN
    is where a curve has no point, and its points are joined over it.
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
    joined: bool = False

    def check(self) -> None:
        """A name for each curve, a value of each for every x."""
        self.shaped("x", NUMBERS, None)
        self.shaped("ys", NUMBERS, None, len(self.x))
        curves = len(self.ys)
        if len(self.names) != curves:
            raise self.refuse("names", f"{curves}, one for each curve", len(self.names))
        self.counted("hues", curves)
        self.counted("dashed", curves)
        self.within("named", curves, self.named or ())
        self.within("chosen", curves)
        self.shaped("curve_ids", WHOLE, curves, None)
        self.shaped("step_ids", WHOLE, len(self.x), None)
        if self.curve_ids is not None and self.step_ids is None:
            raise self.refuse("curve_ids and step_ids", "both, or step_ids alone", "curve_ids alone")


@dataclass(frozen=True, eq=False)
class Bars(Frozen):
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

    def check(self) -> None:
        """A label for each bar."""
        self.shaped("values", NUMBERS, None)
        n = len(self.values)
        if len(self.labels) != n:
            raise self.refuse("labels", f"{n}, one for each bar", len(self.labels))
        if self.hues is not None and len(self.hues) != n:
            raise self.refuse("hues", f"{n}, one for each bar", len(self.hues))
        self.within("chosen", n)


@dataclass(frozen=True, eq=False)
class Edges(Frozen):
    """A graph. Nodes: `xy` [n, 2], `labels`, `hues` [n]; edges: `ends` [m, 2] int, `weights` [m] in 0..1 (width, opacity).

    `kinds` [m] int: 0 Q, 1 K, 2 V (colour and dash); `values` [m] in `unit`: what the readout says in place of the weight.
    Hits are (0, node) or (1, edge), or (0, *node_ids[node]) and (1, *edge_ids[edge]) where these [·, k] int are given.
    `badges` [n]: a few words above a node, "" for none; `hints` [n]: what else the readout says of it. `edge_badges` [m] and
    `edge_hints` [m]: the same of edges, the badge on the middle of the line. `rows`: (y, text) names a row of nodes at the left
    edge. `struck` nodes are crossed. `brackets`: nodes of one row that belong together, held by a bracket below them.
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
    struck: tuple[int, ...] = ()
    edge_badges: tuple[str, ...] = ()
    edge_hints: tuple[str, ...] = ()
    brackets: tuple[tuple[int, ...], ...] = ()

    def check(self) -> None:
        """A label and a hue for each node, two nodes that are there for each edge."""
        self.shaped("xy", NUMBERS, None, 2)
        self.shaped("ends", WHOLE, None, 2)
        nodes, edges = len(self.xy), len(self.ends)
        if len(self.labels) != nodes:
            raise self.refuse("labels", f"{nodes}, one for each node", len(self.labels))
        self.shaped("hues", WHOLE, nodes)
        self.shaped("weights", NUMBERS, edges)
        self.shaped("kinds", WHOLE, edges)
        self.shaped("values", NUMBERS, edges)
        if edges and (int(self.ends.min()) < 0 or int(self.ends.max()) >= nodes):
            raise self.refuse("ends", f"nodes from 0 to {nodes - 1}", f"{int(self.ends.min())} to {int(self.ends.max())}")
        if edges and (int(self.kinds.min()) < 0 or int(self.kinds.max()) > 2):
            raise self.refuse("kinds", "0 Q, 1 K, 2 V", f"{int(self.kinds.min())} to {int(self.kinds.max())}")
        self.within("chosen_edges", edges)
        self.within("chosen_nodes", nodes)
        self.within("struck", nodes)
        self.within("brackets", nodes, (node for bracket in self.brackets for node in bracket))
        self.shaped("node_ids", WHOLE, nodes, None)
        self.shaped("edge_ids", WHOLE, edges, None)
        self.counted("badges", nodes)
        self.counted("hints", nodes)
        self.counted("edge_badges", edges)
        self.counted("edge_hints", edges)


@dataclass(frozen=True, eq=False)
class Dials(Frozen):
    """Clock hands, a dial each. `angles` [n] radians from upright, clockwise; `labels` [n] beneath where there is room;
    `tips` [n]: the readout. Ids are (i,).
    """

    name: str
    angles: np.ndarray
    labels: tuple[str, ...] = ()
    tips: tuple[str, ...] = ()

    def check(self) -> None:
        """One of everything for each dial."""
        self.shaped("angles", NUMBERS, None)
        self.counted("labels", len(self.angles))
        self.counted("tips", len(self.angles))
