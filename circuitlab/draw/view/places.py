"""Where the marks of a figure stand: in rows, turned where there is little room, each with its share of the height."""

from __future__ import annotations

from typing import Any

from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QVBoxLayout, QWidget

from circuitlab.draw.heatmap.heatmap import HeatmapMark
from circuitlab.draw.look.theme import GRID
from circuitlab.draw.plots.plot import UNLIMITED, PlotMark
from circuitlab.draw.plots.xy import XYPlot
from circuitlab.draw.tables.on_paper import RowsOnPaper
from circuitlab.draw.tables.rows import RowsMark
from circuitlab.draw.tables.scrolled_together import ScrolledTogether
from circuitlab.figures.marks import Bars, Dials, Figure, Heatmap, Lines, Mark, Points, Prose, Rows, Tokens

Key = tuple[type, str]
NARROW, TALL = 480, 260  # px: below and above these a table goes under its map
ROOMY = 400  # px of height: from here on a table under its map gets more of it than the map
LOW = 400  # px: below it prose gets less
LOW_FOR_TWO = 300  # px of height of a map and a plot below which they stand side by side
LEAST_FRAME = 40  # px of height of a plot's picture
CHROME = 48  # px of height that a title and a line of caption take
BESIDE = 200  # px of width that the text beside its map has at least
INDEXED = 5  # largest step between indices below a text
LOW_MAP = 0.6  # of the height: from here on a map is large enough to have its text below
MUCH = 0.25  # of the width: a map that leaves more than this empty is centred
LEAST_ON_PAPER = 110  # px of height of a picture or a table that shares a given one
FLOWS = Tokens | Bars | Dials | Prose


def _layout_of(figure: Figure) -> tuple[tuple[Key, ...], ...]:
    return tuple(tuple((type(m), m.name) for m in row) for row in figure.grid)


def _map_and_table(row: tuple[Mark, ...]) -> bool:
    return len(row) == 2 and isinstance(row[0], Heatmap) and isinstance(row[1], Rows)


def _map_over_text(figure: Figure) -> bool:
    grid = figure.grid
    return [len(row) for row in grid] == [1, 1] and isinstance(grid[0][0], Heatmap) and isinstance(grid[1][0], Tokens)


def _shapes_of_maps(figure: Figure) -> tuple[tuple[int, ...], ...]:
    return tuple(row[0].values.shape for row in figure.grid if _map_and_table(row) and isinstance(row[0], Heatmap))


def _share_of_table(narrow: bool, stacked: bool, roomy: bool) -> int:
    """The share of a table where its map has 2."""
    if not narrow:
        return 2
    if stacked:
        return 3 if roomy else 2
    return 5


class Places:
    """`body` is the layout of the rows; `widgets`, by type and name, are the view's, and made before a figure is laid out."""

    def __init__(self, view: Any, widgets: dict[Key, Any], on_paper: bool) -> None:
        self._view, self._widgets, self._on_paper = view, widgets, on_paper
        self._figure = Figure()
        self._shape: tuple[tuple[Key, ...], ...] = ()
        self._rows: list[QWidget] = []
        self._stacked = self._by_hand = False
        self._shapes: tuple[tuple[int, ...], ...] = ()  # of the maps that stand beside tables
        self._shared: object = None  # map, text, size and theme that the present places were computed for
        self._together: list[ScrolledTogether] = []
        self.body = QVBoxLayout()
        self.body.setSpacing(GRID)

    def same(self, figure: Figure) -> bool:
        """Whether the marks stand where those of the last figure did."""
        return _layout_of(figure) == self._shape and figure.weights == self._figure.weights

    def lay_out(self, figure: Figure) -> None:
        """A row of widgets for each row of marks."""
        self._figure, shape = figure, _layout_of(figure)
        old, self._rows = self._rows, []
        for i, row in enumerate(shape):
            holder = QWidget(self._view)
            side = QHBoxLayout(holder)
            side.setContentsMargins(0, 0, 0, 0)
            side.setSpacing(2 * GRID)
            for key in row:
                side.addWidget(self._widgets[key], 1)
                self._widgets[key].show()
            self.body.addWidget(holder, round(100 * figure.weights[i]) if i < len(figure.weights) else 100)
            self._rows.append(holder)
        for holder in old:
            self.body.removeWidget(holder)
            holder.hide()
            holder.deleteLater()
        for i in range(self.body.count()):
            weight = round(100 * figure.weights[i]) if i < len(figure.weights) else 100
            self.body.setStretch(i, weight)
        self._link(figure)
        self._shape, self._shared = shape, None
        alone = {key for row in shape if len(row) == 1 for key in row}
        for key, widget in self._widgets.items():
            if isinstance(widget, HeatmapMark):
                widget.set_alone(key in alone)
        self._turn()

    def _link(self, figure: Figure) -> None:
        """Tables of one row scroll together."""
        for old in self._together:
            old.part()
        rows = [[self._widgets[type(m), m.name] for m in row] for row in figure.grid if len(row) > 1]
        tables = [[w for w in row if isinstance(w, RowsMark)] for row in rows]
        self._together = [ScrolledTogether(row, self._view) for row in tables if len(row) > 1]

    def fit_figure(self, figure: Figure, relaid: bool, frozen: bool = False) -> None:
        """Fit the arrangement to a figure that the widgets now show. `frozen`: nothing may move yet."""
        self._figure = figure
        if frozen:
            return
        if (shapes := _shapes_of_maps(figure)) and (relaid or shapes != self._shapes):
            self._shapes = shapes
            self._turn()
        self._turn_text()
        self.align()
        if any(isinstance(m, FLOWS | Rows) for m in figure.marks()):
            self._share_by_content()

    def resized(self) -> None:
        """The view has another size."""
        if self._by_hand:
            return
        self._turn()
        self._share_by_content()
        self.leave_frames()

    def give_heights(self, width: int, share: bool = False) -> None:
        """On paper every mark gets the height it asks for at this width; side by side only where all of a row have room.

        `share`: the height of the whole is given; pictures and tables get what is left, no less than they can do with.
        """
        inner, self._by_hand = width - 2 * GRID, True
        for row, holder in zip(self._figure.grid, self._rows, strict=True):
            widgets = [self._widgets[type(m), m.name] for m in row]
            each = (inner - 2 * GRID * (len(row) - 1)) // max(len(row), 1)
            stacked = len(row) > 1 and not all(w.fits_on_paper(each) for w in widgets)
            side = holder.layout()
            if isinstance(side, QBoxLayout):
                side.setDirection(QBoxLayout.Direction.TopToBottom if stacked else QBoxLayout.Direction.LeftToRight)
            self._index_on_paper(row, widgets, inner)
            tables = [w for w in widgets if isinstance(w, RowsOnPaper)]
            for widget in tables if stacked else ():
                widget.show_at_most(len(tables))
            wide = inner if stacked else each
            bounds = [w.least_height(wide) if isinstance(w, PlotMark) else 0 for w in widgets]
            heights = [max(w.natural_height(wide), least) for w, least in zip(widgets, bounds, strict=True)]
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
        for text, words in zip(row, widgets, strict=True):
            if isinstance(text, Tokens):
                maps = [m for m in self._figure.marks() if isinstance(m, Heatmap) and text.texts in (m.x.ticks, m.y.ticks)]
                steps = [self._widgets[Heatmap, m.name].index_step_in(width, 10_000) for m in maps]
                words.show_indices(min(max(steps, default=0), INDEXED))

    def _turn(self) -> None:
        """A map and its table stand side by side; stacked where that is too narrow and there is height."""
        self._turn_text()
        if self._on_paper:
            return  # see `give_heights`
        narrow = self._view.width() < self._px(NARROW)
        self._stacked = stacked = narrow and self._view.height() >= self._px(TALL)
        for holder, row in zip(self._rows, self._figure.grid, strict=False):
            side = holder.layout()
            if isinstance(side, QBoxLayout) and _map_and_table(row):
                side.setDirection(QBoxLayout.Direction.TopToBottom if stacked else QBoxLayout.Direction.LeftToRight)
                side.setSpacing(GRID if stacked else 2 * GRID)
                side.setStretch(0, 2)
                side.setStretch(1, _share_of_table(narrow, stacked, self._view.height() >= self._px(ROOMY)))
                map_ = self._widgets[type(row[0]), row[0].name]
                beside = (
                    (self._view.width() - 4 * GRID) * 2 // 7
                )  # stretch factors alone are not kept where size hints exceed the room
                map_.setMaximumWidth(
                    UNLIMITED
                    if stacked
                    else beside
                    if narrow
                    else map_.natural_width(max(self._view.height() - self._px(CHROME), 60))
                )
                map_.setMaximumHeight(map_.natural_height(self._view.width() - 2 * GRID) if stacked else UNLIMITED)

    def _turn_text(self) -> None:
        """A map over its text: the text gets its lines, the map the rest; side by side where that makes the map larger."""
        if self._on_paper or len(self._rows) != 2 or not _map_over_text(self._figure):
            if not self._on_paper:
                self._turn_plot()
            return
        heat, text = self._figure.grid[0][0], self._figure.grid[1][0]
        assert isinstance(heat, Heatmap) and isinstance(text, Tokens)
        key = (heat.values.shape, text.texts, self._view.size().toTuple(), self._view.theme)
        picture, words = self._widgets[Heatmap, heat.name], self._widgets[Tokens, text.name]
        filled = words.mark.texts == text.texts and picture.mark.values.shape == heat.values.shape
        if key == self._shared or not filled:  # marks are shown after they are laid out
            return
        self._shared = key
        width, height = max(self._view.width() - 2 * GRID, 80), max(self._view.height() - self._px(CHROME), 60)
        lines_in = lambda wide: max(28, min(words.natural_height(wide), height * 2 // 5))
        for _ in range(2):  # indices below the text make the map smaller
            lines = lines_in(width)
            words.show_indices(min(picture.index_step_in(width, height - lines - GRID), INDEXED))
        lines = lines_in(width)
        wide = min(picture.natural_width(height), width - self._px(BESIDE) - GRID)
        side = picture.side_in(width, height - lines - GRID)
        large = height >= self._px(ROOMY) and side >= LOW_MAP * height
        beside = heat.square and wide > 0 and not large and picture.side_in(wide, height) > 1.1 * side
        self.body.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
        if beside:
            words.show_indices(min(picture.index_step_in(wide, height), INDEXED))
        above, below = self._rows
        self._centre(picture, words, 0 if beside else width, height - lines - GRID)
        above.setMaximumWidth(wide if beside else UNLIMITED)
        below.setMaximumHeight(UNLIMITED if beside else lines)
        below.setMinimumHeight(28 if beside else lines)
        for i, stretch in enumerate((100, 100 if beside else 0)):
            self.body.setStretch(i, stretch)

    def _centre(self, picture: HeatmapMark, words: Any, width: int, height: int) -> None:
        """Centre a square map that leaves much of the width empty, with its text below."""
        used = picture.natural_width(height)
        spare = used < width * (1 - MUCH)
        for holder, wide in zip(self._rows, (used, max(used, words.natural_width())), strict=True):
            beside = max(0, width - wide) // 2 if spare else 0
            side = holder.layout()
            if isinstance(side, QBoxLayout):
                side.setContentsMargins(beside, 0, beside, 0)

    def _turn_plot(self) -> None:
        """A map over a plot: side by side in a low and wide room, where each would be a strip."""
        grid, view = self._figure.grid, self._view
        over = [len(row) for row in grid] == [1, 1] and isinstance(grid[0][0], Heatmap) and isinstance(grid[1][0], Lines | Points)
        room = view.room_for_marks()
        square = over and isinstance(grid[0][0], Heatmap) and grid[0][0].square
        beside = square and room < self._px(LOW_FOR_TWO) and view.width() > 1.4 * room
        self.body.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
        if over and len(self._rows) == 2:
            map_ = self._widgets[type(grid[0][0]), grid[0][0].name]
            self._rows[0].setMaximumWidth(min(map_.natural_width(room), view.width() // 2) if beside else UNLIMITED)
            self._rows[1].setMinimumHeight(0)

    def _px(self, length: float) -> int:
        return self._view.theme.px(length)

    def align(self) -> None:
        """Stacked maps over the same columns get equal widths, whatever stands beside them."""
        alone = [row[0] for row in self._figure.grid if len(row) == 1]
        maps = [m for m in alone if isinstance(m, Heatmap) and not m.square and m.colour_bar]
        if len(maps) < 2 or len({m.values.shape[1] for m in maps}) > 1:
            return
        widgets = [self._widgets[type(m), m.name] for m in maps]
        least = max(w.bar.natural_extent() for w in widgets)
        for widget in widgets:
            widget.widen_bar(least)

    def _share_by_content(self) -> None:
        """Rows of text and bars ask for what they need, at most two fifths; pictures share the rest.

        Where shares are given, tables and bars above others take no more than what is in them.
        """
        if self._figure.weights:
            self._cap_by_content()
            return
        width = max(self._view.width() - 2 * GRID, 100)
        room = max(self._view.height() - 60, 100)
        for i, row in enumerate(self._figure.grid):
            if i >= len(self._rows):
                return
            flows = all(isinstance(m, FLOWS) for m in row)
            if flows and len(self._figure.grid) > 1:
                need = max(self._widgets[type(m), m.name].natural_height(width // len(row)) for m in row)
                most = self._room_for_prose(room) if all(isinstance(m, Prose) for m in row) else room * 2 // 5
                self._rows[i].setMaximumHeight(max(28, min(need, most)))
                self._rows[i].setMinimumHeight(max(28, min(need, most, 48 if self._view.height() < self._px(LOW) else most)))

    def leave_frames(self) -> None:
        """Stacked plots keep a picture between legend and numbers, whatever their share."""
        if self._on_paper or len(self._rows) < 2 or self.body.direction() != QBoxLayout.Direction.TopToBottom:
            return
        plots = [[w for m in row if isinstance(w := self._widgets[type(m), m.name], XYPlot)] for row in self._figure.grid]
        around = [max((w.around() for w in row), default=0) for row in plots]
        least = sum(holder.minimumSizeHint().height() for holder, row in zip(self._rows, plots, strict=False) if not row)
        left = self._view.room_for_marks() - sum(around) - least - GRID * (len(plots) - 1)
        frame = min(self._px(LEAST_FRAME), left // max(sum(map(bool, plots)), 1))
        for holder, row, beside in zip(self._rows, plots, around, strict=False):
            if row:
                holder.setMinimumHeight(max(beside + frame, LEAST_FRAME))

    def _room_for_prose(self, room: int) -> int:
        """The most height of prose, which scrolls as pictures do not; half in a narrow panel, where pictures cannot use it."""
        if self._view.height() < self._px(LOW):
            return room // 4
        return room // 2 if self._view.width() < self._px(NARROW) else room * 2 // 5

    def _cap_by_content(self) -> None:
        width = max(self._view.width() - 2 * GRID, 100)
        for holder, row in zip(self._rows[:-1], self._figure.grid, strict=False):
            under = self._stacked and _map_and_table(row)
            if all(isinstance(m, Rows | Bars) for m in row) or _map_and_table(row):
                needs = [self._widgets[type(m), m.name].natural_height(width // (1 if under else len(row))) for m in row]
                holder.setMaximumHeight(max(28, sum(needs) + GRID if under else max(needs)))
