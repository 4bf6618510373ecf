"""A session file without a window: what is in it, and the figures and numbers of where one stands and of every step.

    talk = lab.session("talk.circuitlab")
    talk.now.figure("attention", out="attention.svg")
    talk.steps[1].state.selection.head                     # L1H1
    talk.steps[1].figure("composition")                    # what the window shows there
    talk.steps[1].compute("token_loss").result.loss        # [position]

Models are opened when they are needed, and only those that have the weights of the session.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from circuitlab.analysis.base import find_analysis
from circuitlab.draw.look.paper import Paper, format_of
from circuitlab.engine.codec import params_of
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, BadModel, UsageError
from circuitlab.figures.contracts.panel import find_panel, panels
from circuitlab.figures.marks import Figure
from circuitlab.report.render import figure_of, write
from circuitlab.session.state import State
from circuitlab.session_files.assembly import FIRST, session_of
from circuitlab.session_files.file_table import with_file_paths
from circuitlab.session_files.model_search import Located, located
from circuitlab.session_files.model_table import mentioned
from circuitlab.session_files.session import Note, Session
from circuitlab.session_files.session_text import parse_session, read_session, table_of_session
from circuitlab.session_files.work import Work
from circuitlab.story.resolver import Resolver
from circuitlab.story.setup import Setup
from circuitlab.story.story import Story

_STEP = re.compile(r"^(?P<file>.+)#(?P<step>\d{1,6})$", re.DOTALL)


def opened_session(place: str | Path, engine: Engine) -> SavedSession:
    """The session in a file, or that of a JSON text, as *Copy as command* gives it. Raises `BadInput`."""
    text = str(place)
    if text.lstrip().startswith("{"):
        folder = Path.cwd()
        return SavedSession(
            "the command", located(parse_session(text.encode("utf-8", "surrogatepass"), folder), folder, engine.store), engine
        )
    path = Path(text)
    folder = Path(os.path.realpath(path)).parent
    return SavedSession(path.name, located(read_session(path), folder, engine.store), engine)


def step_at(place: str, engine: Engine) -> SavedStep:
    """What `--at FILE#STEP` names: a step counted from 1, or without one where the session stands. Raises `BadInput`."""
    match = None if place.lstrip().startswith("{") or os.path.lexists(place) else _STEP.match(place)
    if match is None:
        return opened_session(place, engine).now
    session, number = opened_session(match["file"], engine), int(match["step"])
    if not 1 <= number <= len(session.steps):
        expected = f"1 to {len(session.steps)}" if session.steps else "a file without # and a number: its story has no steps"
        raise BadInput(f"{session.name} has no step {number}.", expected=expected, got=f"#{number}")
    return session.steps[number - 1]


def inline_session(state: State, store: ModelStore) -> str:
    """A State as a session of one line, with absolute paths and hashes, which `--at` takes. May read files."""
    session = session_of(Work(state), store, _views())
    return json.dumps(table_of_session(session, None), ensure_ascii=False, allow_nan=False)


@functools.cache
def _views() -> Mapping[str, type[Any]]:
    return {name: panel.view for name, panel in panels().items()}


@dataclass(frozen=True)
class SavedSession:
    """A session that was read. `name`: of its file; `found`: its models, as far as they are on this machine."""

    name: str
    found: Located
    engine: Engine

    @property
    def session(self) -> Session:
        """Everything that the file says, its models where they were found."""
        return self.found.session

    @property
    def title(self) -> str:
        """The title of its story, "" without one."""
        return self.session.story.title

    @property
    def notes(self) -> tuple[Note, ...]:
        """Its notes on heads, edges, tokens and panels."""
        return self.session.notes

    @property
    def now(self) -> SavedStep:
        """Where one stands."""
        return SavedStep(self, self.title, "", with_file_paths(self.session).setup())

    @property
    def steps(self) -> tuple[SavedStep, ...]:
        """The steps of its story, each with what the steps before it have set up."""
        story = with_file_paths(self.session).story
        return tuple(SavedStep(self, step.title, step.text, story.setup(i)) for i, step in enumerate(story.steps))

    def state_of(self, setup: Setup) -> State:
        """The State of complete words. Raises `BadModel` for a model that was not found, `BadInput` for words that do not fit."""
        base = State(self.session.refs().get(self.session.now.model or "", FIRST))
        for name in sorted(mentioned(setup, Story(), ())):
            self._refuse_lost(name)
        return Resolver(self.engine, _views(), base, None, self.session.refs(), tolerant=True).state(setup)

    def _refuse_lost(self, name: str) -> None:
        entry, other = self.session.models.get(name), self.found.changed.get(name)
        if entry is None or (name not in self.found.missing and other is None):
            return
        expected = f"weights of sha256 {entry.sha256[:12]}…" if entry.sha256 else f"the model at {entry.ref.source}"
        remedy = "Put the model beside the session file, or open the session in the window and choose the model there."
        if other is not None:
            got = f"other weights at {other.source}" if entry.sha256 else f"perhaps {other.source}"
            raise BadModel(f"{name} is not the model of {self.name}.", expected=expected, got=got, remedy=remedy)
        raise BadModel(f"The model {name} of {self.name} was not found.", expected=expected, got="none", remedy=remedy)


@dataclass(frozen=True)
class SavedStep:
    """A step of a session, or where it stands. `setup`: its complete words."""

    of: SavedSession
    title: str
    text: str
    setup: Setup

    @functools.cached_property
    def state(self) -> State:
        """Everything that is looked at here. Raises `BadModel`, `BadInput`."""
        return self.of.state_of(self.setup)

    def figure(
        self, panel: str, out: str | Path | None = None, paper: Paper | None = None, set: Mapping[str, Any] | None = None
    ) -> Figure:
        """The figure that a panel of the window shows here, also written to `out` (PNG, SVG, PDF) if given.

        `set`: controls of the panel that are to be other than at this step. Raises `BadInput`, `BadModel` …
        """
        declared = find_panel(panel)
        if out is not None:
            format_of(Path(out))
        drawing = figure_of(self.of.engine, declared, self.with_controls(panel, set or {}))
        if out is not None:
            write(drawing, Path(out), paper or Paper())
        return drawing

    def with_controls(self, panel: str, controls: Mapping[str, Any]) -> State:
        """The State with some controls of a panel changed. Raises `UsageError`."""
        kind = find_panel(panel).view
        changed = params_of(kind, controls)
        return self.state.with_view(panel, replace(self.state.view(panel, kind), **{n: getattr(changed, n) for n in controls}))

    def compute(self, analysis: str, set: Mapping[str, Any] | None = None) -> Answer:
        """The answer of an analysis about what is looked at here. `set`: its parameters. Raises `CircuitLabError`s."""
        params = params_of(find_analysis(analysis).params, set or {})
        return self.of.engine.answer(Request.named(analysis, params, self.state.subject))


def refuse_beside(place: str, given: Mapping[str, object]) -> None:
    """Raise `UsageError` if options say what `--at` says already. `given`: each option's value, falsy where it is not given."""
    if twice := [option for option, value in given.items() if value]:
        raise UsageError(
            "A step of a session says itself what is looked at.",
            expected="--at alone, with --set for what is to differ",
            got=f"--at {place[:60]} with {' '.join(twice)}",
            remedy=f"Drop {' '.join(twice)}, or --at.",
        )
