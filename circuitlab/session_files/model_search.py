"""Where the models of a session are on this machine: by the hash of their weights, then by path, never by a name alone.

A session that was moved, or saved on another machine, opens without a question where each model's weights are found: at the path
that the file says, at one that it had earlier, beside the session's file, among the open, the recent and the shipped models, or
in the hub's cache. What lies at a path or under a name but has other weights is reported, and never taken.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PureWindowsPath

from circuitlab.disk.paths import shipped_models
from circuitlab.disk.regular_file import on_another_machine
from circuitlab.engine.store import GIB, ModelStore
from circuitlab.errors import BadModel, Cancelled, UsageError
from circuitlab.model.catalogue.entries import catalogue
from circuitlab.model.catalogue.places import opens
from circuitlab.model.constructed import SOURCES
from circuitlab.model.loading.checkpoint import WEIGHT_FILES, look
from circuitlab.model.origin import Builtin, Constructed, File, Hub
from circuitlab.model.records.series import FOLDER
from circuitlab.model.sources.hub import HubName, cache_folder, cached_models
from circuitlab.model.sources.references import resolve
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.file_table import file_sha256
from circuitlab.session_files.session import FileEntry, ModelEntry, Session

Stopped = Callable[[], bool]

LARGEST_GUESS = 2 * GIB  # bytes of weights that are hashed although nothing but the hash would speak for them
MOST_BESIDE = 2000  # entries of folders that are looked at beside a session's file
DEEPEST = 3  # folders inside one another below that of the session's file


@dataclass(frozen=True)
class Located:
    """A session with its models found. `missing`: names of models that nothing was found for.

    `changed`: by name, what lies at the model's path or bears its name, with other weights or, where the session does not say
    the hash of its own, with unknown ones. A model is in one of the two, and its entry unchanged, or it has been found.
    `missing_files`, `changed_files`: names of the files of settings that do not exist, or hold something else than they did.
    `resettled`: of those that have changed, the ones with the same weights under another configuration or tokenizer.
    `elsewhere`: by name, the models that were found in another place than the session says, and whether other weights lie there.
    """

    session: Session
    missing: tuple[str, ...] = ()
    changed: Mapping[str, ModelRef] = field(default_factory=dict[str, ModelRef])
    missing_files: tuple[str, ...] = ()
    changed_files: tuple[str, ...] = ()
    elsewhere: Mapping[str, bool] = field(default_factory=dict[str, bool])
    resettled: frozenset[str] = frozenset()


def located(
    session: Session, folder: Path, store: ModelStore, recent: Iterable[str] = (), stopped: Stopped = lambda: False
) -> Located:
    """The session with each model's entry pointing at what was found; the path that it had is kept in `earlier`.

    `folder`: of the session's file. `recent`: sources of models that the person has opened. Reads whole weight files where their
    hash is not known yet: for a worker thread. Raises `Cancelled` once `stopped()`.
    """
    search = _Search(folder, store, tuple(recent), stopped)
    models: dict[str, ModelEntry] = {}
    missing: list[str] = []
    changed: dict[str, ModelRef] = {}
    elsewhere: dict[str, bool] = {}
    for name, entry in session.models.items():
        ref, other = search.find(name, entry)
        if ref is None and other is None:
            missing.append(name)
        elif ref is None and other is not None:
            changed[name] = other
        elif ref is not None and ref.source != entry.ref.source:
            elsewhere[name] = other is not None and other.source == entry.ref.source
        models[name] = entry if ref is None else moved(entry, ref)
    files = {name: _located_file(entry, folder, stopped) for name, entry in session.files.items()}
    hashes = {name: file_sha256(entry.path, stopped) for name, entry in files.items()}
    missing_files = tuple(name for name, sha256 in hashes.items() if not sha256)
    changed_files = tuple(name for name, sha256 in hashes.items() if sha256 and sha256 != (files[name].sha256 or sha256))
    session = replace(session, models=models, files=files)
    resettled = frozenset(name for name, ref in changed.items() if ref.source in search.resettled)
    return Located(session, tuple(missing), changed, missing_files, changed_files, elsewhere, resettled)


def _located_file(entry: FileEntry, folder: Path, stopped: Stopped) -> FileEntry:
    """The entry pointing at a file with the bytes that it says: at its path, or of its name beside the session's file."""
    beside = str(folder / Path(entry.path).name)
    hashed = lambda path: file_sha256(path, stopped)
    moved = entry.sha256 and hashed(entry.path) != entry.sha256 and hashed(beside) == entry.sha256
    return replace(entry, path=beside) if moved else entry


def moved(entry: ModelEntry, ref: ModelRef) -> ModelEntry:
    """The entry pointing at another place, its old path among the earlier ones; assumptions stay."""
    paths = (*_paths(entry.ref), *entry.earlier)
    earlier = tuple(one for one in dict.fromkeys(paths) if one not in _paths(ref))
    return replace(entry, ref=replace(entry.ref, source=ref.source), earlier=earlier)


def _paths(ref: ModelRef) -> tuple[str, ...]:
    return (ref.origin.where,) if isinstance(ref.origin, File) else ()


class _Search:
    """One search for the models of a session; what lies beside its file is listed once."""

    def __init__(self, folder: Path, store: ModelStore, recent: tuple[str, ...], stopped: Stopped) -> None:
        self._folder, self._store, self._recent, self._stopped = folder, store, (*store.sources, *recent), stopped
        self._beside: tuple[str, ...] | None = None
        self.resettled: set[str] = set()  # sources with the weights of an entry under other settings

    def find(self, name: str, entry: ModelEntry) -> tuple[ModelRef | None, ModelRef | None]:
        """(the model of an entry, None where there is none; what else lies in its place or bears its name)."""
        other: ModelRef | None = None
        for source, likely in self._candidates(name, entry):
            if self._stopped():
                raise Cancelled
            ref = replace(entry.ref, source=source)
            try:
                if self._is(ref, entry, likely):
                    return ref, other
                if other is None and likely and self._exists(ref):
                    other = ref
            except (BadModel, UsageError):
                continue
        return None, other

    def _is(self, ref: ModelRef, entry: ModelEntry, likely: bool) -> bool:
        """Whether a candidate has the weights and settings of the entry, or, without their hash, lies where the entry says."""
        if entry.sha256:
            same = self._store.sha256_unopened(ref, self._stopped, None if likely else LARGEST_GUESS) == entry.sha256
            if same and entry.settings and self._store.settings_unopened(ref) != entry.settings:
                self.resettled.add(ref.source)
                return False
            return same
        return (ref == entry.ref or any(path in entry.earlier for path in _paths(ref))) and self._exists(ref)

    def _exists(self, ref: ModelRef) -> bool:
        if isinstance(ref.origin, Constructed):
            return bool(self._store.sha256_unopened(ref, self._stopped))
        return bool(look(resolve(ref), dict(ref.assume)).files)

    def _candidates(self, name: str, entry: ModelEntry) -> Iterator[tuple[str, bool]]:
        """(source, whether its place or its name speaks for it): each once, the others only where a hash can tell."""
        places = dict.fromkeys((entry.ref.source, *(str(File(path)) for path in entry.earlier)))
        yield from ((source, True) for source in places if not self._elsewhere(source))
        names = {name.lower(), entry.ref.name.lower()}
        elsewhere = (*self._recent, *(str(Builtin(one)) for one in shipped_models()), *_in_cache(), *_fetched(), *SOURCES)
        seen = set(places)
        for sources in (self._near(), elsewhere):
            alike = [source for source in sources if ModelRef(source).name.lower() in names]
            others = [source for source in sources if source not in alike and entry.sha256]
            for source in (*alike, *others):
                if source not in seen:
                    seen.add(source)
                    yield source, source in alike

    def _elsewhere(self, source: str) -> bool:
        """Whether a source is on another machine, where nobody looks because a file says so; but for the session's own, and for
        models that the person has opened."""
        origin, drive = ModelRef(source).origin, lambda one: PureWindowsPath(os.fspath(one)).drive.lower()
        if not isinstance(origin, File) or source in self._recent:
            return False
        return on_another_machine(origin.where) and drive(origin.where) != drive(self._folder)

    def _near(self) -> tuple[str, ...]:
        """The models in the folder of the session's file and below it."""
        if self._beside is None:
            self._beside = tuple(str(File(str(path))) for path in _models_below(self._folder))
        return self._beside


def _models_below(folder: Path) -> Iterator[Path]:
    """Folders with a configuration, and weight files that lie in none of them; those nearest to the folder first."""
    level, left = [folder], MOST_BESIDE
    for _ in range(DEEPEST + 1):
        below: list[Path] = []
        for place in level:
            try:
                with os.scandir(place) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)[:left]
            except OSError:
                continue
            left -= len(entries)
            is_model = any(entry.name == "config.json" for entry in entries)
            if is_model:
                yield place
            else:
                yield from (Path(entry.path) for entry in entries if Path(entry.name).suffix in WEIGHT_FILES and entry.is_file())
            passed_over = {FOLDER} if is_model else set[str]()  # a model's checkpoints are no models of their own
            below += [Path(entry.path) for entry in entries if entry.name not in passed_over and _is_searched(entry)]
        level = below


def _is_searched(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)


def _fetched() -> Iterator[str]:
    """The sources of the catalogue's models that are on this machine."""
    try:
        entries = tuple(catalogue().values())
    except BadModel:
        return
    yield from (ref.source for entry in entries for source in entry.sources if (ref := opens(source)) is not None)


def _in_cache() -> Iterator[str]:
    """The sources of the models in the hub's cache, in their main revision; of several GGUF models in one, each by its file."""
    try:
        names = sorted(os.listdir(cache_folder()))
    except OSError:
        return
    for name in names:
        if name.startswith("models--"):
            repo = name.removeprefix("models--").replace("--", "/", 1)
            yield str(Hub(repo))
            yield from (str(Hub(str(HubName(repo, form=one.name)))) for one in cached_models(HubName(repo)))
