"""What a session needs of files and models, without widgets: capturing and writing it, reading and resolving it. For a worker."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from circuitlab.disk.files import read_at_most, write_whole
from circuitlab.disk.formats import is_picture
from circuitlab.disk.unfinished_files import remove_abandoned
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, BadModel, UsageError
from circuitlab.figures.contracts.panel import with_plugins
from circuitlab.gui.work.job import StoppableContext
from circuitlab.model.subject import ModelRef
from circuitlab.report.session_results import Gathering, with_hashes
from circuitlab.session_files.assembly import session_of, work_of
from circuitlab.session_files.container import LARGEST_FILE
from circuitlab.session_files.model_search import LARGEST_GUESS, located, moved
from circuitlab.session_files.model_table import needed
from circuitlab.session_files.results import Results, SessionFile, file_bytes, read_file, read_results, unknown_members
from circuitlab.session_files.session import Session
from circuitlab.session_files.session_text import written
from circuitlab.session_files.stored_models import StoredModels, stored_models
from circuitlab.session_files.work import Work
from circuitlab.state.state import State
from circuitlab.story.arrangements import FRONTS
from circuitlab.story.capture import StoreNames, setup_of
from circuitlab.story.panel_names import panels_of_story
from circuitlab.story.setup import Setup, Views, placed
from circuitlab.story.words import table_of


def previous_path(path: Path) -> Path:
    """Where the generation before the last save is kept: beside the file, with a ~ behind its name."""
    return path.with_name(f"{path.name}~")


# -- saving -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Capture:
    """What saving takes from the window. `carried`: the session as it was read or saved last, whose unknown words are kept.

    `layout`: the words `arrange`, `show`, `alone` and `zoom` of the window, `docks` its own form of them. `stand_ins`: the names
    of models that are used in place of the session's own; `stored`: those that are known by their results alone. `results`: those
    that the file keeps, as far as its views need them; None: it holds none.
    """

    work: Work
    layout: Setup = Setup()
    docks: str = ""
    carried: Session = field(default_factory=Session)
    stand_ins: Collection[str] = ()
    stored: StoredModels = field(default_factory=StoredModels)
    results: Results | None = None

    def file(self, engine: Engine, views: Views) -> SessionFile:
        """The session to write, with those of its results that need not be computed. Raises what `session` raises."""
        session = self.in_window(engine.store, views)
        if self.results is None:
            return SessionFile(self._as_written(session))
        results = self.gathering(session, engine).results()
        return SessionFile(with_hashes(self._as_written(session), results), results)

    def gathering(self, session: Session, engine: Engine) -> Gathering:
        """How the results of the session, as it is in the window, are gathered: what is there is taken, nothing is computed."""
        assume = {name: entry.ref.assume for name, entry in self.stored.entries.items()}
        return Gathering(session, engine, FRONTS, earlier=self.results, stand_ins=self.stand_ins, assume=assume)

    def session(self, store: ModelStore, views: Views) -> Session:
        """The session to write. Opens models that have been closed; raises `BadModel` where they are gone."""
        return self._as_written(self.in_window(store, views))

    def in_window(self, store: ModelStore, views: Views) -> Session:
        """The session with its models as the window has them. Raises what `session` raises."""
        return session_of(self.work, store, views, self.layout, self.docks, self.carried.files)

    def _plugins(self, session: Session) -> dict[str, str]:
        """Those of the panels that it names, also of plug-ins that are not here, as they were read."""
        named = panels_of_story(session.now, session.story)
        return {name: one for name, one in self.carried.plugins.items() if name in named} | dict(session.plugins)

    def _as_written(self, session: Session) -> Session:
        carried, written = self.carried, self.stored.as_written(session.models)
        models = {
            name: replace(entry, sha256=carried.models[name].sha256) if name in self.stand_ins else entry
            for name, entry in written.items()
        }
        return replace(
            session,
            models=models,
            now=replace(session.now, unknown=carried.now.unknown),
            plugins=self._plugins(session),
            unknown=carried.unknown,
        )


class ChangedFile(BadInput):
    """A session file is not what the window read or wrote last: what becomes of it is asked."""

    asks_first = True


class Version:
    """What a file held when this window read or wrote it last. Used by one worker thread at a time."""

    def __init__(self) -> None:
        self._digest: bytes | None = None

    def note(self, data: bytes | None) -> None:
        """It holds this now; None: nobody knows."""
        self._digest = None if data is None else hashlib.sha256(data).digest()

    def forget(self) -> None:
        """Whatever it holds may be replaced."""
        self._digest = None

    def need(self, data: bytes | None, path: Path) -> None:
        """Raise `ChangedFile` where it holds something else; one that is gone has nothing to lose."""
        if self._digest is not None and data is not None and hashlib.sha256(data).digest() != self._digest:
            raise ChangedFile(
                f"{path.name} has been changed by another program since it was opened or saved here.",
                expected="the file as this window read or wrote it last",
                got="another content",
                remedy="Save under another name, or replace it.",
            )


def _data_at(path: Path) -> bytes | None:
    """What a file holds; None without one, or where it cannot be read: there is nothing to keep of it then."""
    try:
        return read_at_most(path, LARGEST_FILE) if path.is_file() else None
    except OSError:
        return None


def save_file(file: SessionFile, path: Path, version: Version | None = None) -> SessionFile:
    """Write a session; the file that was there is kept as `previous_path`. At every moment `path` is the old file or the new one.

    `version`: what it has to hold before, and what it holds then. Returns what was written, its results as those of the file.
    Raises `ChangedFile`, and `BadMachine` where it cannot be written.
    """
    data = file_bytes(file.session, path.absolute().parent, file.results)
    before = _data_at(path)
    if version is not None:
        version.need(before, path)
    if before is not None and before != data:
        write_whole(previous_path(path), before)
    write_whole(path, data, named=True)
    if version is not None:
        version.note(data)
    return file if file.results is None else replace(file, results=read_results(path) or file.results)


def step_text(state: State, layout: Setup, store: ModelStore, views: Views) -> str:
    """What a State and a layout show, as the words of a step in JSON; models by their sources, as on the command line."""
    setup = setup_of(state, Setup(), StoreNames(store), views)
    return written(table_of(placed(setup, layout)))


# -- opening ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Staged:
    """A session that was read, before it takes the place of another. `path`: its file, None for one that was never saved.

    `folder`: where models are looked for first. `unsaved`: it has changes that its file does not have.
    `work`: None while the person must choose models: `missing` names those that were not found, `changed` those whose files have
    another hash, with where these are, and `hashes` theirs, as far as they are known. `missing_files` and `changed_files` name
    files of panels' settings that are not there, or hold something else than they did. `version`: what the file held before it
    was read. `results`: those inside the file;
    `stored`: the models that are known by these alone. `elsewhere`: as in `Located`.
    """

    path: Path | None
    session: Session
    folder: Path
    unsaved: bool = False
    work: Work | None = None
    missing: tuple[str, ...] = ()
    changed: Mapping[str, ModelRef] = field(default_factory=dict[str, ModelRef])
    hashes: Mapping[str, str] = field(default_factory=dict[str, str])
    results: Results | None = None
    stored: StoredModels = field(default_factory=StoredModels)
    missing_files: tuple[str, ...] = ()
    changed_files: tuple[str, ...] = ()
    elsewhere: Mapping[str, bool] = field(default_factory=dict[str, bool])
    version: Version = field(default_factory=Version, compare=False)

    @property
    def in_question(self) -> tuple[str, ...]:
        """The names of models and files that the person must be asked about."""
        return (*self.missing, *self.changed, *self.missing_files, *self.changed_files)

    @property
    def with_results(self) -> tuple[str, ...]:
        """The models that were not found or have changed, and of which the file has results."""
        known = set[str]() if self.results is None else self.results.models(self.session)
        return tuple(name for name in (*self.missing, *self.changed) if name in known)

    @property
    def can_be_shown(self) -> bool:
        """Whether results stand in for every model that is not here and without which it cannot be opened."""
        absent = {*self.missing, *self.changed} & self.needed
        return bool(self.with_results) and absent <= set(self.with_results)

    @property
    def name(self) -> str:
        """How it is called in a sentence."""
        return "This session" if self.path is None else self.path.name

    @property
    def of_picture(self) -> bool:
        """Whether it is the view of a picture."""
        return self.path is not None and is_picture(self.path)

    @property
    def needed(self) -> set[str]:
        """The names without which it cannot be opened: the models of where one stands, its pins included."""
        return needed(self.session, self.session.now)


@dataclass(frozen=True)
class Searcher:
    """Stages sessions. `recent`: sources of models that the person has opened; `stopped()`: nobody waits for it any more."""

    engine: Engine
    views: Views
    recent: Sequence[str] = ()
    stopped: Callable[[], bool] = lambda: False

    def stage(self, path: Path) -> Staged:
        """Read a session and find its models. Raises `BadInput`, `Cancelled`, and what opening its models raises."""
        remove_abandoned(path.absolute().parent)
        before = _data_at(path)
        file = read_file(path)
        with_plugins(panels_of_story(file.session.now, file.session.story))  # here, on a worker, before their words are read
        staged = Staged(path, file.session, path.parent, results=file.results)
        staged.version.note(before)
        return self.find(staged)

    def find(self, staged: Staged) -> Staged:
        """Look for the models and files of a session that has been read; resolve it where they are all as they were."""
        search = located(staged.session, staged.folder, self.engine.store, self.recent, self.stopped)
        hashes = {name: self._hash(ref) for name, ref in search.changed.items()}
        staged = replace(
            staged,
            session=search.session,
            missing=search.missing,
            changed=search.changed,
            hashes=hashes,
            missing_files=search.missing_files,
            changed_files=search.changed_files,
            elsewhere={**staged.elsewhere, **search.elsewhere},
        )
        if staged.results is None and staged.path is not None:  # recovered: what was autosaved has no results
            staged = replace(staged, results=read_results(staged.path))
        return staged if staged.in_question else self.resolve(staged)

    def _hash(self, ref: ModelRef) -> str:
        try:
            return self.engine.store.sha256_unopened(ref, self.stopped, LARGEST_GUESS)
        except (BadModel, UsageError):
            return ""

    def resolve(self, staged: Staged) -> Staged:
        """Open a session with its models and files as they are: what has changed is used, what is missing is not."""
        models = dict(staged.session.models)
        models |= {name: moved(models[name], ref) for name, ref in staged.changed.items()}
        session = replace(staged.session, models=models)
        return replace(staged, session=session, work=work_of(session, self.engine, self.views, StoppableContext(self.stopped)))

    def resolve_stored(self, staged: Staged) -> Staged:
        """Open a session whose models that were not found or have changed are known by the results in its file alone.

        Raises `BadInput` where these cannot be read.
        """
        assert staged.results is not None
        names = staged.with_results
        stored = stored_models(staged.session, staged.results, names)
        in_window = replace(staged.session, models=stored.as_opened(staged.session.models))
        stored.enter(self.engine)
        try:
            work = work_of(in_window, self.engine, self.views, StoppableContext(self.stopped))
        except BaseException:
            stored.leave(self.engine)
            raise
        missing = tuple(name for name in staged.missing if name not in names)
        changed = {name: ref for name, ref in staged.changed.items() if name not in names}
        return replace(staged, work=work, stored=stored, missing=missing, changed=changed)


def with_choices(staged: Staged, choices: Mapping[str, ModelRef], paths: Mapping[str, str]) -> Staged:
    """The session with other places to look for its models, and other paths of its files."""
    models = {name: moved(entry, choices[name]) if name in choices else entry for name, entry in staged.session.models.items()}
    files = {name: replace(entry, path=paths.get(name, entry.path)) for name, entry in staged.session.files.items()}
    return replace(staged, session=replace(staged.session, models=models, files=files))


def unknown_words(session: Session, results: Results | None = None) -> tuple[str, ...]:
    """What this version does not know of a session file, in its order: words, and members of its results.

    It is written back when the session is saved.
    """
    steps = [words for step in session.story.steps for words in (step.unknown, step.setup.unknown if step.setup else {})]
    entries = [entry.unknown for entry in (*session.models.values(), *session.files.values(), *session.notes)]
    tables = (session.unknown, session.now.unknown, session.story.unknown, *steps, *entries)
    members = () if results is None else (*results.unknown, *unknown_members(results))
    return tuple(dict.fromkeys((*(name for words in tables for name in words), *members)))
