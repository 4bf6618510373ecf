"""Which widget draws which mark: the one place that knows them all."""

from __future__ import annotations

from typing import Any

from circuitlab.draw.heatmap import HeatmapMark
from circuitlab.draw.rows import RowsMark
from circuitlab.draw.theme import Theme
from circuitlab.draw.tokens import TokensMark
from circuitlab.figures.marks import Heatmap, Mark, Rows, Tokens

_WIDGETS: dict[type, Any] = {Heatmap: HeatmapMark, Tokens: TokensMark, Rows: RowsMark}


def realise(mark: Mark, theme: Theme) -> Any:
    """A new widget for a mark, empty. Every one has `show_mark`, `set_theme`, `reset_view`, `natural_height` and `note`."""
    return _WIDGETS[type(mark)](theme)
