"""Tensors by name: what a loader reads from. Resident in memory, or in a memory-mapped safetensors file.

Maps are shared and read-only: a private writable map of a large file would count against a memory limit.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from circuitlab.errors import BadModel

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class TensorSource(Protocol):
    """Named tensors of a checkpoint. `resident`: whether they lie in memory rather than in a mapped file."""

    @property
    def resident(self) -> bool: ...
    def names(self) -> frozenset[str]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def tensor(self, name: str) -> Tensor: ...


class ResidentTensors:
    """Tensors already in memory."""

    resident = True

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = dict(tensors)

    def names(self) -> frozenset[str]:
        """All names."""
        return frozenset(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor."""
        return tuple(self._tensors[name].shape)

    def tensor(self, name: str) -> Tensor:
        """One tensor, not to be written to."""
        return self._tensors[name]


class MappedTensors:
    """A safetensors file read where it lies: nothing is copied until it is used.

    The library checks the header first (lengths, offsets, overlaps). Raises `BadModel` for anything else than a whole file.
    """

    resident = False

    def __init__(self, path: Path) -> None:
        self.path = path
        check_safetensors(path)
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._base = 8 + length
        self._entries = {k: v for k, v in header.items() if k != "__metadata__"}
        for name, entry in self._entries.items():
            if entry["dtype"] not in _DTYPES:
                kinds = " ".join(_DTYPES)
                raise BadModel(f"{path.name}: {name} has a dtype that is no weight.", expected=kinds, got=entry["dtype"])

    def names(self) -> frozenset[str]:
        """All names."""
        return frozenset(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor, from the header."""
        return tuple(self._entries[name]["shape"])

    def tensor(self, name: str) -> Tensor:
        """One tensor over the map, in its own dtype; writing to it is an error of the caller."""
        entry = self._entries[name]
        start, stop = entry["data_offsets"]
        dtype = _DTYPES[entry["dtype"]]
        if start == stop:
            return torch.zeros(entry["shape"], dtype=dtype)
        view = memoryview(self._map)[self._base + start : self._base + stop]
        return _over(view, dtype).reshape(entry["shape"])


class ShardedTensors:
    """Several mapped files under one face. Maps of shards are made when the first tensor of each is asked for."""

    resident = False

    def __init__(self, where: Mapping[str, MappedTensors]) -> None:
        self._where = dict(where)

    def names(self) -> frozenset[str]:
        """All names."""
        return frozenset(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor, from its shard's header."""
        return self._where[name].shape(name)

    def tensor(self, name: str) -> Tensor:
        """One tensor over its shard's map."""
        return self._where[name].tensor(name)


def open_shards(index: Path, data: Mapping[str, Any]) -> tuple[ShardedTensors, tuple[Path, ...]]:
    """The safetensors shards of `model.safetensors.index.json`, and their files. Raises `BadModel`."""
    table = data.get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(v, str) for v in table.values()):
        raise BadModel(f"{index.name} has no weight_map.", expected="tensor names with their files", got=type(table).__name__)
    for name in set(table.values()):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise BadModel(
                f"{index.name} names a file elsewhere.", expected="safetensors in the same folder", got=repr(name)[:100]
            )
    shards = {name: MappedTensors(index.with_name(name)) for name in sorted(set(table.values()))}
    if lost := sorted(t for t, f in table.items() if t not in shards[f].names()):
        raise BadModel(
            "A shard lacks tensors that the index says it has.", expected=", ".join(lost[:6]), got=f"{len(lost)} missing"
        )
    return ShardedTensors({t: shards[f] for t, f in table.items()}), tuple(index.with_name(n) for n in shards)


def _over(view: memoryview, dtype: torch.dtype) -> Tensor:
    import warnings

    with warnings.catch_warnings():  # torch warns that the buffer is read-only, which is the point
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(view, dtype=dtype)


def check_safetensors(path: Path) -> None:
    """Raise `BadModel` unless `path` is a whole safetensors file."""
    if not path.is_file():
        raise BadModel(
            f"{path.name} is not there.",
            expected=f"weights at {path}",
            got="no such file",
            remedy="Check the folder, or download the checkpoint again.",
        )
    try:
        with safe_open(str(path), framework="np"):
            pass
    except (SafetensorError, OSError, ValueError) as error:
        raise BadModel(
            f"{path.name} is damaged or not a safetensors file.",
            expected="a whole safetensors file",
            got=f"{error} ({path.stat().st_size} bytes)",
            remedy="Copy or download it again; convert other formats with the safetensors library.",
        ) from error


def copied(source: TensorSource, dtype: torch.dtype = torch.float32) -> ResidentTensors:
    """Every tensor of `source` in memory, in `dtype`. Raises `BadModel` naming the first one that is not finite."""
    made: dict[str, Tensor] = {}
    for name in sorted(source.names()):
        value = source.tensor(name)
        made[name] = value.to(dtype) if value.dtype != dtype else value.clone()
        check_finite(name, made[name])
    return ResidentTensors(made)


def check_finite(name: str, value: Tensor) -> None:
    """Raise `BadModel` where a weight is NaN or infinite."""
    # one pass without a mask: a sum is finite when all terms are, and only then is a closer look saved
    if not torch.isfinite(value.sum(dtype=torch.float64)):
        bad = ~torch.isfinite(value)
        if bool(bad.any()):
            at = tuple(int(i) for i in bad.nonzero()[0])
            raise BadModel(
                f"{name} has weights that are not numbers.",
                expected="finite weights",
                got=f"{int(bad.sum())} NaN or infinite, the first at {at}",
                remedy="The checkpoint is damaged or its training diverged; use another one.",
            )
