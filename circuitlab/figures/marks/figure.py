"""Marks put together in a figure, and a gesture on what is drawn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal

from circuitlab.errors import BadFigure
from circuitlab.figures.marks.heatmap import Heatmap
from circuitlab.figures.marks.plots import Bars, Dials, Edges, Lines, Points
from circuitlab.figures.marks.texts import Prose, Rows, Tokens

BETWEEN = " · "  # parts of a title or a caption, where they are written in one line
Gesture = Literal["hover", "click", "shift-click", "double-click", "leave"]
Mark = Heatmap | Points | Lines | Bars | Edges | Tokens | Rows | Dials | Prose


def joined(*parts: str) -> str:
    """Parts of a title or a caption in one line; "" is none."""
    return BETWEEN.join(filter(None, parts))


@dataclass(frozen=True, eq=False)
class Figure:
    """Rows of marks, top to bottom, left to right. `weights`: relative heights of the rows, `()` = by content.

    `caption_parts`: conventions, sample, remainder, each a part of its own, `Essential` where it must stay in sight. `shown`:
    (k, n) where something was pruned. `why_empty`: one sentence saying why there is nothing, with what to do next; then `grid` is
    empty, or has what to click. `about`: what it is a figure of: model, step, prompt, interventions, in a few words each; on
    paper they stand in front of the caption, on the screen the window says them once for all panels.
    """

    grid: tuple[tuple[Mark, ...], ...] = ()
    title: str = ""
    caption_parts: tuple[str, ...] = ()
    shown: tuple[int, int] | None = None
    why_empty: str = ""
    weights: tuple[float, ...] = ()
    about: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Marks are found, and their widgets kept, by kind and name; a caption is given in parts."""
        if isinstance(self.caption_parts, str):
            raise BadFigure(f"“{self.title}” cannot be drawn.", expected="a caption in parts", got="one text")
        counts = Counter((type(mark).__name__, mark.name) for mark in self.marks())
        if twice := [f"{kind} “{name}”" for (kind, name), n in counts.items() if n > 1]:
            raise BadFigure(f"“{self.title}” cannot be drawn: two marks are called alike.", expected="a name each", got=twice[0])
        if self.weights and len(self.weights) != len(self.grid):
            raise BadFigure(f"“{self.title}” cannot be drawn.", expected=f"{len(self.grid)} weights", got=str(len(self.weights)))

    @property
    def caption(self) -> str:
        """All parts of the caption in one line."""
        return joined(*self.caption_parts)

    def with_caption(self, *more: str) -> Figure:
        """The figure with further parts of its caption; "" is none."""
        return replace(self, caption_parts=(*self.caption_parts, *filter(None, more))) if any(more) else self

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
