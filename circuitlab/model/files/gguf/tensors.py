"""The tensors of a GGUF file, each dequantised when it is read."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.files.gguf.header import Header, Packed
from circuitlab.model.files.gguf.kinds import dequantised
from circuitlab.model.files.tensors import check_finite, check_kind
from circuitlab.model.files.whole_file import WholeFile


class GgufTensors:
    """The tensors of a model's file, or of its parts, under their own names; packed ones are float32 when they are read.

    All methods that take a name raise `BadModel` for a missing one; those that read, where the file has become shorter or numbers
    are not finite.
    """

    resident = False

    def __init__(self, header: Header, *files: WholeFile) -> None:
        self.header, self._files, self._finite = header, files, set[Hashable]()

    def names(self) -> frozenset[str]:
        """All names."""
        return frozenset(self.header.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor."""
        return self._packed(name).shape

    def kind(self, name: str) -> str:
        """The dtype of its numbers when they are read, or the name of a kind that weights do not have."""
        kind = self._packed(name).kind
        return kind.name if kind.dtype is None else str(kind.dtype).removeprefix("torch.")

    def tensor(self, name: str, part: int | None = None) -> Tensor:
        """One tensor, in memory of its own, or its slice `part` along the first axis with the rest unread (one expert of many).

        That its numbers are finite is checked the first time.
        """
        value = self.copy(name, part)
        if (name, part) not in self._finite:
            check_finite(name, value)
            self._finite.add((name, part))
        return value

    def copy(self, name: str, part: int | None = None) -> Tensor:
        """`tensor`, not checked."""
        check_kind(self, name)
        packed = self._packed(name)
        start, stop, shape = packed.start, packed.stop, packed.shape
        if part is not None:
            size, shape = (stop - start) // shape[0], shape[1:]
            start, stop = start + part * size, start + (part + 1) * size
        data = self._files[packed.part].copy(start, stop)
        if not packed.kind.packed:
            return data.view(packed.kind.dtype or torch.uint8).reshape(shape)
        return dequantised(packed.kind, data, name).view(shape)

    def alias(self, name: str) -> Hashable:
        """The file and the place in it."""
        packed = self._packed(name)
        return self._files[packed.part], packed

    def _packed(self, name: str) -> Packed:
        packed = self.header.tensors.get(name)
        if packed is None:
            raise BadModel("The weights lack a tensor.", expected=name, got=number_of(len(self.header.tensors), "other"))
        return packed


def stored_kinds(header: Header) -> tuple[str, ...]:
    """The kinds that matrices are stored in, the most numbers first."""
    counts: dict[str, int] = {}
    for packed in _matrices(header):
        counts[packed.kind.name] = counts.get(packed.kind.name, 0) + packed.numel
    return tuple(sorted(counts, key=lambda name: (-counts[name], name)))


def dequantised_from(header: Header) -> str:
    """Of what packed kinds the matrices are made, and the bits that a weight has in the file: "Q4_1 (5.0 bits a weight)"; "" for
    a file without packed tensors."""
    packed = {p.kind.name for p in _matrices(header) if p.kind.packed}
    if not packed:
        return ""
    bits = sum(8 * (p.stop - p.start) for p in _matrices(header)) / sum(p.numel for p in _matrices(header))
    *first, last = [name for name in stored_kinds(header) if name in packed]
    return f"{', '.join(first)}{' and ' if first else ''}{last} ({bits:.1f} bits a weight)"


def _matrices(header: Header) -> list[Packed]:
    return [p for p in header.tensors.values() if len(p.shape) > 1]
