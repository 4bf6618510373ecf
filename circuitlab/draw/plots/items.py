"""pyqtgraph's image, curve and scatter, guarded while they are painted."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

import pyqtgraph as pg

from circuitlab.draw.look.guarded import guarded_item


def _unguarded(paint: Callable[..., None]) -> Callable[..., None]:
    """The function inside pyqtgraph's own guard, which prints a fault and leaves a hole that no export learns of."""
    functions = (cell.cell_contents for cell in paint.__closure__ or ())
    return next(function for function in functions if isinstance(function, FunctionType))


class Image(pg.ImageItem):
    """A picture of cells, or a density."""

    paint = guarded_item(pg.ImageItem.paint)


class Curve(pg.PlotCurveItem):
    """A curve, or separate segments."""

    paint = guarded_item(_unguarded(pg.PlotCurveItem.paint))


class Scatter(pg.ScatterPlotItem):
    """Points."""

    paint = guarded_item(_unguarded(pg.ScatterPlotItem.paint))
