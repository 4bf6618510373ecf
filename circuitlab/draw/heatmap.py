"""A matrix as an image: token axes, colour bar, crosshair, contact sheets of tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, QRectF, Qt, Slot
from PySide6.QtGui import QColor, QKeyEvent, QPainter, QPen
from PySide6.QtWidgets import QGraphicsRectItem, QHBoxLayout, QWidget

from circuitlab.draw import colours
from circuitlab.draw.axes import CellAxis
from circuitlab.draw.mark_view import MarkView, gesture_of
from circuitlab.draw.theme import LIGHT, Theme
from circuitlab.figures.hues import hue_rgb
from circuitlab.figures.marks import Axis, Heatmap, Hit, Tiles

_STEPS = {Qt.Key.Key_Left: (0, -1), Qt.Key.Key_Right: (0, 1), Qt.Key.Key_Up: (-1, 0), Qt.Key.Key_Down: (1, 0)}


class ColourBar(QWidget):
    """The scale beside a heatmap: its colours, its ends, zero of signed maps, the unit; or a legend of hues."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.mark: Heatmap | None = None
        self.theme: Theme = LIGHT
        self.setFixedWidth(64)

    def paintEvent(self, event: Any) -> None:
        """Draw."""
        mark = self.mark
        if mark is None:
            return
        p = QPainter(self)
        p.setFont(self.theme.font(self.theme.small))
        if mark.legend:
            self._legend(p, mark)
        else:
            self._bar(p, mark)
        p.end()

    def _bar(self, p: QPainter, mark: Heatmap) -> None:
        height = min(self.height() - 40, 220)
        if height < 30:
            return
        entries = colours.table(mark.map, self.theme)
        for y in range(height):
            r, g, b = entries[255 - round(255 * y / max(1, height - 1))].tolist()
            p.fillRect(QRectF(6, 12 + y, 10, 1.5), QColor(r, g, b))
        p.setPen(QColor(self.theme.line))
        p.drawRect(QRectF(6, 12, 10, height))
        p.setPen(QColor(self.theme.muted))
        low, high = mark.levels
        for value, y in ((high, 12.0), ((low + high) / 2, 12 + height / 2), (low, 12.0 + height)):
            p.drawText(QRectF(20, y - 8, 44, 16), Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, _number(value))
        p.drawText(QRectF(2, 16 + height, 62, 30), Qt.AlignmentFlag.AlignLeft | Qt.TextFlag.TextWordWrap, mark.unit)

    def _legend(self, p: QPainter, mark: Heatmap) -> None:
        for i, (text, hue) in enumerate(mark.legend):
            p.fillRect(QRectF(6, 12 + 18 * i, 10, 10), QColor(*hue_rgb(hue)))
            p.setPen(QColor(self.theme.muted))
            p.drawText(QRectF(20, 8 + 18 * i, 44, 18), Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, text)


def _number(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:.2f}" if 0.01 <= abs(value) < 100 else f"{value:.3g}"


class HeatmapView(MarkView):
    """See the module."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.mark: Heatmap | None = None
        self.left, self.bottom = CellAxis("left"), CellAxis("bottom")
        self.plot = pg.PlotWidget(self, axisItems={"left": self.left, "bottom": self.bottom})
        self.image = pg.ImageItem()
        self.uploads = 0  # how often pixels were handed over: a hover must not raise it
        self.bar = ColourBar(self)
        self._outlines: list[QGraphicsRectItem] = []
        self._hover: tuple[int, ...] | None = None
        self._prepare_plot()
        box = QHBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        box.addWidget(self.plot, 1)
        box.addWidget(self.bar)

    def _prepare_plot(self) -> None:
        item = self.plot.getPlotItem()
        item.setMenuEnabled(False)
        item.hideButtons()
        view = item.getViewBox()
        view.invertY(True)
        view.setDefaultPadding(0.0)
        item.addItem(self.image)
        self.plot.setFrameShape(self.plot.Shape.NoFrame)
        self.plot.setFocusProxy(self)
        self.plot.setMinimumSize(60, 60)
        self.plot.scene().sigMouseMoved.connect(self._moved)
        self.plot.scene().sigMouseClicked.connect(self._clicked)
        self.plot.viewport().installEventFilter(self)
        self.set_theme(LIGHT)

    def set_theme(self, theme: Theme) -> None:
        """Background, axes, and the table of zero's colour."""
        changed = theme is not self.theme
        self.theme = self.bar.theme = theme
        self.plot.setBackground(theme.background)
        for axis in (self.left, self.bottom):
            axis.setPen(QColor(theme.background))
        if self.mark is not None and changed:
            mark, self.mark = self.mark, None
            self.show_mark(mark)

    def show_mark(self, mark: Heatmap) -> None:
        """Hand over pixels, labels and outlines that differ from the last."""
        old, self.mark = self.mark, mark
        if old is None or not _same_pixels(old, mark):
            self._upload(mark)
        if old is None or old.values.shape != mark.values.shape or old.square != mark.square:
            self._fit(mark)
        if old is None or old.x is not mark.x or old.y is not mark.y:
            self.left.show_axis(mark.y, _centres(mark, 0), self.theme)
            self.bottom.show_axis(mark.x, _centres(mark, 1), self.theme)
        self._outline(mark)
        self.bar.mark = mark
        self.bar.setVisible(mark.colour_bar or bool(mark.legend))
        self.bar.update()
        self.setAccessibleName(f"{mark.name}: {mark.values.shape[0]} by {mark.values.shape[1]} {mark.unit}")

    def _upload(self, mark: Heatmap) -> None:
        self.uploads += 1
        if mark.rgb is not None:
            alpha = np.where(np.isnan(mark.values), 0, 255).astype(np.uint8)[..., None]
            self.image.setLookupTable(None)
            self.image.setImage(np.concatenate([mark.rgb, alpha], axis=2), autoLevels=False, levels=(0, 255))
            return
        entries = colours.table(mark.map, self.theme)
        self.image.setImage(mark.values, autoLevels=False, levels=mark.levels, lut=entries)

    def _fit(self, mark: Heatmap) -> None:
        rows, cols = mark.values.shape
        view = self.plot.getPlotItem().getViewBox()
        view.setAspectLocked(mark.square)
        self.image.setRect(QRectF(0, 0, cols, rows))
        margin = 0.02 * max(rows, cols)
        view.setLimits(xMin=None, xMax=None, yMin=None, yMax=None, minXRange=min(4, cols), minYRange=min(4, rows))
        view.setRange(QRectF(-margin / 2, -margin / 2, cols + margin, rows + margin), padding=0)

    def reset_view(self) -> None:
        """Everything again."""
        if self.mark is not None:
            self._fit(self.mark)

    def _outline(self, mark: Heatmap) -> None:
        wanted = _boxes(mark)
        while len(self._outlines) > len(wanted):
            self.plot.getPlotItem().removeItem(self._outlines.pop())
        while len(self._outlines) < len(wanted):
            item = QGraphicsRectItem()
            item.setZValue(10)
            self.plot.getPlotItem().addItem(item, ignoreBounds=True)
            self._outlines.append(item)
        pen = QPen(QColor(self.theme.accent))
        pen.setCosmetic(True)
        pen.setWidthF(2 if mark.tiles else 1.5)
        for item, box in zip(self._outlines, wanted, strict=True):
            item.setPen(pen)
            item.setRect(box)

    def cell_at(self, scene: QPointF) -> tuple[int, int] | None:
        """The id under a scene position: (row, col), or a tile."""
        mark = self.mark
        if mark is None:
            return None
        point = self.plot.getPlotItem().getViewBox().mapSceneToView(scene)
        row, col = int(np.floor(point.y())), int(np.floor(point.x()))
        rows, cols = mark.values.shape
        if not (0 <= row < rows and 0 <= col < cols):
            return None
        if mark.tiles is None:
            return row, col
        t = mark.tiles
        return row // (t.height + t.gap), col // (t.width + t.gap)

    def centre_of(self, id: tuple[int, int]) -> QPoint:
        """Where, in the plot widget, the centre of a cell or tile is drawn."""
        assert self.mark is not None
        box = _cell_box(self.mark, id)
        scene = self.plot.getPlotItem().getViewBox().mapViewToScene(box.center())
        return self.plot.mapFromScene(scene)

    def readout(self, id: tuple[int, int]) -> str:
        """What the cell says, in one line."""
        mark = self.mark
        assert mark is not None
        if mark.tiles is not None:
            return _step(mark.y, id[0], True) + _step(mark.x, id[1], True)
        value = mark.values[id]
        said = "not allowed" if np.isnan(value) else f"{value:.4f} {mark.unit}"
        return f"{_step(mark.y, id[0])} · {_step(mark.x, id[1])} · {said}"

    @Slot(object)
    def _moved(self, position: QPointF) -> None:
        cell = self.cell_at(position)
        if cell == self._hover or self.mark is None:
            return
        self._hover = cell
        if cell is None:
            self.leave(self.mark.name)
        else:
            self.hovered.emit(Hit(self.mark.name, cell, "hover"), self.readout(cell))

    @Slot(object)
    def _clicked(self, event: Any) -> None:
        self.setFocus()
        cell = self.cell_at(event.scenePos())
        if self.mark is None:
            return
        hit = Hit(self.mark.name, cell, gesture_of(event.modifiers(), event.double())) if cell else None  # type: ignore[arg-type]
        if event.button() == Qt.MouseButton.RightButton:
            self.context.emit(hit, event.screenPos().toPoint())
        elif hit is not None:
            self.picked.emit(hit)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The pointer has left the plot."""
        if event.type() == QEvent.Type.Leave and self._hover is not None and self.mark is not None:
            self._hover = None
            self.leave(self.mark.name)
        return False

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows walk, Enter clicks, R resets."""
        key, mark = Qt.Key(event.key()), self.mark
        if mark is None or (key not in _STEPS and key != Qt.Key.Key_R):
            super().keyPressEvent(event)
            return
        if key == Qt.Key.Key_R:
            self.reset_view()
            return
        rows, cols = (mark.tiles.rows, mark.tiles.cols) if mark.tiles else mark.values.shape
        row, col = mark.tiles.chosen[0] if mark.tiles and mark.tiles.chosen else (mark.row or 0, mark.col or 0)
        down, right = _STEPS[key]
        cell = (min(max(row + down, 0), rows - 1), min(max(col + right, 0), cols - 1))
        if cell != (row, col) or mark.row is None:
            self.picked.emit(Hit(mark.name, cell, "click"))


def _step(axis: Axis, i: int, short: bool = False) -> str:
    tick = axis.ticks[i] if i < len(axis.ticks) else str(i)
    if short:
        return tick
    return f"{axis.label} {i} ‘{tick}’" if axis.tokens else f"{axis.label} {tick}"


def _same_pixels(a: Heatmap, b: Heatmap) -> bool:
    return a.values is b.values and a.rgb is b.rgb and a.levels == b.levels and a.map == b.map


def _centres(mark: Heatmap, axis: int) -> list[float]:
    t = mark.tiles
    if t is None:
        return [i + 0.5 for i in range(len((mark.y if axis == 0 else mark.x).ticks))]
    size, count = (t.height, t.rows) if axis == 0 else (t.width, t.cols)
    return [i * (size + t.gap) + size / 2 for i in range(count)]


def _cell_box(mark: Heatmap, id: tuple[int, int]) -> QRectF:
    t: Tiles | None = mark.tiles
    if t is None:
        return QRectF(id[1], id[0], 1, 1)
    return QRectF(id[1] * (t.width + t.gap), id[0] * (t.height + t.gap), t.width, t.height)


def _boxes(mark: Heatmap) -> list[QRectF]:
    rows, cols = mark.values.shape
    if mark.tiles is not None:
        return [_cell_box(mark, c) for c in mark.tiles.chosen if c[0] < mark.tiles.rows and c[1] < mark.tiles.cols]
    if mark.row is not None and mark.col is not None and mark.row < rows and mark.col < cols:
        cell = [QRectF(mark.col, mark.row, 1, 1)]
        return cell if max(rows, cols) <= 16 else [*cell, QRectF(0, mark.row, cols, 1)]
    return [QRectF(0, mark.row, cols, 1)] if mark.row is not None and mark.row < rows else []
