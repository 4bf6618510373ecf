"""Which widget draws which mark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from circuitlab.draw.heatmap.heatmap import HeatmapMark
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.painted.bars import BarsMark
from circuitlab.draw.painted.dials import DialsMark
from circuitlab.draw.painted.mark import PaintedMark
from circuitlab.draw.painted.prose import ProseMark
from circuitlab.draw.painted.tokens import TokensMark
from circuitlab.draw.plots.edges import EdgesMark
from circuitlab.draw.plots.lines import LinesMark
from circuitlab.draw.plots.plot import PlotMark
from circuitlab.draw.plots.points import PointsMark
from circuitlab.draw.tables.on_paper import RowsOnPaper
from circuitlab.draw.tables.rows import RowsMark
from circuitlab.figures.marks import Bars, Dials, Edges, Heatmap, Lines, Mark, Points, Prose, Rows, Tokens

MarkWidget: TypeAlias = PlotMark | PaintedMark | RowsMark
_WIDGETS: dict[type, Callable[[Theme], MarkWidget]] = {
    Bars: BarsMark,
    Dials: DialsMark,
    Edges: EdgesMark,
    Heatmap: HeatmapMark,
    Lines: LinesMark,
    Points: PointsMark,
    Prose: ProseMark,
    Rows: RowsMark,
    Tokens: TokensMark,
}


def realise(mark: Mark, theme: Theme, on_paper: bool = False) -> MarkWidget:
    """A new, empty widget for a mark. Each has `show_mark`, `set_theme`, `reset_view`, `natural_height` and `notes`."""
    if on_paper and isinstance(mark, Rows):
        return RowsOnPaper(theme)
    return _WIDGETS[type(mark)](theme)
