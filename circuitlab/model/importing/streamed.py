"""Writing a CircuitLab directory from the parts of another file: one tensor in memory at a time, each in its own dtype.

While it is written a lock stands in the folder, which goes last. Where nobody holds it, what is there is what a killed import has
left: the next one removes it and begins again, or, where the weights are in place, finds that they are its own and is done.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Protocol

import torch
from torch import Tensor

from circuitlab.disk.file_lock import FileLock, holder_of
from circuitlab.disk.files import made_folder, need_folder, read_at_most, whole, write_whole
from circuitlab.disk.regular_file import opened_regular
from circuitlab.disk.unfinished_files import is_unfinished, remove_abandoned
from circuitlab.errors import UsageError
from circuitlab.model.files.tensors import check_finite
from circuitlab.model.lazy_weights import expected_shapes
from circuitlab.model.loading.layout import LaidOut, Stored
from circuitlab.model.saving import FORMAT, ORIGIN
from circuitlab.model.text.tokenizer import Tokenizer

_NAMES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}

_MARK = ".importing"
_WEIGHTS = "model.safetensors"  # written last: where they are, the model is whole
_BESIDE = ("config.json", "tokenizer.json", ORIGIN)

Tick = Callable[[int, int, str], None]


def stream_directory(
    path: Path,
    parts: LaidOut,
    tokenizer: Tokenizer | None,
    tick: Tick = lambda *_: None,
    origin: Mapping[str, object] | None = None,
) -> int:
    """Write the model to `path`, a new or empty folder. Returns the bytes of its weights.

    `origin`: the source and what was assumed, stored in `import.json` and shown when the model is opened.
    `tick(done, total, name)`, in bytes, is called before each tensor; if it raises, nothing is left, nor the folder where that is
    new. A folder that a killed import has left with this very model is completed; with any other one it is in use. Missing gains
    and biases of norms are written as 1 and 0. Raises `BadModel` for weights that are not finite, `UsageError` for a folder in
    use, `BadMachine` if the disk is full or not writable.
    """
    need_empty(path)
    own = not path.exists()
    made_folder(path)
    text = json.dumps({"format": FORMAT, **parts.config.to_json()}, indent=1)
    beside = {"config.json": (text + "\n").encode()}
    if origin is not None:
        beside[ORIGIN] = (json.dumps(origin, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")
    if tokenizer is not None:
        beside["tokenizer.json"] = tokenizer.file_text().encode()
    try:
        with _alone(path):
            if (path / _WEIGHTS).exists():
                return _the_same(path, beside, parts, tick)
            for name, data in beside.items():
                write_whole(path / name, data)
            with whole(path / _WEIGHTS) as fresh, fresh.open("wb") as file:
                return _write(file, parts, tick)
    except BaseException:
        with contextlib.suppress(OSError):
            if own:
                path.rmdir()
        raise


def need_empty(path: Path) -> None:
    """Raise `UsageError` for a folder in use, `BadMachine` where none can be written there.

    One that holds only what a killed import has left is not in use, a whole model included.
    """
    need_folder(path)
    if not path.exists():
        return
    if (holder := holder_of(path / _MARK)) is not None:
        raise _in_use("A model is being imported into the output folder.", f"{path}, in use by {holder.words()}")
    if not path.is_dir() or _others(path):
        raise _in_use("The output folder is not empty.", str(path))


def _in_use(what: str, got: str) -> UsageError:
    return UsageError(what, expected="a new or an empty folder", got=got, remedy="Name another with --output.")


def _others(path: Path) -> list[str]:
    """What is in a folder beside that which a killed import has left."""
    names = [file.name for file in path.iterdir()]
    left = {_MARK, _WEIGHTS, *_BESIDE} if _MARK in names else set[str]()
    return [name for name in names if name not in left and not (left and is_unfinished(name))]


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Inside, nobody else imports into the folder, and of an earlier import nothing is there but a whole model, which stays. What
    is written stays if the block ends well. The lock goes, but beside a whole model that the block has not found to be its own.

    On a disk without locks there is none, and what a killed import has left makes the folder one in use. Raises `UsageError`.
    """
    lock, weights = FileLock(path / _MARK), path / _WEIGHTS
    was_left = lock.path.exists()
    try:
        holder = lock.take()
    except OSError:
        lock.path.unlink(missing_ok=True)
    else:
        if holder is not None:
            raise _in_use("A model is being imported into the output folder.", f"{path}, in use by {holder.words()}")
    ours = well = False
    try:
        ours = not _others(path) and (was_left or not weights.exists())
        if not ours:
            raise _in_use("The output folder is not empty.", str(path))
        _clear(path)
        try:
            yield
            well = True
        finally:
            if not well:
                _clear(path)
    finally:
        lock.release(remove=well or not (ours and weights.exists()))


def _clear(path: Path) -> None:
    """Remove what a killed import has left, unless its weights are in place."""
    remove_abandoned(path)
    if not (path / _WEIGHTS).exists():
        for name in _BESIDE:
            (path / name).unlink(missing_ok=True)


def _the_same(path: Path, beside: Mapping[str, bytes], parts: LaidOut, tick: Tick) -> int:
    """The bytes of the weights, where the model at `path` is byte for byte the one that would be written. Raises `UsageError`."""
    try:
        for name in _BESIDE:
            result = read_at_most(path / name, len(beside.get(name, b""))) if (path / name).exists() else None
            if result != beside.get(name):
                raise _Differs
        with opened_regular(path / _WEIGHTS) as file:
            nbytes = _write(_Compared(file), parts, tick)
            if file.read(1):
                raise _Differs
    except _Differs:
        raise _in_use("The output folder holds another model, which an earlier import has written.", str(path)) from None
    return nbytes


class _Differs(Exception):
    """What is there is not what would be written."""


class _Compared:
    """In place of a file that is written: compares with one that is there. `write` raises `_Differs`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        """These bytes come next."""
        if self._file.read(len(data)) != data:
            raise _Differs


class _Written(Protocol):
    """What bytes are written to, one after another."""

    def write(self, data: bytes, /) -> object: ...


def _write(file: _Written, parts: LaidOut, tick: Tick) -> int:
    where = {name: (stored, i) for name, stored, i in parts.layout.each(parts.config)}
    shapes, header, at = expected_shapes(parts.config), {}, 0
    for name, shape in shapes.items():
        dtype = _dtype(parts, *where[name]) if name in where else torch.float32
        stop = at + dtype.itemsize * math.prod(shape)
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [at, stop]}
        at = stop
    text = json.dumps({"__metadata__": {"format": FORMAT}, **header}).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name, shape in shapes.items():
        tick(header[name]["data_offsets"][0], at, name)
        value = _value(parts, name, *where[name]) if name in where else _plain(name, shape)
        for piece in _bytes(value):
            file.write(piece)
    return at


def _dtype(parts: LaidOut, where: Stored, i: int) -> torch.dtype:
    kind = lambda name: getattr(torch, parts.source.kind(parts.full(name)))
    empty = lambda name: torch.empty(parts.source.shape(parts.full(name)), dtype=kind(name), device="meta")
    return where.take(parts.config, empty, i).dtype


def _value(parts: LaidOut, name: str, where: Stored, i: int) -> Tensor:
    value = where.take(parts.config, lambda n: parts.source.tensor(parts.full(n)), i)
    check_finite(name, value)
    return value


def _plain(name: str, shape: tuple[int, ...]) -> Tensor:
    """The gain (1) or bias (0) of a norm that has none."""
    return torch.ones(shape) if name.endswith(".gain") else torch.zeros(shape)


def _bytes(value: Tensor) -> Iterator[bytes]:
    """The bytes of the numbers in order, at most 64 MiB at a time, but at least one row."""
    rows = value if value.dim() else value[None]
    step = max(1, (1 << 26) // max(1, value.itemsize * math.prod(rows.shape[1:])))
    for start in range(0, len(rows), step):
        yield rows[start : start + step].contiguous().view(-1).view(torch.uint8).numpy().tobytes()
