# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""The base of marks with two axes: a pyqtgraph plot in our theme, zoom, pan and reset, our own gestures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QHelpEvent, QKeyEvent, QPainter
from PySide6.QtWidgets import QApplication, QToolTip, QWidget

from circuitlab.caption_parts import Essential
from circuitlab.draw.look.guarded import guarded
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.plain_text import plain_tip
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.plots._step_labels import LONGEST_ON_PAPER
from circuitlab.draw.plots.axis import LabelAxis
from circuitlab.draw.pointing.gestures import ARROWS, Gestures
from circuitlab.story.zoom import Part, TablePart

LEAST_PART = 1e-6  # of the whole: what is smaller is not zoomed to, as numbers end there
LEAST_PICTURE = 40  # px of a picture that stands alone on paper, its axis beside it
LEAST_BESIDE = 240  # px of a picture on paper
UNLIMITED = (1 << 24) - 1  # px of a side of a widget: Qt's own
_ZOOMS = {Qt.Key.Key_Plus: 0.8, Qt.Key.Key_Equal: 0.8, Qt.Key.Key_Minus: 1.25}
Ends = tuple[float, float]
Range = tuple[Ends, Ends]


def fitted(asked: Ends, whole: Ends) -> Ends | None:
    """The range of one axis to show where `asked` was kept of another figure; None where this one has nothing of it.

    As it was while at least half of it is here; else what is here of it. What holds the whole is the whole.
    """
    low, high = sorted(asked)
    inside = min(high, whole[1]) - max(low, whole[0])
    if not inside > LEAST_PART * (whole[1] - whole[0]):  # also where a number is none
        return None
    if low <= whole[0] and high >= whole[1]:
        return whole
    return (low, high) if inside >= (high - low) / 2 else (max(low, whole[0]), min(high, whole[1]))


def widest(a: Ends, b: Ends) -> Ends:
    """The narrowest range that contains both."""
    return min(a[0], b[0]), max(a[1], b[1])


class PlotMark(Gestures, pg.PlotWidget):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A plot. Subclasses make their items in `__init__` and fill them in `show_mark`."""

    gestured = Signal(object, str)
    context = Signal(object, QPoint)
    noted = Signal()
    turned = Signal()  # another part of the picture is shown, by hand
    ratio = 1.0  # device pixels per px
    _zoomed = False
    _part_noted = ""
    _held: Range | None = None  # while ranges are held: everything that was in view since
    _holds = False
    _ready = False  # a subclass that is to be held has something to show

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        self.left_axis, self.bottom_axis = LabelAxis("left", theme), LabelAxis("bottom", theme)
        axes = {"left": self.left_axis, "bottom": self.bottom_axis}
        before = set(QApplication.topLevelWidgets())
        pg.PlotWidget.__init__(self, parent, axisItems=axes, enableMenu=False)
        # pyqtgraph creates parentless windows, an empty one and a disabled menu: they are deleted with this widget.
        for orphan in set(QApplication.topLevelWidgets()) - before - {self}:
            if orphan.parentWidget() is None:
                orphan.setParent(self, orphan.windowFlags())
        self.theme = theme
        self.mark: Any = None
        self.setMouseTracking(True)
        self.setFrameShape(self.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMinimumSize(80, 60)
        self.setBackground(theme.colour("background"))
        self.setCacheMode(self.CacheModeFlag.CacheNone)  # a cached background would be a picture in every SVG
        plot = self.plot_item
        plot.hideButtons()
        plot.layout.setContentsMargins(0, 0, 0, 0)
        plot.layout.removeItem(plot.getAxis("top"))  # the place of a legend
        for axis in (self.left_axis, self.bottom_axis):
            axis.setZValue(-1000)  # grid lines under the data
        self.box: pg.ViewBox = plot.vb
        self.box.setDefaultPadding(0.0)
        self.box.disableAutoRange()
        self.box.sigRangeChanged.connect(self._view_moved)
        self.box.sigRangeChangedManually.connect(self._by_hand)

    @property
    def plot_item(self) -> pg.PlotItem:
        """pyqtgraph's PlotItem, which its stubs declare optional."""
        item = self.getPlotItem()
        assert item is not None
        return item

    # what a subclass says --------------------------------------------------------------------------------------------

    def show_mark(self, mark: Any) -> None:
        """Draw what differs from the current mark."""
        raise NotImplementedError

    def full_range(self) -> Range:
        """(x low, high), (y low, high) of the whole picture."""
        raise NotImplementedError

    def restyle(self) -> None:
        """Draw again in `self.theme`."""

    def range_changed(self) -> None:
        """The zoom or the size has changed."""

    def natural_height(self, width: int) -> int:
        """The preferred height of a picture of this width."""
        return min(320, round(width * 0.6))

    def least_height(self, width: int) -> int:
        """Height in px below which there is no room for what surrounds a picture of this width."""
        return 0

    def least_width(self) -> float:
        """Width in px on paper below which nothing of the picture can be read."""
        return self.left_axis.width() + LEAST_PICTURE

    def notes(self) -> tuple[str, ...]:
        """Parts of the caption about how it was drawn."""
        return ()

    def left_out(self) -> tuple[str, ...]:
        """What there is no room for, in words; after it was painted."""
        return tuple(dict.fromkeys(filter(None, (axis.left_out() for axis in (self.left_axis, self.bottom_axis)))))

    def prepare_export(self, paper: Paper) -> None:
        """Called once before the widget is painted on paper, where nobody can point at elided text."""
        for axis in (self.left_axis, self.bottom_axis):
            axis.longest = LONGEST_ON_PAPER

    def fits_on_paper(self, width: float) -> bool:
        """Whether a picture of this width can be read beside others."""
        return width >= LEAST_BESIDE

    def set_ratio(self, ratio: float) -> None:
        """Device pixels per px: what is drawn in units of data does not scale with the painter."""
        if ratio != self.ratio:
            self.ratio = ratio
            for axis in (self.left_axis, self.bottom_axis):
                axis.set_ratio(ratio)
            self.restyle()

    # shared ----------------------------------------------------------------------------------------------------------

    def set_theme(self, theme: Theme) -> None:
        """Another theme: hues stay, scales begin at its background."""
        self.theme = theme
        self.setBackground(theme.colour("background"))
        for axis in (self.left_axis, self.bottom_axis):
            axis.set_theme(theme)
        self.restyle()

    def hold_range(self, on: bool) -> None:
        """From now on the range only grows from figure to figure, so that a place means one value; or it fits each again."""
        if on != self._holds:
            self._holds, self._held = on, None
            if self._ready and not self._zoomed:
                self.reset_view()

    def _whole(self) -> Range:
        """`full_range`, and while ranges are held all that was in view since."""
        x, y = self.full_range()
        if self._holds and self._held is not None:
            x, y = (widest(now, before) for now, before in zip((x, y), self._held, strict=True))
        self._held = (x, y) if self._holds else None
        return x, y

    def padded(self, part: Range) -> Range:
        """A range with what its ends need beyond it at the present size."""
        return part

    def reset_view(self) -> None:
        """Show everything."""
        x, y = self.padded(self._whole())
        self._zoomed = False
        self.box.setRange(xRange=x, yRange=y, padding=0, disableAutoRange=True)
        self._note_part()

    def _view_moved(self, *_: object) -> None:
        self.range_changed()
        self._note_part()

    def _by_hand(self, *_: object) -> None:
        self._zoomed = True
        self.turned.emit()
        self._note_part()

    # a part of the picture -------------------------------------------------------------------------------------------

    @property
    def part(self) -> Range | None:
        """The visible ranges where the person has zoomed or panned; None: all of it, perhaps with a margin."""
        if not self._zoomed:
            return None
        visible = tuple((float(low), float(high)) for low, high in self.box.viewRange())
        rest = lambda w: 0.005 * abs(w[1] - w[0])
        held = (s[0] <= w[0] + rest(w) and s[1] >= w[1] - rest(w) for s, w in zip(visible, self.full_range(), strict=True))
        return None if all(held) else (visible[0], visible[1])

    def kept_part(self) -> Range | None:
        """`part` for another view of the same mark."""
        return self.part

    def show_part(self, part: Range) -> None:
        """Zoom to these ranges, as if by hand."""
        self._zoomed = True
        self.box.setRange(xRange=part[0], yRange=part[1], padding=0, disableAutoRange=True)
        self._note_part()

    def visible_part(self) -> Part | None:
        """Left, bottom, right, top of what is seen, in the units of the axes; None: all of it."""
        part = self.part
        if part is None:
            return None
        (left, right), (bottom, top) = self.in_units(part)
        return left, bottom, right, top

    def show_visible_part(self, part: Part) -> bool:
        """Show a part that `visible_part` gave, perhaps of another figure, as far as it is here; everything where nothing of it
        is. Whether it is here as it was.
        """
        if isinstance(part, TablePart) or len(part) != 4:
            self.show_whole()
            return False
        left, bottom, right, top = part
        asked, whole = self.from_units(((left, right), (bottom, top))), self.full_range()
        x, y = (fitted(ends, room) for ends, room in zip(asked, whole, strict=True))
        if x is None or y is None or (x, y) == whole:
            self.show_whole()
        else:
            self.show_part((x, y))
        return x in (tuple(sorted(asked[0])), whole[0]) and y in (tuple(sorted(asked[1])), whole[1])

    def show_whole(self) -> None:
        """Show everything."""
        if self._zoomed:
            self.reset_view()

    def part_words(self) -> str:
        """“part: source 3–17 of 0–39” for a picture that does not show everything, else ""."""
        part = self.part
        if part is None:
            return ""
        return Essential(f"part: {', '.join(filter(None, self._along(part))) or 'zoomed'}")

    def in_units(self, part: Range) -> Range:
        """Ranges of the view in the units of the axes."""
        return part

    def from_units(self, part: Range) -> Range:
        """The way back."""
        return part

    def _along(self, part: Range) -> tuple[str, str]:
        """The visible part of x and of y in words, "" where that is all or has no unit."""
        return "", ""

    def _note_part(self) -> None:
        if self.mark is not None and (words := self.part_words()) != self._part_noted:
            self._part_noted = words
            self.noted.emit()

    def frame(self) -> QRectF:
        """The plot without its axes, in viewport pixels."""
        return self.box.mapRectToScene(self.box.rect())

    def to_data(self, at: QPointF) -> QPointF:
        """A point of the viewport in data units."""
        return self.box.mapSceneToView(at)

    def to_pixels(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """[n, 2] viewport pixels of data points."""
        frame = self.frame()
        (x0, x1), (y0, y1) = self.box.viewRange()
        down = (np.asarray(y, dtype=float) - y0) / ((y1 - y0) or 1.0)
        down = down if self.box.yInverted() else 1 - down
        right = (np.asarray(x, dtype=float) - x0) / ((x1 - x0) or 1.0)
        return np.stack([frame.left() + right * frame.width(), frame.top() + down * frame.height()], axis=-1)

    def event(self, event: QEvent) -> bool:
        """Shown, or moved to a screen of another density: keep line widths."""
        if event.type() in (QEvent.Type.Show, QEvent.Type.DevicePixelRatioChange):
            self.set_ratio(self.devicePixelRatioF())
        return super().event(event)

    def viewportEvent(self, event: QEvent) -> bool:
        """Tool tips of elided axis text."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            QToolTip.showText(event.globalPos(), plain_tip(self.axis_tip(QPointF(event.pos()))), self.viewport())
            return True
        return super().viewportEvent(event)

    def axis_tip(self, at: QPointF) -> str:
        """The whole of a title or label elided at a point of the viewport, else ""."""
        for axis in (self.left_axis, self.bottom_axis):
            inside = axis.mapFromScene(at)
            if axis.rect().adjusted(-2, -2, 2, 2).contains(inside):
                return axis.tip_at(inside)
        return ""

    def keyPressEvent(self, event: QKeyEvent) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gestures' keys, + and − to zoom, Ctrl and arrows to pan; pyqtgraph's own are not wanted."""
        key, pans = Qt.Key(event.key()), bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        if key in _ZOOMS and not pans:
            self.zoom(_ZOOMS[key])
        elif key in ARROWS and pans:
            self.pan(*ARROWS[key])
        else:
            Gestures.keyPressEvent(self, event)

    def zoom(self, factor: float) -> None:
        """Show `factor` times as much of each axis that the wheel zooms, round the middle."""
        across, down = self.box.state["mouseEnabled"]
        self.box.scaleBy((factor if across else 1.0, factor if down else 1.0))
        self._by_hand()

    def pan(self, dx: int, dy: int) -> None:
        """Move by a tenth of the visible range, along the axes that a drag moves: right and down for 1."""
        across, down = self.box.state["mouseEnabled"]
        (x0, x1), (y0, y1) = self.box.viewRange()
        up = 1 if self.box.yInverted() else -1
        self.box.translateBy(x=0.1 * dx * (x1 - x0) * across, y=0.1 * up * dy * (y1 - y0) * down)
        self._by_hand()


class Overlay(pg.GraphicsObject):
    """Something painted over the plot in viewport pixels by `draw(painter)`, clipped to the plot."""

    def __init__(self, plot: PlotMark, draw: Callable[[QPainter], None], z: float = 10.0) -> None:
        super().__init__()
        self._plot, self._draw = plot, draw
        self.setZValue(z)
        plot.box.addItem(self, ignoreBounds=True)

    def boundingRect(self) -> QRectF:
        """The visible part."""
        return self.viewRect() or QRectF()

    def viewTransformChanged(self) -> None:
        """Repaint after a zoom."""
        self.prepareGeometryChange()
        self.update()

    def paint(self, painter: QPainter, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """In viewport pixels."""
        painter.save()
        painter.setTransform(self.sceneTransform().inverted()[0], True)
        guarded(painter, lambda: self._draw(painter), self._plot.frame(), self._plot.theme)
        painter.restore()
