"""The tensors of a file under other names, and single slices of them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping

from torch import Tensor

from circuitlab.model.files.tensors import TensorSource

_INDEXED = re.compile(r"^(.*)\[(\d{1,9})\]$")


class RenamedTensors:
    """A source with the tensors in `table` (our name -> the file's) under our names, and all others under their own."""

    def __init__(self, source: TensorSource, table: Mapping[str, str]) -> None:
        self._source, self._table, self.resident = source, dict(table), source.resident
        self._names = frozenset((source.names() - set(self._table.values())) | self._table.keys())

    def names(self) -> frozenset[str]:
        """All names."""
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor."""
        return self._source.shape(self.theirs(name))

    def kind(self, name: str) -> str:
        """Its dtype, or what else it is."""
        return self._source.kind(self.theirs(name))

    def tensor(self, name: str) -> Tensor:
        """One tensor, not to be written to."""
        return self._source.tensor(self.theirs(name))

    def copy(self, name: str) -> Tensor:
        """One tensor in memory of its own."""
        return self._source.copy(self.theirs(name))

    def alias(self, name: str) -> Hashable:
        """The file's."""
        return self._source.alias(self.theirs(name))

    def theirs(self, name: str) -> str:
        """The file's name of a tensor."""
        return self._table.get(name, name)


def whole_of(name: str) -> str:
    """`NAME` of `NAME[3]`."""
    match = _INDEXED.match(name)
    return match[1] if match else name


class Sliced:
    """A source in which `NAME[3]` is the fourth slice of NAME along its first axis, for the names in `names`."""

    def __init__(self, source: TensorSource, names: frozenset[str]) -> None:
        self._source, self.resident = source, source.resident
        stored_names = source.names()
        self._slices: dict[str, tuple[str, int]] = {}
        for name in names - stored_names:
            match = _INDEXED.match(name)
            if match and match[1] in stored_names and source.shape(match[1])[:1] > (int(match[2]),):
                self._slices[name] = (match[1], int(match[2]))

    def names(self) -> frozenset[str]:
        """All names, including those of slices."""
        return self._source.names() | self._slices.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor or slice."""
        return self._source.shape(self._slices[name][0])[1:] if name in self._slices else self._source.shape(name)

    def kind(self, name: str) -> str:
        """Its dtype."""
        return self._source.kind(whole_of(name) if name in self._slices else name)

    def tensor(self, name: str) -> Tensor:
        """One tensor or slice."""
        if name not in self._slices:
            return self._source.tensor(name)
        whole, i = self._slices[name]
        return self._source.tensor(whole)[i]

    def copy(self, name: str) -> Tensor:
        """One tensor or slice in memory of its own."""
        return self.tensor(name).clone()

    def alias(self, name: str) -> object:
        """The place of its numbers."""
        return (self._source.alias(self._slices[name][0]), self._slices[name][1]) if name in self._slices else (
            self._source.alias(name)
        )  # fmt: skip
