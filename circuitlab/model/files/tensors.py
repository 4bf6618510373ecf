"""Named tensors that loaders read from: resident in memory, or in a memory-mapped file.

Maps are shared and read-only: a private writable map of a large file would count against a memory limit. Copies are not made
through a map (`whole_file` says why).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.errors import BadModel, quoted
from circuitlab.model.files.misnamed import SAFETENSORS, refuse_misnamed
from circuitlab.model.files.places import Place, safetensors_places
from circuitlab.model.files.whole_file import WholeFile

T = TypeVar("T")
NO_KINDS: Mapping[str, str] = MappingProxyType({})
WEIGHT_KINDS = ("float64", "float32", "float16", "bfloat16")


class TensorSource(Protocol):
    """Named tensors of a checkpoint. `resident`: whether they are in memory rather than in a mapped file.

    Methods that take a name raise `BadModel` for a missing one.
    """

    @property
    def resident(self) -> bool: ...
    def names(self) -> frozenset[str]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def tensor(self, name: str) -> Tensor: ...

    def kind(self, name: str) -> str:
        """Its dtype by torch's name, or why it is not a plain tensor ("sparse")."""
        ...

    def copy(self, name: str) -> Tensor:
        """One tensor in memory of its own, in its own dtype."""
        ...

    def alias(self, name: str) -> Hashable:
        """Equal for two names of the same numbers (a tied embedding)."""
        ...


def _entry(by_name: Mapping[str, T], name: str) -> T:
    """The entry of a name. Raises `BadModel` where there is none."""
    if name not in by_name:
        raise BadModel("The weights lack a tensor.", expected=name, got=number_of(len(by_name), "other"))
    return by_name[name]


class ResidentTensors:
    """Tensors already in memory. `kinds`: dtypes that they had in a file, by name, where these were others."""

    resident = True

    def __init__(self, tensors: Mapping[str, Tensor], kinds: Mapping[str, str] = NO_KINDS) -> None:
        self._tensors, self._kinds = dict(tensors), dict(kinds)

    def names(self) -> frozenset[str]:
        """All names."""
        return frozenset(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor."""
        return tuple(self._at(name).shape)

    def tensor(self, name: str) -> Tensor:
        """One tensor, not to be written to."""
        return self._at(name)

    def kind(self, name: str) -> str:
        """Its dtype in the file, in torch's words."""
        return self._kinds.get(name) or str(self._at(name).dtype).removeprefix("torch.")

    def copy(self, name: str) -> Tensor:
        """One tensor in memory of its own."""
        return self._at(name).clone()

    def alias(self, name: str) -> Hashable:
        """Equal for two views of the same numbers."""
        value = self._at(name)
        return value.data_ptr(), value.dtype, tuple(value.shape), value.stride()

    def _at(self, name: str) -> Tensor:
        return _entry(self._tensors, name)


class MappedTensors:
    """The tensors of one memory-mapped file: nothing is read until it is used.

    `tensor` returns a view of the map and `copy` a copy. Both raise `BadModel` where the file has become shorter; `tensor` also
    where numbers are not finite, checked on first access. Every place must have been checked to lie within the file.
    """

    resident = False

    def __init__(self, file: WholeFile, places: Mapping[str, Place]) -> None:
        self._file, self._places = file, dict(places)
        self._finite: set[str] = set()

    def names(self) -> frozenset[str]:
        """All names."""
        return frozenset(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor, from the header."""
        return _entry(self._places, name).shape

    def kind(self, name: str) -> str:
        """Its dtype, or what else it is."""
        place = _entry(self._places, name)
        return place.kind if place.dtype is None else str(place.dtype).removeprefix("torch.")

    def tensor(self, name: str) -> Tensor:
        """One tensor over the map, in its own dtype; writing to it is an error of the caller."""
        value = self._weights(name).view(self._file)
        if name not in self._finite:
            check_finite(name, value)
            self._finite.add(name)
        return value

    def copy(self, name: str) -> Tensor:
        """One tensor in memory of its own, in its own dtype."""
        return self._weights(name).copy(self._file)

    def alias(self, name: str) -> Hashable:
        """The file and the place in it."""
        return self._file, _entry(self._places, name)

    def _weights(self, name: str) -> Place:
        check_kind(self, name)
        return _entry(self._places, name)


class ShardedTensors:
    """Several files as one source. A shard is mapped when its first tensor is accessed."""

    resident = False

    def __init__(self, where: Mapping[str, MappedTensors]) -> None:
        self._where = dict(where)

    def names(self) -> frozenset[str]:
        """All names."""
        return frozenset(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor, from its shard's header."""
        return _entry(self._where, name).shape(name)

    def kind(self, name: str) -> str:
        """Its dtype, or what else it is."""
        return _entry(self._where, name).kind(name)

    def tensor(self, name: str) -> Tensor:
        """One tensor over its shard's map."""
        return _entry(self._where, name).tensor(name)

    def copy(self, name: str) -> Tensor:
        """One tensor in memory of its own."""
        return _entry(self._where, name).copy(name)

    def alias(self, name: str) -> Hashable:
        """The shard's file and the place in it."""
        return _entry(self._where, name).alias(name)


class CachedTensors:
    """A file's tensors, each copied into memory as float32 on first access and cached; a tensor with two names is copied once.

    Opening a large model then reads its header alone. `tensor` raises `BadModel` where the file has become shorter or numbers are
    not finite. Safe to use from several threads.
    """

    resident = True

    def __init__(self, source: TensorSource) -> None:
        self._source, self._tensors, self._lock = source, dict[Hashable, Tensor](), threading.Lock()

    def names(self) -> frozenset[str]:
        """All names."""
        return self._source.names()

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor, from the header."""
        return self._source.shape(name)

    def kind(self, name: str) -> str:
        """Its dtype in the file, or what else it is."""
        return self._source.kind(name)

    def tensor(self, name: str) -> Tensor:
        """One tensor, not to be written to."""
        alias = self._source.alias(name)
        with self._lock:
            if alias not in self._tensors:
                value = self._source.copy(name).to(torch.float32)
                check_finite(name, value)
                self._tensors[alias] = value
            return self._tensors[alias]

    def copy(self, name: str) -> Tensor:
        """One tensor in memory of its own."""
        return self.tensor(name).clone()

    def alias(self, name: str) -> Hashable:
        """The file's."""
        return self._source.alias(name)


def open_safetensors(path: Path) -> MappedTensors:
    """The tensors of a safetensors file. Raises `BadModel` for a damaged file or another format."""
    file = WholeFile(path)
    refuse_misnamed(file, SAFETENSORS)
    return MappedTensors(file, safetensors_places(file))


def shard_table(index: Path, data: Mapping[str, object], endings: tuple[str, ...] = (".safetensors", ".bin")) -> dict[str, str]:
    """Tensor name -> name of its shard, by `*.index.json`. Raises `BadModel`.

    A shard's name must be a bare file name in the index's own folder. A symbolic link of that name is followed, as the hub's
    cache needs; an index cannot create one.
    """
    table = data.get("weight_map")
    if not isinstance(table, dict) or not table or not all(isinstance(v, str) for v in table.values()):
        raise BadModel(
            f"{index.name} has no weight_map.",
            expected="tensor names with their files",
            got="no such entry" if table is None else quoted(table, 60),
            remedy="Download the index again with its shards, or remove it where the folder has the weights in one file.",
        )
    for name in set(table.values()):
        bare = name.isprintable() and not set(name) & set(r"/\:") and len(name) < 200
        if not bare or not name.endswith(endings):
            raise BadModel(
                f"{index.name} names a file outside its folder.",
                expected=f"names of files in the same folder, ending in {' or '.join(endings)}",
                got=ascii(name)[:100],
                remedy="Download the checkpoint again from a source you trust.",
            )
    return table


def open_shards(
    index: Path, data: Mapping[str, object], opener: Callable[[Path], MappedTensors] = open_safetensors
) -> tuple[ShardedTensors, tuple[Path, ...]]:
    """The shards of `*.index.json`, each opened by `opener`, and their files.

    Raises `BadModel` where one is missing or damaged, lacks a tensor that the index says it has, or two have the same one.
    """
    table = shard_table(index, data)
    shards = {name: opener(index.with_name(name)) for name in sorted(set(table.values()))}
    if lost := sorted(t for t, f in table.items() if t not in shards[f].names()):
        raise BadModel(
            "A shard lacks tensors that the index says it has.",
            expected=", ".join(f"{ascii(t)[1:-1][:100]} in {table[t]}" for t in lost[:4]),
            got=f"{number_of(len(lost), 'tensor')} missing",
            remedy="Shards of two checkpoints may have been mixed. Download the checkpoint again.",
        )
    where: dict[str, str] = dict(table)
    for file, shard in shards.items():
        for name in shard.names():
            if where.setdefault(name, file) != file:
                raise BadModel(
                    "Two shards have a tensor of the same name.",
                    expected=f"{name} once",
                    got=f"in {file} and {where[name]}",
                    remedy="Shards of two checkpoints may have been mixed. Download the checkpoint again.",
                )
    return ShardedTensors({t: shards[f] for t, f in where.items()}), tuple(index.with_name(n) for n in shards)


def check_kind(source: TensorSource, name: str) -> None:
    """Raise `BadModel` where a needed tensor has a dtype that weights do not have."""
    kind = source.kind(name)
    if kind not in WEIGHT_KINDS:
        raise BadModel(
            f"The tensor {name} ({kind}) cannot be read as a weight."
            if kind in _PLAINER
            else f"The tensor {name} has a dtype that weights do not have.",
            expected=" ".join(WEIGHT_KINDS),
            got=kind,
            remedy=_PLAINER.get(
                kind, "Save it as float32 or bfloat16; dequantise a quantised one with the library that made it."
            ),
        )


_PLAINER = {  # kinds of tensor that are not dtypes: how to save one so that it can be read
    "sparse": "Save it dense, as x.to_dense().",
    "nested": "Save its parts as tensors of their own.",
    "quantised": "Save it dequantised, as x.dequantize().",
    "a meta tensor, without data": "It holds no numbers: load the weights where it was made, and save them from there.",
}


def copied(source: TensorSource, dtype: torch.dtype = torch.float32, names: Collection[str] | None = None) -> ResidentTensors:
    """Tensors of `source` (all, or those of `names`) in memory, in `dtype`; one with two names is copied once.

    Raises `BadModel` naming the first one that is not finite.
    """
    tensors: dict[str, Tensor] = {}
    by_alias: dict[Hashable, Tensor] = {}
    for name in sorted(source.names() if names is None else names):
        alias = source.alias(name)
        if alias not in by_alias:
            by_alias[alias] = source.copy(name).to(dtype)
            check_finite(name, by_alias[alias])
        tensors[name] = by_alias[alias]
    return ResidentTensors(tensors, {name: source.kind(name) for name in tensors})


def check_finite(name: str, value: Tensor) -> None:
    """Raise `BadModel` where a weight is NaN or infinite."""
    if not value.numel():
        return
    # one pass without a mask, ten times as fast as a sum in float64; NaN is passed on as both extremes
    if not all(torch.isfinite(extreme) for extreme in value.detach().aminmax()):
        bad = ~torch.isfinite(value)
        at = tuple(int(i) for i in bad.nonzero()[0])
        raise BadModel(
            f"The tensor {name} has weights that are not numbers.",
            expected="finite weights",
            got=f"{int(bad.sum())} NaN or infinite, the first at {at}",
            remedy="The checkpoint is damaged or its training diverged; use another one.",
        )
