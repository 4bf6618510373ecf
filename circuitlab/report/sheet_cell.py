"""A part of a sheet: a panel's figure under a letter, with the answers that it was drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from circuitlab.engine.request import TableOf
from circuitlab.figures.marks import Figure
from circuitlab.report.render import Sides
from circuitlab.story.zoom import Part


@dataclass(frozen=True, eq=False)
class SheetCell:
    """`letter`: "" for the only part. `seen`: the parts of the figure's marks that are seen, by name; the others are whole.

    `drawn`: as of an `AnswerExport`.
    """

    letter: str
    panel: str
    figure: Figure
    answers: Sides
    seen: Mapping[str, Part]
    drawn: TableOf | None = None

    @property
    def title(self) -> str:
        """Of the figure."""
        return self.figure.title
