# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""A heatmap: one image with a 256-entry table, row 0 on top, token axes, crosshair, tiles, colour bar.

Drawn unzoomed, a cell is a whole number of device pixels. Where a cell is smaller than a pixel the largest magnitude of each
block stands for it (a diagonal one cell wide must not vanish), and the caption says so.
"""

from __future__ import annotations

from math import ceil, floor, inf

import numpy as np
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QWidget

from circuitlab.draw.heatmap._cells import MOST, cell_colours, paint_cells, paint_signs, rectangles
from circuitlab.draw.heatmap._frames import paint_crosshair, paint_frames, paint_rules, paint_tiles
from circuitlab.draw.heatmap._hatching import Hatching
from circuitlab.draw.heatmap._pooling import pooled
from circuitlab.draw.heatmap._readout import cell_words
from circuitlab.draw.heatmap._texts import paint_texts
from circuitlab.draw.look.colour_bar import ColourBar, short
from circuitlab.draw.look.colours import inks, rgba_table, steps
from circuitlab.draw.look.cross import paint_struck
from circuitlab.draw.look.legend import Legend
from circuitlab.draw.look.paper import POINTS, Paper
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.plots.items import Image
from circuitlab.draw.plots.plot import LEAST_PICTURE, Overlay, PlotMark, Range
from circuitlab.draw.pointing.gestures import Id
from circuitlab.figures.contracts.hues import hue_rgb
from circuitlab.figures.marks import Heatmap

LARGEST_CELL, LARGEST_ALONE = 56.0, 140.0  # px: beside something else, and with a row of the figure for itself
LARGEST_ON_PAPER = 28.0
MOSTLY_EMPTY = 16  # cells to each that is painted: of a larger map it is not asked how many these are
UNLIMITED = (1 << 24) - 1  # Qt's own
SHORT = 150  # px of height below which axes leave out titles that their ticks say
LOWEST_TITLED = 36  # px of picture: on less the caption says what the axes are, and the picture has their room
LOWEST_BAR = 40  # px of picture: on less the colour bar has no room for its numbers


class HeatmapMark(PlotMark):
    """Realises `Heatmap`."""

    _mips: list[np.ndarray] = []  # noqa: RUF012  pyqtgraph resizes before __init__ is through

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.mark: Heatmap = Heatmap("", np.zeros((1, 1), np.float32), (0.0, 1.0))
        self._mips = []
        self._mip = 0
        self._cursor: Id | None = None
        self._alone = False
        self._hatching = Hatching()
        self._paper: Paper | None = None
        self._cells: np.ndarray | None = None  # colours that are painted as rectangles
        self._bar_left_out = self._untitled = False
        self.box.invertY(True)
        self.image = Image()
        self.box.addItem(self.image, ignoreBounds=True)
        self._over = Overlay(self, self._draw_over)
        self.bar = ColourBar(theme)
        self.legend = Legend(theme)
        plot = self.plot_item
        plot.layout.addItem(self.bar, 2, 3)
        plot.layout.addItem(self.legend, 1, 1)

    # the mark --------------------------------------------------------------------------------------------------------

    def show_mark(self, mark: Heatmap) -> None:
        """Upload what is new; a crosshair alone repaints only itself."""
        old, self.mark, self.mark_name = self.mark, mark, mark.name
        first = not self._mips
        shape = old.values.shape != mark.values.shape
        pixels = mark.rgb if mark.rgb is not None else mark.values
        before = old.rgb if old.rgb is not None else old.values
        if first or pixels is not before:
            self._mips, self._mip = [pixels], -1
            self._cells = None
        if first or mark.map != old.map or mark.levels != old.levels or (mark.rgb is None) != (old.rgb is None):
            self._table()
        if first or shape or mark.tiles != old.tiles:
            self._cursor = self._hovered = None
        self._describe()
        self.bar.show_levels(mark.map, mark.levels, mark.unit, self.theme)
        self.legend.show_entries([(text, hue_rgb(hue, self.theme.dark)) for text, hue in mark.legend], self.theme)
        parts = (shape, mark.square != old.square, mark.colour_bar != old.colour_bar, mark.legend != old.legend)
        if (
            first
            or any(parts)
            or mark.x is not old.x
            or mark.y is not old.y
            or mark.unit != old.unit
            or mark.levels != old.levels
        ):
            self.fit()
        if first or shape:
            self.reset_view()
        self._as_rectangles()
        self._upload()
        self._over.update()

    def _as_rectangles(self) -> None:
        """On paper: what is painted in place of the image."""
        if self._paper is not None:
            few = self.mark.values.size <= MOST * MOSTLY_EMPTY
            colours = cell_colours(self.mark, self.theme) if few else None
            self._cells = colours if colours is not None and rectangles(colours) <= MOST else None
            self.image.setVisible(self._cells is None)

    def _table(self) -> None:
        self.image.setLookupTable(None if self.mark.rgb is not None else rgba_table(self.mark.map, self.theme), update=False)
        self._mip = -1

    def _describe(self) -> None:
        mark, tiles = self.mark, self.mark.tiles
        rows, cols = mark.values.shape
        if tiles is None:
            self.left_axis.describe(mark.y, rows, 1.0, 0.5)
            self.bottom_axis.describe(mark.x, cols, 1.0, 0.5)
            self.left_axis.choose(mark.row)
            self.bottom_axis.choose(mark.col)
            return
        self.left_axis.describe(mark.y, tiles.rows, tiles.height + tiles.gap, tiles.height / 2)
        self.bottom_axis.describe(mark.x, tiles.cols, tiles.width + tiles.gap, tiles.width / 2)
        one = tiles.chosen[0] if tiles.chosen else (None, None)
        self.left_axis.choose(one[0])
        self.bottom_axis.choose(one[1])

    def _upload(self) -> None:
        """Give the image the level of detail that the screen can show."""
        (x0, x1), _ = self.box.viewRange()
        cell = self.box.width() * self._density() / ((x1 - x0) or 1.0)
        level = 0 if cell >= 0.75 or cell <= 0 or self._cells is not None else ceil(np.log2(0.75 / cell))
        if level == self._mip:
            return
        while len(self._mips) <= level:
            self._mips.append(pooled(self._mips[-1]))
        noted = level != self._mip
        self._mip = level
        data = self._mips[level]
        # Indices into the table are an eight-bit image with a palette: Qt draws it as it is, transparent entry included.
        pixels = inks(data) if self.mark.rgb is not None else steps(data, self.mark.levels)
        self.image.setImage(pixels, autoLevels=False, levels=(0, 255))
        self.image.setRect(QRectF(0, 0, data.shape[1] * 2**level, data.shape[0] * 2**level))
        if noted:
            self.noted.emit()

    def _density(self) -> float:
        """Device pixels to a px."""
        paper = self._paper
        return self.devicePixelRatioF() if paper is None else paper.dpi / POINTS * paper.font_pt / self.theme.small

    def notes(self) -> tuple[str, ...]:
        """Pooling is announced, and levels for which no bar stands."""
        side, mark = 2 ** max(self._mip, 0), self.mark
        words = [f"drawn as the largest of {side} × {side} cells"] if side > 1 else []
        if self._bar_left_out:
            words.append(" ".join(filter(None, (f"colours from {short(mark.levels[0])} to {short(mark.levels[1])}", mark.unit))))
        if self._untitled:
            words += [f"{way}: {axis.label}" for way, axis in (("down", mark.y), ("across", mark.x)) if axis.label]
        if self._paper is not None and self._paper.grey:
            words += ["hues of heads cannot be told apart in grey"] if mark.rgb is not None and mark.legend else []
            words += ["− marks negative cells"] if mark.rgb is None and mark.map == "signed" else []
        return tuple(words)

    def prepare_export(self, paper: Paper) -> None:
        """Cells are rectangles; where they are too many, a picture without loss."""
        super().prepare_export(paper)
        self._paper = paper
        self.setRenderHint(QPainter.RenderHint.LosslessImageRendering)
        self.bar.prepare_export(paper)

    # geometry --------------------------------------------------------------------------------------------------------

    def full_range(self) -> Range:
        """Cells."""
        rows, cols = self.mark.values.shape
        return (0.0, float(cols)), (0.0, float(rows))

    def _along(self, part: Range) -> tuple[str, str]:
        """“source 3–17 of 40” for each axis that is not seen whole: cells, or tiles, that are seen at least in part."""
        rows, cols = self.mark.values.shape
        tiles = self.mark.tiles
        sizes = (1, 1) if tiles is None else (tiles.width + tiles.gap, tiles.height + tiles.gap)
        counts = (cols, rows) if tiles is None else (tiles.cols, tiles.rows)
        words = []
        names = (self.mark.x.label or "column", self.mark.y.label or "row")
        for name, (low, high), size, n in zip(names, part, sizes, counts, strict=True):
            first, last = max(0, floor(low / size + 0.05)), min(n, ceil(high / size - 0.05)) - 1
            words.append("" if first <= 0 and last >= n - 1 else f"{name} {first}–{last} of {n}")
        return words[0], words[1]

    def _measure(self, width: float, height: float, barred: bool) -> tuple[float, float, float]:
        """(width, height) that a picture takes of this room, and its own height; axes say what fits beside cells of that size."""
        rows, cols = self.mark.values.shape
        left, bottom, top, cell_x, cell_y = 0.0, 0.0, 0.0, 64.0, 64.0
        bar = self.bar.extent() if barred else 0.0
        self.left_axis.short = self.bottom_axis.short = height < self.theme.px(SHORT)
        for turn in range(5):
            left, bottom = self.left_axis.fit(cell_y), self.bottom_axis.fit(cell_x)
            top = self.legend.height_for(min(cell_x * cols, width - left - bar))
            # at last cells only shrink: else axes may ask for more beside large ones, and make them small, without end
            most_x, most_y = (cell_x, cell_y) if turn > 2 else (inf, inf)
            cell_x = min(max((width - left - bar - 10) / cols, 1e-3), most_x)
            cell_y = min(max((height - bottom - top - 10) / rows, 1e-3), most_y)
            if self.mark.square:
                cell_x = cell_y = self._snapped(min(cell_x, cell_y, self._largest()))
        return left + bar + cell_x * cols, bottom + top + cell_y * rows, cell_y * rows

    def _barred(self) -> bool:
        return self.mark.colour_bar and self.mark.rgb is None

    def fit(self) -> None:
        """Give the plot a whole number of device pixels a cell, at the top left of the room there is."""
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
        # The margins are part of the least size of the plot: until they are right its geometry may have been refused.
        self.plot_item.setGeometry(self.range)
        layout.activate()
        self._over.update()

    def _side(self, width: float, height: float, barred: bool) -> float:
        """px of height of the picture with titles beside its axes."""
        self._title_axes(True)
        return self._measure(width, height, barred)[2]

    def _title_axes(self, titled: bool) -> None:
        self.left_axis.untitled = self.bottom_axis.untitled = not titled

    def _largest(self) -> float:
        if self._paper is not None:
            return LARGEST_ON_PAPER
        return self.theme.px(LARGEST_ALONE if self._alone else LARGEST_CELL)

    def set_alone(self, alone: bool) -> None:
        """Whether it has a row of the figure for itself, and grows with it."""
        if alone != self._alone:
            self._alone = alone
            self.left_axis.large = self.bottom_axis.large = alone and self._paper is None
            if self._mips:
                self.fit()

    def side_in(self, width: int, height: int) -> float:
        """px of height of the picture in a room."""
        side = self._side(width, height, self._barred())
        self._title_axes(not self._untitled)
        self._measure(self.viewport().width(), self.viewport().height(), self.bar.isVisible())  # axes as they are
        return side

    def index_step_in(self, width: int, height: int) -> int:
        """How far apart the indices are that stand for tokens in a room, 0 where the tokens themselves stand on both axes."""
        self._measure(width, height, self._barred())
        step = max(self.left_axis.index_step, self.bottom_axis.index_step)
        self._measure(self.viewport().width(), self.viewport().height(), self.bar.isVisible())  # axes as they are
        return step

    def _snapped(self, cell: float) -> float:
        ratio = self.devicePixelRatioF()
        return floor(cell * ratio) / ratio if cell * ratio >= 3 and self._paper is None else cell

    def widen_bar(self, least: int) -> None:
        """Keep at least so many px for the colour bar: maps above each other then have their columns above each other."""
        if least != self.bar.least:
            self.bar.least = least
            self.bar.setFixedWidth(self.bar.extent())
            self.fit()

    def natural_width(self, height: int) -> int:
        """px that a picture of so much height can use: square cells do not get wider."""
        if not self.mark.square:
            return UNLIMITED
        self._title_axes(True)
        used = self._measure(1e4, height, self._barred())[0]
        self._title_axes(not self._untitled)
        self._measure(self.viewport().width(), self.viewport().height(), self.bar.isVisible())  # axes as they are
        return ceil(used + 12)

    def least_width(self) -> float:
        """Axis, a picture of a dot a column at least, colour bar."""
        beside = self.left_axis.fit(LARGEST_ON_PAPER) + (self.bar.extent() if self._barred() else 0.0)
        return beside + max(LEAST_PICTURE, self.mark.values.shape[1] * 72 / 300 * self.theme.small / 7)

    def fits_on_paper(self, width: float) -> bool:
        """Whether cells get more of this width than what stands beside them, and the colour bar its height."""
        beside = self.left_axis.fit(LARGEST_ON_PAPER) + (self.bar.extent() if self._barred() else 0.0)
        used, _, picture = self._measure(width, 1e4, self._barred())
        return picture >= self.theme.px(LOWEST_BAR) and used - beside >= beside

    def natural_height(self, width: int) -> int:
        """Square cells of this width and their labels."""
        if not self.mark.square:
            return round(min(width * 0.6, self.mark.values.shape[0] * 18 + 120))
        return ceil(self._measure(width, 1e4, self._barred())[1] + 12)

    def resizeEvent(self, event: QResizeEvent) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Fit again; the zoom stays."""
        super().resizeEvent(event)
        if self._mips:
            self.fit()
            self._upload()

    def range_changed(self) -> None:
        """Another level of detail may be due."""
        if self._mips:
            self._upload()

    def restyle(self) -> None:
        """The zero of the map follows the background."""
        if self._mips:
            self._table()
            self.bar.show_levels(self.mark.map, self.mark.levels, self.mark.unit, self.theme)
            self.legend.show_entries([(text, hue_rgb(hue, self.theme.dark)) for text, hue in self.mark.legend], self.theme)
            self.fit()
            self._upload()

    # gestures --------------------------------------------------------------------------------------------------------

    def id_at(self, at: QPointF) -> Id | None:
        """(row, col), or (tile row, tile col)."""
        if not self.frame().contains(at):
            return None
        point = self.to_data(at)
        row, col = floor(point.y()), floor(point.x())
        rows, cols = self.mark.values.shape
        if not (0 <= row < rows and 0 <= col < cols):
            return None
        tiles = self.mark.tiles
        if tiles is None:
            return row, col
        return min(row // (tiles.height + tiles.gap), tiles.rows - 1), min(col // (tiles.width + tiles.gap), tiles.cols - 1)

    def readout(self, item: Id) -> str:
        """Where it is on both axes, and the value."""
        return cell_words(self.mark, *item)

    def given(self, item: Id) -> Id:
        """(*row id, *column id) where the mark has them."""
        mark = self.mark
        if mark.row_ids is None or mark.col_ids is None:
            return item
        return tuple(int(v) for v in (*mark.row_ids[item[0]], *mark.col_ids[item[1]]))

    def walk(self, item: Id | None, dx: int, dy: int) -> Id | None:
        """The next cell or tile; from the crosshair when nothing is hovered."""
        tiles = self.mark.tiles
        rows, cols = (tiles.rows, tiles.cols) if tiles else self.mark.values.shape
        if item is None:
            start = tiles.chosen[0] if tiles and tiles.chosen else (self.mark.row, self.mark.col)
            if start == (None, None):
                return 0, 0
            item = (start[0] or 0, start[1] or 0)
        return min(max(item[0] + dy, 0), rows - 1), min(max(item[1] + dx, 0), cols - 1)

    def show_cursor(self, item: Id | None) -> None:
        """Outline the hovered cell or tile."""
        self._cursor = item
        self._over.update()

    # overlay ---------------------------------------------------------------------------------------------------------

    def _box(self, row: float, col: float, rows: float, cols: float) -> QRectF:
        (left, top), (right, bottom) = self.to_pixels(np.array([col, col + cols]), np.array([row, row + rows]))
        return QRectF(QPointF(left, top), QPointF(right, bottom))

    def _item_box(self, item: Id) -> QRectF:
        tiles = self.mark.tiles
        if tiles is None:
            return self._box(item[0], item[1], 1, 1)
        row, col = item[0] * (tiles.height + tiles.gap), item[1] * (tiles.width + tiles.gap)
        return self._box(row, col, tiles.height, tiles.width)

    def _draw_over(self, painter: QPainter) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        if self._cells is not None:
            paint_cells(painter, self._cells, self._box(0, 0, *self._cells.shape), self.frame())
        if self._paper is not None and self._paper.grey:
            paint_signs(painter, self.mark, self._box(0, 0, *self.mark.values.shape), self.theme)
        paint_texts(painter, self.mark, lambda row, col: self._box(row, col, 1, 1), self.box.viewRange(), self.theme)
        paint_tiles(painter, self.mark, self._item_box, self.theme)
        self._hatching.paint(painter, self.mark, self._box, self.theme, self._paper is not None)
        paint_rules(painter, self.mark, self._box, self.theme)
        paint_frames(painter, self.mark, lambda row, col: self._box(row, col, 1, 1), self.theme)
        accent = self.theme.colour("accent")
        paint_crosshair(painter, self.mark, self._box, self.frame(), accent)
        painter.setPen(QPen(accent, 2))
        for item in self.mark.tiles.chosen if self.mark.tiles else ():
            painter.drawRect(self._item_box(item).adjusted(0, 0, 0, 0))
        for item in self.mark.struck:
            paint_struck(painter, self._item_box(item), self.theme, corner=self.mark.tiles is not None)
        if self._cursor is not None:
            painter.setPen(QPen(self.theme.colour("text"), 1))
            painter.drawRect(self._item_box(self._cursor).adjusted(0, 0, -1, -1))
