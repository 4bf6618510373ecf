"""A step that plays as a film: its figures at each checkpoint, or along one parameter of the constructed model.

Every figure is that of `circuitlab figure` for its State, on the colour scales of all frames.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from circuitlab.analysis.base import Ctx, NullContext
from circuitlab.counting import number_of
from circuitlab.disk.files import need_writable, write_whole
from circuitlab.draw.look.slide import Film, Frame, Slide, film_format
from circuitlab.engine.engine import Engine
from circuitlab.errors import BadInput, CircuitLabError, UsageError, reason
from circuitlab.figures.contracts.held_scales import HeldScales
from circuitlab.figures.contracts.panel import Panel, find_panels, view_types
from circuitlab.figures.contracts.unasked import without_choice
from circuitlab.figures.marks import Figure
from circuitlab.report.markup import visible
from circuitlab.report.render import figure_of
from circuitlab.report.requests import MOST_PANELS, Fronts, first_panels
from circuitlab.session_files.session import UNCHOSEN
from circuitlab.state.state import State
from circuitlab.story.film import PARAMETERS, Scene, scenes_over, sweep_of, title_at_frame
from circuitlab.story.panel_names import need_panels
from circuitlab.story.setup import FINAL, Checkpoint, Play, Setup, Sweep
from circuitlab.story.zoom import Part, Parts, of_panel

TRAINING = "checkpoint"  # what `play_of` calls it
_OVER = re.compile(r"^\s*(\w+)\s*=\s*([^:]+):([^:]+?)(?::\s*(\d{1,4}))?\s*$")


@dataclass(frozen=True)
class FilmPlan:
    """What a film shows: `scenes` in their order, each with all `panels`. `zoom`: as a step says it. `unchosen`: as a session
    says it. `left_out`: panels of the step that the slide has no room for. `notes`: further parts of every caption.
    """

    scenes: tuple[Scene, ...]
    panels: tuple[Panel, ...]
    title: str = ""
    zoom: Parts = field(default_factory=dict[str, Part])
    unchosen: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def panels_of(setup: Setup, fronts: Fronts, names: Sequence[str] = ()) -> tuple[tuple[Panel, ...], tuple[str, ...]]:
    """The panels of a step's film, and the titles of those that the slide has no room for. `names`: those that are asked for,
    else those that an audience sees first.

    Raises `UsageError` for one of `names` that does not exist, or is named twice, `BadInput` for one of the step that does not.
    """
    if not names:
        need_panels(setup, view_types())
    every = find_panels(names) if names else first_panels(setup, fronts)
    if len(every) > MOST_PANELS and names:
        got = number_of(len(every), "panel")
        raise UsageError(
            "A slide has no room for these panels.", expected=f"at most {MOST_PANELS}", got=got, remedy="Name fewer."
        )
    if not every:
        raise BadInput("The step shows no panel.", expected="a panel to film", got="none", remedy="Name one: --panel attention.")
    return every[:MOST_PANELS], tuple(panel.title for panel in every[MOST_PANELS:])


def play_of(over: str) -> Play:
    """What "NAME=FIRST:LAST" lets a film play, perhaps with ":COUNT": a parameter of the constructed model, or the training by
    `checkpoint=0:final`. Raises `UsageError`.
    """
    match = _OVER.match(over)
    if match is None or match[1] not in (TRAINING, *PARAMETERS):
        raise UsageError(
            "What the film plays cannot be read.",
            expected=f"NAME=FIRST:LAST, perhaps with :COUNT, NAME one of {' '.join((TRAINING, *PARAMETERS))}",
            got=over[:80] if match is None else match[1],
            remedy="Write for instance --over offset=1:8, or --over checkpoint=0:final.",
        )
    name, first, last, count = match.groups()
    if name != TRAINING:
        return sweep_of(name, [*map(_number, (first, last)), *([] if count is None else [int(count)])])
    if count is not None:
        got = f"{number_of(int(count), 'frame')} asked for"
        raise UsageError(
            "A training plays checkpoint by checkpoint.", expected="checkpoint=FIRST:LAST", got=got, remedy="Drop it."
        )
    return _point(first), _point(last)


def film_scenes(state: State, over: str) -> tuple[Scene, ...]:
    """The State along the parameter of the constructed model that `over` says, as `play_of` reads it. Raises as `scenes_over`."""
    play = play_of(over)
    if not isinstance(play, Sweep):
        expected = " ".join(PARAMETERS)
        raise UsageError("No parameter is named.", expected=expected, got=over[:80], remedy="Write for instance offset=1:8.")
    return scenes_over(state, play)


def _number(text: str) -> object:
    try:
        value = float(text)
        return int(text) if text.strip().lstrip("+-").isdecimal() else value
    except ValueError:
        return text


def _point(text: str) -> Checkpoint:
    text = text.strip()
    if text == FINAL:
        return FINAL
    if not text.isdecimal() or len(text) > 12:
        raise UsageError(
            "The film’s ends cannot be read.", expected="training steps, or final", got=text[:80], remedy="Correct it."
        )
    return int(text)


def filmed(engine: Engine, plan: FilmPlan, ctx: Ctx | None = None) -> tuple[Film, tuple[str, ...]]:
    """The frames, computed one after the other, and what of the panels could not be: a panel without a figure at some frame is
    left out. For a worker thread.

    Raises `BadInput` where there is nothing to play or no panel has figures, `Cancelled`.
    """
    ctx = ctx or NullContext()
    if len(plan.scenes) < 2:
        words = plan.scenes[0].words if plan.scenes else "none"
        remedy = "Let it play from one checkpoint to another."
        raise BadInput("There is nothing to play.", expected="two frames at least", got=words, remedy=remedy)
    figures: dict[str, list[Figure]] = {panel.name: [] for panel in plan.panels}
    failed: dict[str, CircuitLabError] = {}
    for i, scene in enumerate(plan.scenes):
        for panel in plan.panels:
            ctx.tick(i, len(plan.scenes), scene.words)
            if panel.name not in failed:
                try:
                    figures[panel.name].append(_figure(engine, panel, scene.state, plan.unchosen).with_caption(*plan.notes))
                except BadInput as error:
                    failed[panel.name] = error
    drawn = [panel for panel in plan.panels if panel.name not in failed]
    if not drawn:
        raise next(iter(failed.values()))
    held = [_held(figures[panel.name]) for panel in drawn]
    frames = tuple(Frame(tuple(one), scene.words) for scene, one in zip(plan.scenes, zip(*held, strict=True), strict=True))
    seen = tuple(of_panel(plan.zoom, panel.name) for panel in drawn)
    lacking = tuple(f"{panel.title}: {reason(failed[panel.name])}" for panel in plan.panels if panel.name in failed)
    return Film(frames, "" if _is_of_figure(plan.title, held) else visible(plan.title), seen), lacking


def _is_of_figure(title: str, figures: Sequence[Sequence[Figure]]) -> bool:
    """Whether a step’s title is the beginning of a figure’s at some frame, as is proposed for a step: it may be false of other
    frames, and each figure has its own above it.
    """
    return title_at_frame(title, (figure.title for panel in figures for figure in panel)) is not None


def _figure(engine: Engine, panel: Panel, state: State, unchosen: tuple[str, ...]) -> Figure:
    figure = without_choice(figure_of(engine, panel, state), *(kind in unchosen for kind in UNCHOSEN))
    if not figure.grid:
        raise BadInput(figure.why_empty or "There is nothing to draw.", remedy="Film another panel.")
    return figure


def _held(figures: Sequence[Figure]) -> list[Figure]:
    """The figures on colour scales wide enough for all of them."""
    scales = HeldScales()
    for figure in figures:
        scales.held(figure)
    return [scales.held(figure) for figure in figures]


def write_plan(engine: Engine, plan: FilmPlan, path: Path, slide: Slide, ctx: Ctx | None = None) -> tuple[str, ...]:
    """Compute, draw and write a film; what could not be in it. Makes an application without a display if there is none.

    Raises `UsageError`, `BadInput`, `BadMachine`, `Cancelled`; the file is then what it was.
    """
    from circuitlab.draw.export.animation import animation, need_pillow, rgb_bytes
    from circuitlab.draw.export.film import drawn

    suffix, ctx = film_format(path), ctx or NullContext()
    need_pillow()
    need_writable(path)
    slide.check(len(plan.scenes))
    film, lacking = filmed(engine, plan, ctx)
    images: list[bytes] = []
    for i, image in enumerate(drawn(film, slide)):
        ctx.tick(i, 2 * len(film.frames), "drawing")
        if image is not None:
            images.append(rgb_bytes(image))
    write_whole(path, animation(images, suffix, slide, film.title, film.about), named=True)
    return (*(f"{title}: no room on the slide" for title in plan.left_out), *lacking)
