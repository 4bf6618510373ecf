"""The tensors of a file under other names than its own."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from torch import Tensor

from circuitlab.model.tensors import TensorSource


class RenamedTensors:
    """A source whose tensors in `table` (our name -> the file's) go by our names; all others keep theirs."""

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
