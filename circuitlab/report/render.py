"""One panel of one State into a file, without a window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from circuitlab.analysis.base import Ctx, NullContext
from circuitlab.caption_parts import Essential
from circuitlab.draw.look.paper import Paper
from circuitlab.engine.engine import Engine
from circuitlab.engine.ghost import placeless
from circuitlab.engine.request import Answer
from circuitlab.errors import BadInput, Cancelled, CircuitLabError, UsageError, bounded, reason
from circuitlab.figures.contracts.panel import Panel, Why, facts_of, view_types
from circuitlab.figures.contracts.questions import Question, Questions
from circuitlab.figures.contracts.vocabulary import pinned
from circuitlab.figures.marks import Figure
from circuitlab.session_files.picture_view import PictureView
from circuitlab.state.state import State
from circuitlab.story.zoom import Part

Sides = Mapping[str, Mapping[str, Answer]]  # answers by side, "now" and "ref", and by role
WIDER = 1.25  # how much wider a figure is laid out that cannot be read at the width of the paper
LONGEST = 160  # characters of a reason in a caption
Drawn = TypeVar("Drawn")
NO_PARTS: Mapping[str, Part] = MappingProxyType({})


def figure_of(engine: Engine, panel: Panel, state: State, ctx: Ctx | None = None) -> Figure:
    """The figure that the window would show. Raises `BadInput` with the panel's own reason where there is none.

    A reference is computed even where only now is shown, as both sides share one scale.
    """
    return drawn_of(engine, panel, state, ctx).figure


@dataclass(frozen=True, eq=False)
class DrawnPanel:
    """A panel's figure and what it was drawn of. `lacking`: why the reference is not among that, "" where it is."""

    figure: Figure
    answers: Sides
    lacking: str = ""


def drawn_of(engine: Engine, panel: Panel, state: State, ctx: Ctx | None = None) -> DrawnPanel:
    """A panel's figure of a State. Raises as `figure_of`, and `Cancelled`."""
    ctx = ctx or NullContext()
    asked = panel.ask(state, facts_of(engine, state.model))
    if isinstance(why := asked.requests, Why):
        raise nothing_of(panel, why.text, why.elsewhere)
    now = _answers(engine, asked, ctx)
    pin = state.reference
    ref, lacking = dict[str, Answer](), ""
    if pin is not None:
        try:
            ref_state = pinned(state, asked.facts)
            if not isinstance(ref_state, str):  # nothing where the reference asks nothing: the figure says why it stands alone
                ref = _answers(engine, panel.ask(ref_state, facts_of(engine, ref_state.model)), ctx)
        except Cancelled:
            raise
        except CircuitLabError as error:
            if state.compare != "now":
                raise
            lacking = f"{pin.label} not computed: {bounded(placeless(reason(error)), LONGEST)}"
    figure = panel.figure(state, asked.facts, now, ref, Questions(asked))
    figure = figure.with_caption(Essential(lacking)) if lacking and figure.grid else figure
    return DrawnPanel(figure, {"now": now, "ref": ref}, lacking)


def nothing_of(panel: Panel, why: str, elsewhere: str = "") -> BadInput:
    """The error of a panel that has nothing to draw; `why` is in the words of the window, so what to do is said for elsewhere."""
    if elsewhere:
        return BadInput(f"There is nothing to draw in {panel.title}.", remedy=elsewhere)
    remedy = (
        "Give what it lacks: text, heads, positions, target, cuts and the panel's settings are arguments; "
        "beside another prompt it is drawn of a session in which that is pinned."
    )
    return BadInput(f"There is nothing to draw in {panel.title}.", got=f"in the window: {why}", remedy=remedy)


def with_marks(panel: Panel, figure: Figure) -> Figure:
    """The figure, for a file. Raises `BadInput` where it only says why there is nothing to see."""
    if figure.why_empty or not figure.grid:
        raise nothing_of(panel, figure.why_empty or "no figure", figure.elsewhere)
    return figure


def _answers(engine: Engine, asked: Question, ctx: Ctx) -> dict[str, Answer]:
    return {role: engine.answer(request, ctx) for role, request in asked.by_role.items()}


def view_text(engine: Engine, view: PictureView) -> str:
    """What a figure shows, as text for its file. Raises `BadModel` where a model is gone."""
    return view.text(engine.store, view_types())


def drawn(figure: Figure, suffix: str, paper: Paper, seen: Mapping[str, Part] = NO_PARTS) -> bytes:
    """A figure as the bytes of a file of this kind (`write`)."""
    from circuitlab.draw.export.pictures import as_seen, picture
    from circuitlab.draw.look.app import application

    application(offscreen=True)
    figure, parts = as_seen(figure, seen) if seen else (figure, {})
    return picture(figure, suffix, paper, parts)


def readable(paper: Paper, draw: Callable[[Paper], Drawn]) -> Drawn:
    """What is drawn on this paper, or on the first wider one on which it can be read: a page shows it smaller."""
    for _ in range(8):
        try:
            return draw(paper)
        except UsageError:
            paper = replace(paper, width_mm=paper.width_mm * WIDER)
    return draw(paper)


def write(figure: Figure, path: Path, paper: Paper, seen: Mapping[str, Part] = NO_PARTS, view: str = "") -> float:
    """A figure that is already there, written by suffix; its height in mm. Starts an offscreen Qt if there is none.

    `seen`: the parts of its marks that are drawn, by name; the others are drawn whole. `view`: what it shows, for the file
    (`view_text`).
    """
    from circuitlab.draw.export.pictures import as_seen, export
    from circuitlab.draw.look.app import application

    application(offscreen=True)
    figure, parts = as_seen(figure, seen) if seen else (figure, {})
    return export(figure, path, paper, parts, view)
