"""The figures of a place of a session, each with the answers that it draws: what a report, a sheet and a notebook show of a step.

for one in step_figures(engine, place, FRONTS):
    one.figure                       # what the window shows there, None where it could not be computed: then `why`
    one.answers["now"]["pattern"]    # what it was drawn of
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from circuitlab.analysis.base import Ctx
from circuitlab.caption_parts import Essential
from circuitlab.engine.engine import Engine
from circuitlab.errors import Cancelled, CircuitLabError
from circuitlab.figures.contracts.panel import Panel, Why, facts_of
from circuitlab.figures.contracts.unasked import without_choice
from circuitlab.figures.marks import Figure
from circuitlab.report.places import Place
from circuitlab.report.render import Sides, drawn_of
from circuitlab.report.requests import Fronts, shown_panels
from circuitlab.session_files.session import UNCHOSEN
from circuitlab.state.state import State
from circuitlab.story.zoom import Part, of_panel
from circuitlab.unforeseen import part

FIRST_OF_FILM, LAST_OF_FILM = "the film begins here", "the film ends here"
ALL_OF_FILM = "the same at both ends of the film"


@dataclass(frozen=True, eq=False)
class StepFigure:
    """A panel's figure at a place of a session. `seen`: the parts of its marks that are shown there, by name.

    `figure` None: it has no figure, because of `error` or for the panel's own reason; `why` says which. `end`: which of a film's
    it is, in words. `lacking`: what of a figure could not be computed.
    """

    panel: Panel
    state: State
    figure: Figure | None
    answers: Sides = field(default_factory=lambda: {"now": {}, "ref": {}})
    seen: Mapping[str, Part] = field(default_factory=dict[str, Part])
    why: str = ""
    error: CircuitLabError | None = None
    end: str = ""
    lacking: str = ""


def step_figures(
    engine: Engine, place: Place, fronts: Fronts, ctx: Ctx | None = None, unchosen: tuple[str, ...] = ()
) -> Iterator[StepFigure]:
    """The figures of a place, in the order of its panels; of a film those at its two ends. Computes what is not there.

    `fronts`: the panels in front in each arrangement of the window. `unchosen`: as in `Session`. Raises `Cancelled` alone.
    """
    ready = place.ready
    if ready is None:
        return
    ends = ((ready.state, ""),)
    if ready.film:
        ends = ((ready.film[0].state, FIRST_OF_FILM), (ready.film[-1].state, LAST_OF_FILM))
    for panel in shown_panels(place.setup, fronts):
        seen = of_panel(place.setup.zoom, panel.name)
        first, *last = (step_figure(engine, panel, state, seen, ctx, unchosen, words) for state, words in ends)
        if last and _same_answers(first, last[0]):  # curves of a whole training are drawn once
            yield _of_both_ends(first)
        else:
            yield from (first, *last)


def _of_both_ends(one: StepFigure) -> StepFigure:
    """The figure of a film's beginning, which is that of its end too."""
    if one.figure is None:
        return one
    parts = (Essential(ALL_OF_FILM) if part == FIRST_OF_FILM else part for part in one.figure.caption_parts)
    return replace(one, figure=replace(one.figure, caption_parts=tuple(parts)), end=ALL_OF_FILM)


def step_figure(
    engine: Engine,
    panel: Panel,
    state: State,
    seen: Mapping[str, Part],
    ctx: Ctx | None = None,
    unchosen: tuple[str, ...] = (),
    words: str = "",
) -> StepFigure:
    """One panel's figure of a State; what cannot be computed is said. `words`: for its caption. Raises `Cancelled` alone."""
    try:
        with part():
            facts = facts_of(engine, state.model)
            if isinstance(requests := panel.requests(state, facts), Why):
                return StepFigure(panel, state, None, why=requests.text)
            drawn = drawn_of(engine, panel, state, ctx)
    except Cancelled:
        raise
    except CircuitLabError as error:
        return StepFigure(panel, state, None, why=error.what, error=error)
    figure = without_choice(drawn.figure, *(kind in unchosen for kind in UNCHOSEN))
    figure = figure.with_caption(Essential(words) if words else "")
    return StepFigure(panel, state, figure, drawn.answers, seen, figure.why_empty, end=words, lacking=drawn.lacking)


def _same_answers(one: StepFigure, other: StepFigure) -> bool:
    requests = [{role: answer.request for role, answer in each.answers["now"].items()} for each in (one, other)]
    return one.figure is not None and requests[0] == requests[1]
