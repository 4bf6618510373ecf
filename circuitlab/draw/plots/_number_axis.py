# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""The numbers of an axis: as many as stand clear of each other, two at least where there is room; decades on a log axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import Literal

import pyqtgraph as pg

from circuitlab.draw.look.theme import Theme, advance
from circuitlab.figures.marks import Axis

LOW, LINE = 90, 13  # px of height below which numbers stand a line apart, and how much that is
LINES_APART = 20  # px above it
TOUCHING = 4.0  # px between two where only one would be left otherwise
LOG_NUMBERS = ((2, 5), (3,))  # between decades, the first that have room
BETWEEN_NUMBERS, NUMBERS_FROM = 10.0, 36.0  # px between two numbers, and at least from one's middle to the next one's

Level = tuple[float | None, list[float]]  # (the step between its numbers, the numbers)


def short_exponent(text: str) -> str:
    """A number as Python writes it, its exponent without sign and zeros in front: 2e6 in place of 2e+06, and 2e-6."""
    digits, e, exponent = text.partition("e")
    return f"{digits}e{int(exponent)}" if e else text


class NumberAxis(pg.AxisItem):
    """Left or bottom; `spec` says what the numbers count."""

    def __init__(self, side: Literal["left", "bottom"], theme: Theme) -> None:
        self.vertical = side == "left"
        self.theme = theme
        self.spec = Axis()
        super().__init__(side, maxTickLength=-4)  # which lays out the title at once
        self.enableAutoSIPrefix(False)  # values as they are: no SI prefixes

    def widest(self, texts: Iterable[str]) -> float:
        """px of the longest of these texts in small type, 0 of none."""
        face = self.theme.face(self.theme.small)
        return max((advance(face, text) for text in texts), default=0.0)

    def _apart(self, texts: list[str]) -> float:
        """Distance in px between numbers along the axis, never so small that they are hard to read."""
        if self.vertical:
            return float(self.theme.px(LINE if self.height() < self.theme.px(LOW) else LINES_APART))
        return max(self.widest(texts) + self.theme.px(BETWEEN_NUMBERS), self.theme.px(NUMBERS_FROM))

    def tickSpacing(self, minVal: float, maxVal: float, size: float) -> Sequence[tuple[float, float]]:
        """The smallest of 1, 2, 5, 10 … at which all numbers stand clear of each other, without minor ticks."""
        if size <= 0 or maxVal <= minVal:
            return super().tickSpacing(minVal, maxVal, size)
        span = maxVal - minVal
        power = 10.0 ** (floor(log10(span * (self.theme.px(LINE if self.vertical else NUMBERS_FROM)) / size)) - 1)
        step, near = power, 0.0  # near: numbers at these steps nearly touch, but do not
        for step in (m * 10**k * power for k in range(6) for m in (1, 2, 5)):
            if self.spec.whole and step < 1:
                continue
            inside = range(ceil(minVal / step), floor(maxVal / step) + 1)
            if near and len(inside) < 2:
                return [(near, 0.0)]  # two numbers say more than one
            ends = [inside[0] * step, inside[-1] * step] if len(inside) else []
            spare = step / span * size - self._apart(self.tickStrings(ends, 1.0, step))
            if spare >= 0:
                break
            near = step if spare >= self.theme.px(TOUCHING) - self.theme.px(BETWEEN_NUMBERS) else 0.0
        return [(step, 0.0)]

    def tickValues(self, minVal: float, maxVal: float, size: float) -> list[Level]:
        """At least two numbers where there is room for two: one alone shows no scale."""
        levels = super().tickValues(minVal, maxVal, size)
        if size <= 0 or maxVal <= minVal or sum(len(values) for _, values in levels) > 1:
            return levels
        low, high = sorted((minVal, maxVal))
        for step, values in self._finer(low, high, levels[0][0] if levels and levels[0][0] else 1.0):
            ends = [values[0], values[-1]]
            if (ends[1] - ends[0]) / (high - low) * size >= self._apart(self.tickStrings(ends, 1.0, step)):
                return [(step, ends)]
        return levels

    def _finer(self, low: float, high: float, step: float) -> Iterator[tuple[float, list[float]]]:
        """(step, the numbers between `low` and `high`) for finer steps that have two or more, the coarsest first."""
        if self.logMode:
            digits = [log10(m) for m in (1, 2, 3, 4, 5, 6, 7, 8, 9)]
            values = [d + digit for d in range(floor(low), ceil(high) + 1) for digit in digits if low <= d + digit <= high]
            yield from [(1.0, values)] if len(values) > 1 else []
            return
        power = 10.0 ** floor(log10(step))
        for one in (m * 10.0**k * power for k in range(0, -3, -1) for m in (5, 2, 1)):
            values = [i * one for i in range(ceil(low / one), floor(high / one) + 1)]
            if one < step and len(values) > 1 and not (self.spec.whole and one < 1):
                yield one, values

    def logTickValues(self, minVal: float, maxVal: float, size: float, stdTicks: object) -> list[Level]:
        """On a logarithmic axis: decades, and 2 and 5 between them where there are few decades and room."""
        decades = range(floor(minVal), ceil(maxVal) + 1)
        wide = size / max(maxVal - minVal, 1e-9)  # px of a decade
        texts = self.logTickStrings([float(d) for d in decades], 1.0, 1.0)
        apart = float(self.theme.px(LINE)) if self.vertical else self.widest(texts) + self.theme.px(BETWEEN_NUMBERS) / 2
        every = max(1, ceil(apart / wide))
        levels: list[Level] = [(1.0, [float(d) for d in decades if d % every == 0 and minVal <= d <= maxVal])]
        for numbers in LOG_NUMBERS if maxVal - minVal < 3 else ():
            steps = [log10(m) for m in (1, *numbers, 10)]
            if wide * min(b - a for a, b in pairwise(steps)) >= apart:
                between = [d + step for d in decades for step in steps[1:-1]]
                levels.append((None, [v for v in between if minVal <= v <= maxVal]))
                break
        return levels

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        """Numbers with a true minus sign, and as few letters as say them: 2e6."""
        return [short_exponent(text).replace("-", "−") for text in super().tickStrings(values, scale, spacing)]

    def logTickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        """Plain numbers where they are short, powers of ten otherwise."""
        return [f"{10**v:g}" if -4 < v < 5 else short_exponent(f"{10**v:.0e}").replace("-", "−") for v in values]

    def shows_scale(self, low: float, high: float, length: float, beyond: float) -> bool:
        """Whether two numbers at least stand along an axis of so many px, each no more px `beyond` its ends."""
        if length <= 0 or high <= low:
            return True
        seen = 0
        for step, values in self.tickValues(low, high, length):
            for value, text in zip(values, self._texts(list(values), step), strict=True):
                half = (self.theme.px(LINE) if self.vertical else self.widest([text])) / 2
                at = (value - low) / (high - low) * length
                seen += bool(text) and half - at <= beyond and at + half - length <= beyond
        return seen > 1

    def _texts(self, values: list[float], step: float | None) -> list[str]:
        """What is written at these values."""
        strings = self.logTickStrings if self.logMode else self.tickStrings
        return strings(values, 1.0, step or 1.0)
