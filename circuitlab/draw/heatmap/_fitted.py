# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""The size of a map's cells in a given room, with axes, legend and colour bar, and which of these are dropped in little room."""

from __future__ import annotations

from math import ceil, floor, inf
from typing import NamedTuple

import numpy as np
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.colour_bar import ColourBar
from circuitlab.draw.look.legend import Legend
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.plots._step_labels import AxisRoom
from circuitlab.draw.plots.plot import LEAST_PICTURE, UNLIMITED, PlotMark
from circuitlab.figures.marks import Heatmap

LARGEST_CELL, LARGEST_ALONE = 56.0, 140.0  # px: beside something else, and with a row of the figure for itself
LARGEST_ON_PAPER = 28.0
SHORT = 150  # px of height below which axes leave out titles that their ticks say
LOWEST_TITLED = 36  # px of picture: on less the caption says what the axes are, and the picture has their room
STRETCH = 1.75  # on a stage a cell may be so much longer than it is wide or high: the picture fills the room, as the page is wide
LARGE_TILE = 24  # px: on a contact sheet a tile that is smaller is as much longer, up to this
SMALL_CELL = 6  # px: smaller ones have the room of a colour bar that is wider than all of them, where that makes them larger
MARGIN = 5.0  # sizes of small type: about what axes take, where rooms are compared
LEAST_EDGE = 5  # px above and below the picture
MOST_MEASURED = 1024  # sizes that are remembered
LOWEST_BAR = 40  # px of picture: on less the colour bar has no room for its numbers
TURNS_FROM, TURNS_BACK = 1.4, 1.15  # by how much larger cells get: from which a map turns, and below which it turns back


class MapSize(NamedTuple):
    """A map in some room, in px. `width`, `height`: the whole; `picture`: (width, height) of its cells; `around`: what the left
    axis, the bottom axis and the legend above take; `left`, `bottom`: what its axes have room for; `legend`: the legend's width.
    """

    width: float
    height: float
    picture: tuple[float, float]
    around: tuple[float, float, float]
    left: AxisRoom
    bottom: AxisRoom
    legend: float


class FittedMap(PlotMark):
    """A plot of cells that knows its size in any room; a subclass draws the cells."""

    _ready = False  # whether a mark is shown; pyqtgraph resizes during __init__

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.mark: Heatmap = Heatmap("", np.zeros((1, 1), np.float32), (0.0, 1.0))
        self.given = self.mark  # as the figure has it
        self._across = False  # `mark` is `given` turned: its columns are the rows of that
        self._alone = False
        self._paper: Paper | None = None
        self._bar_left_out = self._untitled = False
        self.bar_elsewhere = False  # another map has the colour bar of this one, and the caption says which
        self._measured: dict[tuple[float, float, bool, bool], MapSize] = {}
        self._measured_of: tuple[object, ...] = ()  # what they follow from
        self._most_side = inf  # px of height on paper, beside others that are as high
        self.bar = ColourBar(theme)
        self.legend = Legend(theme)
        self.plot_item.layout.addItem(self.bar, 2, 3)
        self.plot_item.layout.addItem(self.legend, 1, 1)

    def _barred(self) -> bool:
        return self.mark.colour_bar and self.mark.rgb is None

    def left_out(self) -> tuple[str, ...]:
        """Labels, the colour bar."""
        return (*super().left_out(), *(["no colour bar"] if self._bar_left_out else []))

    def hold_range(self, on: bool) -> None:
        """A map shows its cells, all of them."""

    def measured(self, width: float, height: float, barred: bool, titled: bool) -> MapSize:
        """How it is laid out in this room, with its colour bar and the titles of its axes or without; nothing is changed."""
        facts = self._facts()
        if facts != self._measured_of:
            self._measured_of = facts
            self._measured.clear()
        key = width, height, barred, titled
        if (size := self._measured.get(key)) is None:
            if len(self._measured) >= MOST_MEASURED:
                self._measured.clear()
            size = self._measured[key] = self._measure(width, height, barred, titled)
        return size

    def _facts(self) -> tuple[object, ...]:
        """What a measurement follows from beside its room."""
        axes, mark = (self.left_axis, self.bottom_axis), self.mark
        labels = tuple((axis.labels, axis.pitch) for axis in axes)
        ratio = self.devicePixelRatioF(), self._paper is None
        return labels, mark.values.shape, mark.square, self.bar.extent(), self.legend.key, self._largest(), ratio

    def _measure(self, width: float, height: float, barred: bool, titled: bool) -> MapSize:
        across, down = (width, height) if self.theme.stage else (inf, inf)
        short = height < self.theme.px(SHORT)
        left, bottom = (AxisRoom(0.0, whole, False, not titled, short) for whole in (across, down))
        size = self._fitted(width, height, barred, left, bottom)
        crowded = self.left_axis.labels.crowds(size.left) or self.bottom_axis.labels.crowds(size.bottom)
        if self.theme.stage and self.mark.square and crowded:  # then both show positions
            size = self._fitted(width, height, barred, left._replace(numbered=True), bottom._replace(numbered=True))
        return size

    def _fitted(self, width: float, height: float, barred: bool, left: AxisRoom, bottom: AxisRoom) -> MapSize:
        """As `_measure`, with labels of the kind that these rooms say."""
        rows, cols = self.mark.values.shape
        axis, below = self.left_axis, self.bottom_axis
        bar, edge, largest = self.bar.extent() if barred else 0.0, self._edge(), self._largest()
        at, before = (64.0, 64.0), (0.0, 0.0)
        legend, around = 0.0, (0.0, 0.0, 0.0)
        for turn in range(5):
            left, bottom = left._replace(cell=at[1] * axis.pitch), bottom._replace(cell=at[0] * below.pitch)
            beside, under = axis.labels.extent(left), below.labels.extent(bottom)
            # not in the width of the picture, which names that stand in many lines would make narrower still
            legend = width - beside - bar
            top = self.legend.height_at(legend)
            around = float(beside), float(under), top
            # finally cells only shrink: otherwise axes and cells could enlarge and shrink each other for ever
            most_x, most_y = at if turn > 2 else (inf, inf)
            cell_x = min(max((width - beside - bar - 10) / cols, 1e-3), most_x)
            cell_y = min(max((height - under - top - 2 * edge) / rows, 1e-3), most_y)
            if self.mark.square:
                side = min(cell_x, cell_y, largest)
                long_x, long_y = self._longest(side)
                cell_x, cell_y = self._snapped(min(cell_x, long_x)), self._snapped(min(cell_y, long_y))
            before, at = at, (cell_x, cell_y)
            if at == before:
                break
        picture = at[0] * cols, at[1] * rows
        beside, under, top = around
        return MapSize(beside + bar + picture[0], under + top + picture[1], picture, around, left, bottom, legend)

    def _longest(self, side: float) -> tuple[float, float]:
        """px that a cell whose shorter side is this has at most, across and down."""
        most, tiles = STRETCH * side, self.mark.tiles
        if self.theme.stage:
            return most, most
        if tiles is None or self._paper is not None:
            return side, side
        large = self.theme.px(LARGE_TILE)
        across, down = (max(side, min(most, large / (n + tiles.gap))) for n in (tiles.width, tiles.height))
        return across, down

    def fit(self) -> None:
        """Give each cell a whole number of device pixels, starting at the top left of the room."""
        width, height = self.viewport().width(), self.viewport().height()
        barred = self._barred()
        across, down = self.measured(width, height, barred, not self._untitled).picture
        if self.theme.stage:
            narrow = across < self.theme.px(LOWEST_BAR)  # the picture has the bar's room
        else:
            small = across < min(self.bar.extent(), self.theme.px(SMALL_CELL) * self.mark.values.shape[1])
            small = small and self.mark.square and self._paper is None
            narrow = small and self.measured(width, height, False, not self._untitled).picture[0] > across
        if barred and (narrow or down < self.theme.px(LOWEST_BAR)):
            barred = False
        titled = self._holds_titles(width, height, barred)
        size = self.measured(width, height, barred, titled)
        self.left_axis.fit(size.left)
        self.bottom_axis.fit(size.bottom)
        self.legend.height_across(size.legend)
        self.bar.setVisible(barred)
        left_out = self._barred() and not barred, not titled
        if left_out != (self._bar_left_out, self._untitled):
            self._bar_left_out, self._untitled = left_out
            self.noted.emit()
        layout, above = self.plot_item.layout, self._beyond(size)[0]
        layout.setContentsMargins(0, above, max(0.0, width - size.width), max(0.0, height - size.height - above))
        # The margins are part of the plot's least size: with old ones its geometry may have been refused.
        self.plot_item.setGeometry(self.range)
        layout.activate()

    def _edge(self) -> int:
        """px above and below the picture: half a number beside its first and its last row reaches so far."""
        return max(LEAST_EDGE, ceil(QFontMetricsF(self.theme.font(self.theme.small)).capHeight() / 2) + 1)

    def _holds_titles(self, width: float, height: float, barred: bool) -> bool:
        """Whether this room has a place for the titles of both axes. On paper they are whole, and may reach over the picture."""
        size = self.measured(width, height, barred, True)
        wide, high = size.picture
        if self._paper is None:
            return not 0 < high < self.theme.px(LOWEST_TITLED)
        left, bottom, top = size.around
        aside = (self.bottom_axis.title_length(size.bottom) - wide) / 2
        right = width - left - wide
        return sum(self._beyond(size)) + top + high + bottom <= height + 1 and aside <= min(left, right)

    def _beyond(self, size: MapSize) -> tuple[float, float]:
        """px above the legend and below the bottom axis: edges, or what the title beside needs."""
        edge, (_, bottom, top) = self._edge(), size.around
        over = 0.0 if self._paper is None else (self.left_axis.title_length(size.left) - size.picture[1]) / 2
        return max(edge, over - top), max(edge, over - bottom)

    def _largest(self) -> float:
        if self._paper is not None:
            return min(LARGEST_ON_PAPER, self._most_side / self.mark.values.shape[0])
        if self.theme.stage:
            return inf
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

    def titled_in(self, width: float, height: float) -> MapSize:
        """How it is laid out in a room of this size with the titles of its axes; nothing is changed."""
        return self.measured(width, height, self._barred(), True)

    def index_step_in(self, width: float, height: float) -> int:
        """Step between the position indices on the axes in a room of this size; 0 where both axes show the tokens themselves."""
        size = self.titled_in(width, height)
        return max(self.left_axis.labels.index_step(size.left), self.bottom_axis.labels.index_step(size.bottom))

    def lower_to(self, height: float) -> None:
        """On paper: no picture of square cells is higher than so many px."""
        self._most_side = height
        self.fit()

    def widen_bar(self, least: int) -> None:
        """Reserve at least this many px for the colour bar, so that the columns of stacked maps line up."""
        if least != self.bar.least:
            self.bar.least = least
            self.bar.setFixedWidth(self.bar.extent())
            self.fit()

    def natural_width(self, height: int, room: tuple[float, float] | None = None) -> int:
        """Width in px that a picture of this height can use: square cells do not get wider. `room`: the width and the height
        that it may have, by which a map that turns is measured.
        """
        if not self.mark.square:
            return UNLIMITED
        size = self.titled_in(1e4, height)
        wide = size.width
        if room is not None and self.goes_across(*room) != self._across:
            rows, cols = self.mark.values.shape
            cell = max(min(self._largest(), (height - size.around[1] - size.around[2] - 2 * self._edge()) / cols), 0.0)
            wide += cell * rows - size.picture[0]
        return ceil(max(wide, size.around[0] + self.legend.line_width()) + 12)

    def cell_in(self, width: float, height: float) -> float:
        """px of a cell's side in a room of this size, about: as large as axes leave it, turned where it turns."""
        rows, cols = self.given.values.shape[::-1] if self.goes_across(width, height) else self.given.values.shape
        margin = MARGIN * self.theme.small
        return min(max(width - margin, 1.0) / max(cols, 1), max(height - margin, 1.0) / max(rows, 1), self._largest())

    def goes_across(self, width: float, height: float) -> bool:
        """Whether the rows of a map that turns stand across in such a room, where its cells get that much larger.

        Near the limit it stays as it is: words around the picture, whose height follows from it, would turn it to and fro.
        """
        long, short = self.given.values.shape
        turns = self.given.turns and self.given.square and long > short > 0
        if not turns or self._paper is not None or self.theme.stage:
            return False
        margin = MARGIN * self.theme.small
        wide, high = max(width - margin, 1.0), max(height - margin, 1.0)
        gain = min(wide / long, high / short) / min(wide / short, high / long)
        return gain > (TURNS_BACK if self._across else TURNS_FROM)

    def least_width(self) -> float:
        """Width in px of the axis, a picture of at least one dot per column, and the colour bar."""
        return self._beside() + max(LEAST_PICTURE, self.mark.values.shape[1] * 72 / 300 * self.theme.small / 7)

    def _beside(self) -> float:
        """Width in px of the axis and the colour bar, where cells are large."""
        axis = self.left_axis
        return axis.labels.extent(axis.room_of(LARGEST_ON_PAPER)) + (self.bar.extent() if self._barred() else 0.0)

    def fits_on_paper(self, width: float) -> bool:
        """Whether the cells get more of this width than what stands beside them, and the colour bar has its height."""
        beside, size = self._beside(), self.measured(width, 1e4, self._barred(), not self._untitled)
        return size.picture[1] >= self.theme.px(LOWEST_BAR) and size.width - beside >= beside

    def natural_height(self, width: int, room: float = 0.0) -> int:
        """Height in px of square cells at this width, with their labels. `room`: the height that it may have, by which a map that
        turns is measured.
        """
        if not self.mark.square:
            return max(round(min(width * 0.6, self.mark.values.shape[0] * 18 + 120)), self._height_of_title(width))
        size, around = self.titled_in(width, 1e4), 2 * self._edge() + 2
        if size.height + around < self.theme.px(SHORT):  # so low that titles are left out
            size = self.titled_in(width, size.height + around)
        high = size.height
        if room and self.goes_across(width, room) != self._across:
            rows, cols = self.mark.values.shape
            cell = max(min(self._largest(), (width - size.width + size.picture[0]) / rows), 0.0)
            high += cell * cols - size.picture[1]
        return ceil(high + sum(self._beyond(size)) + 2)

    def _height_of_title(self, width: float) -> int:
        """px on paper of a picture as high as the title beside it, with what stands above and below."""
        if self._paper is None:
            return 0
        size = self.titled_in(width, 1e4)
        return ceil(sum(size.around[1:]) + self.left_axis.title_length(size.left) + 2 * self._edge() + 2)
