"""Which widget draws which mark: the one place that knows them all."""

from __future__ import annotations

from typing import Any

from circuitlab.draw.bars import BarsMark
from circuitlab.draw.dials import DialsMark
from circuitlab.draw.edges import EdgesMark
from circuitlab.draw.heatmap import HeatmapMark
from circuitlab.draw.lines import LinesMark
from circuitlab.draw.points import PointsMark
from circuitlab.draw.prose import ProseMark
from circuitlab.draw.rows import RowsMark
from circuitlab.draw.rows_paper import RowsOnPaper
from circuitlab.draw.theme import Theme
from circuitlab.draw.tokens import TokensMark
from circuitlab.figures.marks import Bars, Dials, Edges, Heatmap, Lines, Mark, Points, Prose, Rows, Tokens

_WIDGETS: dict[type, Any] = {
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


def realise(mark: Mark, theme: Theme, on_paper: bool = False) -> Any:
    """A new widget for a mark, empty. Every one has `show_mark`, `set_theme`, `reset_view`, `natural_height` and `note`."""
    if on_paper and isinstance(mark, Rows):
        return RowsOnPaper(theme)
    return _WIDGETS[type(mark)](theme)
