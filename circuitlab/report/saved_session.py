"""A session file without a window: what is in it, and the figures and numbers of where one stands and of every step.

    talk = lab.session("talk.circuitlab")
    talk.now.figure("attention", out="attention.svg")
    talk.steps[1].state.selection.head                     # L1H1
    talk.steps[1].figure("composition")                    # what the window shows there
    talk.steps[1].sheet().save("fig1.pdf")                 # its panels as one figure of parts A, B, C
    talk.steps[1].compute("token_loss").result.loss        # [position]

Models are opened when they are needed, and only those that have the weights of the session. Where a model is not on this machine,
the results inside the session's file are taken: what is stored is the same to the bit, the rest says why not.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from circuitlab.analysis.base import Ctx, find_analysis
from circuitlab.caption_parts import Essential
from circuitlab.counting import number_of
from circuitlab.disk.files import need_writable, write_whole
from circuitlab.disk.paths import typed_path
from circuitlab.draw.look.paper import Paper, format_of
from circuitlab.draw.look.slide import Slide, film_format
from circuitlab.engine.codec import params_of
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, BadModel, Cancelled, CircuitLabError, UsageError, bounded, reason
from circuitlab.figures.contracts.panel import find_panel, view_types, with_plugins
from circuitlab.figures.contracts.unasked import without_choice
from circuitlab.figures.marks.figure import joined
from circuitlab.notebook_html import box, line, shortened, table, text_html
from circuitlab.report.content import Report, named_error, refuse_empty, report_of
from circuitlab.report.film import FilmPlan, panels_of, play_of, write_plan
from circuitlab.report.picture import Picture
from circuitlab.report.render import figure_of, view_text, with_marks
from circuitlab.report.report_files import REPORT_PAPER, writer_of
from circuitlab.report.requests import Fronts, shown_panels
from circuitlab.report.session_results import Gathering, with_hashes
from circuitlab.report.session_view import HEADS, framed, step_words, table_of_steps
from circuitlab.report.sheet import WIDE, Sheet, sheet_of
from circuitlab.report.working import Working, context_of, silent
from circuitlab.session_files.assembly import base_of, session_of, with_paths
from circuitlab.session_files.model_controls import lists
from circuitlab.session_files.model_search import Located, located
from circuitlab.session_files.model_table import names_by_ref, needed, refs_of
from circuitlab.session_files.picture_view import PictureView
from circuitlab.session_files.results import Results, SessionFile, read_file
from circuitlab.session_files.session import UNCHOSEN, Note, Session
from circuitlab.session_files.session_text import parse_session, table_of_session
from circuitlab.session_files.stored_models import StoredModels, stored_models
from circuitlab.session_files.work import Work
from circuitlab.state.constructed import parameters
from circuitlab.state.state import State
from circuitlab.step_names import file_and_step
from circuitlab.story.arrangements import FRONTS
from circuitlab.story.film import without_repeat
from circuitlab.story.panel_names import need_panels, need_settings, panels_of_story
from circuitlab.story.resolver import Resolver
from circuitlab.story.setup import Setup
from circuitlab.story.zoom import Parts, of_panel

LISTED = 8  # steps that an error names
FILM_NOT_DRAWN = "one state of the film that the step plays, which is not drawn"


def opened_session(place: str | Path, engine: Engine, fronts: Fronts = FRONTS, working: Working = silent) -> SavedSession:
    """The session in a file, the view in a picture, or that of a JSON text, as *Copy as command* gives it. Raises `BadInput`.

    `fronts`: see `requests_of`. `working`: who is told how far figures, numbers and reports are.
    """
    text = str(place)
    if text.lstrip().startswith("{"):
        folder = Path.cwd()
        session = parse_session(text.encode("utf-8", "surrogatepass"), folder)
        with_plugins(panels_of_story(session.now, session.story))
        return SavedSession("the command", located(session, folder, engine.store), engine, fronts=fronts, working=working)
    path = typed_path(text)
    folder, file = Path(os.path.realpath(path)).parent, read_file(path)
    with_plugins(panels_of_story(file.session.now, file.session.story))
    return SavedSession(path.name, located(file.session, folder, engine.store), engine, file.results, fronts, working)


def _steps_named(session: SavedSession, numbers: Sequence[int]) -> str:
    """Steps by number and title, as an error names them; "" for none."""
    titles = [f"#{number} {bounded(session.session.story.steps[number - 1].title, 40)}".strip() for number in numbers]
    return ", ".join((*titles[:LISTED], *(["…"] if len(titles) > LISTED else [])))


def step_at(place: str, engine: Engine) -> SavedStep:
    """What `FILE#STEP` names: a step counted from 1, or without one where the session stands. Raises `BadInput`."""
    file, step = file_and_step(place)
    session = opened_session(file, engine)
    if step is None:
        return session.now
    number = int(step) if step.isdecimal() and len(step) <= 6 else 0
    if not 1 <= number <= len(session.steps):
        named = _steps_named(session, range(1, len(session.steps) + 1))
        expected = f"1 to {len(session.steps)}: {named}" if named else "a file without # and a number: its story has no steps"
        raise BadInput(
            f"{session.name} has no step {step[:40]}." if step else "No step is named behind the #.",
            expected=expected,
            got=f"#{step[:40]}",
            remedy="Name a step that is there; `circuitlab session FILE` lists them.",
        )
    return session.steps[number - 1]


def inline_session(state: State, store: ModelStore, zoom: Parts = MappingProxyType({})) -> str:
    """A State as a session of one line, with absolute paths and hashes, which `--at` takes. May read files.

    `zoom`: what is seen of figures.
    """
    session = session_of(Work(state), store, view_types(), Setup(zoom=zoom))
    return json.dumps(table_of_session(session, None), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, repr=False)
class SavedSession:
    """A session that was read. `name`: of its file; `located`: its models, as far as they are on this machine.

    `results`: those inside its file. They stand in for the models that are not on this machine. `fronts`: see `requests_of`;
    `working`: who is told how far work is that is given no `ctx`.
    """

    name: str
    located: Located
    engine: Engine
    results: Results | None = None
    fronts: Fronts = field(default_factory=lambda: FRONTS)
    working: Working = silent

    def __repr__(self) -> str:
        steps = number_of(len(self.session.story.steps), "step") if self.session.story.steps else ""
        models = ", ".join(self.session.models) or "no model"
        return f"<Session {shortened(joined(self.name, self.title, steps, models))}>"

    def _repr_html_(self) -> str:
        """Its steps and its report, which is computed; of one that cannot be, why."""
        rows = [step_words(step.title, step.setup) for step in (self.steps or (self.now,))]
        steps = table_of_steps(self.name, self.title, rows)
        try:
            return box(steps, framed(self.content()))
        except Cancelled:
            raise
        except CircuitLabError as error:
            return box(steps, line(text_html(f"Its report cannot be shown: {reason(error)}")))

    @property
    def session(self) -> Session:
        """Everything that the file says, its models where they were found."""
        return self.located.session

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
        return SavedStep(self, self.title, "", with_paths(self.session).setup(), self.session.unchosen)

    @property
    def steps(self) -> tuple[SavedStep, ...]:
        """The steps of its story, each with what the steps before it have set up."""
        story = with_paths(self.session).story
        return tuple(SavedStep(self, step.title, step.text, story.setup(i)) for i, step in enumerate(story.steps))

    def state_of(self, setup: Setup) -> State:
        """The State of complete words. Raises `BadModel` for a model that was not found, `BadInput` for words that do not fit."""
        for name in self.located.changed:
            if lists(setup.view, self.session.models[name].ref):
                self._refuse_lost(name)
        names = needed(self.session, setup)
        for name in sorted(names - set(self.known_by_results)):
            self._refuse_lost(name)
        session = self.in_engine if names & set(self.known_by_results) else self.session
        base = base_of(session)
        state = Resolver(self.engine, view_types(), base, None, session.refs(), tolerant=True).state(setup)
        known = names_by_ref(self.session.models)
        for ref in refs_of(state):  # words may also say a path
            self._refuse_lost(known.get(replace(ref, checkpoint=None), ""))
        return state

    @property
    def lost(self) -> tuple[str, ...]:
        """The models that are not on this machine, or have other weights here."""
        return (*self.located.missing, *self.located.changed)

    @property
    def known_by_results(self) -> tuple[str, ...]:
        """Those of the lost models of which results are stored; results of other weights under a model's name are not its own."""
        models = set[str]() if self.results is None else self.results.models(self.session)
        return tuple(name for name in self.lost if name in models)

    @property
    def of_other_weights(self) -> dict[str, str]:
        """The models under whose name results of other weights are stored, with the sha256 of these."""
        return {} if self.results is None else self.results.of_other_weights(self.session)

    @functools.cached_property
    def stored(self) -> StoredModels:
        """The lost models as their results have them, given to the engine. Raises `BadInput` where these cannot be read."""
        models = StoredModels()
        if self.results is not None and self.known_by_results:
            models = stored_models(self.session, self.results, self.known_by_results)
            models.enter(self.engine)
        return models

    @functools.cached_property
    def damaged(self) -> tuple[str, ...]:
        """What cannot be read of the results, each with why: all of them are read."""
        lines: list[str] = []
        for name in sorted(set[str]() if self.results is None else self.results.models(self.session)):
            assert self.results is not None
            try:
                damaged = stored_models(self.session, self.results, (name,)).damaged
                lines += [
                    f"{one.entry.analysis} of {name}, {one.member}: {one.error.got} in place of {one.error.expected}"
                    for one in damaged
                ]
            except CircuitLabError as error:
                lines.append(f"{name}: {reason(error)}")
        return tuple(lines)

    @property
    def in_engine(self) -> Session:
        """The session with the models that the engine has in place of the lost ones."""
        return replace(self.session, models=self.stored.as_opened(self.session.models))

    def with_results(self, fronts: Fronts, ctx: Ctx | None = None) -> SessionFile:
        """The session with the results of everything that it shows, computed now; of lost models with those that it has.

        `fronts`: see `requests_of`. Raises `Cancelled`, and `BadInput` where they are too large.
        """
        lost = self._without_results()
        assume = {name: entry.ref.assume for name, entry in self.stored.entries.items()}
        with context_of(ctx, self.working)("results") as ctx:
            gathering = Gathering(self.in_engine, self.engine, fronts, True, self.results, lost, assume=assume, ctx=ctx)
            results = gathering.results()
        return SessionFile(with_hashes(self.session, results), results)

    def content(self, ctx: Ctx | None = None) -> Report:
        """What a report of the session says, computed now. What cannot be computed is said in its place.

        Raises `Cancelled`, and the error of its first place where none can be shown.
        """
        session = self.in_engine
        lost = self._without_results()
        with context_of(ctx, self.working)("report") as ctx:
            content = report_of(session, self.engine, self.fronts, ctx, self.name, lost)
        try:
            refuse_empty(content)
        except BadModel:
            for error in lost.values():
                raise named_error(content, 1, error) from None
            raise
        return content

    def report(self, out: str | Path, asides: bool = False, paper: Paper | None = None, ctx: Ctx | None = None) -> Report:
        """Write the session as a report (HTML or PDF by the suffix of `out`): its texts with their numbers, figures and tables.

        `asides`: with the speaker's own words. Returns what it says. Raises `UsageError` for another suffix, the error of
        its first place where none can be shown, `BadMachine` where nothing can be written.
        """
        writer = writer_of(Path(out))
        content = self.content(ctx)
        write_whole(Path(out), b"".join(writer(content, asides, paper or REPORT_PAPER)), named=True)
        return content

    def _refuse_lost(self, name: str) -> None:
        if (error := self._why_lost(name)) is not None:
            raise error

    def _why_lost(self, name: str) -> BadModel | None:
        """Why a model cannot be opened, None where it can."""
        entry, other = self.session.models.get(name), self.located.changed.get(name)
        if entry is None or (name not in self.located.missing and other is None):
            return None
        expected = f"weights of sha256 {entry.sha256[:12]}…" if entry.sha256 else f"the model at {entry.ref.source}"
        remedy = "Put the model beside the session file, or open the session in the window and choose the model there."
        if other is not None:
            what = "another configuration or tokenizer" if name in self.located.resettled else "other weights"
            got = f"{what} at {other.source}" if entry.sha256 else f"perhaps {other.source}"
            return BadModel(f"{name} is not the model of {self.name}.", expected=expected, got=got, remedy=remedy)
        if sha256 := self.of_other_weights.get(name):
            what, got = f"The results inside {self.name} are not of its model {name}.", f"weights of sha256 {sha256[:12]}…"
            return BadModel(what, expected=expected, got=got, remedy=remedy)
        return BadModel(f"The model {name} of {self.name} was not found.", expected=expected, got="none", remedy=remedy)

    def _without_results(self) -> dict[str, CircuitLabError]:
        """The lost models of which no results are stored either, each with why."""
        names = (name for name in self.lost if name not in self.known_by_results)
        return {name: error for name in names if (error := self._why_lost(name)) is not None}


@dataclass(frozen=True, repr=False)
class SavedStep:
    """A step of a session, or where it stands. `setup`: its complete words; `unchosen`: as in `Session`."""

    of: SavedSession
    title: str
    text: str
    setup: Setup
    unchosen: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Step {shortened(joined(*step_words(self.title, self.setup)))}>"

    def _repr_html_(self) -> str:
        words = zip(HEADS[1:], step_words(self.title, self.setup), strict=True)
        return box(table((), [pair for pair in words if pair[1]]), line(text_html(self.text)))

    @functools.cached_property
    def state(self) -> State:
        """Everything that is looked at here. Raises `BadModel`, `BadInput`."""
        return self.of.state_of(self.setup)

    def figure(
        self,
        panel: str,
        out: str | Path | None = None,
        paper: Paper | None = None,
        set: Mapping[str, object] | None = None,
        whole: bool = False,
        with_view: bool = True,
    ) -> Picture:
        """The figure that a panel of the window shows here, also written to `out` (PNG, SVG, PDF) if given: the part that is seen
        at this step, as its caption then says, or the `whole`.

        `set`: controls of the panel that are to be other than at this step. `with_view`: the file says what it shows, and can be
        opened for it. Raises `BadInput`, `BadModel` …
        """
        declared = find_panel(panel)
        need_settings(self.setup, view_types(), panel)
        if out is not None:
            format_of(Path(out))
            need_writable(Path(out))
        seen = {} if whole else of_panel(self.setup.zoom, panel)
        view = PictureView(self.with_controls(panel, set or {}), panel, seen, self.unchosen)
        with self.of.working(panel) as ctx:
            figure = figure_of(self.of.engine, declared, view.state, ctx)
        drawing = without_choice(figure, *(kind in self.unchosen for kind in UNCHOSEN))
        picture = Picture(drawing, paper, view.seen, lambda: view_text(self.of.engine, view), self.of.working)
        if out is not None:
            with_marks(declared, figure)
            picture.save(out, with_view=with_view)
        return picture

    def film(
        self, out: str | Path, slide: Slide | None = None, panels: Sequence[str] = (), over: str = "", ctx: Ctx | None = None
    ) -> tuple[str, ...]:
        """Write what the step plays as a film, WebP or GIF by its suffix, and return what could not be in it.

        `slide`: size, frames a second, theme. `panels`: in place of those that the step shows. `over`: in place of what it plays,
        "offset=1:8", a parameter of the constructed model, or "checkpoint=0:final". `ctx` is told how far it is.
        Raises `BadInput` where nothing plays, `BadMachine` without Pillow (the extra `film`), `UsageError`.
        """
        film_format(path := Path(out))
        with context_of(ctx, self.of.working)("film") as ctx:
            return write_plan(self.of.engine, self.film_plan(panels, over), path, slide or Slide(), ctx)

    def film_plan(self, panels: Sequence[str] = (), over: str = "") -> FilmPlan:
        """What a film of the step shows, before anything is computed. See `film`."""
        shown, left_out = panels_of(self.setup, FRONTS, panels)
        if (play := play_of(over) if over else self.setup.play) is None:
            self._refuse_still()
        resolver = Resolver(self.of.engine, view_types(), self.state, None, tolerant=True)
        scenes = without_repeat(self.of.engine.store, resolver.film(replace(self.setup, play=play), self.state))
        return FilmPlan(scenes, shown, self.title, self.setup.zoom, self.unchosen, left_out)

    def _refuse_still(self) -> NoReturn:
        """Raise `BadInput`: nothing plays here. Says at which steps something does."""
        playing = [number for number, step in enumerate(self.of.steps, 1) if step.setup.play is not None]
        over = "checkpoint=0:final" if parameters(self.state) is None else "offset=1:8"
        raise BadInput(
            f"Nothing plays at the step “{bounded(self.title, 60)}”." if self.title else "Nothing plays there.",
            expected=f"a step that plays: {_steps_named(self.of, playing) or 'none of this session does'}",
            got="a step that stands still",
            remedy=f"Name one that plays, or say what is to play: --over {over}",
        )

    def sheet(
        self, paper: Paper | None = None, panels: Sequence[str] = (), columns: int | None = None, ctx: Ctx | None = None
    ) -> Sheet:
        """The panels that are shown here as one figure of parts A, B, C, in their order; `panels`: others. `ctx` can cancel.

        `paper`: two columns of a page (174 mm) if not given. `columns`: so many parts stand side by side; None: two, where they
        can be read so. Raises `UsageError` for one of `panels` that there is not, `BadInput` for one of the step, `BadModel` …
        """
        if not panels:
            need_panels(self.setup, view_types())
        shown = tuple(panel.name for panel in shown_panels(self.setup, FRONTS))
        names, unchosen = tuple(panels) or shown, tuple(self.unchosen)
        other_step = Resolver(self.of.engine, view_types(), self.state).other_step(self.setup, self.state)
        remarks = tuple(map(Essential, filter(None, (other_step.rstrip("."), FILM_NOT_DRAWN if self.setup.play else ""))))
        sheet = sheet_of(self.of.engine, self.state, names, self.title, self.setup.zoom, unchosen, remarks, ctx)
        return sheet.on(paper or WIDE, columns)

    def with_controls(self, panel: str, controls: Mapping[str, object]) -> State:
        """The State with some controls of a panel changed. Raises `UsageError`."""
        kind = find_panel(panel).view
        changed = params_of(kind, controls)
        return self.state.with_view(panel, replace(self.state.view(panel, kind), **{n: getattr(changed, n) for n in controls}))

    def compute(self, analysis: str, set: Mapping[str, object] | None = None) -> Answer[Any]:
        """The answer of an analysis about what is looked at here. `set`: its parameters. Raises `CircuitLabError`s."""
        params = params_of(find_analysis(analysis).params, set or {})
        with self.of.working(analysis) as ctx:
            return self.of.engine.answer(Request.named(analysis, params, self.state.subject), ctx)


def refuse_beside(place: str, options: Mapping[str, object]) -> None:
    """Raise `UsageError` if options say what `--at` says already. `options`: the value of each, falsy where it is not given."""
    if twice := [option for option, value in options.items() if value]:
        raise UsageError(
            "A step of a session says itself what is looked at.",
            expected="--at alone, with --set for what is to differ",
            got=f"--at {place[:60]} with {' '.join(twice)}",
            remedy=f"Drop {' '.join(twice)}, or --at.",
        )
