"""An open model: what was read from its files, its weights under each convention, and what identifies it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar

from circuitlab.disk.regular_file import sha256_of
from circuitlab.engine.file_changes import Beside, FileChange, Identity, Places, file_change, file_identity, file_places, touched
from circuitlab.errors import BadModel, CircuitLabError
from circuitlab.model.files.gguf.header import read_header
from circuitlab.model.files.gguf.tensors import stored_kinds
from circuitlab.model.files.tensors import open_safetensors
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.folding import under
from circuitlab.model.loading import Opened, resolve
from circuitlab.model.loading.checkpoint import weight_files
from circuitlab.model.records.series import checkpoint_of, final_step, series_of
from circuitlab.model.records.series_measures import has_series
from circuitlab.model.subject import Conventions, ModelRef
from circuitlab.model.tensor_bytes import tensor_bytes
from circuitlab.model.weights import Weights

_SETTINGS = (".json", ".txt", ".model", ".jinja")  # a configuration, a tokenizer in one of its formats, a chat template
BESIDES = 2**20  # bytes that an open model holds besides its weights, mostly its tokenizer


def settings_beside(stats: Identity) -> Identity:
    """Of these files those of configuration and tokenizer, in the order of their names."""
    return tuple(sorted(one for one in stats if one[0].endswith(_SETTINGS)))


def files_beside(path: Path) -> tuple[Path, ...]:
    """The files of a model's folder, or beside its one file."""
    files = path.iterdir() if path.is_dir() else (path, *path.parent.glob("*.json"))
    return tuple(file for file in files if file.is_file())


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
    """A model in the store. `key`: its part of the cache key; `beside`: configuration and tokenizer files in its folder, `read`:
    those files beside its weights that it was read from.

    `sha256` is "" until it has been read. `places`: of its files, as they were opened. `absent`: its weights are not on this
    machine, and it is a `ghost.Ghost`.
    """

    absent: ClassVar[bool] = False
    ref: ModelRef
    path: Path
    opened: Opened
    identity: Identity
    sha256: str = ""
    beside: Identity = ()
    places: Places = ()
    read: tuple[Beside, ...] = ()
    _measured: bool = False
    _same_at: Places = ()  # `places` of later, at which the files had its hash
    _read_at: Places = ()  # those at which they were read for it last
    _presented: dict[tuple[Conventions, str], Weights] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def weights(self, conventions: Conventions, device: str = "cpu") -> Weights:
        """The weights under `conventions` on a device, created once: runs share prefixes by the identity of their weights."""
        with self._lock:
            if (conventions, device) not in self._presented:
                self._presented[conventions, device] = under(self.opened.weights, conventions, device)
            return self._presented[conventions, device]

    def holds_the_same_as(self, other: OpenModel) -> bool:
        """Whether its weights are those of another model under another path: of one file, or of equal ones as their sha256
        says, and read alike. Where either maps its file, nothing is held twice. For a worker thread.
        """
        mine, theirs = self.opened, other.opened
        if self.absent or other.absent or not (mine.files and mine.weights.resident and theirs.weights.resident):
            return False
        sizes = [one[1:] for one in self.identity] == [one[1:] for one in other.identity]
        one_place = sizes and bool(self.places) and [at[:2] for at in self.places] == [at[:2] for at in other.places]
        if not (one_place or (self.sha256 and self.sha256 == other.sha256)):
            return False
        alike = (mine.family, mine.assumptions, mine.plugin) == (theirs.family, theirs.assumptions, theirs.plugin)
        return alike and not other.changed_on_disk and self.settings_sha256 == other.settings_sha256

    def take_weights_of(self, other: OpenModel) -> None:
        """Let go of its own weights for those of another model that holds the same (`holds_the_same_as`)."""
        self.opened = replace(self.opened, weights=other.opened.weights)
        self._presented, self._lock = other._presented, other._lock

    def need_weights(self, analysis: str = "") -> None:
        """Raises `BadModel` where the weights are not on this machine; reads nothing."""

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
        """An upper bound on what it comes to hold: the weights as float32, once more for each other convention or device."""
        raw = self.opened.weights
        copies = 1 + sum(presented is not raw for presented in list(self._presented.values()))
        return 4 * raw.config.n_parameters() * copies + BESIDES

    @property
    def held_bytes(self) -> int:
        """Its bytes now: of the tensors that have been read and folded so far. Those in a mapped file are not counted."""
        return tensor_bytes(*self.held) + BESIDES

    @property
    def held(self) -> tuple[Weights, ...]:
        """The weights that it holds, under each convention; another model may hold the same."""
        return self.opened.weights, *list(self._presented.values())

    @property
    def key(self) -> Hashable:
        """The identity of its files when opened, of the files beside them, the assumptions, the steps of its checkpoints, and
        where its files lay.

        Answers about its training count checkpoints by these steps.
        """
        read = tuple(one.sha256 for one in self.read)
        return self.identity, self.beside, read, self.ref.assume, self.opened.steps, self.places

    @property
    def changed_on_disk(self) -> bool:
        """Whether the files of its weights have changed since it was opened, or may have (`file_changes.touched`); a model
        without files never changes."""
        return self._change_of(()) is not None

    @property
    def file_change(self) -> FileChange | None:
        """What has become of the files that it was read from; None for nothing. For a worker thread.

        Weights of which the system's own time alone has moved are read once, where their hash is known; where it is not, they
        count as changed.
        """
        if not self.opened.files:
            return None
        self._read_touched()
        return self._change_of(self.read)

    def _change_of(self, beside: tuple[Beside, ...]) -> FileChange | None:
        files = self.opened.files
        return file_change(files, self.identity, self._same_at or self.places, beside) if files else None

    def _read_touched(self) -> None:
        """Where its files were only touched, note that they hold the same."""
        files = self.opened.files
        try:
            now = file_places(files)
            known = self._read_at or self.places
            if not known or not self.sha256 or not touched(known, now) or file_identity(files) != self.identity:
                return
            if sha256_of(files) == self.sha256 and not touched(now, file_places(files)):
                self._same_at = now
            self._read_at = now
        except OSError:  # which `file_change` says
            return

    @property
    def outdated(self) -> bool:
        """Whether opening it now would read something else than it was read from: weights, what lies beside them, checkpoints."""
        if not self.opened.files:
            return False
        try:
            beside = settings_beside(file_identity(files_beside(self.path)))
            steps = tuple(step for step, _ in series_of(self.path)) if self.path.is_dir() else ()
            weights = {file.resolve() for file in weight_files(self.path, self.ref.checkpoint)}
        except (OSError, BadModel):
            return True
        others = weights - {file.resolve() for file in self.opened.files}  # as one that is preferred to what was read
        return bool(others) or self.file_change is not None or beside != self.beside or steps != self.opened.steps

    @cached_property
    def config_sha256(self) -> str:
        """A hash of its configuration as read and assumed, which decides with the weights what is computed."""
        text = json.dumps(self.opened.weights.config.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def settings_sha256(self) -> str:
        """`settings_of` its weights; for a worker thread where it is asked for first."""
        return settings_of(self.opened.weights)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes that its files store weights in; () where their headers do not say."""
        return stored_dtypes(self.identity)

    @property
    def steps_trained(self) -> int | None:
        """How many steps its weights were trained for; None if no file states it."""
        return steps_trained(self.ref)

    @property
    def measured(self) -> bool:
        """Whether its training series was measured; where its folder is gone, as it was last seen."""
        if self.path.exists():
            self._measured = has_series(self.path)
        return self._measured


def settings_of(weights: Weights) -> str:
    """A hash of what decides numbers beside the tensors: the configuration as read and assumed, and how a text becomes tokens.

    Equal however the files are written; two models of the same weights and other settings compute other numbers.
    """
    tokenizer = weights.tokenizer
    text = None if tokenizer is None else [tokenizer.vocabulary, tokenizer.content, tokenizer.bos, tokenizer.adds_bos]
    return hashlib.sha256(json.dumps([weights.config.to_json(), text], sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=16)
def stored_dtypes(files: Identity) -> tuple[str, ...]:
    """The dtypes in these files, or the kinds of a GGUF file, by their headers; () for other formats, which have none."""
    dtypes: dict[str, None] = {}
    for name, _, _ in files:
        if name.endswith(".gguf"):
            try:
                dtypes |= dict.fromkeys(stored_kinds(read_header(WholeFile(Path(name)))))
            except (CircuitLabError, OSError):
                return ()
        if name.endswith(".safetensors"):
            try:
                tensors = open_safetensors(Path(name))
            except (CircuitLabError, OSError):
                return ()
            dtypes |= dict.fromkeys(tensors.kind(tensor) for tensor in sorted(tensors.names()))
    return tuple(dtypes)
