"""Which requests a session needs: those of every panel that is shown where it stands and at each step of its story.

For saving its results, and for computing a talk or a report before it is given. Models are opened: for a worker thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from circuitlab.analysis.attention.head_scores import HeadScoresParams, head_scores
from circuitlab.analysis.base import Ctx, SeriesRef
from circuitlab.analysis.behaviour.token_loss import TokenLossParams, token_loss
from circuitlab.analysis.training.series import TrainingSeriesParams, training_series
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.figures.contracts.panel import Panel, Why, facts_of, panels, view_types
from circuitlab.figures.contracts.vocabulary import pinned
from circuitlab.model.subject import ModelRef, Subject
from circuitlab.report.places import NONE_LOST, Lost, Place, places
from circuitlab.session_files.model_table import refs_of
from circuitlab.session_files.session import Session
from circuitlab.state.state import State
from circuitlab.story.panel_names import named_panels, unfollowed
from circuitlab.story.resolver import Ready
from circuitlab.story.setup import Setup
from circuitlab.story.values import BEST_HEAD
from circuitlab.story.words import table_of
from circuitlab.unforeseen import part

Fronts = Mapping[str, Sequence[str]]
FILM = "Film"  # begins what is said of one that is not stored
MOST_PANELS = 4  # that an audience takes in at once: on the stage, on a slide
USUAL = "Explore"  # the arrangement of a place that says nothing of panels


@dataclass(frozen=True)
class Needed:
    """What one place of a session needs: its title, requests, each once, and for what cannot be requested why not.

    `models`: those that must be open for it to be shown, each once. `ready`: its State and film, None where it has none.
    """

    title: str
    requests: tuple[Request, ...] = ()
    lacking: tuple[str, ...] = ()
    models: tuple[ModelRef, ...] = ()
    ready: Ready | None = None


def requests_of(
    session: Session, engine: Engine, fronts: Fronts, ctx: Ctx | None = None, lost: Lost = NONE_LOST, now: bool = True
) -> Iterator[Needed]:
    """What is needed where a session stands, then at each step of its story; what fails is reported in its place.

    `fronts`: the panels in front in each arrangement of the window. `lost`: see `places`. `now`:
    False leaves out where the session stands. Raises `Cancelled` alone.
    """
    for place in places(session, engine, ctx, lost, now):
        try:
            with part():
                missing = place.ready is None
                one = Needed(place.step.title, lacking=(reason(place.error),)) if missing else _needed(engine, place, fronts)
            yield one
        except Cancelled:
            raise
        except CircuitLabError as error:
            yield Needed(place.step.title, lacking=(reason(error),))


def _needed(engine: Engine, place: Place, fronts: Fronts) -> Needed:
    ready, setup, step = place.ready, place.setup, place.step
    assert ready is not None
    requests = {request: None for _, request in ready.requests.values()}
    lacking = list(unfollowed(setup, view_types()))
    lacking += [f"{name}: {reason(error)}" for name, error in ready.failed.items()]
    state = ready.state
    if _chooses((table_of(setup), *((value.params, value.read) for value in step.values))):
        requests |= {Request(head_scores, HeadScoresParams(), Subject(ref)): None for ref in _models(state)}
    shown = panels_at(setup, fronts)
    for panel in shown:
        try:
            requests |= dict.fromkeys(panel_requests(engine, panel, state))
        except CircuitLabError as error:
            lacking.append(f"{panel.title}: {reason(error)}")
    film: tuple[ModelRef, ...] = ()
    if setup.play is not None:
        film, of_film, errors = _film(engine, ready, shown)
        requests |= dict.fromkeys(of_film)
        lacking += errors
    requests |= dict.fromkeys(_losses(state))
    models = dict.fromkeys((*refs_of(state), *film, *(request.subject.model for request in requests)))
    models |= {replace(ref, checkpoint=None): None for ref in models}  # it lists the checkpoints
    return Needed(step.title, tuple(requests), tuple(lacking), tuple(models), ready)


def _film(
    engine: Engine, ready: Ready, shown: Sequence[Panel]
) -> tuple[tuple[ModelRef, ...], tuple[Request, ...], tuple[str, ...]]:
    """The points of a step's film, what its panels ask for at each of them, and why what cannot be asked for cannot."""
    if not ready.film:
        return (), (), (f"{FILM}: {ready.no_film}",)
    requests: dict[Request, None] = {}
    lacking: dict[str, None] = {}
    final = replace(ready.film[0].state.model, checkpoint=None)
    model = engine.store.open(final)
    if model.measured:  # the slider shows its tokens and its phase change
        params = TrainingSeriesParams(models=(SeriesRef(final.source),))
        requests[Request(training_series, params, Subject(final))] = None
    for scene in ready.film:
        try:
            for panel in shown:
                requests |= dict.fromkeys(panel_requests(engine, panel, scene.state))
            requests |= dict.fromkeys(_losses(scene.state))
        except CircuitLabError as error:
            lacking[f"{FILM}: {engine.store.open(final).name}, {scene.words}: {reason(error)}"] = None
    return tuple(scene.state.model for scene in ready.film), tuple(requests), tuple(lacking)


def _models(state: State) -> dict[ModelRef, None]:
    """The models that choices of words may be about: final weights and checkpoints, of the state and of its pins."""
    refs = (state.model, *(pin.subject.model for pin in state.pins))
    return dict.fromkeys(refs)


def _chooses(words: object) -> bool:
    """Whether words choose a head by its score, as "best induction"; a prompt may say so without meaning it."""
    if isinstance(words, Mapping):
        return any(_chooses(value) for name, value in words.items() if name not in ("text", "draft"))
    return any(map(_chooses, words)) if isinstance(words, (list, tuple)) else bool(BEST_HEAD.search(str(words)))


def shown_panels(setup: Setup, fronts: Fronts) -> tuple[Panel, ...]:
    """The panels that a place is about: those that it names, else those in front in the arrangement that it names. Those that
    its word `stage` names come first, as a view that was kept names the panel that was used. None, where there is none of those
    that it names.

    The one answer for a report, a sheet, a film and the stage. The window keeps the other panels of the arrangement beside those
    that are named, so what is prepared and stored is wider: `panels_at`.
    """
    every = panels()
    known = lambda names: tuple(every[name] for name in dict.fromkeys(names) if name in every)
    shown = known(named_panels(setup) or fronts.get(setup.arrange) or fronts.get(USUAL, ()))
    return tuple(dict.fromkeys((*(panel for panel in known(setup.stage) if panel in shown), *shown)))


def first_panels(setup: Setup, fronts: Fronts) -> tuple[Panel, ...]:
    """Of `shown_panels` those that an audience sees first: those that the word `stage` names, else all."""
    shown = shown_panels(setup, fronts)
    return tuple(panel for panel in shown if panel.name in setup.stage) or shown


def panels_at(setup: Setup, fronts: Fronts) -> tuple[Panel, ...]:
    """The panels that the window shows at a place: `shown_panels`, and those in front in the arrangement that it names.

    Who walks a story in the window sees these as well, computed or stored.
    """
    every = panels()
    beside = () if setup.alone and setup.show else fronts.get(setup.arrange, ())
    return tuple(dict.fromkeys((*shown_panels(setup, fronts), *(every[name] for name in beside if name in every))))


def panel_requests(engine: Engine, panel: Panel, state: State) -> tuple[Request, ...]:
    """What a panel asks for in a State and its reference, as in the window; nothing where it says itself why it is empty."""
    facts = facts_of(engine, state.model)
    sides = [panel.requests(state, facts)]
    if state.reference is not None and not isinstance(before := pinned(state, facts), str):
        sides.append(panel.requests(before, facts_of(engine, before.model)))
    return tuple(request for side in sides if not isinstance(side, Why) for request in side.values())


def _losses(state: State) -> tuple[Request, ...]:
    """The losses under the prompt, of the reference and of the prompt without its interventions."""
    subjects = [state.subject, *([replace(state.subject, edits=())] if state.subject.edits else [])]
    subjects += [state.reference.subject] if state.reference is not None and state.compare != "now" else []
    return tuple(Request(token_loss, TokenLossParams(), subject) for subject in subjects if subject.tokens)
