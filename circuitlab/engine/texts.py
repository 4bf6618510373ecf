"""Text files that analyses read: known by their sha256, which is part of the question and so of its key in the cache."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from circuitlab.analysis.base import TextRef
from circuitlab.errors import BadInput
from circuitlab.model.tokenizer import Tokenizer

_Known = tuple[str, int, int]


class Texts:
    """Hashes of files by (path, size, mtime), so that an unchanged file is read once."""

    def __init__(self) -> None:
        self._hashes: dict[_Known, str] = {}

    def settled(self, params: Any, read: bool = True) -> Any | None:
        """`params` with the hash of every text in it. Where one is unknown and must not be `read` now: None."""
        changes: dict[str, Any] = {}
        for field in dataclasses.fields(params):
            value = getattr(params, field.name)
            found = self._settled(value, read)
            if found is None and value is not None:
                return None
            if found is not value:
                changes[field.name] = found
        return dataclasses.replace(params, **changes) if changes else params

    def _settled(self, value: Any, read: bool) -> Any | None:
        if isinstance(value, TextRef) and not value.sha256:
            sha256 = self._hash(Path(value.path), read)
            return None if sha256 is None else TextRef(value.path, sha256)
        if isinstance(value, tuple) and any(isinstance(v, TextRef) for v in value):
            parts = tuple(self._settled(v, read) for v in value)
            return None if None in parts else parts
        return value

    def _hash(self, path: Path, read: bool) -> str | None:
        try:
            stat = path.stat()
            known = (str(path.resolve()), stat.st_size, stat.st_mtime_ns)
        except OSError as error:
            if not read:
                return None  # said by whoever computes, on a worker
            raise BadInput("A text file is not there.", expected="a UTF-8 text file", got=str(path)) from error
        if known not in self._hashes and read:
            self._hashes[known] = hashlib.sha256(_bytes(path)).hexdigest()
        return self._hashes.get(known)


def _bytes(path: Path) -> bytes:
    if not path.is_file():
        raise BadInput("A text file is not there.", expected="a UTF-8 text file", got=str(path))
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput("A text file cannot be read.", expected="a readable file", got=str(error)) from error


def checked_text(ref: TextRef) -> str:
    """What the file says. Raises `BadInput` where it is missing, not UTF-8, or not what its hash says."""
    path = Path(ref.path)
    data = _bytes(path)
    if ref.sha256 and hashlib.sha256(data).hexdigest() != ref.sha256:
        raise BadInput("A text file has changed.", expected=f"sha256 {ref.sha256[:12]}…", got=ref.path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path.name} is not UTF-8.", expected="UTF-8", got=str(error)) from error


def read_text(ref: TextRef, tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """The file's tokens. Raises `BadInput` as `checked_text` does, and where the model has no tokenizer."""
    text = checked_text(ref)
    if tokenizer is None:
        raise BadInput("The model has no tokenizer.", expected="token ids", got="text", remedy="Type ids instead.")
    return tokenizer.encode(text)
