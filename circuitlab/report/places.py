"""The places of a session, with their models open: where it stands, then each step of its story. For a worker thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from circuitlab.analysis.base import Ctx
from circuitlab.engine.engine import Engine
from circuitlab.errors import Cancelled, CircuitLabError
from circuitlab.figures.contracts.panel import view_types
from circuitlab.session_files.assembly import base_of, with_paths
from circuitlab.session_files.model_table import needed
from circuitlab.session_files.session import Session
from circuitlab.story.resolver import Ready, Resolver
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step
from circuitlab.unforeseen import part

Lost = Mapping[str, CircuitLabError]  # why a model is not here, by its name in the session
NONE_LOST: Lost = {}


@dataclass(frozen=True)
class Place:
    """One place of a session: its step, its complete words, and what they resolve to, or why they do not.

    `step` of where the session stands is one of the story's title with all its words, without text. Exactly one of `ready` and
    `error` is None.
    """

    step: Step
    setup: Setup
    ready: Ready | None = None
    error: CircuitLabError | None = None


def places(session: Session, engine: Engine, ctx: Ctx | None = None, lost: Lost = NONE_LOST, now: bool = True) -> Iterator[Place]:
    """Where a session stands, then each step of its story.

    `lost`: the models of which nothing is on this machine. `now`: False leaves out where the session stands. Raises `Cancelled`
    alone; other errors are those of their place.
    """
    session = with_paths(session)
    first = base_of(session)
    resolver = Resolver(engine, view_types(), first, ctx, session.refs(), tolerant=True)
    story = session.story
    if now:
        here = session.setup()
        yield _resolved(session, resolver, Step(story.title, setup=here), here, lost)
    for i, step in enumerate(story.steps):
        yield _resolved(session, resolver, step, story.setup(i), lost)


def _resolved(session: Session, resolver: Resolver, step: Step, setup: Setup, lost: Lost) -> Place:
    try:
        if absent := sorted(needed(session, setup, step) & set(lost)):
            raise lost[absent[0]]
        with part():
            return Place(step, setup, resolver.ready(setup, step))
    except Cancelled:
        raise
    except CircuitLabError as error:
        return Place(step, setup, error=error)
