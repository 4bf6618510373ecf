# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""An axis with a label per step: tokens in the mono face, turned upright, elided, thinned out where they crowd."""

from __future__ import annotations

from html import escape
from math import ceil
from typing import Literal

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter

from circuitlab.draw.look.guarded import guarded_item
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.plots._number_axis import NumberAxis
from circuitlab.draw.plots._step_labels import BARE, LONGEST, LONGEST_ON_PAPER, TICK, AxisRoom, StepLabels
from circuitlab.figures.marks import Axis

BRACKET = 2.5  # px from the plot, and between one bracket and the next at either end
FEW_SPANS = 12  # ranges of which each is named as far as there is room
BEYOND = 6.0  # px that a title may be longer than its axis
NUMBERS = 44  # px that numbers beside a plot have at least
ASIDE = 15  # px that half a label may reach beyond its axis
HALF_LINE = 5  # px that a number beside a plot may
TITLE_BEYOND = BARE - 1  # px, at any size of type, that a title beside a plot may, below which a bare axis leaves no more


class LabelAxis(NumberAxis):
    """Left or bottom. `describe` an Axis; with `count` cells a label stands at `offset + i · pitch`."""

    def __init__(self, side: Literal["left", "bottom"], theme: Theme) -> None:
        self.count, self.pitch, self.offset = 0, 1.0, 0.0
        self.chosen: int | None = None
        self.large, self.longest = False, LONGEST  # as `StepLabels` has them
        self.ratio = 1.0
        self.room = AxisRoom()  # at the present size
        self._labels: tuple[object, StepLabels | None] = None, None  # and what they were made of
        super().__init__(side, theme)
        self.natural = self.least = 0  # px that numbers and title take; that plots above and below ask for
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Pens and fonts."""
        self.theme = theme
        self._set_line()
        self.setTextPen(theme.pen("muted"))
        if self.label is not None:
            self.label.setFont(theme.font(theme.small))  # otherwise the application's font, partly restyled
        self.setStyle(tickFont=theme.font(theme.small), tickTextOffset=4, hideOverlappingLabels=False)
        self._plain_label()
        self.picture = None
        self.update()

    def set_ratio(self, ratio: float) -> None:
        """Device pixels per px."""
        self.ratio, style = ratio, dict(self.labelStyle)
        self._set_line()
        self.labelStyle = style  # `setPen` has set it to the colour of the line
        self._updateLabel()
        self.picture = None

    def _set_line(self) -> None:
        self.setPen(self.theme.pen("line", cosmetic=self.ratio))

    def describe(self, spec: Axis, count: int = 0, pitch: float = 1.0, offset: float = 0.0) -> None:
        """What the axis counts. `count` 0 and no ticks: plain numbers, drawn by pyqtgraph."""
        if spec is self.spec and (count or len(spec.ticks), pitch, offset) == (self.count, self.pitch, self.offset):
            return
        self.spec, self.count, self.pitch, self.offset = spec, count or len(spec.ticks), pitch, offset
        self.setLogMode(x=not self.vertical and spec.log, y=self.vertical and spec.log)
        self._plain_label()
        self.picture = None
        self.update()

    @property
    def labels(self) -> StepLabels:
        """How its labels are written."""
        made_of, labels = self._labels
        now = self.theme, self.spec, self.count, self.vertical, self.large, self.longest
        if labels is None or made_of != now:
            labels = StepLabels(*now)
            self._labels = now, labels
        return labels

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
        size = {
            "color": self.theme.muted,
            "font-size": f"{self.theme.small:.0f}px",
            "font-family": "Inter",
        }
        self.setLabel(text=escape(self.spec.label), **size)
        self.showLabel(bool(self.spec.label))
        title = self._line(5) if self.spec.label else 0
        self._extent((NUMBERS if self.vertical else self._line(7)) + title)

    def labelString(self) -> str:
        """pyqtgraph's title, in two lines or elided where the axis is shorter."""
        whole = self.labelText
        self.labelText = "<br>".join(map(escape, self._title_lines())) if whole else whole
        label = super().labelString()
        self.labelText = whole
        return label.replace(" </span>", "</span>")  # before the unit, of which there is none: it moves the title aside

    def _short_title(self, title: str) -> str:
        """The title elided to the length of the axis; whole on paper."""
        length = self.height() if self.vertical else self.width()
        if self.longest >= LONGEST_ON_PAPER or length < 1:
            return title
        metrics = QFontMetricsF(self.theme.font(self.theme.small))
        return metrics.elidedText(title, Qt.TextElideMode.ElideRight, max(length + self._title_beyond(), 24.0))

    def _title_beyond(self) -> float:
        """px by which a title may be longer than its axis: half of it at either end, on a stage as far as nothing cuts it."""
        return 2.0 * (TITLE_BEYOND if self.vertical else self.theme.px(ASIDE)) if self.theme.stage else BEYOND

    def _broken_title(self) -> tuple[str, ...]:
        """The title in two lines of about the same length."""
        words = self.spec.label.split(" ")
        breaks = [(" ".join(words[:i]), " ".join(words[i:])) for i in range(1, len(words))]
        return min(breaks, key=lambda lines: max(map(len, lines)), default=(self.spec.label,))

    def _title_lines(self) -> list[str]:
        """The title beside numbers: on a stage, where nobody can ask what an elided one says, in two lines if it needs them."""
        title = self.spec.label
        if not (self.theme.stage and self.vertical) or self._short_title(title) == title:
            return [self._short_title(title)]
        return [self._short_title(line) for line in self._broken_title()]

    def least_length(self) -> float:
        """px along the axis below which its title is elided; 0 without one."""
        if not self.spec.label or self.spec.bare or not self.isVisible():
            return 0.0
        two_lines = self.theme.stage and self.vertical
        return max(self.widest(self._broken_title() if two_lines else [self.spec.label]) - self._title_beyond(), 0.0)

    def cut_title(self) -> str:
        """The whole of a title that is elided on a stage, where nobody can point at it; else ""."""
        stands = self.theme.stage and not self.count and not self.spec.bare
        return self.spec.label if stands and " ".join(self._title_lines()) != self.spec.label else ""

    def _title_extent(self) -> int:
        """px across the axis that the title beside numbers may take; whatever its length, so that plots over each other align."""
        more = self._line(0) if self.theme.stage and " " in self.spec.label else 0
        return self._line(5) + more if self.spec.label else 0

    def resizeEvent(self, event: object = None) -> None:
        """Elide the title again."""
        if self.label is not None and not self.count and self.spec.label:
            self.label.setHtml(self.labelString())
        super().resizeEvent(event)

    def tip_at(self, at: QPointF) -> str:
        """The whole of a label or title elided at a point of the axis, "" where nothing is elided."""
        length = self.height() if self.vertical else self.width()
        labels = self.labels
        if self.count and not labels.shows_numbers(self.room) and not self.spec.bare and length:
            view = self.linkedView()
            low, high = view.viewRange()[1 if self.vertical else 0]
            part = (at.y() if self.vertical else at.x()) / length
            along = (1 - part if self.vertical and not view.yInverted() else part) * (high - low) + low
            i = round((along - self.offset) / self.pitch)
            whole = self.spec.ticks[i] if 0 <= i < len(self.spec.ticks) else ""
            if labels.labelling(self.room).metrics.horizontalAdvance(whole) > labels.most(self.room) + 2:
                return whole
        return "" if self._short_title(self.spec.label) == self.spec.label else self.spec.label

    def _line(self, more: int) -> int:
        """Height in px of a line of small type and `more`."""
        return round(QFontMetricsF(self.theme.font(self.theme.small)).height()) + more

    def _extent(self, px: int) -> None:
        if self.vertical:
            self.setWidth(px)
        else:
            self.setHeight(px)

    # cells -----------------------------------------------------------------------------------------------------------

    def room_of(self, cell: float, **others: object) -> AxisRoom:
        """The room of cells of so many px, like the present one but for `others`."""
        return self.room._replace(cell=cell * self.pitch, **others)

    def fit(self, room: AxisRoom) -> None:
        """Take this room, and the width or height that the labels need in it."""
        self.room = room
        self._extent(self.labels.extent(room))
        self.update()

    def title_length(self, room: AxisRoom) -> float:
        """px along the axis of its whole title; 0 where none is shown."""
        return self.widest([self.spec.label]) if self.labels.shows_title(room) and not self.spec.bare else 0.0

    def left_out(self) -> str:
        """Which labels have no room, in words; "" where all are written."""
        return self.labels.left_out(self.room)

    def measure(self) -> None:
        """Once the range is known: widen the axis to its numbers."""
        if self.count or not self.vertical or self.spec.bare:
            return
        low, high = sorted(self.range)
        levels = self.tickValues(low, high, max(self.height(), 1.0))
        texts = [t for spacing, values in levels for t in self.tickStrings(values, 1.0, spacing)]
        self.natural = max(NUMBERS, ceil(self.widest(texts)) + self.theme.px(10)) + self._title_extent()
        self._extent(max(self.natural, self.least))

    def boundingRect(self) -> QRectF:
        """Where it paints: from `TICK` px off the picture, so that a repainted picture does not repaint the labels."""
        if not self.count:  # with room for half a number at either end: pyqtgraph omits one that reaches beyond
            up, aside = self.theme.px(8), self.theme.px(ASIDE)  # as far as a plot keeps free beside it
            return super().boundingRect().adjusted(*((0, -up, 0, up) if self.vertical else (-aside, 0, aside, 0)))
        rect = self.mapRectFromParent(self.geometry())
        aside = self.theme.px(ASIDE)
        return rect.adjusted(0, -aside, -TICK, aside) if self.vertical else rect.adjusted(-aside, TICK, aside, 0)

    def place(self, index: int) -> float:
        """Position in px along the axis of the centre of a label."""
        view = self.linkedView()
        x, y = view.viewRange()
        low, high = y if self.vertical else x
        part = (self.offset + index * self.pitch - low) / ((high - low) or 1.0)
        if self.vertical:
            return (part if view.yInverted() else 1 - part) * self.height()  # maps count down, plots up
        return part * self.width()

    def _seen_place(self, index: int, length: float, extent: float) -> float:
        """The same; of a cell whose middle is not seen, the middle of what is, if a label of so many px has room there."""
        at, half = self.place(index), self.offset * self.room.cell / self.pitch
        low, high = max(at - half, 0.0), min(at + half, length)
        return (low + high) / 2 if not 0 <= at <= length and high - low >= extent else at

    @guarded_item
    def paint(self, p: QPainter, opt: object, widget: object) -> None:
        """Labels at cells, or pyqtgraph's numbers."""
        if not self.count:
            super().paint(p, opt, widget)
        elif not self.spec.bare:
            self._paint_steps(p)

    def _paint_steps(self, p: QPainter) -> None:
        """A label at each cell, as many as there is room for."""
        view = self.linkedView()
        length = self.height() if self.vertical else self.width()
        low, high = view.viewRange()[1 if self.vertical else 0]
        self.room = self.room._replace(cell=self.pitch * length / ((high - low) or 1.0))
        self._brackets(p)
        labels, room = self.labels, self.room
        labelling = labels.labelling(room)
        font, metrics = labelling.font, labelling.metrics
        if self.spec.spans:
            self._spans(p, font)
            self._title(p)
            return
        upright = labels.upright(room, labelling)
        every = labels.step(room, upright)
        first = max(0, int((low - self.offset) / self.pitch))
        last = min(self.count - 1, int((high - self.offset) / self.pitch) + 1)
        p.setFont(font)
        chosen = self.place(self.chosen) if self.chosen is not None else -1e9
        level = not self.vertical and not upright
        wide = labelling.last + 6 if level else labelling.line
        apart = wide * (1.1 if level and self.theme.stage else 0.8)
        for i in range(first - first % every, last + 1, every):
            across = labelling.line if self.vertical or upright else metrics.horizontalAdvance(labels.text(i, room))
            at = self._seen_place(i, length, across)
            if -0.5 <= at <= length + 0.5 and (abs(at - chosen) >= apart or every == 1) and i != self.chosen:
                self._label(p, metrics, i, at, upright)
        if self.chosen is not None and 0 <= chosen <= length and self.chosen < self.count:
            p.setFont(font)
            self._label(p, metrics, self.chosen, chosen, upright)
        self._title(p)

    def _brackets(self, p: QPainter) -> None:
        """A bracket along each range of steps that belong together, its ends towards the plot."""
        half = max(self.room.cell / 2 - BRACKET, 0.5)
        p.setPen(self.theme.pen("muted"))
        for first, stop in self.spec.brackets:
            low, high = self.place(first) - half, self.place(stop - 1) + half
            ends = [(low, 0.0), (low, BRACKET), (high, BRACKET), (high, 0.0)]
            p.drawPolyline([QPointF(self.width() - across, at) if self.vertical else QPointF(at, across) for at, across in ends])

    def _label(self, p: QPainter, metrics: QFontMetricsF, i: int, at: float, upright: bool) -> None:
        text = self.labels.text(i, self.room)
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

    def _spans(self, p: QPainter, font: object) -> None:
        """Names of ranges, each in the middle of its range; omitted where there is no room, of many every second, third, …"""
        metrics, end = QFontMetricsF(font), -1e9
        p.setFont(font)
        for first, stop, name in self._named_spans(metrics):
            middle = self._middle(first, stop)
            room = self._along(metrics, name)
            left = middle - room / 2
            if not self.vertical:
                left = max(left, min(end + 5, middle))
            if left < end:
                continue
            end = left + room
            chosen = self.chosen is not None and first <= self.chosen < stop
            p.setPen(self.theme.colour("accent" if chosen else "muted"))
            if self.vertical:
                p.drawText(QPointF(self.width() - TICK - metrics.horizontalAdvance(name), left + metrics.ascent()), name)
            else:
                p.drawText(QPointF(left, TICK + metrics.ascent()), name)

    def _middle(self, first: int, stop: int) -> float:
        """px along the axis of the middle of a range."""
        return (self.place(first) + self.place(stop - 1)) / 2

    def _along(self, metrics: QFontMetricsF, name: str) -> float:
        """px that the name of a range takes along the axis."""
        return metrics.height() if self.vertical else metrics.horizontalAdvance(name)

    def _named_spans(self, metrics: QFontMetricsF) -> list[tuple[int, int, str]]:
        """The ranges that are named: all of a few; of many, such as layers, those at a step at which names stand side by side.

        The chosen one is among them, and its neighbours make room for it.
        """
        spans = list(self.spec.spans)
        if len(spans) <= FEW_SPANS:
            return spans
        middles = np.array([self._middle(first, stop) for first, stop, _ in spans])
        room = max(self._along(metrics, name) for _, _, name in spans) + (0 if self.vertical else 5)
        apart = max(float(np.abs(np.diff(middles)).min()), 1e-9)
        named = set(range(0, len(spans), max(1, ceil(round(room / apart, 3)))))
        at = next(
            (i for i, (first, stop, _) in enumerate(spans) if self.chosen is not None and first <= self.chosen < stop), None
        )
        if at is not None:
            named = {i for i in named if abs(middles[i] - middles[at]) >= room} | {at}
        return [spans[i] for i in sorted(named)]

    def _title(self, p: QPainter) -> None:
        if not self.labels.shows_title(self.room) or min(self.width(), self.height()) < 1:  # a picture without room has no title
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

    def wheelEvent(self, event: object) -> None:
        """Ignored: both axes zoom together."""
        event.ignore()

    def mouseDragEvent(self, event: object) -> None:
        """Ignored: both axes pan together."""
        event.ignore()
