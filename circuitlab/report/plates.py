"""The figures of a step as they stand on a page: alone, or several as one sheet of parts A, B, C, each with its caption."""

from __future__ import annotations

import string
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby

from circuitlab.draw.export.pictures import as_seen
from circuitlab.draw.export.plate import Plate
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.view.cell_view import Cell
from circuitlab.errors import CircuitLabError, UsageError
from circuitlab.figures.marks import Figure, joined
from circuitlab.report.content import ReportFigure, Section
from circuitlab.report.render import readable
from circuitlab.unforeseen import Unforeseen, part

PAPER = Paper(width_mm=174.0, font_pt=8.0, caption="none")  # the caption is text beside it
MOST_PARTS = 4  # of a sheet, so that it goes on a page
NOTHING = "nothing to show"


@dataclass(frozen=True)
class PartCaption:
    """What one figure shows, under its letter, "" for the only one; `words`: what it says of itself."""

    letter: str
    title: str
    words: str


@dataclass(frozen=True)
class PlateCaption:
    """`of`: what all parts are of; `words`: under which conventions, and how they are drawn."""

    parts: tuple[PartCaption, ...]
    of: str
    words: str

    @property
    def spoken(self) -> str:
        """What a screen reader calls the picture."""
        return "; ".join(joined(part.letter, part.title) for part in self.parts)


@dataclass(frozen=True, eq=False)
class StepPlate:
    """Figures of a step laid out together, with what they are called. `close` the plate when it is drawn."""

    plate: Plate
    figures: tuple[ReportFigure, ...]
    caption: PlateCaption


@dataclass(frozen=True, eq=False)
class Unshown:
    """What stands in the place of a figure: `what` in a sentence; `error`: why, and what to do; `explain`: `what` is not why."""

    what: str
    error: CircuitLabError | None = None
    explain: bool = False


def plates_of(section: Section, paper: Paper) -> Iterator[StepPlate | Unshown]:
    """What a step shows, in the order of its panels; what stands beside one another in a sheet is laid out together."""
    film = any(one.drawn.end for one in section.figures)  # of which the two ends of a panel stand together
    for shown, run in groupby(section.figures, lambda one: (figure_of(one) is not None, one.drawn.panel.name if film else "")):
        if not shown[0]:
            yield from (Unshown(f"{one.drawn.panel.title}: {one.drawn.why or NOTHING}", one.drawn.error) for one in run)
            continue
        figures = list(run)
        for i in range(0, len(figures), MOST_PARTS):
            yield from _laid_out(figures[i : i + MOST_PARTS], paper, section.title)


def figure_of(one: ReportFigure) -> Figure | None:
    """The figure, None where there is nothing to draw: `why` says why."""
    figure = one.drawn.figure
    return figure if figure is not None and figure.grid else None


def _laid_out(figures: list[ReportFigure], paper: Paper, step: str) -> Iterator[StepPlate | Unshown]:
    if len(figures) > 1:
        with suppress(UsageError, Unforeseen):  # a part of it could not be read: which, is said when each stands alone
            with part():
                plate = _sheet(tuple(figures), paper)
            yield plate
            return
    for one in figures:
        try:
            with part(f"{step}, {one.drawn.panel.title}"):
                plate = _alone(one, paper)
            yield plate
        except CircuitLabError as error:
            yield Unshown(f"{one.drawn.panel.title} could not be drawn.", error, explain=True)


def _cell(letter: str, one: ReportFigure, figure: Figure) -> Cell:
    drawing, parts = as_seen(figure, one.drawn.seen) if one.drawn.seen else (figure, {})
    return Cell(letter, drawing, parts)


def _sheet(figures: tuple[ReportFigure, ...], paper: Paper) -> StepPlate:
    lettered = dict(zip(string.ascii_uppercase, figures, strict=False))
    plate = Plate([_cell(letter, one, _figure(one)) for letter, one in lettered.items()], paper)
    parts = tuple(PartCaption(letter, _title(one), joined(*plate.own.get(letter, ()))) for letter, one in lettered.items())
    of = tuple(part for part in plate.shared if all(part in _figure(one).about for one in figures))
    words = tuple(part for part in plate.shared if part not in of)
    return StepPlate(plate, figures, PlateCaption(parts, joined(*of), joined(*words)))


def _alone(one: ReportFigure, paper: Paper) -> StepPlate:
    """Wider than the paper where it cannot be read at its width: the page shows it smaller."""
    cell = _cell("", one, replace(_figure(one), title=""))  # its caption has the title, as text
    plate = readable(paper, lambda wide: Plate([cell], wide))
    about = _figure(one).about
    words = plate.shared[len(about) :] if plate.shared[: len(about)] == about else plate.shared
    return StepPlate(plate, (one,), PlateCaption((PartCaption("", _title(one), ""),), joined(*about), joined(*words)))


def _figure(one: ReportFigure) -> Figure:
    figure = figure_of(one)
    assert figure is not None
    return figure


def _title(one: ReportFigure) -> str:
    """The panel and what its figure is called; the panel once."""
    panel, title = one.drawn.panel.title, _figure(one).title
    return title if title.startswith(panel) else f"{panel}: {title}" if title else panel
