# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""The size of a map's cells in a given room, with axes, legend and colour bar, and which of these are dropped in little room."""

from __future__ import annotations

from math import ceil, floor, inf

import numpy as np
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.colour_bar import ColourBar
from circuitlab.draw.look.legend import Legend
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.plots.plot import LEAST_PICTURE, UNLIMITED, PlotMark
from circuitlab.figures.marks import Heatmap

LARGEST_CELL, LARGEST_ALONE = 56.0, 140.0  # px: beside something else, and with a row of the figure for itself
LARGEST_ON_PAPER = 28.0
SHORT = 150  # px of height below which axes leave out titles that their ticks say
LOWEST_TITLED = 36  # px of picture: on less the caption says what the axes are, and the picture has their room
LOWEST_BAR = 40  # px of picture: on less the colour bar has no room for its numbers


class FittedMap(PlotMark):
    """A plot of cells that knows its size in any room; a subclass draws the cells."""

    _ready = False  # whether a mark is shown; pyqtgraph resizes during __init__

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.mark: Heatmap = Heatmap("", np.zeros((1, 1), np.float32), (0.0, 1.0))
        self._alone = False
        self._paper: Paper | None = None
        self._bar_left_out = self._untitled = False
        self.bar = ColourBar(theme)
        self.legend = Legend(theme)
        self.plot_item.layout.addItem(self.bar, 2, 3)
        self.plot_item.layout.addItem(self.legend, 1, 1)

    def _barred(self) -> bool:
        return self.mark.colour_bar and self.mark.rgb is None

    def _measure(self, width: float, height: float, barred: bool) -> tuple[float, float, float]:
        """(width, height) of the whole in this room, and the height of the picture alone; fits the axes to cells of that size."""
        rows, cols = self.mark.values.shape
        left, bottom, top, cell_x, cell_y = 0.0, 0.0, 0.0, 64.0, 64.0
        bar = self.bar.extent() if barred else 0.0
        self.left_axis.short = self.bottom_axis.short = height < self.theme.px(SHORT)
        for turn in range(5):
            left, bottom = self.left_axis.fit(cell_y), self.bottom_axis.fit(cell_x)
            top = self.legend.height_for(min(cell_x * cols, width - left - bar))
            # finally cells only shrink: otherwise axes and cells could enlarge and shrink each other for ever
            most_x, most_y = (cell_x, cell_y) if turn > 2 else (inf, inf)
            cell_x = min(max((width - left - bar - 10) / cols, 1e-3), most_x)
            cell_y = min(max((height - bottom - top - 10) / rows, 1e-3), most_y)
            if self.mark.square:
                cell_x = cell_y = self._snapped(min(cell_x, cell_y, self._largest()))
        return left + bar + cell_x * cols, bottom + top + cell_y * rows, cell_y * rows

    def fit(self) -> None:
        """Give each cell a whole number of device pixels, starting at the top left of the room."""
        width, height = self.viewport().width(), self.viewport().height()
        barred = self._barred()
        used_x, used_y, picture = self._measure(width, height, barred)
        if barred and picture < self.theme.px(LOWEST_BAR):
            barred = False
            used_x, used_y, _ = self._measure(width, height, barred)
        untitled = self._paper is None and 0 < self._side(width, height, barred) < self.theme.px(LOWEST_TITLED)
        self._title_axes(not untitled)
        used_x, used_y, _ = self._measure(width, height, barred)
        self.bar.setVisible(barred)
        left_out = self._barred() and not barred, untitled
        if left_out != (self._bar_left_out, self._untitled):
            self._bar_left_out, self._untitled = left_out
            self.noted.emit()
        layout = self.plot_item.layout
        layout.setContentsMargins(0, 5, max(0.0, width - used_x), max(0.0, height - used_y - 5))
        # The margins are part of the plot's least size: with old ones its geometry may have been refused.
        self.plot_item.setGeometry(self.range)
        layout.activate()

    def _side(self, width: float, height: float, barred: bool) -> float:
        """Height of the picture in px when the axes have their titles."""
        self._title_axes(True)
        return self._measure(width, height, barred)[2]

    def _title_axes(self, titled: bool) -> None:
        self.left_axis.untitled = self.bottom_axis.untitled = not titled

    def _largest(self) -> float:
        if self._paper is not None:
            return LARGEST_ON_PAPER
        return self.theme.px(LARGEST_ALONE if self._alone else LARGEST_CELL)

    def set_alone(self, alone: bool) -> None:
        """Whether it has a row of the figure to itself, and grows with it."""
        if alone != self._alone:
            self._alone = alone
            self.left_axis.large = self.bottom_axis.large = alone and self._paper is None
            if self._ready:
                self.fit()

    def _snapped(self, cell: float) -> float:
        ratio = self.devicePixelRatioF()
        return floor(cell * ratio) / ratio if cell * ratio >= 3 and self._paper is None else cell

    def side_in(self, width: int, height: int) -> float:
        """Height of the picture in px in a room of this size."""
        side = self._side(width, height, self._barred())
        self._title_axes(not self._untitled)
        self._measure(self.viewport().width(), self.viewport().height(), self.bar.isVisible())  # restore the axes
        return side

    def index_step_in(self, width: int, height: int) -> int:
        """Step between the position indices on the axes in a room of this size; 0 where both axes show the tokens themselves."""
        self._measure(width, height, self._barred())
        step = max(self.left_axis.index_step, self.bottom_axis.index_step)
        self._measure(self.viewport().width(), self.viewport().height(), self.bar.isVisible())  # restore the axes
        return step

    def widen_bar(self, least: int) -> None:
        """Reserve at least this many px for the colour bar, so that the columns of stacked maps line up."""
        if least != self.bar.least:
            self.bar.least = least
            self.bar.setFixedWidth(self.bar.extent())
            self.fit()

    def natural_width(self, height: int) -> int:
        """Width in px that a picture of this height can use: square cells do not get wider."""
        if not self.mark.square:
            return UNLIMITED
        self._title_axes(True)
        used = self._measure(1e4, height, self._barred())[0]
        self._title_axes(not self._untitled)
        self._measure(self.viewport().width(), self.viewport().height(), self.bar.isVisible())  # restore the axes
        return ceil(used + 12)

    def least_width(self) -> float:
        """Width in px of the axis, a picture of at least one dot per column, and the colour bar."""
        beside = self.left_axis.fit(LARGEST_ON_PAPER) + (self.bar.extent() if self._barred() else 0.0)
        return beside + max(LEAST_PICTURE, self.mark.values.shape[1] * 72 / 300 * self.theme.small / 7)

    def fits_on_paper(self, width: float) -> bool:
        """Whether the cells get more of this width than what stands beside them, and the colour bar has its height."""
        beside = self.left_axis.fit(LARGEST_ON_PAPER) + (self.bar.extent() if self._barred() else 0.0)
        used, _, picture = self._measure(width, 1e4, self._barred())
        return picture >= self.theme.px(LOWEST_BAR) and used - beside >= beside

    def natural_height(self, width: int) -> int:
        """Height in px of square cells at this width, with their labels."""
        if not self.mark.square:
            return round(min(width * 0.6, self.mark.values.shape[0] * 18 + 120))
        return ceil(self._measure(width, 1e4, self._barred())[1] + 12)
