# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""An axis with a label per step: tokens in the mono face, turned upright, elided, thinned out where they crowd."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil
from typing import Any, Literal

import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QPainter

from circuitlab.draw.look.guarded import guarded_item
from circuitlab.draw.look.theme import Face, Theme, advance
from circuitlab.draw.plots._number_axis import NumberAxis
from circuitlab.figures.marks import Axis

LEAST_CELL = 10.0  # px: below it tokens give way to position numbers
LONGEST, LONGEST_ON_PAPER = 92.0, 150.0  # px of a label before it is elided
TICK = 4.0
BEYOND = 6.0  # px that a title may be longer than its axis
BARE = 6  # px of an axis on which nothing is written


def nice_step(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50 … that is not below `least`."""
    power = 1
    while True:
        for one in (1, 2, 5):
            if one * power >= least:
                return one * power
        power *= 10


@dataclass(frozen=True)
class Labelling:
    """The font of an axis' labels and what is measured in it once, not at every fit. `widest`: px of the longest label."""

    font: QFont
    metrics: QFontMetricsF
    widest: float


class LabelAxis(NumberAxis):
    """Left or bottom. `describe` an Axis; with `count` cells a label stands at `offset + i · pitch`."""

    def __init__(self, side: Literal["left", "bottom"], theme: Theme) -> None:
        self.count, self.pitch, self.offset = 0, 1.0, 0.0
        self.chosen: int | None = None
        self.cell, self.large = 0.0, False  # large: tokens as large as in running text, where the cells are large enough
        self.stroke, self.longest = 1.0, LONGEST
        self._labellings: dict[Face, Labelling] = {}  # of these labels
        super().__init__(side, theme)
        self.untitled = False  # too little room: the title is in the caption
        self.short = False  # little room: a title that the ticks repeat is dropped ("head" under H0 H1 …)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Pens and fonts."""
        self.theme = theme
        self.setPen(pg.mkPen(theme.line, width=self.stroke))
        self.setTextPen(pg.mkPen(theme.muted))
        if self.label is not None:
            self.label.setFont(theme.font(theme.small))  # otherwise the application's font, partly restyled
        self.setStyle(tickFont=theme.font(theme.small), tickTextOffset=4, hideOverlappingLabels=False)
        self._plain_label()
        self.picture = None
        self.update()

    def set_stroke(self, scale: float) -> None:
        """Device pixels per px of line width."""
        self.stroke, style = scale, dict(self.labelStyle)
        self.setPen(pg.mkPen(self.theme.line, width=scale))
        self.labelStyle = style  # `setPen` has set it to the colour of the line
        self._updateLabel()
        self.picture = None

    def describe(self, spec: Axis, count: int = 0, pitch: float = 1.0, offset: float = 0.0) -> None:
        """What the axis counts. `count` 0 and no ticks: plain numbers, drawn by pyqtgraph."""
        if spec is self.spec and (count or len(spec.ticks), pitch, offset) == (self.count, self.pitch, self.offset):
            return
        self.spec, self.count, self.pitch, self.offset = spec, count or len(spec.ticks), pitch, offset
        self._labellings.clear()
        self.setLogMode(x=not self.vertical and spec.log, y=self.vertical and spec.log)
        self._plain_label()
        self.picture = None
        self.update()

    def choose(self, index: int | None) -> None:
        """Show this label in the accent colour."""
        if index != self.chosen:
            self.chosen = index
            self.update()

    def _plain_label(self) -> None:
        self.setStyle(showValues=not self.spec.bare)
        if self.spec.bare:
            self.showLabel(False)
            if not self.count:
                self._extent(BARE)
            return
        if self.count:
            self.showLabel(False)
            return
        size: dict[str, Any] = {
            "color": self.theme.muted,
            "font-size": f"{self.theme.small:.0f}px",
            "font-family": "Inter",
        }
        self.setLabel(text=escape(self.spec.label), **size)
        self.showLabel(bool(self.spec.label))
        title = 18 if self.spec.label else 0
        self._extent(self.theme.px((44 if self.vertical else 20) + title))

    def labelString(self) -> str:
        """pyqtgraph's title, elided to the length of the axis."""
        whole = self.labelText
        self.labelText = escape(self._short_title(self.spec.label)) if whole else whole
        label = super().labelString()
        self.labelText = whole
        return label

    def _short_title(self, title: str) -> str:
        """The title elided to the length of the axis; whole on paper."""
        length = self.height() if self.vertical else self.width()
        if self.longest >= LONGEST_ON_PAPER or length < 1:
            return title
        metrics = QFontMetricsF(self.theme.font(self.theme.small))
        return metrics.elidedText(title, Qt.TextElideMode.ElideRight, max(length + BEYOND, 24.0))

    def resizeEvent(self, event: Any = None) -> None:
        """Elide the title again."""
        if self.label is not None and not self.count and self.spec.label:
            self.label.setHtml(self.labelString())
        super().resizeEvent(event)

    def tip_at(self, at: QPointF) -> str:
        """The whole of a label or title elided at a point of the axis, "" where nothing is elided."""
        length = self.height() if self.vertical else self.width()
        if self.count and not self._shows_numbers() and not self.spec.bare and length:
            view: Any = self.linkedView()
            low, high = view.viewRange()[1 if self.vertical else 0]
            part = (at.y() if self.vertical else at.x()) / length
            along = (1 - part if self.vertical and not view.yInverted() else part) * (high - low) + low
            i = round((along - self.offset) / self.pitch)
            whole = self.spec.ticks[i] if 0 <= i < len(self.spec.ticks) else ""
            if self._labelling().metrics.horizontalAdvance(whole) > self.longest + 2:
                return whole
        return "" if self._short_title(self.spec.label) == self.spec.label else self.spec.label

    def _extent(self, px: int) -> None:
        if self.vertical:
            self.setWidth(px)
        else:
            self.setHeight(px)

    # cells -----------------------------------------------------------------------------------------------------------

    def fit(self, cell: float) -> int:
        """Take the size of a cell in px; set and return the width or height of the axis."""
        self.cell = cell * self.pitch
        if self.spec.bare:
            self._extent(BARE)
            return BARE
        labelling = self._labelling()
        along = self.vertical or self._upright(labelling)
        longest = min(labelling.widest, self.longest) if along else labelling.metrics.height()
        title = QFontMetricsF(self.theme.font(self.theme.small)).height() + 2 if self._shows_title() else 0.0
        extent = round(TICK + longest + 4 + title)
        self._extent(extent)
        self.update()
        return extent

    def _shows_title(self) -> bool:
        """Whether there is a title, there is room for it, and it says more than the labels do."""
        ticks, label = self.spec.ticks, self.spec.label
        repeated = ticks and not self.spec.tokens and ticks[-1].lower().lstrip("≈ ")[:1] == label[:1]
        return bool(label) and not self.untitled and not (self.short and repeated)

    @property
    def index_step(self) -> int:
        """Step between the position indices that stand for tokens; 0 where the tokens themselves are shown."""
        if not (self.spec.tokens and self.spec.ticks and self._shows_numbers()):
            return 0
        return self._label_step(self._labelling().metrics, False)

    def _shows_numbers(self) -> bool:
        """Whether indices stand in place of labels: there are none, ranges have names instead, or tokens would crowd."""
        return bool(self.spec.spans) or not self.spec.ticks or (self.spec.tokens and self.cell < LEAST_CELL)

    def _labels(self) -> tuple[str, ...]:
        """The labels that determine the extent."""
        return (str(max(self.count - 1, 0)),) if self._shows_numbers() else self.spec.ticks

    def _labelling(self) -> Labelling:
        """How labels are written at the present size of a cell."""
        mono = self.spec.tokens and not self._shows_numbers()
        # Small cells are labelled in type that still fits them.
        least = max(self.theme.small * 0.78, ceil(self.theme.least))
        largest = self.theme.normal if self.large else self.theme.small
        size = min(largest, max(least, self.cell - 1)) if mono else self.theme.small
        face = self.theme.face(size, mono=mono)
        if (labelling := self._labellings.get(face)) is None:
            font = self.theme.font(size, mono=mono)
            widest = max((advance(face, label) for label in self._labels()), default=0.0)
            labelling = self._labellings[face] = Labelling(font, QFontMetricsF(font), widest)
        return labelling

    def _upright(self, labelling: Labelling) -> bool:
        """Whether bottom labels are turned: tokens always, others where they do not fit side by side."""
        return not self._shows_numbers() and not self.spec.thin and labelling.widest + 6 > self.cell

    def _label_step(self, metrics: QFontMetricsF, upright: bool) -> int:
        """Every how many cells there is room for a label."""
        least = metrics.height() * 0.9 if self.vertical or upright else metrics.horizontalAdvance(self._labels()[-1]) + 10
        if self._shows_numbers():
            return nice_step(max(least, 18.0) / max(self.cell, 1e-9))
        return max(1, -int(-least // max(self.cell, 1e-9))) if self.cell < least * 0.86 else 1

    def measure(self) -> None:
        """Once the range is known: widen the axis to its numbers."""
        if self.count or not self.vertical or self.spec.bare:
            return
        low, high = sorted(self.range)
        levels = self.tickValues(low, high, max(self.height(), 1.0))
        texts = [t for spacing, values in levels for t in self.tickStrings(values, 1.0, spacing)]
        self._extent(max(44, ceil(self.widest(texts)) + 10) + (18 if self.spec.label else 0))

    def boundingRect(self) -> QRectF:
        """Where it paints: from `TICK` px off the picture, so that a repainted picture does not repaint the labels."""
        if not self.count:  # with room for half a number at either end: pyqtgraph omits one that reaches beyond
            up, aside = self.theme.px(8), 15  # as far as a plot keeps free beside it
            return super().boundingRect().adjusted(*((0, -up, 0, up) if self.vertical else (-aside, 0, aside, 0)))
        rect = self.mapRectFromParent(self.geometry())
        return rect.adjusted(0, -15, -TICK, 15) if self.vertical else rect.adjusted(-15, TICK, 15, 0)

    def place(self, index: int) -> float:
        """Position in px along the axis of the centre of a label."""
        view: Any = self.linkedView()
        x, y = view.viewRange()
        low, high = y if self.vertical else x
        part = (self.offset + index * self.pitch - low) / ((high - low) or 1.0)
        if self.vertical:
            return (part if view.yInverted() else 1 - part) * self.height()  # maps count down, plots up
        return part * self.width()

    @guarded_item
    def paint(self, p: QPainter, opt: Any, widget: Any) -> None:
        """Labels at cells, or pyqtgraph's numbers."""
        if not self.count:
            super().paint(p, opt, widget)
        elif not self.spec.bare:
            self._paint_steps(p)

    def _paint_steps(self, p: QPainter) -> None:
        """A label at each cell, as many as there is room for."""
        view: Any = self.linkedView()
        length = self.height() if self.vertical else self.width()
        low, high = view.viewRange()[1 if self.vertical else 0]
        self.cell = self.pitch * length / ((high - low) or 1.0)
        labelling = self._labelling()
        font, metrics = labelling.font, labelling.metrics
        if self.spec.spans:
            self._spans(p, font)
            self._title(p)
            return
        upright = self._upright(labelling)
        every = self._label_step(metrics, upright)
        first = max(0, int((low - self.offset) / self.pitch))
        last = min(self.count - 1, int((high - self.offset) / self.pitch) + 1)
        p.setFont(font)
        chosen = self.place(self.chosen) if self.chosen is not None else -1e9
        room = metrics.height() if self.vertical or upright else metrics.horizontalAdvance(self._labels()[-1]) + 6
        for i in range(first - first % every, last + 1, every):
            at = self.place(i)
            if -0.5 <= at <= length + 0.5 and (abs(at - chosen) >= room * 0.8 or every == 1) and i != self.chosen:
                self._label(p, metrics, i, at, upright)
        if self.chosen is not None and 0 <= chosen <= length and self.chosen < self.count:
            p.setFont(font)
            self._label(p, metrics, self.chosen, chosen, upright)
        self._title(p)

    def _label(self, p: QPainter, metrics: QFontMetricsF, i: int, at: float, upright: bool) -> None:
        text = str(i) if self._shows_numbers() else self.spec.ticks[i]
        text = metrics.elidedText(text, Qt.TextElideMode.ElideRight, self.longest + 2)
        p.setPen(self.theme.colour("accent" if i == self.chosen else "muted"))
        width, middle = metrics.horizontalAdvance(text), (metrics.ascent() - metrics.descent()) / 2
        if self.vertical:
            p.drawText(QPointF(self.width() - TICK - width, at + middle), text)
        elif upright:
            p.save()
            p.translate(at + middle, TICK)
            p.rotate(-90)
            p.drawText(QPointF(-width, 0), text)
            p.restore()
        else:
            p.drawText(QPointF(at - width / 2, TICK + metrics.ascent()), text)

    def _spans(self, p: QPainter, font: Any) -> None:
        """Names of ranges, each in the middle of its range; omitted where there is no room."""
        metrics, end = QFontMetricsF(font), -1e9
        p.setFont(font)
        p.setPen(self.theme.colour("muted"))
        for first, stop, name in self.spec.spans:
            middle = (self.place(first) + self.place(stop - 1)) / 2
            if self.vertical:
                left = middle - metrics.height() / 2
                room = metrics.height()
            else:
                room = metrics.horizontalAdvance(name)
                left = max(middle - room / 2, min(end + 5, middle))
            if left < end:
                continue
            end = left + room
            if self.vertical:
                p.drawText(QPointF(self.width() - TICK - metrics.horizontalAdvance(name), left + metrics.ascent()), name)
            else:
                p.drawText(QPointF(left, TICK + metrics.ascent()), name)

    def _title(self, p: QPainter) -> None:
        if not self._shows_title() or min(self.width(), self.height()) < 1:  # a picture without room has no title
            return
        p.setFont(self.theme.font(self.theme.small))
        p.setPen(self.theme.colour("muted"))
        height, title = QFontMetricsF(p.font()).height(), self._short_title(self.spec.label)
        middle = Qt.AlignmentFlag.AlignCenter
        if self.vertical:
            p.save()
            p.rotate(-90)
            p.drawText(QRectF(-self.height() - 200, 0, self.height() + 400, height), middle, title)
            p.restore()
        else:
            p.drawText(QRectF(-200, self.height() - height, self.width() + 400, height), middle, title)

    def wheelEvent(self, event: Any) -> None:
        """Ignored: both axes zoom together."""
        event.ignore()

    def mouseDragEvent(self, event: Any) -> None:
        """Ignored: both axes pan together."""
        event.ignore()
