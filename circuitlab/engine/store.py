"""The store of open models: each is opened once and identified by (path, size, mtime), and by sha256 once that has been read.

Opening is staged: a model is loaded and checked completely before it enters the store, so that a failed open changes nothing.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path
from weakref import WeakValueDictionary

from circuitlab.errors import BadModel, Cancelled, UsageError, printable
from circuitlab.model.constructed import KIND, RopeInduction, build, named
from circuitlab.model.folding import under
from circuitlab.model.loading import Opened, open_model, resolve
from circuitlab.model.loading.checkpoint import look, weight_files
from circuitlab.model.records.series import checkpoint_of, final_step, series_of
from circuitlab.model.sources.hub import HubName, looks_like_a_name
from circuitlab.model.subject import Conventions, ModelRef
from circuitlab.model.weights import Weights
from circuitlab.paths import shipped_models

SMALL = 64 * 2**20  # bytes; smaller models are hashed when they are opened, in at most 0.1 s

GIB = 2**30
LARGEST_COPY = 4 * GIB  # bytes of weights that are copied into memory; the engine sets it to its budget
MOST_CONSTRUCTED = 8  # constructed models that stay open: they are rebuilt in milliseconds, and a slider passes hundreds
ROOM = 256 * 2**20  # bytes of models that stay open beyond `most`, or an eighth of the budget if that is more
BESIDES = 2**20  # bytes that an open model holds besides its weights, mostly its tokenizer

_READABLE = "Check that the files exist and that you may read them, then open the model again."

Opener = Callable[..., Opened]  # (path, keep, assumed, checkpoint if one is requested)
Identity = tuple[tuple[str, int, int], ...]


def file_identity(files: tuple[Path, ...]) -> Identity:
    """(path, size, mtime in ns) of each file."""
    stats = ((f, f.stat()) for f in files)
    return tuple((str(f.resolve()), s.st_size, s.st_mtime_ns) for f, s in stats)


def reference(text: str) -> ModelRef:
    """The `ModelRef` of a name as typed by a user: `builtin:NAME`, `file:PATH`, `hub:OWNER/NAME`, a shipped model's name, a path,
    OWNER/NAME, or `construct:NAME?…`, where equal parameters give equal references.

    Raises `UsageError` for an empty name, a malformed name of the hub, and impossible parameters.
    """
    if not text.removeprefix("file:").strip() or "\0" in text:
        expected = "a shipped model's name, a folder, a weight file, or OWNER/NAME on the hub"
        raise UsageError("No model is named.", expected=expected, got=ascii(text)[:80], remedy="Name a model.")
    if text.startswith(KIND) or (named(text) and not Path(text).exists()):
        return ModelRef(f"{KIND}{RopeInduction.parse(text)}")
    if text.startswith("hub:"):
        return ModelRef(f"hub:{HubName.parse(text)}")
    if text.startswith(("builtin:", "file:")):
        return ModelRef(text)
    if text in shipped_models() and not Path(text).exists():
        return ModelRef(f"builtin:{text}")
    if looks_like_a_name(text) and not Path(text).expanduser().exists():
        return ModelRef(f"hub:{HubName.parse(text)}")
    return ModelRef(f"file:{Path(text).expanduser().resolve()}")


def step_of(ref: ModelRef) -> int | None:
    """The training step of a reference's checkpoint, None for the final weights. Raises `BadModel` if it does not exist."""
    if ref.checkpoint is None:
        return None
    folder = resolve(ref)
    path = checkpoint_of(folder, ref.checkpoint)
    return next(step for step, file in series_of(folder) if file == path)


def steps_trained(ref: ModelRef) -> int | None:
    """How many steps the weights were trained for, final weights included; None if no file states it."""
    try:
        return final_step(resolve(ref)) if ref.checkpoint is None else step_of(ref)
    except BadModel:
        return None


@dataclass(eq=False)
class OpenModel:
    """A model in the store. `key`: its part of the cache key; `beside`: its configuration and tokenizer files.

    `sha256` is "" until it has been read.
    """

    ref: ModelRef
    path: Path
    opened: Opened
    identity: Identity
    sha256: str = ""
    beside: Identity = ()
    _presented: dict[tuple[Conventions, str], Weights] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def weights(self, conventions: Conventions, device: str = "cpu") -> Weights:
        """The weights under `conventions` on a device, created once: runs share prefixes by the identity of their weights."""
        with self._lock:
            if (conventions, device) not in self._presented:
                self._presented[conventions, device] = under(self.opened.weights, conventions, device)
            return self._presented[conventions, device]

    def leave_devices(self, devices: tuple[str, ...]) -> None:
        """Free the weights on all devices except these."""
        with self._lock:
            for key in [key for key in self._presented if key[1] not in devices]:
                del self._presented[key]

    @property
    def name(self) -> str:
        """Its name in titles: its parts in one line."""
        return " · ".join(self.name_parts)

    @property
    def name_parts(self) -> tuple[str, ...]:
        """The parts of its name: those of the reference, with the training step of a checkpoint."""
        at, steps = self.ref.checkpoint, self.opened.steps
        if at is None or not -len(steps) <= at < len(steps):
            return self.ref.name_parts
        return (*replace(self.ref, checkpoint=None).name_parts, f"step {steps[at]:,}")

    @property
    def nbytes(self) -> int:
        """An upper bound on its bytes: the weights as float32, once more for each other convention or device in use."""
        raw = self.opened.weights
        copies = 1 + sum(presented is not raw for presented in list(self._presented.values()))
        return 4 * raw.config.n_parameters() * copies + BESIDES

    @property
    def key(self) -> Hashable:
        """The identity of its files when opened, of the files beside them, and the assumptions."""
        return self.identity, self.beside, self.ref.assume

    @property
    def changed_on_disk(self) -> bool:
        """Whether its files have changed since it was opened; a model without files never changes."""
        try:
            return bool(self.opened.files) and file_identity(self.opened.files) != self.identity
        except OSError:
            return True


class ModelStore:
    """Up to `most` models, and more while together they fit in `room` bytes, so that a series of small ones stays open (of
    constructed ones `MOST_CONSTRUCTED`); the least recently used ones are closed. Safe to use from several threads.

    While a model is being opened, only requests for that same model wait. Weight files of more than `largest_copy` bytes are
    mapped read-only, and nothing derived from them is kept.
    """

    def __init__(
        self, most: int = 3, opener: Opener = open_model, largest_copy: int = LARGEST_COPY, room: int | None = None
    ) -> None:
        self._most, self._opener, self.largest_copy, self._room = most, opener, largest_copy, room
        self._lock = threading.Lock()
        self._doors: WeakValueDictionary[ModelRef, threading.Lock] = WeakValueDictionary()  # one per model that is being opened
        self._models: OrderedDict[ModelRef, OpenModel] = OrderedDict()
        self._hashes: dict[Identity, str] = {}  # of files that were hashed without being opened

    def open(self, ref: ModelRef) -> OpenModel:
        """The open model of a reference, opened now if it is not. Raises `BadModel`."""
        model = self._use(ref)
        if model is not None:
            return model
        with self._door(ref):
            return self._use(ref) or self._place(self._staged(ref))

    def peek(self, ref: ModelRef) -> OpenModel | None:
        """The model if it is open, else None. Never reads a file."""
        return self._models.get(ref)

    @property
    def room(self) -> int:
        """Bytes that open models may hold before models beyond the `most` recently used are closed."""
        return max(ROOM, self.largest_copy // 8) if self._room is None else self._room

    def use(self, ref: ModelRef) -> OpenModel | None:
        """The open model, marked as most recently used; None if it is not open."""
        return self._use(ref)

    def reload(self, ref: ModelRef) -> OpenModel:
        """Open it again from disk; the old one stays until that has succeeded."""
        with self._door(ref):
            return self._place(self._staged(ref))

    def sha256(self, ref: ModelRef, stopped: Callable[[], bool] = lambda: False) -> str:
        """The hash of the model's files, read once. Slow for large files: call it off the GUI thread.

        Raises `BadModel`, and `Cancelled` once `stopped()`.
        """
        model = self.open(ref)
        if not model.sha256:
            model.sha256 = _hash(model, stopped)
        return model.sha256

    def sha256_unopened(self, ref: ModelRef, stopped: Callable[[], bool] = lambda: False, most: int | None = None) -> str:
        """The hash that `sha256` gives, without opening the model where it has files; read again only once they have changed.

        `most`: "" for files of more bytes than that, unless their hash is known. Slow for large files: for a worker thread.
        Raises `BadModel`, and `Cancelled` once `stopped()`.
        """
        model = self.peek(ref)
        if model is not None and model.sha256 and not model.changed_on_disk:
            return model.sha256
        if ref.source.startswith(KIND):
            return self.sha256(ref, stopped)
        path = resolve(ref)
        files = look(path, dict(ref.assume), ref.checkpoint).files
        try:
            identity = file_identity(files)
        except OSError as error:
            raise _unreadable(error) from error
        if files and identity not in self._hashes:
            if most is not None and sum(size for _, size, _ in identity) > most:
                return ""
            self._hashes[identity] = _digest(files, stopped)
        return self._hashes.get(identity, "")

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

    def _door(self, ref: ModelRef) -> threading.Lock:
        with self._lock:
            return self._doors.setdefault(ref, threading.Lock())

    def _staged(self, ref: ModelRef) -> OpenModel:
        """A model read and checked completely, not yet in the store."""
        if ref.source.startswith(KIND):
            return _constructed(ref)
        path = resolve(ref)
        try:
            before = _stats(path) | _stats_of(weight_files(path, ref.checkpoint))
            size = sum(f.stat().st_size for f in weight_files(path, ref.checkpoint) if f.is_file())
            opened, copied = self._within_budget(path, size, ref)
            if not opened.weights.resident:
                budget = f"{copied / GIB:.2f} GiB as float32 are over the budget of {self.largest_copy / GIB:.2f}"
                note = f"weights are read from the file when they are needed: {budget}; damaged weights are detected only then"
                opened = replace(opened, notes=(*opened.notes, note))
            identity = file_identity(opened.files)
        except OSError as error:
            raise _unreadable(error) from error
        if any(before.get(name, (size, mtime)) != (size, mtime) for name, size, mtime in identity):
            raise BadModel(
                "The model's files changed while they were read.",
                expected="files that no program is writing",
                got=str(path),
                remedy="Open it again once they are complete.",
            )
        beside = tuple((name, *stat) for name, stat in sorted(before.items()) if name.endswith((".json", ".txt")))
        model = OpenModel(ref, path, opened, identity, beside=beside)
        if sum(size for _, size, _ in identity) <= SMALL:
            model.sha256 = _hash(model)
        return model

    def _within_budget(self, path: Path, size: int, ref: ModelRef) -> tuple[Opened, int]:
        """The model, copied to memory if the copy (always float32) fits in the budget, else mapped; and the bytes of the copy.

        Small files are read at once, large ones tensor by tensor when used; `read_whole` reads the rest.
        """
        at = {} if ref.checkpoint is None else {"checkpoint": ref.checkpoint}
        opened_as = lambda keep: self._opener(path, keep, dict(ref.assume), **at)
        keep = "resident" if size <= SMALL else "lazy"
        if 2 * size <= self.largest_copy:
            return opened_as(keep), size
        opened = opened_as("mapped")
        copied = max(size, 4 * opened.weights.config.n_parameters())
        return (opened if copied > self.largest_copy else opened_as(keep)), copied

    def _place(self, model: OpenModel) -> OpenModel:
        with self._lock:
            self._models[model.ref] = model
            self._models.move_to_end(model.ref)
            while len(self._models) > self._most and sum(m.nbytes for m in self._models.values()) > self.room:
                self._models.popitem(last=False)
            constructed = [ref for ref in self._models if ref.source.startswith(KIND)]
            for ref in constructed[:-MOST_CONSTRUCTED]:
                del self._models[ref]
        return model


def _stats(path: Path) -> dict[str, tuple[int, int]]:
    return _stats_of(tuple(path.iterdir() if path.is_dir() else (path, *path.parent.glob("*.json"))))


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
    digest = hashlib.sha256()
    try:
        for path in files:
            with path.open("rb") as file:
                while chunk := file.read(1 << 22):
                    if stopped():
                        raise Cancelled
                    digest.update(chunk)
    except OSError as error:
        raise _unreadable(error) from error
    return digest.hexdigest()


def _unreadable(error: OSError) -> BadModel:
    return BadModel("The model's files cannot be read.", expected="readable files", got=printable(error, 300), remedy=_READABLE)
