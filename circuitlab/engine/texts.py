"""Files other than weights that analyses read: texts and training series.

They are identified by their sha256, which is part of the request and hence of its cache key.
"""

from __future__ import annotations

import codecs
import dataclasses
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TypeVar

from circuitlab.analysis.base import Ctx, NullContext, SeriesRef, TextRef
from circuitlab.counting import number_of
from circuitlab.disk.regular_file import Stamp, on_another_machine, opened_regular, pieces, stamp_of
from circuitlab.engine.request import FileRef, with_files
from circuitlab.errors import BadInput, Cancelled, CircuitLabError, cause, stated
from circuitlab.model.loading import resolve
from circuitlab.model.records.series import series_of
from circuitlab.model.records.series_measures import FILE, SeriesMeasures, beside, read_series
from circuitlab.model.subject import ModelRef
from circuitlab.model.text.long_text import PIECE, encode_in_pieces
from circuitlab.model.text.tokenizer import Tokenizer

LARGEST_SET = 2**25  # bytes of a text that is read as a whole: a prompt set
_CHANGED = "Ask again: the new answer is for the file as it is now."
_FileKey = tuple[str, Stamp]
_T = TypeVar("_T")


class Texts:
    """Hashes of files by path and `Stamp`, so that an unchanged file is read once."""

    def __init__(self) -> None:
        self._hashes: dict[_FileKey, str] = {}

    def settled(self, params: object, read: bool = True, absent: bool = False, ctx: Ctx = NullContext()) -> object:  # noqa: B008
        """`params` with the hash of every file in it; None if a hash is unknown and `read` is False.

        `absent`: a file that is not there, or cannot be read, stays without its hash. Else that raises `BadInput` or `BadModel`
        where `read`, and is None where not: it is reported when the answer is computed. `Cancelled` at a tick of `ctx`.
        """
        unknown: list[FileRef] = []

        def hashed(ref: FileRef) -> FileRef:
            try:
                sha256 = ref.sha256 or self._hash(_file_of(ref), read, ctx)
            except Cancelled:
                raise
            except CircuitLabError:
                if absent:
                    return ref
                if read:
                    raise
                sha256 = None
            unknown.extend([ref] if sha256 is None else [])
            return ref if sha256 is None else dataclasses.replace(ref, sha256=sha256)

        settled = with_files(params, hashed)
        return None if unknown else settled

    def _hash(self, path: Path, read: bool, ctx: Ctx) -> str | None:
        try:
            stamp = stamp_of(_stat(path))  # before anything else asks for the path: it may be of another machine
            key = str(path.resolve()), stamp
        except (OSError, ValueError) as error:
            raise _missing(path) from error
        if key not in self._hashes and read:
            self._hashes[key] = _sha256(path, ctx)
        return self._hashes.get(key)


def _file_of(ref: FileRef) -> Path:
    return Path(ref.path) if isinstance(ref, TextRef) else series_folder(ref) / FILE


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
    return BadInput("A text file does not exist.", expected="a UTF-8 text file", got=stated(str(path)), remedy=remedy)


def _stat(path: Path) -> os.stat_result:
    """Raises `OSError` without looking where the path is on another machine."""
    if on_another_machine(path):
        raise FileNotFoundError
    return path.stat()


def _opened(path: Path, read: Callable[[IO[bytes]], _T]) -> _T:
    if on_another_machine(path):
        what, expected = f"{path.name} is on another machine.", "a file of this one"
        raise BadInput(what, expected=expected, got=stated(str(path)), remedy="Copy it here, or give its folder a letter.")
    if not path.is_file():
        raise _missing(path)
    try:
        with opened_regular(path) as file:
            return read(file)
    except OSError as error:
        raise BadInput(
            f"{path.name} cannot be read.", expected="a readable file", got=cause(error), remedy="Change its permissions."
        ) from error


def _sha256(path: Path, ctx: Ctx = NullContext()) -> str:  # noqa: B008
    """The hash of a file, read in pieces: it may be larger than memory. `Cancelled` at a tick of `ctx`."""

    def hashed(file: IO[bytes]) -> str:
        size, done, digest = os.fstat(file.fileno()).st_size, 0, hashlib.sha256()
        for piece in pieces(file):
            done += len(piece)
            ctx.tick(min(done, size), size, f"hash of {path.name}")
            digest.update(piece)
        return digest.hexdigest()

    return _opened(path, hashed)


def checked_text(ref: TextRef) -> str:
    """The file's text. Raises `BadInput` if it is missing, too large for memory, not UTF-8, or does not match its hash."""
    path = Path(ref.path)
    data = _opened(path, lambda file: _whole(file, path))
    _check_hash(ref, hashlib.sha256(data).hexdigest())
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, cause(error)) from error


def _whole(file: IO[bytes], path: Path) -> bytes:
    if (size := os.fstat(file.fileno()).st_size) > LARGEST_SET:
        expected, remedy = f"at most {LARGEST_SET >> 20} MiB", "Divide the file: its prompts are held in memory together."
        raise BadInput(f"{path.name} is too large.", expected=expected, got=number_of(size, "byte"), remedy=remedy)
    return b"".join(pieces(file))


def _check_hash(ref: TextRef, sha256: str) -> None:
    if ref.sha256 and sha256 != ref.sha256:
        raise BadInput("A text file has changed.", expected=f"sha256 {ref.sha256[:12]}…", got=ref.path, remedy=_CHANGED)


def _not_utf8(path: Path, got: str) -> BadInput:
    return BadInput(f"{path.name} is not UTF-8.", expected="UTF-8", got=got, remedy="Save it as UTF-8.")


def text_of(data: bytes) -> str:
    """The text of a file without byte order mark and final newline, its lines separated by `\\n`. Raises `UnicodeDecodeError`."""
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")


def read_text(ref: TextRef, tokenizer: Tokenizer | None, ctx: Ctx, memory: int) -> Sequence[int]:
    """The file's tokens, 4 bytes each; no more of its text is held than a few pieces of `long_text`, and ticks between them.

    Raises `BadInput` as `checked_text` does, if the model has no tokenizer, and as `encode_in_pieces` does; `OverBudget` where
    the tokens, copied once while they grow, would take more than half of `memory`; `Cancelled`.
    """
    if tokenizer is None:
        raise BadInput("The model has no tokenizer.", expected="token ids", got="text", remedy="Type ids instead.")
    path = Path(ref.path)
    return _opened(path, lambda file: encode_in_pieces(tokenizer, _blocks(file, ref, path, ctx), memory // 16))


def _blocks(file: IO[bytes], ref: TextRef, path: Path, ctx: Ctx) -> Iterator[str]:
    """The text as `text_of` gives it, in blocks. Raises `BadInput` at the end of a file that does not match its hash."""
    size, sha256 = max(1, os.fstat(file.fileno()).st_size), hashlib.sha256()
    parts = pieces(file, size=PIECE)
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=True)
    position, newline = 0, ""  # a newline at the end of a block waits: that at the end of the text is none of it
    while True:
        ctx.tick(min(position, size), size, f"tokens of {path.name}")
        data = next(parts, b"")
        position += len(data)
        sha256.update(data)
        try:
            block = newline + decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            at = position - len(error.object) + error.start
            raise _not_utf8(path, f"byte 0x{error.object[error.start]:02x} at {at}: {error.reason}") from error
        newline = "\n" if block.endswith("\n") else ""
        yield block.removesuffix("\n")
        if not data:
            return _check_hash(ref, sha256.hexdigest())
