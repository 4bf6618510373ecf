"""Which rows of a figure have room on a stage, whose type is large: what cannot be read is left out, and the caption says so.
And how a map shares the stage with its text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

from circuitlab.draw.heatmap.heatmap import HeatmapMark
from circuitlab.draw.look.theme import GRID, Theme
from circuitlab.draw.painted.tokens import TokensMark
from circuitlab.draw.plots.plot import PlotMark
from circuitlab.draw.plots.xy import XYPlot
from circuitlab.draw.tables.rows import RowsMark
from circuitlab.draw.view._realise import MarkWidget
from circuitlab.figures.marks import Mark

LEAST_PLOT, LEAST_MAP = 40, 100  # px of height at text size 1
LEAST_PICTURE = 40  # px of either side of a map at text size 1: below it the lines of its text give way
COLUMNS = 110, 160, 220, 300  # px of width at text size 1 that a text beside its map may get
MOST_LINES = 0.45  # of the height: lines of text below a map
INDEXED = 5  # largest step between indices below a text
TEXT, LARGER = 0.42, 0.02  # what a whole text is worth, and one in ordinary type, where a picture that fills the room is worth 1


@dataclass(frozen=True)
class MapAndText:
    """`beside`: the text stands beside its map, else below. `extent`: px of width of the map beside its text, or of height of the
    text below its map, which has no room where that is 0. `small`, `every`: as `TokensMark.set_type` has them.
    """

    beside: bool
    extent: int
    small: bool
    every: int


def map_and_text(picture: HeatmapMark, words: TokensMark, width: int, height: int, theme: Theme) -> MapAndText:
    """The arrangement in this room that has the largest picture with the most of its text.

    Where no arrangement leaves the picture its least size, the text goes.
    """
    choices = [one for small in (False, True) for one in _choices(picture, words, width, height, theme, small)]
    seen = [one for one in choices if one[0] > 0]
    return max(seen, key=lambda choice: choice[0])[1] if seen else MapAndText(False, 0, True, 0)


def _choices(
    picture: HeatmapMark, words: TokensMark, width: int, height: int, theme: Theme, small: bool
) -> Iterator[tuple[float, MapAndText]]:
    """Arrangements, each with what it is worth: nothing where its picture is a speck."""
    least = theme.px(LEAST_PICTURE)

    def worth(wide: int, high: int, share: float) -> float:
        across, down = picture.titled_in(wide, high).picture
        if min(across, down) < least:
            return 0.0
        return across * down / (width * height) + TEXT * sqrt(min(share, 1.0)) + LARGER * (not small)

    def indexed(wide: int, high: int) -> int:
        return min(picture.index_step_in(wide, high), INDEXED)

    n = 1
    while n == 1 or n * words.heights(width, small, 0)[1] <= MOST_LINES * height:
        whole, line = words.heights(width, small, 0)
        every = indexed(width, height - min(whole, n * line + 2) - GRID)
        whole, line = words.heights(width, small, every)
        lines = min(whole, n * line + 2)
        yield worth(width, height - lines - GRID, lines / max(whole, 1)), MapAndText(False, max(lines, 28), small, every)
        if lines >= whole:
            break
        n += 1
    for column in map(theme.px, COLUMNS):
        wide = min(picture.natural_width(height), width - column - GRID)
        if wide > 0:
            every = indexed(wide, height)
            whole, line = words.heights(width - wide - GRID, small, every)
            share = (height - height % line) / max(whole, 1)
            yield worth(wide, height, share), MapAndText(True, wide, small, every)


def least_height(widget: MarkWidget, width: int, theme: Theme) -> int:
    """px of height in which something of a mark of this width can be read."""
    if isinstance(widget, XYPlot):
        return widget.around(width) + theme.px(LEAST_PLOT)
    if isinstance(widget, PlotMark):
        return theme.px(LEAST_MAP)
    return widget.least_on_stage(width) if isinstance(widget, RowsMark | TokensMark) else max(widget.line_height(), 28)


def without_room(rows: Sequence[Sequence[tuple[Mark, MarkWidget]]], width: int, room: int, theme: Theme) -> set[int]:
    """The rows of marks, each with its widget, that have to go so that the others are read in `room` px of height
    and `width`.

    Texts, bars and dials go first, then tables, the last ones first; then pictures, those first that have their axis in common
    with one below.
    """
    least = {i: max(least_height(widget, width // len(row), theme) for _, widget in row) for i, row in enumerate(rows)}
    gone: set[int] = set()
    for i in sorted(least, key=lambda i: _worth(rows[i], i)):
        if len(gone) == len(rows) - 1 or sum(least[k] + GRID for k in least if k not in gone) <= room + GRID:
            break
        gone.add(i)
    return gone


def _worth(row: Sequence[tuple[Mark, object]], place: int) -> tuple[int, int]:
    """What goes first is worth least."""
    pictures = [mark for mark, widget in row if isinstance(widget, PlotMark)]
    if any(mark.x_axis.bare for mark, widget in row if isinstance(widget, XYPlot) and hasattr(mark, "x_axis")):  # type: ignore[union-attr]
        return 2, place
    return (3 if pictures else 1 if any(isinstance(widget, RowsMark) for _, widget in row) else 0), -place
