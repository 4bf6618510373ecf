"""The heights of a figure's rows on paper: what each mark asks for, or a given height that pictures and tables share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QBoxLayout, QWidget

from circuitlab.draw.look.theme import GRID
from circuitlab.draw.plots.plot import UNLIMITED, PlotMark
from circuitlab.draw.tables.on_paper import RowsOnPaper
from circuitlab.draw.view._stage_room import INDEXED
from circuitlab.figures.marks import Bars, Dials, Heatmap, Mark, Prose, Tokens

LEAST_ON_PAPER = 110  # px of height of a picture or a table that shares a given one
FLOWS = Tokens | Bars | Dials | Prose


@dataclass(frozen=True)
class Row:
    """Marks that stand beside one another, or below where there is no room. `holder`: what their widgets stand in."""

    holder: QWidget
    marks: tuple[Mark, ...]
    widgets: list[Any]


def _height_on_paper(widget: Any, width: int) -> int:
    """The height in px that a mark asks for, and needs."""
    return max(widget.natural_height(width), widget.least_height(width) if isinstance(widget, PlotMark) else 0)


def _indent(side: QBoxLayout, plots: list[PlotMark], by: int, room: int) -> None:
    """Move a row to the right, or only its plots where its marks stand below one another in `room` px, else 0."""
    side.setContentsMargins(0 if room else by, 0, 0, 0)
    for plot in plots if room else ():
        plot.setFixedWidth(room - by)
        side.setAlignment(plot, Qt.AlignmentFlag.AlignRight)


class PlacesOnPaper:
    """`rows` gives those of the figure that is laid out. `given`: heights have been, and follow no size from then on."""

    def __init__(self, rows: Callable[[], Sequence[Row]]) -> None:
        self._rows, self.given = rows, False
        self._insets: dict[int, int] = {}
        self._tables = 1  # the part of a figure that has as many rows as a whole one

    def shorten_tables(self, parts: int) -> None:
        """Tables have their part of the rows of a figure with so many of them. Before `give_heights`."""
        self._tables = parts
        for widget in (widget for row in self._rows() for widget in row.widgets):
            if isinstance(widget, RowsOnPaper):
                widget.show_at_most(parts)

    def inset(self, row: int, left: int) -> None:
        """Leave so many px empty at the left of the plots of a row. Before `give_heights`."""
        self._insets[row] = left

    def give_height(self, row: int, widget: Any, height: int) -> None:
        """Give a mark of a row this height, after `give_heights`."""
        filled = self._rows()[row]
        side = filled.holder.layout()
        if not isinstance(side, QBoxLayout):
            return
        widget.setFixedHeight(height)
        stacked = side.direction() == QBoxLayout.Direction.TopToBottom
        if not stacked:
            side.setAlignment(widget, Qt.AlignmentFlag.AlignTop)
        heights = [w.minimumHeight() for w in filled.widgets]
        filled.holder.setFixedHeight(sum(heights) + 2 * GRID * (len(heights) - 1) if stacked else max(heights))

    def give_heights(self, width: int, share: bool = False) -> None:
        """Every mark gets the height it asks for at this width; side by side only where all of a row have room.

        `share`: the height of the whole is given; pictures and tables get what is left, no less than they can do with.
        """
        self.given = True
        for i, filled in enumerate(self._rows()):
            holder, row, widgets = filled.holder, filled.marks, filled.widgets
            inner, inset = width - 2 * GRID, self._insets.get(i, 0)
            each = (inner - inset - 2 * GRID * (len(row) - 1)) // max(len(row), 1)
            stacked = len(row) > 1 and not all(w.fits_on_paper(each) for w in widgets)
            side = holder.layout()
            if isinstance(side, QBoxLayout):
                side.setDirection(QBoxLayout.Direction.TopToBottom if stacked else QBoxLayout.Direction.LeftToRight)
                if inset:
                    _indent(side, [w for w in widgets if isinstance(w, PlotMark)], inset, inner if stacked else 0)
            self._index_on_paper(row, widgets, inner - inset)
            tables = [w for w in widgets if isinstance(w, RowsOnPaper)]
            for widget in tables if stacked else ():
                widget.show_at_most(len(tables) * self._tables)
            wides = [(inner - inset * isinstance(w, PlotMark)) if stacked else each for w in widgets]
            heights = [_height_on_paper(widget, wide) for widget, wide in zip(widgets, wides, strict=True)]
            gives = share and not all(isinstance(m, FLOWS) for m in row)
            least = [
                min(h, LEAST_ON_PAPER) if gives and not isinstance(m, FLOWS) else h for m, h in zip(row, heights, strict=True)
            ]
            between = 2 * GRID * (len(row) - 1)
            for widget, height in zip(widgets, least if gives else heights, strict=True):
                widget.setMinimumHeight(height)
                widget.setMaximumHeight(UNLIMITED if gives or not stacked else height)
            holder.setMinimumHeight(sum(least) + between if stacked else max(least))
            holder.setMaximumHeight(UNLIMITED if gives else sum(heights) + between if stacked else max(heights))

    def _index_on_paper(self, row: tuple[Mark, ...], widgets: list[Any], width: int) -> None:
        """Where the axes of the map above show indices, its text shows them too."""
        every = [pair for one in self._rows() for pair in zip(one.marks, one.widgets, strict=True)]
        for text, words in zip(row, widgets, strict=True):
            if isinstance(text, Tokens):
                maps = [w for m, w in every if isinstance(m, Heatmap) and text.texts in (m.x.ticks, m.y.ticks)]
                words.show_indices(min(max((w.index_step_in(width, 10_000) for w in maps), default=0), INDEXED))
