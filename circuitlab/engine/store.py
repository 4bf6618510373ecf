"""The store of open models: opened once, known by (path, size, mtime) at once and by sha256 when that has been read.

Opening is staged: a model is loaded and checked whole before it takes its place, so that a failed open changes nothing.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from circuitlab.model.folding import under
from circuitlab.model.loading import Opened, open_directory, resolve
from circuitlab.model.subject import Conventions, ModelRef
from circuitlab.model.weights import Weights
from circuitlab.paths import shipped_models


def reference(text: str) -> ModelRef:
    """The reference a person means: `builtin:NAME`, `file:PATH`, a shipped model's name, or a path."""
    if text.startswith(("builtin:", "file:")):
        return ModelRef(text)
    if text in shipped_models() and not Path(text).exists():
        return ModelRef(f"builtin:{text}")
    return ModelRef(f"file:{Path(text).expanduser().resolve()}")


Identity = tuple[tuple[str, int, int], ...]


def file_identity(files: tuple[Path, ...]) -> Identity:
    """(path, size, mtime in ns) of each file."""
    stats = ((f, f.stat()) for f in files)
    return tuple((str(f.resolve()), s.st_size, s.st_mtime_ns) for f, s in stats)


@dataclass(eq=False)
class OpenModel:
    """A model in the store. `identity` is what its answers are keyed by."""

    ref: ModelRef
    path: Path
    opened: Opened
    identity: Identity
    presented: dict[Conventions, Weights] = field(default_factory=dict)
    sha256: str = ""

    def weights(self, conventions: Conventions) -> Weights:
        """The weights under `conventions`, made once."""
        if conventions not in self.presented:
            self.presented[conventions] = under(self.opened.weights, conventions)
        return self.presented[conventions]

    @property
    def changed_on_disk(self) -> bool:
        """Whether its files are not what they were when it was opened."""
        try:
            return file_identity(self.opened.files) != self.identity
        except OSError:
            return True


class ModelStore:
    """Up to `most` models, the least recently used ones closed. Safe to use from several threads."""

    def __init__(self, most: int = 3, opener: Callable[[Path], Opened] = open_directory) -> None:
        self._most, self._opener = most, opener
        self._lock = threading.RLock()
        self._models: OrderedDict[ModelRef, OpenModel] = OrderedDict()

    def open(self, ref: ModelRef) -> OpenModel:
        """The open model of a reference, opened now if it is not. Raises `BadModel`."""
        with self._lock:
            found = self._models.get(ref)
            if found is None:
                path = resolve(ref)
                opened = self._opener(path)
                found = OpenModel(ref, path, opened, file_identity(opened.files))
                self._models[ref] = found
                while len(self._models) > self._most:
                    self._models.popitem(last=False)
            self._models.move_to_end(ref)
            return found

    def peek(self, ref: ModelRef) -> OpenModel | None:
        """The open model, None if it is not open. Never reads a file."""
        return self._models.get(ref)

    def reload(self, ref: ModelRef) -> OpenModel:
        """Open it again from disk; the old one stays if that fails."""
        with self._lock:
            old = self._models.pop(ref, None)
            try:
                return self.open(ref)
            except BaseException:
                if old is not None:
                    self._models[ref] = old
                raise

    def sha256(self, ref: ModelRef) -> str:
        """The hash of the weight files, read once. Slow for large files: call it off the GUI thread."""
        model = self.open(ref)
        if not model.sha256:
            digest = hashlib.sha256()
            for path in model.opened.files:
                with path.open("rb") as file:
                    while chunk := file.read(1 << 22):
                        digest.update(chunk)
            model.sha256 = digest.hexdigest()
        return model.sha256
