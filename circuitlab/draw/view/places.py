"""Where the marks of a figure stand: in rows, turned where there is little room, each with its share of the height."""

from __future__ import annotations

from math import ceil
from typing import Any

from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QVBoxLayout, QWidget

from circuitlab.caption_parts import Essential
from circuitlab.counting import number_of
from circuitlab.draw.heatmap.heatmap import HeatmapMark
from circuitlab.draw.look.theme import GRID
from circuitlab.draw.painted.tokens import TokensMark
from circuitlab.draw.plots.plot import UNLIMITED
from circuitlab.draw.plots.xy import XYPlot
from circuitlab.draw.tables.rows import RowsMark
from circuitlab.draw.tables.scrolled_together import ScrolledTogether
from circuitlab.draw.view._stage_room import INDEXED, map_and_text, without_room
from circuitlab.draw.view.places_on_paper import FLOWS, PlacesOnPaper, Row
from circuitlab.figures.marks import Bars, Figure, Heatmap, Lines, Mark, Points, Prose, Rows, Tokens

Key = tuple[type, str]
NARROW, TALL = 480, 260  # px: below and above these a table goes under its map
TALL_ON_STAGE = 200  # px of height that a plot over its table has at least
LARGE_ENOUGH = 0.75  # of the cells that a map has over its table: from here on it stands beside it
SMALL_CELL = 8  # px: a map with larger cells over its table stays there
ROOMY = 400  # px of height: from here on a table under its map gets more of it than the map
LOW = 400  # px: below it prose gets less
LEAST_TABLE = 88  # px of a table beside prose: its head and two rows, which scroll
LOW_FOR_TWO = 300  # px of height of a map and a plot below which they stand side by side
LEAST_FRAME = 40  # px of height of a plot's picture
CHROME = 48  # px of height that a title and a line of caption take
BESIDE = 200  # px of width that the text beside its map has at least
LOW_MAP = 0.6  # of the height: from here on a map is large enough to have its text below
MUCH = 0.25  # of the width: a map that leaves more than this empty is centred


def _layout_of(figure: Figure) -> tuple[tuple[Key, ...], ...]:
    return tuple(tuple((type(m), m.name) for m in row) for row in figure.grid)


def _map_and_table(row: tuple[Mark, ...]) -> bool:
    return len(row) == 2 and isinstance(row[0], Heatmap) and isinstance(row[1], Rows)


def _plot_and_table(row: tuple[Mark, ...]) -> bool:
    return len(row) == 2 and isinstance(row[0], Lines | Points) and isinstance(row[1], Rows)


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
        self._stacked = False
        self._shapes: tuple[tuple[int, ...], ...] = ()  # of the maps that stand beside tables
        self._shared: object = None  # map, text, size and theme that the present places were computed for
        self._together: list[ScrolledTogether] = []
        self._gone: set[int] = set()  # rows without room on a stage
        self._piled: set[int] = set()  # rows on a stage whose plot stands over its table
        self._textless = False  # on a stage a map has no room for its text
        self._beyond = 0  # marks of other rows without room there
        self.paper = PlacesOnPaper(self._filled)
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
            self.body.addWidget(holder, self._weight(i))
            self._rows.append(holder)
        for holder in old:
            self.body.removeWidget(holder)
            holder.hide()
            holder.deleteLater()
        for i in range(self.body.count()):
            self.body.setStretch(i, self._weight(i))
        self._link(figure)
        self._shape, self._shared, self._gone, self._beyond, self._textless = shape, None, set(), 0, False
        alone = {key for row in shape if len(row) == 1 for key in row}
        for key, widget in self._widgets.items():
            if isinstance(widget, HeatmapMark):
                widget.set_alone(key in alone)
            if isinstance(widget, RowsMark):
                widget.set_alone(key in alone and len(shape) == 1)
        self._turn()

    def _filled(self) -> list[Row]:
        """The rows with what stands in them."""
        widgets = lambda row: [self._widgets[type(m), m.name] for m in row]
        return [Row(holder, row, widgets(row)) for row, holder in zip(self._figure.grid, self._rows, strict=True)]

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
        if (shapes := _shapes_of_maps(figure)) and (relaid or shapes != self._shapes or self._view.theme.stage):
            self._shapes = shapes
            self._turn()
        self._turn_text()
        self.align()
        if any(isinstance(m, FLOWS | Rows) for m in figure.marks()):
            self._share_by_content()

    def resized(self) -> None:
        """The view has another size."""
        if self.paper.given:
            return
        self._turn()
        self._share_by_content()
        self.give_frames()
        self.align()

    def forget(self) -> None:
        """On a stage: lay out as for the first time, so that a figure that comes back looks as it did."""
        if self.paper.given:
            return
        self._shared, self._shapes, self._stacked, self._gone, self._beyond = None, (), False, set(), 0
        self.body.setDirection(QBoxLayout.Direction.TopToBottom)
        for i, holder in enumerate(self._rows):
            holder.setMinimumSize(0, 0)
            holder.setMaximumSize(UNLIMITED, UNLIMITED)
            if (side := holder.layout()) is not None:
                side.setContentsMargins(0, 0, 0, 0)
            self.body.setStretch(i, self._weight(i))

    def _weight(self, row: int) -> int:
        weights = self._figure.weights
        return round(100 * weights[row]) if row < len(weights) else 100

    def _turn(self) -> None:
        """A map and its table stand side by side; stacked where that is too narrow and there is height."""
        self._turn_text()
        if self._on_paper:
            return  # see `PlacesOnPaper.give_heights`
        self._space()
        narrow = self._view.width() < self._px(NARROW)
        self._stacked = stacked = narrow and self._view.height() >= self._px(TALL) and not self._larger_beside()
        self._piled = set()
        for i, (holder, row) in enumerate(zip(self._rows, self._figure.grid, strict=False)):
            side = holder.layout()
            if isinstance(side, QBoxLayout) and _plot_and_table(row) and self._view.theme.stage:
                self._pile(i, side, row)
            if isinstance(side, QBoxLayout) and _map_and_table(row):
                side.setDirection(QBoxLayout.Direction.TopToBottom if stacked else QBoxLayout.Direction.LeftToRight)
                side.setSpacing(self._px(GRID if stacked else 2 * GRID))
                map_, table = (self._widgets[type(mark), mark.name] for mark in row)
                map_share, table_share = 2, _share_of_table(narrow, stacked, self._view.height() >= self._px(ROOMY))
                if self._view.theme.stage and not stacked:  # the map is what is looked at
                    width = self._view.width()
                    most = max(width // 2, width - map_.natural_width(self._room()) - self._px(2 * GRID))
                    table_share = min(max(table.natural_width(), width // 4), most)
                    map_share = width - table_share
                side.setStretch(0, map_share)
                side.setStretch(1, table_share)
                beside = (
                    (self._view.width() - 4 * GRID) * map_share // (map_share + table_share)
                )  # stretch factors alone are not kept where size hints exceed the room
                wide = map_.natural_width(self._room(), (beside, self._height_of(i)))
                map_.setMaximumWidth(UNLIMITED if stacked else beside if narrow else wide)
                over = self._height_of(i) * map_share // (map_share + table_share)
                map_.setMaximumHeight(map_.natural_height(self._view.width() - 2 * GRID, over) if stacked else UNLIMITED)

    def _larger_beside(self) -> bool:
        """Whether a map of small cells is hardly larger over its table, of which fewer rows would be seen, than beside it."""
        for i, row in enumerate(self._figure.grid if not self._view.theme.stage else ()):
            if _map_and_table(row) and isinstance(row[0], Heatmap) and row[0].square:
                map_, high = self._widgets[Heatmap, row[0].name], self._height_of(i)
                share = _share_of_table(True, True, self._view.height() >= self._px(ROOMY))
                over = map_.cell_in(self._view.width() - 2 * GRID, high * 2 // (2 + share))
                beside = map_.cell_in((self._view.width() - 4 * GRID) * 2 // (2 + _share_of_table(True, False, False)), high)
                return over < self._px(SMALL_CELL) and beside >= LARGE_ENOUGH * over
        return False

    def _height_of(self, row: int) -> int:
        """px of height of a row by its weight."""
        return self._room() * self._weight(row) // sum(map(self._weight, range(len(self._rows))))

    def _pile(self, i: int, side: QBoxLayout, row: tuple[Mark, ...]) -> None:
        """On a stage a plot stands over its table where beside it there is no room for its legend and its title below."""
        plot, table = (self._widgets[type(mark), mark.name] for mark in row)
        room, each = self._room(), (self._view.width() - self._px(2 * GRID)) // 2
        over = plot.least_width() > each and room >= self._px(TALL_ON_STAGE)
        self._piled |= {i} if over else set()
        side.setDirection(QBoxLayout.Direction.TopToBottom if over else QBoxLayout.Direction.LeftToRight)
        most = max(table.least_on_stage(self._view.width()), room * 2 // 5)
        table.setMaximumHeight(most if over else UNLIMITED)
        for at, share in enumerate((room - most, most) if over else (1, 1)):
            side.setStretch(at, share)

    def _room(self) -> int:
        """px of height of a map; of a stage exactly, elsewhere so that it does not follow the words around it."""
        return max(self._view.room_for_marks() if self._view.theme.stage else self._view.height() - self._px(CHROME), 60)

    def _space(self) -> None:
        """Between marks beside each other; larger type stands further apart."""
        for holder in self._rows:
            side = holder.layout()
            if isinstance(side, QBoxLayout):
                side.setSpacing(self._px(2 * GRID))

    def _turn_text(self) -> None:
        """A map over its text: the text gets its lines, the map the rest; side by side where that makes the map larger."""
        if self._on_paper or len(self._rows) != 2 or not _map_over_text(self._figure):
            if not self._on_paper:
                self._turn_plot()
            return
        heat, text = self._figure.grid[0][0], self._figure.grid[1][0]
        assert isinstance(heat, Heatmap) and isinstance(text, Tokens)
        room = self._room() if self._view.theme.stage else 0  # elsewhere it follows from the size
        key = (heat.values.shape, text.texts, self._view.size().toTuple(), self._view.theme, room)
        picture, words = self._widgets[Heatmap, heat.name], self._widgets[Tokens, text.name]
        filled = words.mark.texts == text.texts and picture.given.values.shape == heat.values.shape
        if key == self._shared or not filled:  # marks are shown after they are laid out
            return
        self._shared = key
        width, height = max(self._view.width() - 2 * GRID, 80), self._room()
        if self._view.theme.stage:  # where the map is what is looked at
            one = map_and_text(picture, words, width, height, self._view.theme)
            words.set_type(one.small, one.every)
            self._textless = not one.extent
            self._place_text(picture, words, one.beside, one.extent, 0 if one.beside else one.extent, width, height)
            return
        lines_in = lambda wide: max(28, min(words.natural_height(wide), height * 2 // 5))
        for _ in range(2):  # indices below the text make the map smaller
            lines = lines_in(width)
            words.show_indices(min(picture.index_step_in(width, height - lines - GRID), INDEXED))
        lines = lines_in(width)
        wide = min(picture.natural_width(height), width - self._px(BESIDE) - GRID)
        side = picture.titled_in(width, height - lines - GRID).picture[1]
        large = height >= self._px(ROOMY) and side >= LOW_MAP * height
        beside = heat.square and wide > 0 and not large and picture.titled_in(wide, height).picture[1] > 1.1 * side
        if beside:
            words.show_indices(min(picture.index_step_in(wide, height), INDEXED))
        self._place_text(picture, words, beside, wide, lines, width, height)

    def _place_text(
        self, picture: HeatmapMark, words: TokensMark, beside: bool, wide: int, lines: int, width: int, height: int
    ) -> None:
        """A map `wide` px wide with its text beside it, or over its text of so many px of height."""
        self.body.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
        above, below = self._rows
        self._centre(picture, words, 0 if beside else width, height - lines - GRID)
        above.setMaximumWidth(wide if beside else UNLIMITED)
        below.setMaximumHeight(UNLIMITED if beside else lines)
        below.setMinimumHeight(28 if beside else lines)
        share = (wide, max(width - wide, 1)) if beside and self._view.theme.stage else (100, 100 if beside else 0)
        for i, stretch in enumerate(share):
            self.body.setStretch(i, stretch)

    def _centre(self, picture: HeatmapMark, words: TokensMark, width: int, height: int) -> None:
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
        least = sum(self._widgets[type(row[0]), row[0].name].minimumWidth() for row in grid) + 3 * GRID if over else 0
        beside = square and room < self._px(LOW_FOR_TWO) and view.width() > max(1.4 * room, least)
        self.body.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
        if over and len(self._rows) == 2:
            map_ = self._widgets[type(grid[0][0]), grid[0][0].name]
            self._rows[0].setMaximumWidth(min(map_.natural_width(room), view.width() // 2) if beside else UNLIMITED)
            self._rows[1].setMinimumHeight(0)

    def _px(self, length: float) -> int:
        return self._view.theme.px(length)

    def align(self) -> None:
        """Stacked pictures over the same columns or axis begin and end at the same place, whatever stands beside them."""
        self._align_plots()
        alone = [row[0] for row in self._figure.grid if len(row) == 1]
        maps = [m for m in alone if isinstance(m, Heatmap) and not m.square and m.colour_bar]
        if len(maps) < 2 or len({m.values.shape[1] for m in maps}) > 1:
            return
        widgets = [self._widgets[type(m), m.name] for m in maps]
        least = max(w.bar.natural for w in widgets)
        for widget in widgets:
            widget.widen_bar(least)

    def _align_plots(self) -> None:
        """Plots whose axis is written below the last of them begin where that with the longest numbers does."""
        alone = [row[0] for row in self._figure.grid if len(row) == 1]
        plots = [self._widgets[type(m), m.name] for m in alone if isinstance(m, Lines | Points)]
        if len(plots) > 1 and all(plot.bottom_axis.spec.bare for plot in plots[:-1]):
            least = max(plot.left_axis.natural for plot in plots)
            for plot in plots:
                plot.align_left(least)

    def _share_by_content(self) -> None:
        """Rows of text and bars ask for what they need, at most two fifths; pictures share the rest.

        Where shares are given, tables and bars above others take no more than what is in them.
        """
        self._set_texts()
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
                prose = all(isinstance(m, Prose) for m in row)
                most = self._room_for_prose(room) if prose else room * 2 // 5
                gives = self._view.height() < self._px(LOW) and not (prose and self._beside_tables())
                self._rows[i].setMaximumHeight(max(28, min(need, most)))
                self._rows[i].setMinimumHeight(max(28, min(need, most, 48 if gives else most)))

    def give_frames(self) -> None:
        """What has no room on a stage goes; stacked plots keep a picture."""
        if self._view.theme.stage:
            self._leave_out()
        self._leave_frames()

    @property
    def notes(self) -> tuple[str, ...]:
        """That parts of the figure have no room."""
        count = len(self._gone) + self._beyond
        return (Essential(f"no room for {number_of(count, 'more part')}"),) if count else ()

    def _leave_out(self) -> None:
        rows = [[(m, self._widgets[type(m), m.name]) for m in row] for row in self._figure.grid]
        beside = self.body.direction() != QBoxLayout.Direction.TopToBottom
        own = beside or _map_over_text(self._figure)  # an arrangement of its own
        width, room = self._view.width(), self._view.room_for_marks()
        self._gone = set() if own or len(rows) < 2 else without_room(rows, width, room, self._view.theme)
        self._gone |= {1} if self._textless and _map_over_text(self._figure) else set()
        for i, holder in enumerate(self._rows):
            holder.setVisible(i not in self._gone)
        self._beyond = sum(self._show_beside(i, row, width) for i, row in enumerate(rows) if i not in self._gone)
        if self._stacked_texts():
            self._share_among_texts(room)

    def _stacked_texts(self) -> list[TokensMark]:
        """The widgets of a figure on a stage that is nothing but texts over each other; else none."""
        grid = self._figure.grid
        only = self._view.theme.stage and len(grid) > 1 and all(len(row) == 1 and isinstance(row[0], Tokens) for row in grid)
        return [self._widgets[type(row[0]), row[0].name] for row in grid] if only else []

    def _set_texts(self) -> None:
        """Such texts in small type where they have no room for all their lines in ordinary type, and the same lines of each."""
        texts = self._stacked_texts()
        room = self._view.room_for_marks() - GRID * (len(texts) - 1)
        small = sum(words.heights(self._view.width(), False, 0)[0] for words in texts) > room
        for words in texts:
            words.set_type(small, 0)
            words.show_like_others(True)

    def _share_among_texts(self, room: int) -> None:
        """Each that is shown has its lines, or as many as the others where they have no room for all."""
        shown = [i for i in range(len(self._rows)) if i not in self._gone]
        texts, spare = self._stacked_texts(), room - GRID * (len(shown) - 1)
        needs = {i: texts[i].natural_height(self._view.width()) for i in shown}
        cut = sum(needs.values()) > spare
        for i, need in needs.items():
            self._rows[i].setMinimumHeight(spare // len(shown) if cut else need)
            self._rows[i].setMaximumHeight(spare // len(shown) if cut else UNLIMITED)

    def _show_beside(self, place: int, row: list[tuple[Mark, QWidget]], width: int) -> int:
        """Of the marks of a row show those that have their least width beside each other; how many have not."""
        stacked = (self._stacked and _map_and_table(tuple(mark for mark, _ in row))) or place in self._piled
        right, count = 0, 0
        for i, (_, widget) in enumerate(row):
            right += widget.minimumWidth() + (self._px(2 * GRID) if i else 0)
            widget.setVisible(stacked or i == 0 or right <= width)
            count += widget.isHidden()
        return count

    def _leave_frames(self) -> None:
        """Stacked plots keep a picture between legend and numbers, whatever their share; on a stage one as high as its title."""
        if self._on_paper or len(self._rows) < 2 or self.body.direction() != QBoxLayout.Direction.TopToBottom:
            return
        plots = [[w for m in row if isinstance(w := self._widgets[type(m), m.name], XYPlot)] for row in self._figure.grid]
        plots = [[] if i in self._gone else row for i, row in enumerate(plots)]
        around = [max((w.around() for w in row), default=0) for row in plots]
        others = [self._rows[i] for i, row in enumerate(plots) if not row and i not in self._gone]
        least = sum(holder.minimumSizeHint().height() for holder in others)
        left = self._view.room_for_marks() - sum(around) - least - GRID * (len(plots) - 1)
        frame = min(self._px(LEAST_FRAME), left // max(sum(map(bool, plots)), 1))
        frames = [max(frame, *(ceil(w.left_axis.least_length()) for w in row)) if row else 0 for row in plots]
        if not self._view.theme.stage or sum(frames) > left:  # then the caption says the titles that are elided
            frames = [frame] * len(plots)
        for holder, row, beside, high in zip(self._rows, plots, around, frames, strict=False):
            if row:
                holder.setMinimumHeight(max(beside + high, LEAST_FRAME))

    def _room_for_prose(self, room: int) -> int:
        """The most height of prose, which scrolls as pictures do not; half in a narrow panel, where pictures cannot use it.

        Beside tables, which scroll too and a row at a time, it has its lines.
        """
        if self._beside_tables():
            return max(room // 4, room - self._px(LEAST_TABLE))
        if self._view.height() < self._px(LOW):
            return room // 4
        return room // 2 if self._view.width() < self._px(NARROW) else room * 2 // 5

    def _beside_tables(self) -> bool:
        """Whether everything but prose is a table that scrolls; on a stage nothing does."""
        return not self._view.theme.stage and all(isinstance(mark, Rows | Prose) for mark in self._figure.marks())

    def _cap_by_content(self) -> None:
        width = max(self._view.width() - 2 * GRID, 100)
        for holder, row in zip(self._rows[:-1], self._figure.grid, strict=False):
            under = self._stacked and _map_and_table(row)
            if all(isinstance(m, Rows | Bars) for m in row) or _map_and_table(row):
                needs = [self._widgets[type(m), m.name].natural_height(width // (1 if under else len(row))) for m in row]
                holder.setMaximumHeight(max(28, sum(needs) + GRID if under else max(needs)))
