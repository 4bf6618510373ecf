"""From the work in a window to a session, and from a session to the work. Models are opened: for a worker thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from circuitlab.analysis.base import Ctx
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import SMALL, ModelStore
from circuitlab.errors import BadMachine, BadModel, UsageError
from circuitlab.model.subject import ModelRef
from circuitlab.plugins import adding, owner
from circuitlab.session_files.file_table import with_file_names, with_file_paths
from circuitlab.session_files.model_controls import with_model_names, with_model_paths
from circuitlab.session_files.model_table import mentioned, names_by_ref, refs_of, with_models
from circuitlab.session_files.session import FileEntry, ModelEntry, Session
from circuitlab.session_files.work import Work
from circuitlab.state.state import State
from circuitlab.story.capture import StoreNames, setup_of
from circuitlab.story.panel_names import DOCKS, panels_of_story
from circuitlab.story.resolver import Resolver
from circuitlab.story.setup import Encoded, Setup, Views, placed

Files = Mapping[str, FileEntry]
NO_WORDS = Setup()
FIRST = ModelRef("builtin:attn-only-2l")  # of a session that names no model


def session_of(
    work: Work, store: ModelStore, views: Views, layout: Setup = NO_WORDS, docks: str = "", files: Files = MappingProxyType({})
) -> Session:
    """The session of a person's work. `layout`: the words `arrange`, `show`, `alone` and `zoom` of the window.

    `files`: the table of the session as it was read, whose names stay.

    Hashes are given of the models that are open and have been read, and of small ones; the others keep what the table says.
    """
    table = with_models(work.models, refs_of(work.state))
    now = setup_of(work.state, Setup(), StoreNames(store, names_by_ref(table)), views, ids=True)
    now = placed(now, layout)
    names = mentioned(now, work.story, work.notes)
    models = {name: entry for name, entry in table.items() if name in names}
    session = with_model_names(Session(models, now, work.story, work.notes, files, docks), views, table)
    session = replace(session, models={name: hashed(entry, store) for name, entry in session.models.items()})
    return with_file_names(replace(session, plugins=_plugins_of(session, views)), views)


def _plugins_of(session: Session, views: Views) -> dict[str, str]:
    """The plug-ins of the panels that a session names, by the panel; those that are not CircuitLab's own, and are here."""
    own = lambda name: name in DOCKS or (name in views and owner(views[name].__module__) is None)
    foreign = [name for name in sorted(panels_of_story(session.now, session.story)) if not own(name)]
    return {name: str(one.plugin) for name in foreign for one in adding("panels", name)[:1]}


def hashed(entry: ModelEntry, store: ModelStore) -> ModelEntry:
    """The entry with the hashes of its model, where it is or was open and has been read; that of weights also of a small one."""
    sha256, settings = store.hashes(entry.ref)
    if sha256:
        return replace(entry, sha256=sha256, settings=settings or entry.settings)
    try:
        return entry if entry.sha256 else replace(entry, settings="", sha256=store.sha256_unopened(entry.ref, most=SMALL))
    except (BadModel, BadMachine, UsageError):
        return entry


def with_paths(session: Session) -> Session:
    """The session whose words name files and models as a State does, by their paths."""
    return with_model_paths(with_file_paths(session))


def base_of(session: Session) -> State:
    """What the steps of a session's story begin with, as in the window: the model and the text of where one stands."""
    prompt = session.now.prompt
    text = prompt.text if isinstance(prompt, Encoded) else prompt if isinstance(prompt, str) else ""
    return State(session.refs().get(session.now.model or "", FIRST), text)


def work_of(session: Session, engine: Engine, views: Views, ctx: Ctx | None = None) -> Work:
    """The work that a session holds. Raises what opening its present model raises, and `BadInput` where words do not fit it."""
    session = with_paths(session)
    for ref in session.refs().values():
        if engine.store.peek(ref) is not None:
            engine.store.open_now(ref)
    resolver = Resolver(engine, views, State(FIRST), ctx, session.refs(), tolerant=True)
    return Work(resolver.state(session.setup()), session.story, session.notes, session.models)
