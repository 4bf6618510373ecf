"""The store of open models: each is opened once and identified by (path, size, mtime), and by sha256 once that has been read.

Opening is staged: a model is loaded and checked completely before it enters the store, so that a failed open changes nothing.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakKeyDictionary, WeakMethod, WeakValueDictionary

from circuitlab.disk.paths import shipped, shipped_models, typed_path
from circuitlab.disk.regular_file import sha256_of
from circuitlab.engine.file_changes import Beside, Identity, Places, file_identity, file_places, touched
from circuitlab.engine.ghost import Ghost
from circuitlab.engine.model_words import MOST_CLOSED, ModelWords, words_of
from circuitlab.engine.open_model import BESIDES, OpenModel, files_beside, settings_beside, settings_of
from circuitlab.errors import BadModel, Cancelled, UsageError, printable
from circuitlab.model.catalogue.places import named_in_catalogue
from circuitlab.model.constructed import RopeInduction, build, named
from circuitlab.model.files.whole_file import noted_files
from circuitlab.model.loading import Opened, open_model, resolve
from circuitlab.model.loading.checkpoint import is_gguf, look, weight_files
from circuitlab.model.origin import Builtin, Catalogue, Constructed, File, Hub, origin_of
from circuitlab.model.sources.hub import HubName, looks_like_a_name, told_apart
from circuitlab.model.subject import ModelRef
from circuitlab.model.tensor_bytes import tensor_bytes

SMALL = 64 * 2**20  # bytes; smaller models are hashed when they are opened, in at most 0.1 s

GIB = 2**30
LARGEST_BESIDE = 2**27  # bytes of a file that is read beside the weights; no reader takes a larger one
LARGEST_COPY = 4 * GIB  # bytes of weights that are copied into memory; the engine sets it to its budget
MOST_CONSTRUCTED = 8  # constructed models that stay open: they are rebuilt in milliseconds, and a slider passes hundreds
ROOM = 256 * 2**20  # bytes of models that stay open beyond `most`, or an eighth of the budget if that is more

_READABLE = "Check that the files exist and that you may read them, then open the model again."

Opener = Callable[..., Opened]  # (path, keep, assumed, checkpoint if one is requested)


def reference(text: str) -> ModelRef:
    """The `ModelRef` of a name as typed by a user: `builtin:NAME`, `file:PATH`, `hub:OWNER/NAME`, a shipped model's name, a path,
    OWNER/NAME, perhaps with :FILE.gguf, a name of the catalogue, or `construct:NAME?…`, where equal parameters give equal
    references.

    Raises `UsageError` for an empty name, a malformed name of the hub, and impossible parameters; `BadModel` for a model of the
    catalogue that is not on this machine.
    """
    origin = origin_of(text)
    if not (origin.where if isinstance(origin, File) else text).strip() or "\0" in text:
        expected = "a shipped model's name, a folder, a weight file, or OWNER/NAME on the hub"
        raise UsageError("No model is named.", expected=expected, got=ascii(text)[:80], remedy="Name a model.")
    path = typed_path(origin.where if isinstance(origin, File) else text)
    if isinstance(origin, Constructed) or (named(text) and not path.exists()):
        return ModelRef.of(Constructed(str(RopeInduction.parse(text))))
    if isinstance(origin, Hub) or (looks_like_a_name(text) and text not in shipped_models() and not path.exists()):
        return ModelRef.of(Hub(str(told_apart(HubName.parse(text)))))
    if isinstance(origin, (Builtin, File)):
        return ModelRef.of(origin)
    if text in shipped_models() and not path.exists():
        return ModelRef.of(Builtin(text))
    if isinstance(origin, Catalogue) or not path.exists():
        if (listed := named_in_catalogue(origin.where if isinstance(origin, Catalogue) else text)) is not None:
            return listed
        if isinstance(origin, Catalogue):
            return ModelRef.of(origin)  # which nothing opens, and that says so
    path = Path(os.path.realpath(path))  # of links that lead in a circle, too
    if path.parent == shipped("models").resolve() and path.name in shipped_models():
        return ModelRef.of(Builtin(path.name))  # one model has one name, or a session has it twice
    return ModelRef.of(File(str(path)))


class ModelStore:
    """Up to `most` models, and more while together they fit in `room` bytes, so that a series of small ones stays open (of
    constructed ones `MOST_CONSTRUCTED`); the least recently used ones are closed. What is on the screen (`show`) is counted and
    not closed; what is kept open (`keep`) is not counted either. Safe to use from several threads.

    While a model is being opened, only requests for that same model wait. Weight files of more than `largest_copy` bytes are
    mapped read-only, and nothing derived from them is kept. Where a ghost has been placed (`ghost`), it is what its reference and
    those of its checkpoints open.
    """

    def __init__(
        self, most: int = 3, opener: Opener = open_model, largest_copy: int = LARGEST_COPY, room: int | None = None
    ) -> None:
        self.most, self._opener, self.largest_copy, self._room = most, opener, largest_copy, room
        self._lock = threading.Lock()
        self._doors: WeakValueDictionary[ModelRef, threading.Lock] = WeakValueDictionary()  # one per model that is being opened
        self._models: OrderedDict[ModelRef, OpenModel] = OrderedDict()
        self._ghosts: dict[ModelRef, Ghost] = {}
        self._kept: Counter[ModelRef] = Counter()
        self._shown: WeakKeyDictionary[object, frozenset[ModelRef]] = WeakKeyDictionary()  # by who shows them
        self._named: WeakKeyDictionary[object, frozenset[ModelRef]] = WeakKeyDictionary()  # by who may have to name them
        self._words: OrderedDict[ModelRef, ModelWords] = OrderedDict()  # by reference without checkpoint
        self._closed: dict[ModelRef, _Closed] = {}
        self._when_closed: list[WeakMethod[Callable[[OpenModel], None]]] = []
        self._when_changed: list[WeakMethod[Callable[[ModelRef], None]]] = []
        self._hashes: dict[tuple[Identity, Places], str] = {}  # of files by what they were and where they lay
        self._places: dict[Identity, Places] = {}  # where files lay when they were seen last

    def open(self, ref: ModelRef) -> OpenModel:
        """The open model of a reference, opened now if it is not. Raises `BadModel`."""
        model = self._use(ref)
        if model is not None:
            return model
        with self._door(ref):
            return self._use(ref) or self._entered(self._staged(ref))

    def peek(self, ref: ModelRef) -> OpenModel | None:
        """The model if it is open, else None. Never reads a file."""
        return self._models.get(ref) or self._ghost(ref)

    def place(self, ghost: Ghost) -> None:
        """Put a ghost where a model is not on this machine.

        It stays until it is removed, or the model is reloaded. A model of its reference that is open comes before it; one that is
        found later does not: remove the ghost then.
        """
        with self._lock:
            self._ghosts[ghost.ref] = ghost

    def remove(self, ref: ModelRef) -> None:
        """Take away the ghost of a reference and of its checkpoints, if there is one."""
        with self._lock:
            self._ghosts = {one: ghost for one, ghost in self._ghosts.items() if _base(one) != _base(ref)}

    @property
    def ghosts(self) -> tuple[Ghost, ...]:
        """The ghosts that have been placed."""
        return tuple(ghost for ghost in list(self._ghosts.values()) if ghost.ref.checkpoint is None)

    @property
    def measured_elsewhere(self) -> frozenset[str]:
        """Sources of measured trainings whose files are not here: of ghosts, and of open models whose folder is gone."""
        with self._lock:
            models = list(self._models.values())
        known = (*self.ghosts, *(model for model in models if not model.path.exists()))
        return frozenset(model.ref.source for model in known if model.measured)

    def _ghost(self, ref: ModelRef) -> Ghost | None:
        """The ghost of a reference; that of a checkpoint is made of its model's."""
        if not self._ghosts:
            return None
        ghost = self._ghosts.get(ref)
        if ghost is None and (base := self._ghosts.get(_base(ref))) is not None:
            ghost = self._ghosts.setdefault(ref, base.of_checkpoint(ref))
        return ghost

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of the models that are open, the most recently used first."""
        with self._lock:
            return tuple(dict.fromkeys(ref.source for ref in reversed(self._models)))

    @property
    def room(self) -> int:
        """Bytes that open models may hold before models beyond the `most` recently used are closed."""
        return max(ROOM, self.largest_copy // 8) if self._room is None else self._room

    def keep(self, refs: Iterable[ModelRef]) -> None:
        """Do not close these models, once they are open, until they are let go as often as they were kept."""
        with self._lock:
            self._kept.update(refs)

    def let_go(self, refs: Iterable[ModelRef]) -> None:
        """Let these models be closed again, and close what is too much now."""
        with self._lock:
            self._kept -= Counter(refs)
            closed = self._make_room()
        self._tell_closed(closed)

    def show(self, owner: object, refs: Iterable[ModelRef], named: Iterable[ModelRef] = ()) -> None:
        """Do not close these models under an owner that shows them, in place of those that it showed before.

        `named`: models whose words (`words`) it may need when they are closed, or gone. All of it ends with the owner.
        """
        with self._lock:
            self._shown[owner] = frozenset(refs)
            self._named[owner] = frozenset(map(_base, named))

    def when_closed(self, hears: Callable[[OpenModel], None]) -> None:
        """Call this method of an object, for as long as the object lives, with each model that has been closed, or has let
        go of its weights for those of another, on any thread."""
        self._when_closed.append(WeakMethod(hears))

    def when_changed(self, hears: Callable[[ModelRef], None]) -> None:
        """Call this method of an object, for as long as the object lives, with each reference under which other files have been
        read than before, whoever opened them, on any thread."""
        self._when_changed.append(WeakMethod(hears))

    def holds(self, model: OpenModel) -> bool:
        """Whether this very model is open here: not closed, and not replaced by one that was read again."""
        return self._models.get(model.ref) is model

    @property
    def held_bytes(self) -> int:
        """Bytes of the models that are open (`OpenModel.held_bytes`; weights that several hold once), and of the words that are
        kept of closed ones."""
        with self._lock:
            models = list(self._models.values())
            closed = len(self._words.keys() - {_base(model.ref) for model in models})
        return tensor_bytes(*(weights for model in models for weights in model.held)) + BESIDES * (len(models) + closed)

    @property
    def n_open(self) -> int:
        """How many models are open."""
        return len(self._models)

    def words(self, ref: ModelRef) -> ModelWords:
        """What words about a model need: as it is open, else as it was when it was open last, else read without its weights.

        Opens no model. Raises `BadModel`.
        """
        model = self.peek(ref)
        if model is not None:
            return words_of(model.opened)
        if (known := self._words.get(_base(ref))) is not None:
            return known
        return words_of(self._unopened(ref))

    def use(self, ref: ModelRef) -> OpenModel | None:
        """The open model, marked as most recently used; None if it is not open."""
        return self._use(ref)

    def reload(self, ref: ModelRef) -> OpenModel:
        """Open it again from disk; the old one stays until that has succeeded. Its checkpoints that are open and whose files have
        changed are closed."""
        with self._door(ref):
            model = self._entered(self._staged(ref))
        self.remove(ref)
        with self._lock:
            others = [one for at, one in self._models.items() if at != ref and _base(at) == _base(ref)]
        outdated = [one for one in others if one.outdated]
        with self._lock:
            closed = [self._models.pop(one.ref) for one in outdated if self._models.get(one.ref) is one]
        self._tell_closed(closed)
        return model

    def open_now(self, ref: ModelRef) -> OpenModel:
        """The model as its files are now: opened, or read again where they have changed since. Raises `BadModel`.

        `open` gives the one that is open, whatever has become of its files: what is asked of it goes on being about one model.
        """
        model = self._models.get(ref)
        return self.open(ref) if model is None or not model.outdated else self.reload(ref)

    def open_beside(self, ref: ModelRef) -> OpenModel:
        """`open_now` for a model that nobody has chosen to look at, and so nobody reloads: a control. Where it cannot be read
        again it is the one that is open. Raises `BadModel`.
        """
        try:
            return self.open_now(ref)
        except BadModel:
            return self.open(ref)

    def sha256(self, ref: ModelRef, stopped: Callable[[], bool] = lambda: False) -> str:
        """The hash of the model's files, read once. Slow for large files: call it off the GUI thread.

        Raises `BadModel`, and `Cancelled` once `stopped()`.
        """
        model = self.open(ref)
        if not model.sha256 and not model.absent:
            model.sha256 = _hash(model, stopped)
            _ = model.settings_sha256  # here, where nobody waits for a frame
            self._share(model)
        self._note_hash(model)
        return model.sha256

    def _share(self, model: OpenModel) -> None:
        """Where another open model holds the same weights, under another path, hold them once."""
        with self._lock:
            others = [one for one in self._models.values() if one.ref != model.ref]
        for one in others:
            if one.opened.weights is not model.opened.weights and model.holds_the_same_as(one):
                model.take_weights_of(one)
                self._tell_let_go(model)
                return

    def sha256_of(self, ref: ModelRef, key: Hashable) -> str:
        """The hash of the files that a model had under this key (`OpenModel.key`); "" where it has others now and those were not
        hashed. None as key: of those that it has. Raises what `sha256` raises.
        """
        model = self.open(ref)
        if key in (None, model.key):
            return self.sha256(ref) if self.holds(model) or model.absent else model.sha256
        return self._hashes.get((key[0], key[-1]), "") if isinstance(key, tuple) else ""

    def _note_hash(self, model: OpenModel) -> None:
        if model.sha256 and model.opened.files:
            self._hashes[model.identity, model.places] = model.sha256

    def settings_unopened(self, ref: ModelRef) -> str:
        """`OpenModel.settings_sha256` of the files as they are now; their weights are mapped and not read. For a worker thread.

        Raises `BadModel`.
        """
        if isinstance(ref.origin, Constructed):
            return self.open(ref).settings_sha256
        return settings_of(self._unopened(ref).weights)

    def hashes(self, ref: ModelRef) -> tuple[str, str]:
        """The sha256 of a model's weights and `settings_of` it, as it is open, or was when it was closed; "" where they are not
        known. Reads nothing."""
        model = self.peek(ref)
        if model is None or not model.sha256:
            closed = self._closed.get(ref)
            return ("", "") if closed is None else (closed.sha256, closed.settings)
        return model.sha256, "" if model.absent else model.settings_sha256

    def _unopened(self, ref: ModelRef) -> Opened:
        """What is read of the files as they are now, without their weights, which are mapped. Raises `BadModel`."""
        if isinstance(ref.origin, Constructed):
            return _constructed(ref).opened
        try:
            return self._opener(resolve(ref), "mapped", dict(ref.assume))
        except OSError as error:
            raise _unreadable(error) from error

    def sha256_unopened(self, ref: ModelRef, stopped: Callable[[], bool] = lambda: False, most: int | None = None) -> str:
        """The hash that `sha256` gives, without opening the model where it has files; read again only once they have changed.

        `most`: "" for files of more bytes than that, unless their hash is known. Slow for large files: for a worker thread.
        Raises `BadModel`, and `Cancelled` once `stopped()`.
        """
        model = self._models.get(ref)
        if model is not None and model.sha256 and not model.changed_on_disk:
            return model.sha256
        if isinstance(ref.origin, Constructed):
            return self.sha256(ref, stopped)
        path = resolve(ref)
        files = look(path, dict(ref.assume), ref.checkpoint).files
        try:
            identity = file_identity(files)
            known = identity, self._settled(identity, file_places(files))
        except OSError as error:
            raise _unreadable(error) from error
        if files and known not in self._hashes:
            if most is not None and sum(size for _, size, _ in identity) > most:
                return ""
            self._hashes[known] = _digest(files, stopped)
        return self._hashes.get(known, "")

    def _settled(self, identity: Identity, places: Places) -> Places:
        """Where files lay when they were seen last, unless they have been touched since."""
        before = self._places.get(identity)
        if before is None or touched(before, places):
            self._places[identity] = places
        return self._places[identity]

    def read_whole(self, ref: ModelRef, stopped: Callable[[], bool] = lambda: False) -> None:
        """Read all tensors now rather than on first use, so that damage is detected. Raises `BadModel`, `Cancelled`."""
        weights = self.open(ref).opened.weights
        if not weights.resident:
            return
        weights.embed()
        weights.unembed()
        for layer in range(weights.config.n_layers):
            if stopped():
                raise Cancelled
            weights.layer(layer)

    def leave_devices(self, devices: tuple[str, ...]) -> None:
        """Free the weights of open models on all devices except these."""
        with self._lock:
            models = list(self._models.values())
        for model in models:
            model.leave_devices(devices)

    def _use(self, ref: ModelRef) -> OpenModel | None:
        with self._lock:
            model = self._models.get(ref)
            if model is not None:
                self._models.move_to_end(ref)
                return model
            return self._ghost(ref)

    def _door(self, ref: ModelRef) -> threading.Lock:
        with self._lock:
            return self._doors.setdefault(ref, threading.Lock())

    def _staged(self, ref: ModelRef) -> OpenModel:
        """A model read and checked completely, not yet in the store."""
        if isinstance(ref.origin, Constructed):
            return _constructed(ref)
        path = resolve(ref)
        try:
            before = _stats_of(files_beside(path)) | _stats_of(weight_files(path, ref.checkpoint))
            size = sum(f.stat().st_size for f in weight_files(path, ref.checkpoint) if f.is_file())
            with noted_files() as noted:
                opened, copied = self._within_budget(path, size, ref)
            if not opened.weights.resident:
                budget = f"{copied / GIB:.2f} GiB as float32 are over the budget of {self.largest_copy / GIB:.2f}"
                note = f"weights are read from the file when they are needed: {budget}; damaged weights are detected only then"
                opened = replace(opened, notes=(*opened.notes, note))
            identity = file_identity(opened.files)
            places = self._settled(identity, file_places(opened.files))
            read = _beside(opened.files, noted)
            now = _stats_of((*opened.files, *(one.path for one in read)))
        except OSError as error:
            raise _unreadable(error) from error
        if any(before.get(name, stat) != stat for name, stat in now.items()):
            raise BadModel(
                "The model's files changed while they were read.",
                expected="files that no program is writing",
                got=str(path),
                remedy="Open it again once they are complete.",
            )
        beside = settings_beside(tuple((name, *stat) for name, stat in before.items()))
        model = OpenModel(ref, path, opened, identity, self._hashes.get((identity, places), ""), beside, places, read)
        if not model.sha256 and sum(size for _, size, _ in identity) <= SMALL:
            model.sha256 = _hash(model)
        if model.sha256:
            _ = model.settings_sha256
        self._share(model)
        return model

    def _within_budget(self, path: Path, size: int, ref: ModelRef) -> tuple[Opened, int]:
        """The model, copied to memory if the copy (always float32) fits in the budget, else mapped; and the bytes of the copy.

        Small files are read at once, large ones tensor by tensor when used; `read_whole` reads the rest.
        """
        at = {} if ref.checkpoint is None else {"checkpoint": ref.checkpoint}
        opened_as = lambda keep: self._opener(path, keep, dict(ref.assume), **at)
        keep = "resident" if size <= SMALL else "lazy"
        packed = any(map(is_gguf, weight_files(path, ref.checkpoint)))  # its copy is larger than the file
        if not packed and 2 * size <= self.largest_copy:
            return opened_as(keep), size
        opened = opened_as("mapped")
        copied = max(size, 4 * opened.weights.config.n_parameters())
        return (opened if copied > self.largest_copy else opened_as(keep)), copied

    def _entered(self, model: OpenModel) -> OpenModel:
        _ = model.measured  # seen now: its folder may be gone later
        with self._lock:
            before = self._models.get(model.ref)
            closed_before = self._closed.pop(model.ref, None)
            self._models[model.ref] = model
            self._models.move_to_end(model.ref)
            self._keep_words(model)
            closed = [*([] if before is None else [before]), *self._make_room()]
        self._note_hash(model)
        self._tell_closed(closed)
        key_before = before.key if before is not None else closed_before.key if closed_before is not None else model.key
        if key_before != model.key:
            for hears in [method() for method in self._when_changed]:
                if hears is not None:
                    hears(model.ref)
        return model

    def _keep_words(self, model: OpenModel) -> None:
        """Keep the words of a model, and of others those that may have to be named, that are open, and the last few."""
        base = _base(model.ref)
        if not isinstance(model.ref.origin, Constructed):  # these are never gone, and a slider passes hundreds
            self._words[base] = words_of(model.opened)
            self._words.move_to_end(base)
        needed = frozenset(map(_base, self._models)).union(*self._named.values())
        for ref in [ref for ref in self._words if ref not in needed][:-MOST_CLOSED]:
            del self._words[ref]

    def _make_room(self) -> list[OpenModel]:
        """Close the least recently used of the models that are not kept, while they are too many and too large.

        Neither what is shown nor the newest, which somebody is about to use. Returns what has been closed.
        """
        shown = frozenset[ModelRef]().union(*self._shown.values())
        free = [ref for ref in self._models if ref not in self._kept]
        bytes_of = lambda refs: sum({id(one.opened.weights): one.nbytes for one in map(self._models.__getitem__, refs)}.values())
        closed = list[OpenModel]()
        for ref in [ref for ref in free[:-1] if ref not in shown]:
            if len(free) <= self.most or bytes_of(free) <= self.room:
                break
            free.remove(ref)
            closed.append(self._models.pop(ref))
        constructed = [ref for ref in free if isinstance(ref.origin, Constructed)]
        passed = [ref for ref in constructed[:-1] if ref not in shown][: max(0, len(constructed) - MOST_CONSTRUCTED)]
        return closed + [self._models.pop(ref) for ref in passed]

    def _tell_closed(self, models: Iterable[OpenModel]) -> None:
        for model in models:
            if model.opened.files and model.ref not in self._models:
                self._closed[model.ref] = _Closed(model.key, model.sha256, model.settings_sha256 if model.sha256 else "")
            self._tell_let_go(model)

    def _tell_let_go(self, model: OpenModel) -> None:
        for hears in [method() for method in self._when_closed]:
            if hears is not None:
                hears(model)


@dataclass(frozen=True)
class _Closed:
    """What stays of a model that has been closed: its key, and its hashes as in `ModelStore.hashes`."""

    key: Hashable
    sha256: str
    settings: str


def _base(ref: ModelRef) -> ModelRef:
    return replace(ref, checkpoint=None)


def _beside(weights: tuple[Path, ...], noted: Iterable[Path]) -> tuple[Beside, ...]:
    """What was read of a model beside its weights, each file once. Raises `OSError`."""
    resolved = {file.resolve() for file in weights}
    others = sorted(file for file in noted if file.resolve() not in resolved) if weights else []
    return tuple(Beside.of(file) for file in others if file.stat().st_size <= LARGEST_BESIDE)


def _stats_of(files: tuple[Path, ...]) -> dict[str, tuple[int, int]]:
    return {name: (size, mtime) for name, size, mtime in file_identity(tuple(f for f in files if f.is_file()))}


def _constructed(ref: ModelRef) -> OpenModel:
    """A constructed model, identified by its canonical parameters; its sha256 is that of its tensors. Raises `BadModel`."""
    if ref.checkpoint is not None:
        raise BadModel(
            "A constructed model was not trained.",
            expected="no checkpoint",
            got=str(ref.checkpoint),
            remedy="Leave out the step.",
        )
    if ref.assume:
        remedy = "Put parameters after a question mark: rope-induction?alpha=20."
        raise BadModel("A constructed model assumes nothing.", expected="its parameters", got=str(ref.assume), remedy=remedy)
    built = build(RopeInduction.parse(ref.source))
    opened = Opened(built.weights, built.notes, (), built.card, "constructed")
    return OpenModel(ref, resolve(ref), opened, ((built.source, built.nbytes, 0),), built.sha256)


def _hash(model: OpenModel, stopped: Callable[[], bool] = lambda: False) -> str:
    """sha256 over all files in order. Raises `BadModel` if they have changed since the model was opened."""
    digest = _digest(model.opened.files, stopped)
    if model.changed_on_disk:
        raise BadModel(
            "The model's files have changed since it was opened.",
            expected="the files whose weights are in use",
            got=str(model.path),
            remedy="Reload the model.",
        )
    return digest


def _digest(files: tuple[Path, ...], stopped: Callable[[], bool]) -> str:
    """sha256 over files in their order. Raises `BadModel`, and `Cancelled` once `stopped()`."""
    try:
        return sha256_of(files, stopped)
    except OSError as error:
        raise _unreadable(error) from error


def _unreadable(error: OSError) -> BadModel:
    return BadModel("The model's files cannot be read.", expected="readable files", got=printable(error, 300), remedy=_READABLE)
