"""How the labels of an axis are written in a given room, measured without drawing: which stand for themselves, which are thinned
out, turned or elided, and what they take across the axis.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf
from typing import NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QFontMetricsF

from circuitlab.draw.look.theme import Face, Theme, advance, line_height
from circuitlab.figures.marks import Axis

LEAST_CELL = 10.0  # px: below it tokens give way to position numbers
LONGEST, LONGEST_ON_PAPER = 92.0, 150.0  # px of a label before it is elided
MOST_OF_ROOM = 0.3
TICK = 4.0
BARE = 6  # px of an axis on which nothing is written


def nice_step(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50 … that is not below `least`."""
    power = 1
    while True:
        for one in (1, 2, 5):
            if one * power >= least:
                return one * power
        power *= 10


class AxisRoom(NamedTuple):
    """What an axis has room for. `cell`: px from one label to the next; `whole`: px of the whole mark across the axis, of which
    labels take a part only; `numbered`: positions stand in place of tokens, as on the other axis; `untitled`: the title is in the
    caption; `short`: a title that the ticks repeat is dropped ("head" under H0 H1 …).
    """

    cell: float = 0.0
    whole: float = inf
    numbered: bool = False
    untitled: bool = False
    short: bool = False


@dataclass(frozen=True)
class Labelling:
    """The font of an axis' labels and what is measured in it once, not at every fit. `widest`: px of the longest label; `line`:
    px of a line; `last`: px of the last label that determines the extent.
    """

    font: QFont
    metrics: QFontMetricsF
    widest: float
    line: float
    last: float


@dataclass(frozen=True)
class StepLabels:
    """The labels of `spec`, or the numbers of `count` cells. `large`: tokens as large as in running text, where the cells are
    large enough; `longest`: px of a label before it is elided.
    """

    theme: Theme
    spec: Axis
    count: int
    vertical: bool
    large: bool
    longest: float
    _labellings: dict[tuple[Face, bool], Labelling] = field(default_factory=dict, init=False, compare=False, repr=False)

    def extent(self, room: AxisRoom) -> int:
        """px across the axis."""
        if self.spec.bare:
            return BARE
        labelling = self.labelling(room)
        along = self.vertical or self.upright(room, labelling)
        longest = min(labelling.widest, self.most(room)) if along else labelling.line
        title = line_height(self.theme.face(self.theme.small)) + 2 if self.shows_title(room) else 0.0
        return round(TICK + longest + 4 + title)

    def shows_title(self, room: AxisRoom) -> bool:
        """Whether there is a title, there is room for it, and it says more than the labels do."""
        ticks, label = self.spec.ticks, self.spec.label
        repeated = room.short and ticks and not self.spec.tokens and ticks[-1].lower().lstrip("≈ ")[:1] == label[:1]
        return bool(label) and not room.untitled and not repeated

    def index_step(self, room: AxisRoom) -> int:
        """Step between the position indices that stand for tokens; 0 where the tokens themselves are shown."""
        if not (self.spec.tokens and self.spec.ticks and self.shows_numbers(room)):
            return 0
        return self.step(room, False)

    def shows_numbers(self, room: AxisRoom) -> bool:
        """Whether indices stand in place of labels: there are none, ranges have names instead, or tokens would crowd."""
        spec = self.spec
        return bool(spec.spans) or not spec.ticks or self.crowds(room) or (spec.tokens and room.numbered)

    def crowds(self, room: AxisRoom) -> bool:
        """Whether tokens have no room at cells of this size."""
        return self.spec.tokens and room.cell < self.theme.px(LEAST_CELL)

    def most(self, room: AxisRoom) -> float:
        """px of a label before it is elided."""
        return min(self.theme.px(self.longest), MOST_OF_ROOM * room.whole)

    def left_out(self, room: AxisRoom) -> str:
        """Which labels have no room, in words; "" where all are written."""
        if not self.count or self.spec.bare or self.spec.spans:
            return ""
        name = self.spec.label or "an axis"
        numbers = self.shows_numbers(room)
        if self.spec.tokens and self.spec.ticks and numbers:
            return f"{name}: positions in place of tokens"
        step = self.step(room, self.upright(room))
        return f"{name}: one label in {step}" if step > 1 and not numbers else ""

    def labelling(self, room: AxisRoom) -> Labelling:
        """How labels are written at cells of this size."""
        numbers, theme = self.shows_numbers(room), self.theme
        mono = self.spec.tokens and not numbers
        # Small cells are labelled in type that still fits them.
        least = max(theme.small * 0.78, ceil(theme.least))
        largest = theme.normal if self.large else theme.small
        size = min(largest, max(least, room.cell - 1)) if mono else theme.small
        face = theme.face(size, mono=mono)
        if (labelling := self._labellings.get((face, numbers))) is None:
            font, labels = theme.font(size, mono=mono), self.labels(numbers)
            widest = max((advance(face, label) for label in labels), default=0.0)
            labelling = Labelling(
                font, QFontMetricsF(font), widest, line_height(face), advance(face, labels[-1]) if labels else 0.0
            )
            self._labellings[face, numbers] = labelling
        return labelling

    def labels(self, numbers: bool) -> tuple[str, ...]:
        """Those that determine the extent."""
        return (str(max(self.count - 1, 0)),) if numbers else self.spec.ticks

    def upright(self, room: AxisRoom, labelling: Labelling | None = None) -> bool:
        """Whether bottom labels are turned: tokens always, others where they do not fit side by side."""
        if self.spec.thin or self.shows_numbers(room):
            return False
        return (labelling or self.labelling(room)).widest + 6 > room.cell

    def step(self, room: AxisRoom, upright: bool) -> int:
        """Every how many cells there is room for a label."""
        labelling = self.labelling(room)
        least = labelling.line * 0.9 if self.vertical or upright else labelling.last + 10
        cell = max(room.cell, 1e-9)
        if self.shows_numbers(room):
            return nice_step(max(least, 18.0) / cell)
        return max(1, -int(-least // cell)) if room.cell < least * 0.86 else 1

    def text(self, i: int, room: AxisRoom) -> str:
        """The label of a cell, elided."""
        text = str(i) if self.shows_numbers(room) else self.spec.ticks[i]
        return self.labelling(room).metrics.elidedText(text, Qt.TextElideMode.ElideRight, self.most(room) + 2)
