"""The texts that a widget paints and where, read off its painting: which are cut, lie on each other, are shortened unexplained.

A paint device whose engine draws nothing and notes every text with its rectangle and what it is clipped to. Nothing of the
marks has to be known for that, and no English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from PySide6.QtCore import QPoint, QRectF, QSize, Qt
from PySide6.QtGui import QPaintDevice, QPaintEngine, QPaintEngineState, QPainter, QTextItem, QTransform
from PySide6.QtWidgets import QHeaderView, QTableView, QWidget

from circuitlab.draw.painted.tokens import TokensMark
from circuitlab.draw.plots.axis import LabelAxis
from circuitlab.draw.plots.plot import PlotMark

_METRIC = QPaintDevice.PaintDeviceMetric
BEYOND = 1.0  # px by which rounding may move a text
REACH_UNDER = re.compile(r"[gjpqy,;()\[\]{}|]")
LEAST_AXIS = {False: 90.0, True: 60.0}  # px, times the size of text, from which there is room for two numbers; across, upright


@dataclass(frozen=True)
class Written:
    """A text, the rectangle of its ink (from capitals to the base line, or below it), and what of the widget can show it, px."""

    text: str
    box: QRectF
    clip: QRectF

    @property
    def seen(self) -> bool:
        """Whether anything of it is."""
        return self.box.intersects(self.clip)

    @property
    def missing(self) -> float:
        """px of it that are cut off at the worst side."""
        box, clip = self.box, self.clip
        return max(
            clip.left() - box.left(), box.right() - clip.right(), clip.top() - box.top(), box.bottom() - clip.bottom(), 0.0
        )


class _Notes(QPaintEngine):
    """Draws nothing."""

    def __init__(self, whole: QRectF) -> None:
        super().__init__(QPaintEngine.PaintEngineFeature.AllFeatures)
        self.whole, self.written = whole, list[Written]()
        self._turned, self._clip, self._clips = QTransform(), QRectF(whole), False

    def begin(self, device: QPaintDevice) -> bool:
        self.setActive(True)
        return True

    def end(self) -> bool:
        self.setActive(False)
        return True

    def type(self) -> QPaintEngine.Type:
        return QPaintEngine.Type.User

    def updateState(self, state: QPaintEngineState) -> None:
        dirty, flags = state.state(), QPaintEngine.DirtyFlag
        if dirty & flags.DirtyTransform:
            self._turned = state.transform()
        if dirty & flags.DirtyClipEnabled:
            self._clips = state.isClipEnabled()
        if dirty & flags.DirtyClipRegion:
            self._clipped(QRectF(state.clipRegion().boundingRect()), state.clipOperation())
        if dirty & flags.DirtyClipPath:
            self._clipped(state.clipPath().boundingRect(), state.clipOperation())

    def _clipped(self, shape: QRectF, how: Qt.ClipOperation) -> None:
        self._clips = how != Qt.ClipOperation.NoClip
        placed = self._turned.mapRect(shape)
        if how == Qt.ClipOperation.ReplaceClip:
            self._clip = placed
        elif how == Qt.ClipOperation.IntersectClip:
            self._clip = self._clip & placed

    def drawTextItem(self, at: Any, item: QTextItem) -> None:
        over = item.ascent() * 0.72  # the height of capitals
        under = item.descent() * 0.75 if REACH_UNDER.search(item.text()) else 0.0
        box = self._turned.mapRect(QRectF(at.x(), at.y() - over, item.width(), over + under))
        self.written.append(Written(item.text(), box, self._clip & self.whole if self._clips else self.whole))

    def drawPixmap(self, *_: Any) -> None: ...
    def drawImage(self, *_: Any) -> None: ...
    def drawTiledPixmap(self, *_: Any) -> None: ...
    def drawRects(self, *_: Any) -> None: ...
    def drawLines(self, *_: Any) -> None: ...
    def drawPath(self, *_: Any) -> None: ...
    def drawPolygon(self, *_: Any) -> None: ...
    def drawEllipse(self, *_: Any) -> None: ...
    def drawPoints(self, *_: Any) -> None: ...


class _Sheet(QPaintDevice):
    """As large as a widget, of the screen's resolution."""

    def __init__(self, size: QSize) -> None:
        super().__init__()
        self.notes = _Notes(QRectF(0, 0, size.width(), size.height()))
        sides = {_METRIC.PdmWidth: size.width(), _METRIC.PdmHeight: size.height(), _METRIC.PdmDepth: 32}
        sides |= {_METRIC.PdmWidthMM: round(size.width() * 25.4 / 96), _METRIC.PdmHeightMM: round(size.height() * 25.4 / 96)}
        dots = (_METRIC.PdmDpiX, _METRIC.PdmDpiY, _METRIC.PdmPhysicalDpiX, _METRIC.PdmPhysicalDpiY)
        self._sides = sides | dict.fromkeys(dots, 96) | {_METRIC.PdmDevicePixelRatio: 1, _METRIC.PdmNumColors: 1 << 24}

    def paintEngine(self) -> QPaintEngine:
        return self.notes

    def metric(self, which: QPaintDevice.PaintDeviceMetric) -> int:
        return self._sides.get(which, 1 << 16)


def written(widget: QWidget) -> list[Written]:
    """What it paints itself, without its children, in its own pixels; of running text the tokens, which are stamped."""
    sheet = _Sheet(widget.size())
    painter = QPainter(sheet)
    widget.render(painter, QPoint(0, 0), renderFlags=QWidget.RenderFlag(0))
    painter.end()
    result = [w for w in sheet.notes.written if w.text.strip() and w.seen]
    mark = widget.parent()
    if isinstance(mark, TokensMark) and widget is mark.viewport():
        boxes = [mark.item_rect((i,)).translated(0, -mark.offset) for i in range(len(mark.mark.texts))]
        tokens = (Written(t, box, sheet.notes.whole) for t, box in zip(mark.mark.texts, boxes, strict=True))
        result += [w for w in tokens if w.seen]
    return result


def painting(root: QWidget) -> Iterator[QWidget]:
    """A widget and all in it that are seen."""
    for widget in (root, *root.findChildren(QWidget)):
        if widget.isVisibleTo(root) and not widget.visibleRegion().isEmpty():
            yield widget


def faults(root: QWidget, scale: float = 1.0) -> Iterator[str]:
    """What cannot be read of a widget and all in it, a line each. `scale`: the size of text."""
    for widget in painting(root):
        texts, where = written(widget), f"{type(widget.parent()).__name__}.{type(widget).__name__}"
        for one in texts:
            if one.missing > BEYOND:
                yield f"{where}: {one.text!r} is cut by {one.missing:.1f} px"
            if one.text.endswith("…") and one.text not in own_words(widget) and not whole_of(widget, one):
                yield f"{where}: nothing says what {one.text!r} is short for"
        for one, other in combinations(texts, 2):
            common = one.box & other.box
            if common.width() > BEYOND and common.height() > BEYOND:
                yield f"{where}: {one.text!r} and {other.text!r} lie on each other"
        mark = widget.parent()
        if isinstance(mark, PlotMark) and widget is mark.viewport():
            yield from (f"{where}: {words}" for words in bare_axes(mark, texts, scale))


def own_words(widget: QWidget) -> tuple[str, ...]:
    """What it is called: “Samples…” asks for more, and is not short for anything."""
    return tuple(str(getattr(widget, name)()) for name in ("text", "currentText") if callable(getattr(widget, name, None)))


def whole_of(widget: QWidget, one: Written) -> str:
    """What pointing at a shortened text says."""
    mark, at = widget.parent(), one.box.center()
    if isinstance(mark, QTableView) and widget is mark.viewport():
        return str(mark.model().data(mark.indexAt(at.toPoint()), Qt.ItemDataRole.ToolTipRole) or "")
    if isinstance(mark, QHeaderView):
        section = mark.logicalIndexAt(at.toPoint())
        return str(mark.model().headerData(section, mark.orientation(), Qt.ItemDataRole.ToolTipRole) or "")
    if isinstance(mark, PlotMark):
        item = mark.id_at(at)
        return mark.axis_tip(at) or (mark.readout(item) if item is not None else "")
    above: QWidget | None = widget
    while above is not None and not above.toolTip():
        above = above.parentWidget()
    return above.toolTip() if above is not None else ""


def bare_axes(mark: PlotMark, texts: list[Written], scale: float) -> Iterator[str]:
    """Axes of numbers with room for two of them and fewer than two."""
    for axis in (mark.left_axis, mark.bottom_axis):
        assert isinstance(axis, LabelAxis)
        length = axis.height() if axis.vertical else axis.width()
        if axis.count or axis.spec.bare or not axis.isVisible() or length < LEAST_AXIS[axis.vertical] * scale:
            continue
        room = axis.mapRectToScene(axis.boundingRect())
        numbers = [t for t in texts if room.contains(t.box.center()) and re.fullmatch(r"[−\d.,e]+", t.text)]
        if len(numbers) < 2:
            yield f"{axis.spec.label!r}, {length:.0f} px, has {len(numbers)} numbers"
