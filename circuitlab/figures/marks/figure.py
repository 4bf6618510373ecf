"""Marks put together in a figure, and a gesture on what is drawn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal

from circuitlab.caption_parts import About, Essential, about_of
from circuitlab.errors import BadFigure
from circuitlab.figures.marks.heatmap import Heatmap
from circuitlab.figures.marks.plots import Bars, Dials, Edges, Lines, Points
from circuitlab.figures.marks.texts import Prose, Rows, Tokens
from circuitlab.figures.marks.title import BETWEEN, joined

Gesture = Literal["hover", "click", "shift-click", "double-click", "leave"]
Does = Literal["", "pin", "ablate"]
Mark = Heatmap | Points | Lines | Bars | Edges | Tokens | Rows | Dials | Prose


def beyond(above: str, title: str) -> str:
    """What a title says beyond another one that stands above it: all of it, unless one begins as the other, which may be cut.

    Spaces at which no line breaks are spaces like others.
    """
    parts = title.split(BETWEEN)
    first, second = ([" ".join(part.split()) for part in text.split(BETWEEN)] for text in (above, title))
    same = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(parts)))
    whole = same in (len(first), len(parts))
    cut = same == len(first) - 1 < len(parts) and above.endswith("…") and second[same].startswith(first[same][:-1])
    return joined(*parts[same:]) if whole or cut else title


@dataclass(frozen=True, eq=False)
class Figure:
    """Rows of marks, top to bottom, left to right. `weights`: relative heights of the rows, `()` = by content.

    `caption_parts`: conventions, sample, remainder, each a part of its own, `Essential` where it must stay in sight. `shown`:
    (k, n) where something was pruned. `why_empty`: one sentence saying why there is nothing, with what to do next; then `grid` is
    empty, or has what to click, `does` is what a button of the window does about it ("pin": this prompt, "ablate": the chosen
    heads), and `elsewhere` is what to do where there is none. `about`: what it is a figure of: model, step,
    prompt, interventions, in a few words each; on paper they stand in front of the caption, on the screen the window says them
    once for all panels. `cut`: the part of the title that says what is cut, which a reader must not have to look for.
    """

    grid: tuple[tuple[Mark, ...], ...] = ()
    title: str = ""
    caption_parts: tuple[str, ...] = ()
    shown: tuple[int, int] | None = None
    why_empty: str = ""
    weights: tuple[float, ...] = ()
    about: tuple[str, ...] = ()
    elsewhere: str = ""
    cut: str = ""
    does: Does = ""

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

    @property
    def brief(self) -> tuple[str, ...]:
        """What of the caption can be read at once: its first clause, what is `Essential`, and what was sampled.

        Conventions are not in it: who shows it says them beside the figure.
        """
        clauses = [part for part in self.caption_parts if about_of(part) not in (About.READING, About.EXACT)]
        stays = lambda part: isinstance(part, Essential) or about_of(part) is About.SAMPLE
        return tuple(part for part in clauses if part is clauses[0] or stays(part))

    def title_parts(self, title: str) -> tuple[str, ...]:
        """The parts of this title or of what is shown of it, of which that on the cut must stay in sight."""
        return tuple(Essential(part) if part == self.cut else part for part in title.split(BETWEEN) if part)

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


def empty(why: str, title: str = "", elsewhere: str = "", does: Does = "") -> Figure:
    """A figure that says why there is nothing to see, and what to do about it: with a button, or where there is no window."""
    return Figure(title=title, why_empty=why, elsewhere=elsewhere, does=does)
