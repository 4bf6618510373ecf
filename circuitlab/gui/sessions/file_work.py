"""What a session needs of files and models, without widgets: capturing and writing it, reading and resolving it. For a worker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from circuitlab.analysis.base import NullContext
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel, Cancelled, UsageError
from circuitlab.files import read_at_most, write_whole
from circuitlab.model.subject import ModelRef
from circuitlab.session.state import State
from circuitlab.session_files.assembly import session_of, work_of
from circuitlab.session_files.model_search import LARGEST_GUESS, located, moved
from circuitlab.session_files.model_table import mentioned
from circuitlab.session_files.session import Session
from circuitlab.session_files.session_text import LARGEST, bytes_of, read_session, written
from circuitlab.session_files.work import Work
from circuitlab.story.capture import StoreNames, setup_of
from circuitlab.story.setup import Setup
from circuitlab.story.story import Story
from circuitlab.story.words import table_of

Views = Mapping[str, type[Any]]


def previous_path(path: Path) -> Path:
    """Where the generation before the last save is kept: beside the file, with a ~ behind its name."""
    return path.with_name(f"{path.name}~")


# -- saving -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Capture:
    """What saving takes from the window. `carried`: the session as it was read or saved last, whose unknown words are kept.

    `layout`: the words `arrange`, `show`, `alone` and `zoom` of the window, `docks` its own form of them. `stand_ins`: the names
    of models that are used in place of the session's own.
    """

    work: Work
    layout: Setup = Setup()
    docks: str = ""
    carried: Session = field(default_factory=Session)
    stand_ins: Collection[str] = ()

    def session(self, store: ModelStore, views: Views) -> Session:
        """The session to write. Opens models that have been closed; raises `BadModel` where they are gone."""
        carried = self.carried
        session = session_of(self.work, store, views, self.layout, self.docks, carried.files)
        models = {
            name: replace(entry, sha256=carried.models[name].sha256) if name in self.stand_ins else entry
            for name, entry in session.models.items()
        }
        return replace(
            session,
            models=models,
            now=replace(session.now, unknown=carried.now.unknown),
            unknown=carried.unknown,
        )


def save_session(session: Session, path: Path) -> None:
    """Write a session; the file that was there is kept as `previous_path`. At every moment `path` is the old file or the new one.

    Raises `BadMachine` where it cannot be written.
    """
    data = bytes_of(session, path.absolute().parent)
    try:
        before = read_at_most(path, LARGEST) if path.is_file() else None
    except OSError:
        before = None  # it cannot be read, so there is nothing to keep of it
    if before is not None and before != data:
        write_whole(previous_path(path), before)
    write_whole(path, data)


def step_text(state: State, layout: Setup, store: ModelStore, views: Views) -> str:
    """What a State and a layout show, as the words of a step in JSON; models by their sources, as on the command line."""
    setup = setup_of(state, Setup(), StoreNames(store), views)
    return written(table_of(replace(setup, arrange=layout.arrange, show=layout.show, alone=layout.alone)))


# -- opening ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Staged:
    """A session that was read, before it takes the place of another. `path`: its file, None for one that was never saved.

    `folder`: where models are looked for first. `unsaved`: it has changes that its file does not have.
    `work`: None while the person must choose models: `missing` names those that were not found, `changed` those whose files have
    another hash, with where these are, and `hashes` theirs, as far as they are known.
    """

    path: Path | None
    session: Session
    folder: Path
    unsaved: bool = False
    work: Work | None = None
    missing: tuple[str, ...] = ()
    changed: Mapping[str, ModelRef] = field(default_factory=dict[str, ModelRef])
    hashes: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def name(self) -> str:
        """How it is called in a sentence."""
        return "This session" if self.path is None else self.path.name

    @property
    def needed(self) -> set[str]:
        """The names without which it cannot be opened: the models of where one stands, its pins included."""
        return mentioned(self.session.now, Story(), ())


@dataclass(frozen=True)
class Searcher:
    """Stages sessions. `recent`: sources of models that the person has opened; `stopped()`: nobody waits for it any more."""

    engine: Engine
    views: Views
    recent: Sequence[str] = ()
    stopped: Callable[[], bool] = lambda: False

    def stage(self, path: Path) -> Staged:
        """Read a session and find its models. Raises `BadInput`, `Cancelled`, and what opening its models raises."""
        return self.find(Staged(path, read_session(path), path.parent))

    def find(self, staged: Staged) -> Staged:
        """Look for the models of a session that has been read; resolve it where they are all as they were."""
        search = located(staged.session, staged.folder, self.engine.store, self.recent, self.stopped)
        hashes = {name: self._hash(ref) for name, ref in search.changed.items()}
        staged = replace(staged, session=search.session, missing=search.missing, changed=search.changed, hashes=hashes)
        return staged if staged.missing or staged.changed else self.resolve(staged)

    def _hash(self, ref: ModelRef) -> str:
        try:
            return self.engine.store.sha256_unopened(ref, self.stopped, LARGEST_GUESS)
        except (BadModel, UsageError):
            return ""

    def resolve(self, staged: Staged) -> Staged:
        """Open a session with its models as they are: those that have changed are used, those that are missing are not."""
        models = dict(staged.session.models)
        models |= {name: moved(models[name], ref) for name, ref in staged.changed.items()}
        session = replace(staged.session, models=models)
        return replace(staged, session=session, work=work_of(session, self.engine, self.views, _Stoppable(self.stopped)))


class _Stoppable(NullContext):
    """The `Ctx` of the computations that set up a session."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Raise `Cancelled` once nobody waits for it."""
        if self._stopped():
            raise Cancelled


def with_choices(staged: Staged, choices: Mapping[str, ModelRef]) -> Staged:
    """The session with other places to look for its models."""
    models = {name: moved(entry, choices[name]) if name in choices else entry for name, entry in staged.session.models.items()}
    return replace(staged, session=replace(staged.session, models=models))


def unknown_words(session: Session) -> tuple[str, ...]:
    """The words of a session file that this version does not know, in their order; they are written back when it is saved."""
    steps = [words for step in session.story.steps for words in (step.unknown, step.setup.unknown if step.setup else {})]
    entries = [entry.unknown for entry in (*session.models.values(), *session.files.values(), *session.notes)]
    tables = (session.unknown, session.now.unknown, session.story.unknown, *steps, *entries)
    return tuple(dict.fromkeys(name for words in tables for name in words))
