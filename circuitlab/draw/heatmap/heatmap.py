# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""A heatmap: one image with a 256-entry table, row 0 on top, token axes, crosshair, tiles, colour bar.

Drawn unzoomed, a cell is a whole number of device pixels. Where a cell is smaller than a pixel the largest magnitude of each
block stands for it (a diagonal one cell wide must not vanish), and the caption says so. A map that turns stands with its rows
across where that makes its cells larger; what is pointed at is said, and given on, by the rows and columns of the mark.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor

import numpy as np
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter, QResizeEvent
from PySide6.QtWidgets import QWidget

from circuitlab.caption_parts import Essential
from circuitlab.draw.heatmap._cells import MOST, cell_colours, paint_cells, paint_signs, rectangles
from circuitlab.draw.heatmap._fitted import FittedMap
from circuitlab.draw.heatmap._frames import paint_crosshair, paint_frames, paint_rules, paint_tiles
from circuitlab.draw.heatmap._hatching import Hatching
from circuitlab.draw.heatmap._texts import has_room, paint_texts
from circuitlab.draw.look.colour_bar import short
from circuitlab.draw.look.colours import inks, legend_rgb, rgba_table, steps
from circuitlab.draw.look.cross import paint_cross
from circuitlab.draw.look.paper import POINTS, Paper
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.plots.items import Image
from circuitlab.draw.plots.plot import Overlay, Range
from circuitlab.draw.pointing.gestures import Id, number
from circuitlab.figures.marks import Axis, Heatmap

MOSTLY_EMPTY = 16  # cells per painted one at most; painted cells of larger maps are not counted


class HeatmapMark(FittedMap):
    """Realises `Heatmap`."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self._mips: list[np.ndarray] = []
        self._mip = 0
        self._cursor: Id | None = None
        self._hatching = Hatching()
        self._mute = False  # cells have texts, and no room for them
        self._cells: np.ndarray | None = None  # colours of cells painted as rectangles
        self.box.invertY(True)
        self.image = Image()
        self.box.addItem(self.image, ignoreBounds=True)
        self._over = Overlay(self, self._draw_over)

    # the mark --------------------------------------------------------------------------------------------------------

    def show_mark(self, mark: Heatmap) -> None:
        """Upload new pixels only; a moved crosshair repaints the overlay alone."""
        old, self.mark_name = self.mark, mark.name
        self._take(mark)
        mark = self.mark
        first = not self._ready
        shape = old.values.shape != mark.values.shape
        pixels = mark.rgb if mark.rgb is not None else mark.values
        before = old.rgb if old.rgb is not None else old.values
        if first or pixels is not before:
            self._mips, self._mip = [pixels], -1
            self._ready = True
            self._cells = None
        if first or mark.map != old.map or mark.levels != old.levels or (mark.rgb is None) != (old.rgb is None):
            self._table()
        if first or shape or mark.tiles != old.tiles:
            self._cursor = self._hovered = None
        self._describe()
        self.bar.show_levels(mark.map, mark.levels, mark.unit, self.theme)
        self._name_colours()
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

    def _take(self, given: Heatmap) -> None:
        """Draw this mark as it is, or turned where it goes across, with the pixels of the last one where these are the same."""
        before, was, drawn = self.given, self._across, self.mark
        self.given = given
        self._across = self.goes_across(self.viewport().width(), self.viewport().height())
        self.mark = given.turned() if self._across else given
        if was and self._across and given.values is before.values and given.rgb is before.rgb and given.tiles == before.tiles:
            self.mark = replace(self.mark, values=drawn.values, rgb=drawn.rgb)

    def _as_rectangles(self) -> None:
        """On paper: the cells that are painted instead of the image."""
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
        if (mute := self._is_mute()) != self._mute:
            self._mute = mute
            self.noted.emit()
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
        # Table indices are an eight-bit image with a palette, which Qt draws directly, transparent entry included.
        pixels = inks(data) if self.mark.rgb is not None else steps(data, self.mark.levels)
        self.image.setImage(pixels, autoLevels=False, levels=(0, 255))
        self.image.setRect(QRectF(0, 0, data.shape[1] * 2**level, data.shape[0] * 2**level))
        if noted:
            self.noted.emit()

    def _density(self) -> float:
        """Device pixels per px."""
        paper = self._paper
        return self.devicePixelRatioF() if paper is None else paper.dpi / POINTS * paper.font_pt / self.theme.small

    def notes(self) -> tuple[str, ...]:
        """Pooling, and what is not shown beside the map: the levels of a missing colour bar, titles of axes."""
        side, mark = 2 ** max(self._mip, 0), self.mark
        words = [Essential(f"drawn as the largest of {side} × {side} cells")] if side > 1 else list[str]()
        if not self.bar_elsewhere and (self._bar_left_out or not self._barred()):
            low, high = map(short, mark.levels)
            words.append(Essential(f"colours from {low} to {high} {mark.unit}".rstrip()))
        if self._is_mute():
            words.append(Essential("no room for the texts of cells"))
        if self._untitled:
            kind = str if self._paper is None else Essential  # nothing else on paper says it
            words += [kind(f"{way}: {axis.label}") for way, axis in (("down", mark.y), ("across", mark.x)) if axis.label]
        if self._paper is not None and self._paper.grey:
            words += [Essential("hues of heads cannot be told apart in grey")] if mark.rgb is not None and mark.legend else []
            words += [Essential("− marks negative cells")] if mark.rgb is None and mark.map == "signed" else []
        return tuple(words)

    def prepare_export(self, paper: Paper) -> None:
        """Cells become rectangles, or a lossless image where there are too many."""
        super().prepare_export(paper)
        self._paper = paper
        self.setRenderHint(QPainter.RenderHint.LosslessImageRendering)
        self.bar.prepare_export(paper)

    # geometry --------------------------------------------------------------------------------------------------------

    def full_range(self) -> Range:
        """In cells."""
        rows, cols = self.mark.values.shape
        return (0.0, float(cols)), (0.0, float(rows))

    def _along(self, part: Range) -> tuple[str, str]:
        """“source 3–17 of 0–39” for each axis that is not shown whole: cells, or tiles, at least partly visible."""
        rows, cols = self.mark.values.shape
        tiles = self.mark.tiles
        sizes = (1, 1) if tiles is None else (tiles.width + tiles.gap, tiles.height + tiles.gap)
        counts = (cols, rows) if tiles is None else (tiles.cols, tiles.rows)
        words = []
        names = (self.mark.x.label or "column", self.mark.y.label or "row")
        for name, (low, high), size, n in zip(names, part, sizes, counts, strict=True):
            first, last = max(0, floor(low / size + 0.05)), min(n, ceil(high / size - 0.05)) - 1
            words.append("" if first <= 0 and last >= n - 1 else f"{name} {first}–{last} of 0–{n - 1}")
        return words[0], words[1]

    def fit(self) -> None:
        """Repaint the overlay too."""
        super().fit()
        self._over.update()

    def _is_mute(self) -> bool:
        """Whether cells have texts, and no room for them."""
        return self.mark.texts is not None and bool(self.mark.values.size) and not has_room(self._box(0, 0, 1, 1), self.theme)

    def resizeEvent(self, event: QResizeEvent) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Fit again; the zoom stays."""
        super().resizeEvent(event)
        if self._ready:
            self._turn_over()
            self.fit()
            self._upload()

    def _turn_over(self) -> None:
        """Draw the mark the other way where the room asks for it; what was seen of it is still seen."""
        if self.goes_across(self.viewport().width(), self.viewport().height()) == self._across:
            return
        part = self.visible_part()
        self.show_mark(self.given)
        self.reset_view()
        if part is not None:
            self.show_visible_part(part)

    def in_units(self, part: Range) -> Range:
        """Columns and rows of the mark, however it is drawn."""
        return (part[1], part[0]) if self._across else part

    def from_units(self, part: Range) -> Range:
        """The way back."""
        return self.in_units(part)

    def kept_part(self) -> Range | None:
        """As `in_units`."""
        return None if self.part is None else self.in_units(self.part)

    def range_changed(self) -> None:
        """Another level of detail may be needed."""
        if self._ready:
            self._upload()

    def _name_colours(self) -> None:
        self.legend.show_entries([(text, legend_rgb(colour, self.theme)) for text, colour in self.mark.legend], self.theme)

    def restyle(self) -> None:
        """The zero of the map follows the background."""
        if self._ready:
            self._turn_over()
            self._table()
            self.bar.show_levels(self.mark.map, self.mark.levels, self.mark.unit, self.theme)
            self._name_colours()
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
        """Position on both axes, and the value."""
        return cell_words(self.given, *self._of_given(item))

    def _of_given(self, item: Id) -> Id:
        """A cell or tile of what is drawn as one of the mark."""
        return (item[1], item[0]) if self._across else item

    def mark_id(self, item: Id) -> Id:
        """(*row id, *column id) where the mark has them."""
        mark, item = self.given, self._of_given(item)
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
        if self.part is not None:  # white cells have no edge of their own
            painter.setPen(self.theme.pen("line"))
            painter.drawRect((self._box(0, 0, *self.mark.values.shape) & self.frame()).adjusted(0, 0, -1, -1))
        paint_crosshair(painter, self.mark, self._box, self.frame(), self.theme)
        painter.setPen(self.theme.pen("accent", 2.0))
        for item in self.mark.tiles.chosen if self.mark.tiles else ():
            painter.drawRect(self._item_box(item).adjusted(0, 0, 0, 0))
        for item in self.mark.struck:
            paint_cross(painter, self._item_box(item), self.theme, corner=self.mark.tiles is not None)
        if self._cursor is not None:
            painter.setPen(self.theme.pen("text"))
            painter.drawRect(self._item_box(self._cursor).adjusted(0, 0, -1, -1))


def pooled(values: np.ndarray) -> np.ndarray:
    """[ceil(r/2), ceil(c/2)]: of each 2 × 2 block the entry of the largest magnitude, NaN only where all are.

    Of colours [r, c, 3] the darkest.
    """
    rows, cols = values.shape[:2]
    pad = [(0, rows % 2), (0, cols % 2)] + [(0, 0)] * (values.ndim - 2)
    if values.ndim == 3:
        v = np.pad(values, pad, mode="edge")
        return np.minimum(np.minimum(v[::2, ::2], v[1::2, ::2]), np.minimum(v[::2, 1::2], v[1::2, 1::2]))
    v = np.pad(values, pad, constant_values=np.nan)
    parts = (v[::2, ::2], v[1::2, ::2], v[::2, 1::2], v[1::2, 1::2])
    high = np.fmax(np.fmax(parts[0], parts[1]), np.fmax(parts[2], parts[3]))
    low = np.fmin(np.fmin(parts[0], parts[1]), np.fmin(parts[2], parts[3]))
    return np.where(-low > high, low, high)


def cell_words(mark: Heatmap, row: int, col: int) -> str:
    """The readout of a cell: its position on both axes and its value; a tile has no value."""
    names = _step(mark.y, row), _step(mark.x, col)
    heads = mark.y.label == "layer" and mark.x.label == "head"
    where = "".join(a.ticks[i] for a, i in ((mark.y, row), (mark.x, col))) if heads else " · ".join(names)
    hint = mark.hints.get((row, col), "")
    hint = f" · {hint}" if hint else ""
    if mark.tiles:
        return f"{where}{hint}"
    written = "" if mark.texts is None else f" · ‘{mark.texts[row, col]}’"
    return f"{where}{written} · {number(float(mark.values[row, col]), mark.unit, mark.blank)}{hint}"


def _step(axis: Axis, i: int) -> str:
    if axis.tokens and i < len(axis.ticks):
        return f"{axis.label} {i} ‘{axis.ticks[i]}’"
    if i < len(axis.ticks):
        return f"{axis.label} {axis.ticks[i]}".strip()
    return f"{axis.label} {i}".strip()
