"""A figure without the marks of a selection that nobody has made: its rings, frames and accents."""

from __future__ import annotations

import re
from dataclasses import replace

from circuitlab.figures.marks import Bars, Edges, Figure, Heatmap, Lines, Mark, Points, Rows, Tokens
from circuitlab.figures.marks.title import Title, parts_of
from circuitlab.model.subject import Head

FIRST = re.compile(rf"\b{Head(0, 0)}\b")  # the selection at the start


def without_choice(figure: Figure, heads: bool = True, places: bool = True) -> Figure:
    """The same data; `heads`, `places`: whether choices of heads and edges go, and those of positions and tokens.

    A title that names the head shown says that it is the first one, not one that somebody chose.
    """
    grid = tuple(tuple(_plain(mark, heads, places) for mark in row) for row in figure.grid)
    return replace(figure, grid=grid, title=_of_the_first(figure.title) if heads else figure.title)


def _of_the_first(title: str) -> str:
    """The title with the panel's first mention of that head explained; names of heads are written in one way alone."""
    parts = parts_of(title)
    at = next((i for i, part in enumerate(parts.own) if FIRST.search(part)), None)
    if at is None:
        return title
    own = FIRST.sub(r"\g<0> (first head)", parts.own[at], count=1)
    return Title(replace(parts, own=(*parts.own[:at], own, *parts.own[at + 1 :])))


def _plain(mark: Mark, heads: bool, places: bool) -> Mark:
    changes: dict[str, object] = {}
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
