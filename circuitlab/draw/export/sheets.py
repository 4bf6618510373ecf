"""A sheet of figures on paper: PNG, SVG and PDF, as one figure of the asked width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from PySide6.QtCore import QSize

from circuitlab.draw.export.pictures import Preview, Written, discard, previewed, scale_of, written
from circuitlab.draw.look.app import application
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.unreadable import Unreadable, confirmed
from circuitlab.draw.view.cell_view import Cell
from circuitlab.draw.view.settling import settle
from circuitlab.draw.view.sheet_view import SheetView
from circuitlab.errors import UsageError
from circuitlab.interrupts import uninterrupted


@dataclass
class SheetWords:
    """What a sheet says of itself once it is laid out: what all its parts say, and what each says, by letter."""

    shared: tuple[str, ...] = ()
    own: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def note(self, sheet: SheetView) -> SheetView:
        """Note it of this sheet."""
        self.shared, self.own = sheet.words()
        return sheet


def sheet_picture(
    cells: Sequence[Cell],
    suffix: str,
    paper: Paper,
    title: str = "",
    columns: int | None = None,
    view: str = "",
    words: SheetWords | None = None,
) -> Written:
    """A file of this kind. `columns`: see `SheetView`; `title`, `view`: for the file's own description.

    `words` is filled in.
    The same cells on the same paper give the same bytes. Raises `UsageError` where a part cannot be read at its width or the
    sheet does not fit a height, `CircuitLabError` where a part cannot be drawn.
    """
    application(offscreen=True)
    note = (words or SheetWords()).note
    return written(lambda: note(laid_out(cells, paper, title, columns)), suffix, paper, view)


@uninterrupted()
def laid_out(cells: Sequence[Cell], paper: Paper, title: str = "", columns: int | None = None) -> SheetView:
    """A sheet laid out without ever becoming a window. Raises as `sheet_picture`."""
    try:
        return _laid_out(cells, paper, title, columns)
    except Unreadable as refusal:
        raise confirmed(refusal, lambda other: discard(_laid_out(cells, other, title, columns))) from None


def _laid_out(cells: Sequence[Cell], paper: Paper, title: str, columns: int | None) -> SheetView:
    theme, width = scale_of(paper)
    sheet = SheetView(cells, theme, paper, title, columns)
    height = None if paper.height_mm is None else round(paper.height_mm / paper.width_mm * width)
    try:
        least = sheet.lay_out(width)
        if height is not None and least > height:
            raise UsageError(
                "The sheet does not fit into this height.",
                expected=f"at least {least * paper.width_mm / width:.0f} mm",
                got=f"{paper.height_mm:g} mm",
                remedy="Give it more height, a shorter caption or smaller type.",
            )
    except UsageError:
        discard(sheet)
        raise
    sheet.resize(width, height or least)
    settle(sheet)
    return sheet


def sheet_preview(cells: Sequence[Cell], paper: Paper, room: QSize, columns: int | None = None, ratio: float = 1.0) -> Preview:
    """The picture that `sheet_picture` writes, as large as fits into `room` px of `ratio` device pixels each.

    Raises `UsageError`.
    """
    application(offscreen=True)
    return previewed(lambda: laid_out(cells, paper, columns=columns), paper, room, ratio)


@uninterrupted()
def check_sheet(cells: Sequence[Cell], paper: Paper, columns: int | None = None) -> None:
    """Raises the `UsageError` that writing to this paper would raise."""
    application(offscreen=True)
    discard(laid_out(cells, paper, columns=columns))
