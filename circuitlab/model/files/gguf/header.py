"""The header of a GGUF file: metadata by key, and the place of each tensor, every count held to a bound before it is used.

After four bytes of magic: uint32 version, uint64 tensors, uint64 keys; then the keys (name, type, value) and the tensors (name,
axes fastest first, kind, offset); then, aligned, the data. Offsets are the padded sums of the sizes before, as llama.cpp demands.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.errors import BadModel, quoted
from circuitlab.model.files.gguf.kinds import KINDS, Kind
from circuitlab.model.files.misnamed import GGUF, MAGIC, refuse_misnamed
from circuitlab.model.files.whole_file import WholeFile

_LARGEST = 128 * 2**20  # bytes of a header: vocabularies of 500,000 tokens with their merges take 40 MB
_CHUNK = 4 * 2**20
_MOST_KEYS, _MOST_TENSORS, _MOST_AXES, _LONGEST_NAME = 4096, 2**17, 4, 64
_MOST_STRINGS = 2**22  # in all arrays: Python takes some 60 bytes for the shortest
_LONGEST_KEY, _LARGEST_AXIS, _LARGEST_ALIGNMENT = 2**16, 2**40, 2**20
_STRING, _ARRAY, _BOOL = 8, 9, 7
_LENGTH = struct.Struct("<Q")
# type in the file -> format of struct and dtype of numpy
_SCALARS = {
    0: ("<B", "u1"), 1: ("<b", "i1"), 2: ("<H", "<u2"), 3: ("<h", "<i2"), 4: ("<I", "<u4"), 5: ("<i", "<i4"), 6: ("<f", "<f4"),
    7: ("<B", "u1"), 10: ("<Q", "<u8"), 11: ("<q", "<i8"), 12: ("<d", "<f8"),
}  # fmt: skip
_REMEDY = "The file is damaged or cut off: copy or download it again."


@dataclass(frozen=True)
class Packed:
    """A tensor: `shape` as torch has it (last axis fastest), its bytes from `start` to `stop`; `part`: of a model in
    several files, which of them."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    start: int
    stop: int
    part: int = 0

    @property
    def numel(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Header:
    """What a GGUF file says of itself. `metadata`: numbers, texts, flags, lists of texts, and arrays of numbers as numpy's."""

    name: str
    version: int
    metadata: JsonObject
    tensors: Mapping[str, Packed]


def read_header(file: WholeFile) -> Header:
    """The header of a file. Raises `BadModel` for a damaged one, or of a version that is not read."""
    refuse_misnamed(file, GGUF)
    walk = _Walk(file)
    if walk.take(4) != MAGIC:
        raise _bad(file.name, "GGUF at the beginning", "other bytes")
    version = walk.number("<I")
    if version not in (2, 3):
        swapped = version & 0xFFFF == 0 and version
        raise BadModel(
            f"{file.name} is a GGUF file of a form that is not read.",
            expected="version 2 or 3, least significant byte first",
            got="most significant byte first" if swapped else f"version {version}",
            remedy="Convert the model again with a recent llama.cpp, on a machine of the usual byte order.",
        )
    n_tensors = walk.count("tensors", _MOST_TENSORS)
    metadata: JsonDict = {}
    for _ in range(walk.count("keys", _MOST_KEYS)):
        key = walk.text(_LONGEST_KEY)
        if key in metadata:
            raise _bad(file.name, "each key once", f"{quoted(key)} twice")
        metadata[key] = walk.value(walk.number("<I"), key)
    tensors = _tensors(walk, n_tensors, metadata)
    return Header(file.name, version, metadata, tensors)


def read_parts(files: Sequence[WholeFile]) -> Header:
    """The header of a model in one file or several, of which the first says what the model is. Raises `BadModel`."""
    first = read_header(files[0])
    count = first.metadata.get("split.count", 1)
    if type(count) is not int or max(1, count) != len(files):
        raise BadModel(
            f"{first.name} is one part of a model.",
            expected="all parts in one folder, under the names that llama.cpp gave them",
            got=f"split.count {quoted(count)}, and {number_of(len(files), 'file')} by its name",
            remedy="Put the parts NAME-00001-of-0000N.gguf beside each other and open one of them.",
        )
    tensors = dict(first.tensors)
    for i, file in enumerate(files[1:], 1):
        more = read_header(file)
        if more.metadata.get("split.no") != i or more.metadata.get("split.count") != count:
            raise _bad(file.name, f"part {i} of {count}, counted from 0", quoted(more.metadata.get("split.no")))
        if twice := tensors.keys() & more.tensors.keys():
            raise _bad(file.name, "tensors that no other part has", sorted(twice)[0])
        tensors |= {name: replace(tensor, part=i) for name, tensor in more.tensors.items()}
    return replace(first, tensors=tensors)


def _tensors(walk: _Walk, n: int, metadata: Mapping[str, object]) -> dict[str, Packed]:
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
        raise _bad(walk.file.name, "an alignment that is a power of two", quoted(alignment))
    entries, names = [], set[str]()
    for _ in range(n):
        name = walk.text(_LONGEST_NAME)
        if name in names or not name.isprintable():
            raise _bad(walk.file.name, "tensors with printable names, each once", quoted(name))
        names.add(name)
        axes = walk.number("<I")
        if axes > _MOST_AXES:
            raise _bad(walk.file.name, f"at most {_MOST_AXES} axes of {name}", str(axes))
        shape = tuple(walk.number("<Q") for _ in range(axes))[::-1]
        kind, offset = walk.number("<I"), walk.number("<Q")
        entries.append((name, shape, kind, offset))
    data = _padded(walk.at, alignment)
    tensors, at = {}, 0
    for name, shape, kind_id, offset in entries:
        kind = KINDS.get(kind_id)
        if kind is None:
            raise BadModel(
                f"{walk.file.name}: the tensor {name} is of a kind that is not known.",
                expected="one of " + " ".join(k.name for k in KINDS.values() if k.dtype is not None),
                got=f"kind {kind_id}",
                remedy="Quantise the model again with a recent llama.cpp, into one of these.",
            )
        if any(not 0 < axis <= _LARGEST_AXIS for axis in shape) or (math.prod(shape) if shape else 1) > _LARGEST_AXIS:
            raise _bad(walk.file.name, f"a possible shape of {name}", str(shape)[:80])
        if (shape[-1] if shape else 1) % kind.block:
            raise _bad(walk.file.name, f"rows of {name} in blocks of {kind.block}", str(shape[-1] if shape else 1))
        nbytes = math.prod(shape) // kind.block * kind.nbytes
        if offset != at or data + offset + nbytes > walk.file.size:
            what = f"bytes {at:,} to {at + nbytes:,} of {max(0, walk.file.size - data):,} of data for {name}"
            raise _bad(walk.file.name, what, f"an offset of {offset:,}" if offset != at else "fewer bytes in the file")
        tensors[name] = Packed(name, kind, shape, data + offset, data + offset + nbytes)
        at = _padded(at + nbytes, alignment)
    return tensors


def _padded(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


class _Walk:
    """Reads a header from its beginning, in chunks of the file; `at` is the next byte."""

    def __init__(self, file: WholeFile) -> None:
        self.file, self.at, self._data, self._strings = file, 0, bytearray(), 0

    def _need(self, n: int) -> int:
        """Where the next `n` bytes begin in `_data`, which then has them. Raises `BadModel`."""
        start, stop = self.at, self.at + n
        if stop > min(self.file.size, _LARGEST):
            over = stop <= self.file.size
            expected = f"a header of at most {_LARGEST >> 20} MiB" if over else f"{number_of(n, 'byte')} at byte {start:,}"
            raise _bad(self.file.name, expected, "more" if over else f"a file of {number_of(self.file.size, 'byte')}")
        if stop > len(self._data):
            upto = min(self.file.size, max(stop, len(self._data) + _CHUNK))
            self._data += self.file.read(len(self._data), upto)
        self.at = stop
        return start

    def take(self, n: int) -> bytes:
        """The next `n` bytes."""
        start = self._need(n)
        return bytes(self._data[start : start + n])

    def number(self, form: str) -> Any:
        """The next number, of a format of `struct`."""
        start = self._need(struct.calcsize(form))
        return struct.unpack_from(form, self._data, start)[0]

    def count(self, what: str, most: int) -> int:
        """A count of at most `most`."""
        n = self.number("<Q")
        if n > most:
            raise _bad(self.file.name, f"at most {most:,} {what}", f"{n:,}")
        return n

    def text(self, most: int) -> str:
        """A name of at most `most` bytes."""
        length = self.count("bytes of a name", most)
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise _bad(self.file.name, "names in UTF-8", quoted(error.object[:40])) from error

    def value(self, kind: int, key: str) -> Any:
        """A value of a type of the format."""
        if kind == _STRING:
            return self.take(self.count(f"bytes of {key}", _LARGEST)).decode("utf-8", "replace")
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            raise _bad(self.file.name, "values of a known type", f"type {kind} of {quoted(key)}")
        value = self.number(_SCALARS[kind][0])
        return bool(value) if kind == _BOOL else value

    def _array(self, key: str) -> Any:
        kind, n = self.number("<I"), self.number("<Q")
        if kind == _STRING:
            return self._texts(key, n)
        if kind not in _SCALARS:
            raise _bad(self.file.name, "lists of numbers or texts", f"type {kind} in {quoted(key)}")
        dtype = np.dtype(_SCALARS[kind][1])
        if n > _LARGEST:
            raise _bad(self.file.name, f"a header of at most {_LARGEST >> 20} MiB", f"{number_of(n, 'value')} in {quoted(key)}")
        start = self._need(n * dtype.itemsize)
        values = np.frombuffer(bytes(self._data[start : self.at]), dtype)
        return values.astype(bool) if kind == _BOOL else values

    def _texts(self, key: str, n: int) -> list[str]:
        self._strings += n
        if self._strings > _MOST_STRINGS:
            raise _bad(self.file.name, f"at most {_MOST_STRINGS:,} texts in lists", f"{self._strings:,}")
        if 8 * n > self.file.size - self.at:
            raise _bad(
                self.file.name, f"{number_of(n, 'text')} in {quoted(key)}", f"a file of {number_of(self.file.size, 'byte')}"
            )
        texts: list[str] = []
        at, stop, unpack, data = self.at, len(self._data), _LENGTH.unpack_from, self._data
        try:
            for _ in range(n):  # a loop without calls: a vocabulary has hundreds of thousands of texts
                end = at + 8
                if end <= stop:
                    end += unpack(data, at)[0]
                if end > stop:
                    self.at = at
                    self._need(8)
                    end = at + 8 + unpack(data, at)[0]
                    self._need(end - self.at)
                    stop = len(data)
                texts.append(data[at + 8 : end].decode("utf-8"))
                at = end
        except UnicodeDecodeError as error:
            raise _bad(self.file.name, f"texts of {quoted(key)} in UTF-8", quoted(bytes(error.object[:40]))) from error
        self.at = at
        return texts


def _bad(name: str, expected: str, got: str) -> BadModel:
    return BadModel(f"{name} is a damaged GGUF file.", expected=expected, got=got, remedy=_REMEDY)
