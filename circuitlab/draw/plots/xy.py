# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false, reportRedeclaration=false
# pyqtgraph and PySide6 describe themselves wrongly here: pyqtgraph forwards methods at run time and names layouts as methods.
"""The base of plots of numbers (points, curves): axes, padding, a faint grid, and a zoom that survives new data."""

from __future__ import annotations

from math import ceil

import numpy as np
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.legend import Legend
from circuitlab.draw.look.theme import GRID, Theme
from circuitlab.draw.plots.plot import PlotMark, Range
from circuitlab.figures.marks import Axis

MARGIN = 0.04


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


def _range_words(axis: Axis, visible: tuple[float, float], whole: tuple[float, float]) -> str:
    """The visible range of an axis in words, in values also on a logarithmic axis; "" where all of it is visible."""
    if visible[0] <= whole[0] and visible[1] >= whole[1]:
        return ""
    low, high = (f"{10**v if axis.log else v:.3g}".replace("-", "−") for v in visible)
    return f"{axis.label or 'axis'} {low} to {high}"


class XYPlot(PlotMark):
    """A plot with a legend on top. Subclasses give `full_range` and draw."""

    _ready = False

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self.legend = Legend(theme)
        layout = self.plot_item.layout
        layout.addItem(self.legend, 1, 1)
        # Room for half of a number at either end of the axis.
        layout.setContentsMargins(0, GRID, 2 * GRID, 0)
        self.left_axis.setGrid(90)
        self.bottom_axis.setGrid(90)

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

    def _along(self, part: Range) -> tuple[str, str]:
        """“step 10 to 20” for each axis that is not seen whole."""
        axes = (self.bottom_axis.spec, self.left_axis.spec)
        return tuple(_range_words(axis, *ends) for axis, *ends in zip(axes, part, self.full_range(), strict=True))  # type: ignore[return-value]

    def _fit_axes(self) -> None:
        """Axes with a label at each whole number need their distance in px."""
        (x0, x1), (y0, y1) = self.box.viewRange()
        self.left_axis.measure()
        if self.bottom_axis.count:
            width = self.viewport().width() - self.left_axis.width() - 2 * GRID
            self.bottom_axis.fit(width / ((x1 - x0) or 1.0))
        if self.left_axis.count:
            self.left_axis.fit(self.viewport().height() / ((y1 - y0) or 1.0))
        self.legend.height_for(max(self.viewport().width() - 80, 80))
        self.plot_item.layout.activate()  # now, not an event later: nothing jumps

    def least_width(self) -> float:
        """Width with the longest legend name, and the title below on one line."""
        title = self.bottom_axis.widest([self.bottom_axis.spec.label])
        return max(super().least_width() + 2 * GRID, self.left_axis.width() + max(self.legend.least_width(), title))

    def around(self) -> int:
        """Height in px of the legend and of the numbers below."""
        return ceil(self.legend.size().height() + self.bottom_axis.height() + GRID)

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
