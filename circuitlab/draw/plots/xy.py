# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""The base of plots of numbers (points, curves): axes, padding, a faint grid, and a zoom that survives new data."""

from __future__ import annotations

from math import ceil

import numpy as np
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from circuitlab.caption_parts import Essential
from circuitlab.counting import number
from circuitlab.draw.look.legend import Legend
from circuitlab.draw.look.theme import GRID, Theme
from circuitlab.draw.plots._number_axis import short_exponent
from circuitlab.draw.plots.axis import ASIDE, HALF_LINE, LONGEST_ON_PAPER
from circuitlab.draw.plots.plot import Ends, PlotMark, Range
from circuitlab.figures.marks import Axis

MARGIN = 0.04
FAINT = 90 / 255  # opacity of the grid
LARGEST_LOG = 300.0  # what is beyond is no number


def logged(values: np.ndarray, axis: Axis) -> np.ndarray:
    """Values as drawn: log10 on a logarithmic axis, NaN where undefined. Qt must never be given infinity."""
    values = np.asarray(values, dtype=np.float64)
    if not axis.log:
        return np.where(np.isfinite(values), values, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values > 0, np.log10(values), np.nan)


def span(values: np.ndarray, margin: float = MARGIN) -> tuple[float, float]:
    """Low and high of the finite values with a margin; never empty."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    if high <= low:
        return low - 0.5, high + 0.5
    return low - margin * (high - low), high + margin * (high - low)


def _of_log(ends: Ends) -> Ends:
    """Values of logarithms, as far as there are numbers."""
    low, high = (10.0 ** min(max(end, -LARGEST_LOG), LARGEST_LOG) for end in ends)
    return low, high


def _three_figures(value: float) -> str:
    """A number with three figures, written out up to a million: 2,510, and 5.02e11."""
    return short_exponent(number(float(f"{value:.3g}"), ",.6g").replace("−", "-")).replace("-", "−")


def _range_words(axis: Axis, visible: tuple[float, float], whole: tuple[float, float]) -> str:
    """The visible range of an axis in words, in values also on a logarithmic axis; "" where all of it is visible."""
    if visible[0] <= whole[0] and visible[1] >= whole[1]:
        return ""
    low, high = (number(10**v if axis.log else v, ".3g") for v in visible)
    return f"{axis.label or 'axis'} {low} to {high}"


class XYPlot(PlotMark):
    """A plot with a legend on top. Subclasses give `full_range` and draw."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self._ends: tuple[str, ...] = ()  # of axes that show no scale, in words
        self.legend = Legend(theme)
        layout = self.plot_item.layout
        layout.addItem(self.legend, 1, 1)
        self._set_room()

    def set_theme(self, theme: Theme) -> None:
        """Another theme has other room for numbers."""
        super().set_theme(theme)
        self._set_room()
        if self._ready:
            self.settle(same_shape=True)

    def _set_room(self) -> None:
        """Room for half of a number at either end of an axis, and the opacity of the grid."""
        self.plot_item.layout.setContentsMargins(0, self.theme.px(GRID), self._beyond(), 0)
        for axis in (self.left_axis, self.bottom_axis):
            axis.setGrid(round(255 * self.theme.guide_opacity(FAINT)))

    def _beyond(self) -> int:
        """px to the right of the picture."""
        return self.theme.px(2 * GRID)

    def describe(self, x: Axis, y: Axis) -> None:
        """Set both axes."""
        self.bottom_axis.describe(x)
        self.left_axis.describe(y)
        self._ready = True

    def settle(self, same_shape: bool) -> None:
        """After new data: keep a zoom made by hand where the shape of the data is the same."""
        if not (self._zoomed and same_shape):
            self.reset_view()
        self._fit_axes()

    def in_units(self, part: Range) -> Range:
        """In values also on a logarithmic axis."""
        x, y = (_of_log(ends) if axis.log else ends for axis, ends in zip(self._specs(), part, strict=True))
        return x, y

    def from_units(self, part: Range) -> Range:
        """In what is drawn: logarithms on a logarithmic axis, NaN where there are none."""
        x, y = (logged(np.array(ends), axis).tolist() for axis, ends in zip(self._specs(), part, strict=True))
        return tuple(x), tuple(y)

    def _specs(self) -> tuple[Axis, Axis]:
        return self.bottom_axis.spec, self.left_axis.spec

    def _along(self, part: Range) -> tuple[str, str]:
        """“step 10 to 20” for each axis that is not seen whole."""
        return tuple(_range_words(axis, *ends) for axis, *ends in zip(self._specs(), part, self.full_range(), strict=True))  # type: ignore[return-value]

    def _fit_axes(self) -> None:
        """Axes with a label at each whole number need their distance in px."""
        (x0, x1), (y0, y1) = self.box.viewRange()
        self.left_axis.measure()
        if self.bottom_axis.count:
            width = self.viewport().width() - self.left_axis.width() - self._beyond()
            self.bottom_axis.fit(self.bottom_axis.room_of(width / ((x1 - x0) or 1.0)))
        if self.left_axis.count:
            self.left_axis.fit(self.left_axis.room_of(self.viewport().height() / ((y1 - y0) or 1.0)))
        self.legend.height_for(self._legend_room())
        self.plot_item.layout.activate()  # now, not an event later: nothing jumps
        if (ends := self._unnumbered()) != self._ends:
            self._ends = ends
            self.noted.emit()

    def _unnumbered(self) -> tuple[str, ...]:
        """On paper, where nobody can point: the ends of each axis that has no room for two numbers, and so shows no scale."""
        words = list[str]()
        if self.bottom_axis.longest < LONGEST_ON_PAPER:
            return ()
        for way, axis, ends in zip(("across", "up"), (self.bottom_axis, self.left_axis), self.box.viewRange(), strict=True):
            length, beyond = (axis.height(), HALF_LINE) if axis.vertical else (axis.width(), ASIDE)
            numbered = axis.isVisible() and not axis.count and not axis.spec.bare
            if numbered and not axis.shows_scale(*ends, length, self.theme.px(beyond)):
                low, high = _of_log((ends[0], ends[1])) if axis.spec.log else ends
                words.append(f"{axis.spec.label or way} from {_three_figures(low)} to {_three_figures(high)}")
        return tuple(words)

    def notes(self) -> tuple[str, ...]:
        """The titles that are elided on a stage, and the ends of axes without numbers."""
        titles = (("up", self.left_axis), ("across", self.bottom_axis))
        cut = (Essential(f"{way}: {title}") for way, axis in titles if axis.isVisible() and (title := axis.cut_title()))
        return (*cut, *map(Essential, self._ends))

    def align_left(self, least: int) -> None:
        """Begin the picture so many px from the left, or further where its numbers are longer."""
        if least != self.left_axis.least:
            self.left_axis.least = least
            if self._ready:
                self._fit_axes()

    def _legend_room(self, width: int | None = None) -> float:
        """px of width of the legend, above a picture of this width."""
        width = self.viewport().width() if width is None else width
        beside = self.left_axis.width() + self._beyond() if self.left_axis.isVisible() else 0.0
        return max(width - max(beside, 80), 80)

    def least_width(self) -> float:
        """Width with the longest legend name, and the title below on one line."""
        title = self.bottom_axis.widest([self.bottom_axis.spec.label])
        return max(super().least_width() + self._beyond(), self.left_axis.width() + max(self.legend.least_width(), title))

    def around(self, width: int | None = None) -> int:
        """Height in px of the legend and of the numbers below, at another width than the present one where that is given."""
        legend = self.legend.size().height() if width is None else self.legend.height_for(self._legend_room(width))
        return ceil(legend + self.bottom_axis.height() + self.theme.px(GRID))

    def least_height(self, width: int) -> int:
        """Height in px of the legend, the numbers below, and the title beside."""
        title = self.left_axis.spec.label
        beside = self.left_axis.widest([title]) if self.left_axis.isVisible() else 0.0
        return ceil(self.legend.height_for(max(width - 80, 80)) + self.bottom_axis.height() + beside + 3 * GRID)

    def resizeEvent(self, event: QResizeEvent) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Fit again."""
        super().resizeEvent(event)
        if self._ready:
            self._fit_axes()
