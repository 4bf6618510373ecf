"""State dicts in torch's pickle formats (`.bin`, `.pt`, `.pth`, `.ckpt`), read without running anything that is in them.

The contents are read as descriptions (`unpickling`), checked against the bytes of the file, and mapped like safetensors: opening
reads no weights. Files that `torch.load(weights_only=True)` accepts too give the same tensors. Everything else in the file
is either a plain value (`metadata`) or named and not read (`skipped`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import torch

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadModel
from circuitlab.model.files.archive import LARGEST_PICKLE, damaged, entries, is_archive, structure
from circuitlab.model.files.choosing import Chosen, beside, choose
from circuitlab.model.files.described import OddKey, Other, Strided, in_short
from circuitlab.model.files.misnamed import PROTOCOL, TORCH, refuse_misnamed
from circuitlab.model.files.places import Place, check_name, check_shape
from circuitlab.model.files.tensors import MappedTensors
from circuitlab.model.files.unpickling import DAMAGE, Unwanted, storage_key, unpickled
from circuitlab.model.files.whole_file import WholeFile

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001  # how torch's older format begins
_WEIGHTS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_SHARED = 256 * 2**20  # bytes by which tensors that share their numbers may exceed their file


@dataclass(frozen=True)
class Pickled:
    """The contents of a file: tensors by name, plain values beside them, and lines that name what was not read.

    `under`: the key of the dictionary that the weights were taken from, "" where the whole file is one; `others`: further keys
    that hold tensors. `usual`: the key is a usual one, so that the choice needs no note.
    """

    tensors: MappedTensors
    metadata: JsonObject
    skipped: tuple[str, ...] = ()
    under: str = ""
    others: tuple[str, ...] = ()
    usual: bool = True


def read_pickle(path: Path, under: str | None = None) -> Pickled | None:
    """The weights of a file (`under`: those under this key, nested keys joined by dots); None for a file that is not a pickle.

    Raises `BadModel`.
    """
    file = WholeFile(path)
    refuse_misnamed(file, TORCH)
    zipped = is_archive(file)
    if not zipped and file.read(0, min(2, file.size)) not in PROTOCOL:
        return None
    try:
        contents, storages = archived(file) if zipped else _older(file)
    except Unwanted as error:
        raise BadModel(
            f"{file.name} holds more than weights.",
            expected="tensors by name, plain values and objects: nothing that asks for a function to be run",
            got=f"a call of {ascii(error.what)[1:-1][:150]}; it was not run",
            remedy="Save the model's state_dict where it can be trusted, or convert it to safetensors.",
        ) from error
    except DAMAGE as error:
        reason = str(error).partition("\n")[0].encode("ascii", "replace").decode()[:150]
        raise damaged(file, "a pickle of torch.save", reason or type(error).__name__) from error
    return _contents_of(file, choose(file.name, contents, under), storages)


def archived(file: WholeFile, largest: int = LARGEST_PICKLE) -> tuple[object, Mapping[str, tuple[int, int]]]:
    """An archive's contents as descriptions, and (start, stop) of each storage; `largest`: bytes of structure at most.

    Raises `BadModel`, `Unwanted` or one of `DAMAGE`.
    """
    spans = entries(file)
    contents, _ = unpickled(BytesIO(structure(file, spans, largest)))
    return contents, {name.removeprefix("data/"): span for name, span in spans.items() if name.startswith("data/")}


def _older(file: WholeFile) -> tuple[object, Mapping[str, tuple[int, int]]]:
    """The format before torch 1.6: five pickles, then each storage preceded by its length."""
    stream = BytesIO(file.read(0, min(file.size, LARGEST_PICKLE)))
    magic, _ = unpickled(stream)
    if magic != _MAGIC:
        raise damaged(file, "a checkpoint of torch.save", "another pickle")
    version, machine = unpickled(stream)[0], unpickled(stream)[0]
    contents, sizes = unpickled(stream)
    keys, _ = unpickled(stream)
    if version != _VERSION or not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise damaged(file, f"version {_VERSION}, little-endian", f"{in_short(version, 40)}, {in_short(machine)}")
    spans: dict[str, tuple[int, int]] = {}
    at = stream.tell()
    for name in map(storage_key, keys if isinstance(keys, list) else ()):
        if name not in sizes:
            raise damaged(file, "storages of tensors", f"storage {in_short(name, 40)}, which no tensor uses")
        n = int.from_bytes(file.read(at, at + 8), "little")
        spans[name] = (at + 8, at + 8 + n * sizes[name])
        at = spans[name][1]
    return contents, spans


def _contents_of(file: WholeFile, chosen: Chosen, storages: Mapping[str, tuple[int, int]]) -> Pickled:
    """The contents of a file: tensors of the chosen dictionary, everything else as metadata or lines."""
    places: dict[str, Place] = {}
    tensors = {k: v for k, v in chosen.weights.items() if isinstance(v, Strided | Other)}
    odd = dict.fromkeys(k for k in tensors if isinstance(k, OddKey) or (not isinstance(k, str) and str(k) in tensors))
    if len(odd) == len(tensors):
        raise BadModel(
            f"{file.name} holds tensors under keys that are not names.",
            expected="tensors by name: text, or a number",
            got=", ".join(str(k)[:60] for k in list(odd)[:6]),
            remedy="Save it with names: torch.save({str(key): x for key, x in weights.items()}, FILE).",
        )
    for key, value in tensors.items():
        if key not in odd:
            name = check_name(file.name, str(key))
            places[name] = _odd(value) if isinstance(value, Other) else place_of(file, name, value, storages)
    total = sum(p.span * p.itemsize for p in set(places.values()))
    if total > file.size + _SHARED:
        raise damaged(file, f"tensors of at most {number_of(file.size + _SHARED, 'byte')} in all", f"{total}: they overlap")
    metadata, skipped = beside(chosen)
    skipped = (*skipped, *(f"{str(k)[:60]} (a tensor whose key is not a name)" for k in list(odd)[:12]))
    return Pickled(MappedTensors(file, places), metadata, skipped, chosen.under, chosen.others, chosen.usual)


def _odd(value: Other) -> Place:
    return Place(0, value.kind, None, (), ())


def place_of(file: WholeFile, name: str, value: Strided, storages: Mapping[str, tuple[int, int]]) -> Place:
    """The place of one tensor. Raises `BadModel` where it exceeds its storage, or its elements overlap."""
    if value.storage.key not in storages:
        raise damaged(file, f"the numbers of {name}", f"no storage {in_short(value.storage.key, 40)}")
    start, stop = storages[value.storage.key]
    if value.storage.n * value.storage.dtype.itemsize != stop - start or stop > file.size:
        stored = value.storage.n * value.storage.dtype.itemsize
        raise damaged(file, f"{number_of(stored, 'byte')} of {name}'s storage", number_of(min(stop, file.size) - start, "byte"))
    shape = check_shape(file.name, name, value.shape)
    stride, offset = check_shape(file.name, name, value.stride), value.offset
    if len(stride) != len(shape) or type(offset) is not int or offset < 0:
        raise damaged(file, f"a start and {number_of(len(shape), 'stride')} of {name}", f"{in_short(offset, 40)} and {stride}")
    kind = str(value.dtype).removeprefix("torch.")
    item = value.dtype.itemsize
    place = Place(start + offset * item, kind, value.dtype if value.dtype in _WEIGHTS else None, shape, stride)
    if start + (offset + place.span) * item > stop:
        raise damaged(file, f"{name} {shape} within its {number_of((stop - start) // item, 'number')}", f"{offset + place.span}")
    if _count(shape) > place.span:
        raise BadModel(
            f"{file.name}: {name} repeats its numbers.",
            expected="every element stored once",
            got=f"{_count(shape)} elements over {number_of(place.span, 'number')}",
            remedy="Save it with .contiguous().",
        )
    return place


def _count(shape: tuple[int, ...]) -> int:
    n = 1
    for size in shape:
        n *= size
    return n
