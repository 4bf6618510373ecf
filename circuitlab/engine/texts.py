"""Files other than weights that analyses read: texts and training series.

They are identified by their sha256, which is part of the request and hence of its cache key.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

from circuitlab.analysis.base import SeriesRef, TextRef
from circuitlab.errors import BadInput
from circuitlab.model.loading import resolve
from circuitlab.model.records.series import series_of
from circuitlab.model.records.series_measures import FILE, SeriesMeasures, beside, read_series
from circuitlab.model.subject import ModelRef
from circuitlab.model.text.tokenizer import Tokenizer

_CHANGED = "Ask again: the new answer is for the file as it is now."
_FileKey = tuple[str, int, int]
_T = TypeVar("_T")


class Texts:
    """Hashes of files by (path, size, mtime), so that an unchanged file is read once."""

    def __init__(self) -> None:
        self._hashes: dict[_FileKey, str] = {}

    def settled(self, params: Any, read: bool = True) -> Any | None:
        """`params` with the hash of every file in it; None if a hash is unknown and `read` is False."""
        changes: dict[str, Any] = {}
        for field in dataclasses.fields(params):
            value = getattr(params, field.name)
            hashed = self._settled(value, read)
            if hashed is None and value is not None:
                return None
            if hashed is not value:
                changes[field.name] = hashed
        return dataclasses.replace(params, **changes) if changes else params

    def _settled(self, value: Any, read: bool) -> Any | None:
        if isinstance(value, TextRef) and not value.sha256:
            sha256 = self._hash(Path(value.path), read)
            return None if sha256 is None else TextRef(value.path, sha256)
        if isinstance(value, SeriesRef) and not value.sha256:
            sha256 = self._hash(series_folder(value) / FILE, read)
            return None if sha256 is None else SeriesRef(value.source, sha256)
        if isinstance(value, tuple) and any(isinstance(v, TextRef | SeriesRef) for v in value):
            parts = tuple(self._settled(v, read) for v in value)
            return None if None in parts else parts
        return value

    def _hash(self, path: Path, read: bool) -> str | None:
        try:
            stat = path.stat()
            key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns)
        except OSError as error:
            if not read:
                return None  # reported when it is computed, on a worker
            raise _missing(path) from error
        if key not in self._hashes and read:
            self._hashes[key] = _sha256(path)
        return self._hashes.get(key)


def series_folder(ref: SeriesRef) -> Path:
    """The folder of the model of a training series."""
    return resolve(ModelRef(ref.source))


def checked_series(ref: SeriesRef) -> SeriesMeasures:
    """The measures of a training, with `checkpoints` as indices into the files present now.

    Raises `BadModel` as `read_series` does, `BadInput` if the file is missing or does not match its hash.
    """
    folder = series_folder(ref)
    measures = read_series(folder)
    if ref.sha256 and _sha256(folder / FILE) != ref.sha256:
        raise BadInput(
            "A training series has changed.", expected=f"sha256 {ref.sha256[:12]}…", got=str(folder / FILE), remedy=_CHANGED
        )
    return beside(measures, [step for step, _ in series_of(folder)])


def _missing(path: Path) -> BadInput:
    if path.name == FILE:
        remedy = "Measure its checkpoints: circuitlab measure MODEL --text FILES."
        return BadInput(
            "That model's training was not measured.", expected=f"{FILE} beside its weights", got="none", remedy=remedy
        )
    remedy = "Check the path, or choose another file."
    return BadInput("A text file does not exist.", expected="a UTF-8 text file", got=str(path), remedy=remedy)


def _opened(path: Path, read: Callable[[BufferedReader], _T]) -> _T:
    if not path.is_file():
        raise _missing(path)
    try:
        with path.open("rb") as file:
            return read(file)
    except OSError as error:
        raise BadInput(
            f"{path.name} cannot be read.", expected="a readable file", got=str(error), remedy="Change its permissions."
        ) from error


def _sha256(path: Path) -> str:
    """The hash of a file, read in pieces: it may be larger than memory."""
    return _opened(path, lambda file: hashlib.file_digest(file, "sha256").hexdigest())


def checked_text(ref: TextRef) -> str:
    """The file's text. Raises `BadInput` if it is missing, not UTF-8, or does not match its hash."""
    path = Path(ref.path)
    data = _opened(path, lambda file: file.read())
    if ref.sha256 and hashlib.sha256(data).hexdigest() != ref.sha256:
        raise BadInput("A text file has changed.", expected=f"sha256 {ref.sha256[:12]}…", got=ref.path, remedy=_CHANGED)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path.name} is not UTF-8.", expected="UTF-8", got=str(error), remedy="Save it as UTF-8.") from error


def text_of(data: bytes) -> str:
    """The text of a file without byte order mark and final newline, its lines separated by `\\n`. Raises `UnicodeDecodeError`."""
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")


def read_text(ref: TextRef, tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """The file's tokens. Raises `BadInput` as `checked_text` does, and if the model has no tokenizer."""
    text = text_of(checked_text(ref).encode())
    if tokenizer is None:
        raise BadInput("The model has no tokenizer.", expected="token ids", got="text", remedy="Type ids instead.")
    return tokenizer.encode(text)
