"""A part of a sheet: a figure under its letter, whose pictures can be moved and sized to stand in line with those beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor

from PySide6.QtCore import QPoint, QRectF
from PySide6.QtWidgets import QWidget

from circuitlab.draw.heatmap.heatmap import HeatmapMark
from circuitlab.draw.look.legend import Legend
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import GRID, Theme
from circuitlab.draw.plots.plot import PlotMark, Range
from circuitlab.draw.plots.xy import XYPlot
from circuitlab.draw.tables.on_paper import RowsOnPaper
from circuitlab.draw.view._realise import MarkWidget
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.draw.view.settling import settle
from circuitlab.figures.marks import Figure, Heatmap

TALL, TALLEST = 1.2, 540  # of its width, and px: the height of several plots below one another
LOW_STACKED = 120  # px of each of them at least
NEAR = 0.05  # px: heights that differ by less are equal
TURNS = 5  # at most, until a picture has the height that was asked for


@dataclass(frozen=True, eq=False)
class Cell:
    """A figure of a sheet, of which these parts are seen, and its letter, "" for the only one."""

    letter: str
    figure: Figure
    parts: Mapping[str, Range] = field(default_factory=dict[str, Range])


class CellView(FigureView):
    """Laid out by its sheet: `fit`, then `inset`, `move_down` and `give_frame_height`, in px."""

    def __init__(self, cell: Cell, theme: Theme, paper: Paper, parent: QWidget) -> None:
        super().__init__(theme, parent, replace(paper, caption="none"), cell.letter or None)
        self.cell = cell
        self.insets: dict[int, int] = {}
        self._limit: float | None = None  # px of height, where that of its pictures is free
        self.resize(640, 400)
        self.show_figure(cell.figure)
        self.show_parts(cell.parts)

    # what is in it ---------------------------------------------------------------------------------------------------

    def _rows(self) -> list[list[MarkWidget]]:
        return [[self._widgets[type(mark), mark.name] for mark in row] for row in self.figure.grid]

    def firsts(self) -> dict[int, PlotMark]:
        """By row the plot that stands first in it."""
        return {i: row[0] for i, row in enumerate(self._rows()) if row and isinstance(row[0], PlotMark)}

    @property
    def first(self) -> PlotMark | None:
        """The plot at the top left, which is put in line with those of other parts."""
        return self.firsts().get(0)

    def legends(self) -> list[Legend]:
        """Those that have something in them."""
        widgets = (widget for row in self._rows() for widget in row)
        result = (getattr(widget, "legend", None) for widget in widgets)
        return [legend for legend in result if isinstance(legend, Legend) and legend.key[0]]

    def maps(self) -> list[HeatmapMark]:
        """Its maps that have a colour bar."""
        widgets = [widget for row in self._rows() for widget in row]
        return [w for w in widgets if isinstance(w, HeatmapMark) and w.mark.colour_bar and w.mark.rgb is None]

    def without_bar(self, name: str) -> None:
        """Draw a map without its colour bar."""
        grid = tuple(
            tuple(replace(m, colour_bar=False) if isinstance(m, Heatmap) and m.name == name else m for m in row)
            for row in self.figure.grid
        )
        self.widget(name).bar_elsewhere = True
        self.show_figure(replace(self.figure, grid=grid))
        self.show_parts(self.cell.parts)

    @property
    def has_more_than_tables(self) -> bool:
        """Whether its height is not only that of tables, which can be shorter."""
        return any(not isinstance(widget, RowsOnPaper) for row in self._rows() for widget in row)

    def fits(self, width: int, whole: int) -> bool:
        """Whether every mark can be read at this width, if it can at the `whole` of the sheet's; of a table every column."""
        if self.least_width() > width:
            return False
        widgets = [widget for row in self._rows() for widget in row]
        can = lambda widget, room: (widget.keeps_columns if isinstance(widget, RowsOnPaper) else widget.fits_on_paper)(room)
        return all(can(widget, width - 2 * GRID) or not can(widget, whole - 2 * GRID) for widget in widgets)

    # geometry --------------------------------------------------------------------------------------------------------

    def fit(self, width: int, limit: float | None = None) -> None:
        """Take this width and the height that all of it asks for, which several plots below one another share; no more than
        `limit` px, where the height of the pictures is free and they need not be lower than `LOW_STACKED` for it.
        """
        self._limit = limit
        self.resize(width, self.lay_out_for_paper(width))
        settle(self)
        if self.stacked:
            self._lower(self.height() - min(TALL * width, TALLEST, limit or TALLEST))
        elif limit is not None and self.first is not None and not self.rigid and self.height() > limit:
            high = self.frame_of(self.first).height()
            self.give_frame_height(floor(max(high - (self.height() - limit), min(high, LOW_STACKED))))

    def fit_again(self) -> None:
        """As before, with what has been inset since."""
        self.fit(self.width(), self._limit)

    def _lower(self, excess: float) -> None:
        """Make plots that share a height so much lower."""
        if excess <= 0:
            return
        levels = self._levels()
        whole = sum(max(plot.frame().height() for plot in plots) for plots in levels.values())
        for row, plot in [(i, w) for i, marks in enumerate(self._rows()) for w in marks if isinstance(w, XYPlot)]:
            high = plot.frame().height()
            less = max(high - excess * high / whole, min(high, LOW_STACKED))
            self._places.paper.give_height(row, plot, plot.height() - round(high - less))
        self._settle_height()

    def _levels(self) -> dict[int, list[XYPlot]]:
        """The plots by how far down they begin."""
        levels: dict[int, list[XYPlot]] = {}
        for widget in (w for row in self._rows() for w in row if isinstance(w, XYPlot)):
            levels.setdefault(widget.mapTo(self, QPoint(0, 0)).y(), []).append(widget)
        return levels

    def _settle_height(self) -> None:
        layout = self.layout()
        assert layout is not None
        layout.activate()
        high = layout.totalHeightForWidth(self.width())
        self.resize(self.width(), max(high, layout.totalMinimumSize().height()))
        settle(self)

    def frame_of(self, plot: PlotMark) -> QRectF:
        """Where the picture of a plot is, without its axes."""
        return plot.frame().translated(plot.viewport().mapTo(self, QPoint(0, 0)).toPointF())

    def top(self) -> float:
        """Where its first picture begins, or whatever it has in its place."""
        if self.first is not None:
            return self.frame_of(self.first).top()
        rows = self._rows()
        return float(rows[0][0].mapTo(self, QPoint(0, 0)).y()) if rows and rows[0] else 0.0

    def inset(self, row: int, by: int) -> None:
        """Move the first plot of a row to the right."""
        self.insets[row] = self.insets.get(row, 0) + by
        self._places.paper.inset(row, self.insets[row])

    def move_down(self, by: int) -> None:
        """Move everything below the title down."""
        margins = self._places.body.contentsMargins()
        self._places.body.setContentsMargins(0, margins.top() + by, 0, 0)
        self._settle_height()

    def move_up(self) -> None:
        """Undo `move_down`."""
        self._places.body.setContentsMargins(0, 0, 0, 0)

    def give_frame_height(self, height: int) -> None:
        """Make its first picture so high; square cells only become smaller."""
        plot = self.first
        if plot is None:
            return
        if isinstance(plot, HeatmapMark) and plot.mark.square:
            plot.lower_to(height)
            self._give(plot, plot.natural_height(plot.width()))
        for _ in range(TURNS):
            lacking = height - plot.frame().height()
            if abs(lacking) < NEAR:
                return
            self._give(plot, plot.height() + ceil(lacking))

    def _give(self, widget: QWidget, height: int) -> None:
        self._places.paper.give_height(0, widget, max(height, 1))
        self._settle_height()

    def shorten_tables(self, parts: int) -> None:
        """Show fewer rows of tables: those of a figure with so many parts."""
        self._places.paper.shorten_tables(parts)

    def lengthen_table(self, height: int) -> None:
        """Give the table at its end, if there is one, what is left of this height."""
        last = self._rows()[-1:] or [[]]
        if len(last[0]) != 1 or not isinstance(last[0][0], RowsOnPaper) or self.height() >= height:
            return
        table = last[0][0]
        table.show_at_most(1)
        most = table.natural_height(table.width())
        self._places.paper.give_height(len(self._rows()) - 1, table, min(table.height() + height - self.height(), most))
        self._settle_height()

    def lengthen_picture(self, height: int) -> None:
        """Give its first picture, where that has any height and a row for itself, what is left of this height, up to `TALL`."""
        if self.first is None or self.rigid or len(self._rows()[0]) > 1:
            return
        if (lacking := min(height, floor(TALL * self.width())) - self.height()) > 0:
            self.give_frame_height(floor(self.frame_of(self.first).height()) + lacking)

    @property
    def rigid(self) -> bool:
        """Whether the height of its first picture is not free: it has cells or equal axes."""
        return isinstance(self.first, HeatmapMark) or bool(getattr(getattr(self.first, "mark", None), "equal", False))

    @property
    def stacked(self) -> bool:
        """Whether several pictures are below one another, which share a height."""
        return len(self._levels()) > 1
