"""The place of a tensor in a file: first byte, dtype, shape and strides, read from the file's header and validated."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.files import strict_json
from circuitlab.model.files.described import in_short
from circuitlab.model.files.whole_file import WholeFile

_LARGEST_SIZE = 2**48
_MOST_AXES = 8
# name in the file: bits of one element. The first ones are weights; a file may hold the others beside them (masks, ids)
_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8}
_BITS |= {"F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64, "C64": 64}
_BITS |= {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
_WEIGHTS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class Place:
    """A tensor in a file: `start` is the byte of its first element, `stride` counts elements as torch does.

    `dtype` None: a type that weights do not have; `kind` is its name.
    """

    start: int
    kind: str
    dtype: torch.dtype | None
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @cached_property
    def span(self) -> int:
        """Elements from the first to the last inclusive; 0 for an empty tensor."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))

    @cached_property
    def stop(self) -> int:
        """The byte after the last element."""
        return self.start + self.span * self.itemsize

    @cached_property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize if self.dtype is not None else 1

    def view(self, file: WholeFile) -> Tensor:
        """The tensor as a view of the file's map; a copy where it is not aligned to its element size."""
        if self.span == 0 or self.start % self.itemsize:
            return self.copy(file)
        with warnings.catch_warnings():  # torch warns that the buffer is read-only, which is the point
            warnings.simplefilter("ignore", UserWarning)
            flat = torch.frombuffer(file.view(self.start, self.stop), dtype=self.dtype or torch.uint8)
        return flat.as_strided(self.shape, self.stride)

    def copy(self, file: WholeFile) -> Tensor:
        """The tensor in memory of its own, in its own dtype and strides."""
        return file.copy(self.start, self.stop).view(self.dtype or torch.uint8).as_strided(self.shape, self.stride)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor without gaps, last axis fastest."""
    return tuple(math.prod(max(1, n) for n in shape[i + 1 :]) for i in range(len(shape)))


def check_name(file: str, name: object) -> str:
    """A tensor's name, checked to be printable. Raises `BadModel`."""
    if not isinstance(name, str) or not name.isprintable() or len(name) > 500:
        got = number_of(len(name), "character") if isinstance(name, str) and len(name) > 500 else in_short(name, 100)
        raise BadModel(f"{file} has a tensor without a usable name.", expected="at most 500 printable characters", got=got)
    return name


def check_shape(file: str, name: str, shape: object) -> tuple[int, ...]:
    """A shape, checked to be possible. Raises `BadModel`."""
    sizes = tuple(shape[: _MOST_AXES + 1]) if isinstance(shape, list | tuple) else (-1,)
    if len(sizes) > _MOST_AXES or not all(type(n) is int and 0 <= n < _LARGEST_SIZE for n in sizes):
        raise BadModel(
            f"{file}: {name} has an impossible shape.",
            expected=f"at most {_MOST_AXES} sizes, none negative",
            got=in_short(sizes, 100) if isinstance(shape, list | tuple) else type(shape).__name__,
        )
    return sizes


def safetensors_places(file: WholeFile) -> dict[str, Place]:
    """The place of each tensor of a safetensors file. Raises `BadModel` unless tensors fill the file without gap or overlap."""
    if file.size < 10:
        raise _damaged(file, "8 bytes of length and a header", number_of(file.size, "byte"))
    length = int.from_bytes(file.read(0, 8), "little")
    if length > min(file.size - 8, strict_json.LARGEST):
        raise _damaged(
            file,
            f"a header of at most {number_of(min(file.size - 8, strict_json.LARGEST), 'byte')}",
            f"one of {number_of(length, 'byte')}",
        )
    text = file.read(8, 8 + length)
    if not text.startswith(b"{"):
        raise _damaged(file, "a header that begins with {", ascii(text[:20]))
    try:
        header = strict_json.parse(text, file.name)
    except BadModel as error:
        raise _damaged(file, "a header in JSON, each name once", error.got) from error
    entries = [_entry(file, name, entry) for name, entry in header.items() if name != "__metadata__"]
    at = 0
    for start, stop, name, _ in sorted(entries, key=lambda e: e[:2]):
        if start != at:
            what = "overlaps the one before it" if start < at else "leaves a gap before it"
            raise _damaged(file, f"tensors side by side, {name} at byte {at}", f"at {start}: it {what}")
        at = stop
    if 8 + length + at != file.size:
        raise _damaged(file, f"{number_of(8 + length + at, 'byte')} by its header", number_of(file.size, "byte"))
    return {name: Place(8 + length + start, *kind) for start, _, name, kind in entries}


def _entry(
    file: WholeFile, name: str, entry: object
) -> tuple[int, int, str, tuple[str, torch.dtype | None, tuple[int, ...], tuple[int, ...]]]:
    check_name(file.name, name)
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _damaged(file, f"dtype, shape and data_offsets of {name}", in_short(entry, 100))
    kind, where = entry["dtype"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in _BITS:
        raise _damaged(file, f"a dtype of {name}: {' '.join(_BITS)}", in_short(kind, 60))
    shape = check_shape(file.name, name, entry["shape"])
    if not (isinstance(where, list) and len(where) == 2 and all(type(n) is int and 0 <= n <= file.size for n in where)):
        raise _damaged(file, f"two offsets of {name} within the file", in_short(where, 100))
    bits = math.prod(shape) * _BITS[kind]
    if bits != 8 * (where[1] - where[0]):
        raise _damaged(file, f"{bits / 8:g} bytes of {name}, {kind} {shape}", number_of(where[1] - where[0], "byte"))
    return where[0], where[1], name, (kind, _WEIGHTS.get(kind), shape, contiguous(shape))


def _damaged(file: WholeFile, expected: str, got: str) -> BadModel:
    return BadModel(
        f"{file.name} is damaged or not a safetensors file.",
        expected=expected,
        got=f"{got} ({number_of(file.size, 'byte')})",
        remedy="Copy or download it again; convert other formats with the safetensors library.",
    )
