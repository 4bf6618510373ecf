"""A figure without the marks of a selection that nobody has made: its rings, frames and accents."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from circuitlab.figures.marks import Bars, Edges, Figure, Heatmap, Lines, Mark, Points, Rows, Tokens
from circuitlab.model.subject import Head

FIRST = re.compile(rf"\b{Head(0, 0)}\b")  # the selection at the start


def without_choice(figure: Figure, heads: bool = True, places: bool = True) -> Figure:
    """The same data; `heads`, `places`: whether choices of heads and edges go, and those of positions and tokens.

    A title that names the head shown says that it is the first one, not one that somebody chose.
    """
    grid = tuple(tuple(_plain(mark, heads, places) for mark in row) for row in figure.grid)
    title = FIRST.sub(r"\g<0> (first head)", figure.title, count=1) if heads else figure.title
    return replace(figure, grid=grid, title=title)


def _plain(mark: Mark, heads: bool, places: bool) -> Mark:
    changes: dict[str, Any] = {}
    match mark:
        case Heatmap():
            of_heads = mark.y.label == "layer" and mark.x.label == "head"
            if heads and mark.tiles is not None:
                changes["tiles"] = replace(mark.tiles, chosen=())
            if heads if of_heads else places:
                changes |= {"row": None, "col": None}
        case Points() | Lines():
            changes = {"chosen": ()} if heads else {}
        case Edges():
            changes = {"chosen_nodes": (), "chosen_edges": ()} if heads else {}
        case Bars() | Rows():
            changes = {"chosen": ()} if heads and places else {}
        case Tokens():
            changes = {"row": None, "locked": False} if places else {}
        case _:
            pass
    return replace(mark, **changes) if changes else mark
