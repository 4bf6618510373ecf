"""A figure, or a sheet of figures, laid out for paper: to be painted into a page beside text, or to become an SVG of its own."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtGui import QPainter

from circuitlab.draw.export.pictures import Page, discard, laid_out, paint_into, undrawn, vectors
from circuitlab.draw.export.sheets import laid_out as sheet_laid_out
from circuitlab.draw.look.app import application
from circuitlab.draw.look.guarded import faults
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.view.cell_view import Cell
from circuitlab.draw.view.sheet_view import SheetView
from circuitlab.interrupts import uninterrupted


class Plate:
    """One cell without a letter is a figure, several are a sheet. `close` it when it is painted.

    `shared`, `own`: its caption, as what all parts say, and what each says besides by its letter. Raises `UsageError` where a
    part cannot be read at this width.
    """

    @uninterrupted()
    def __init__(self, cells: Sequence[Cell], paper: Paper) -> None:
        application(offscreen=True)
        self.paper = paper
        self._view: Page = sheet_laid_out(cells, paper) if len(cells) > 1 else laid_out(cells[0].figure, paper, cells[0].parts)
        words = self._view.words() if isinstance(self._view, SheetView) else (self._view.caption_parts, {})
        self.shared, self.own = words

    @property
    def size_mm(self) -> tuple[float, float]:
        """(Width, height) on its paper."""
        return self.paper.width_mm, self.paper.width_mm * self._view.height() / self._view.width()

    def paint(self, painter: QPainter, width: float) -> None:
        """Paint it at the painter's origin, `width` device units wide, and leave the painter as it was.

        Raises `CircuitLabError` where a part of it cannot be drawn.
        """
        painter.save()
        with faults() as reasons:
            paint_into(self._view, painter, width / self._view.width())
        painter.restore()
        if reasons:
            raise undrawn(reasons)

    @uninterrupted()
    def svg(self) -> bytes:
        """As a file. Raises as `paint`."""
        with faults() as reasons:
            data = vectors(self._view, self.paper)
        if reasons:
            raise undrawn(reasons)
        return data

    @uninterrupted()
    def close(self) -> None:
        """Delete its widgets."""
        discard(self._view)
