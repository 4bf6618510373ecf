"""Tensors of a GGUF file under Hugging Face's names, with what llama.cpp's converter changed undone.

The converter reorders rows of attention so that llama.cpp's own kernels find them: rotary pairs interleaved in each head (Llama),
all queries before all keys (GPT-NeoX, BLOOM, Falcon), `Conv1D` transposed (GPT-2), one added to gains (Gemma).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.errors import BadModel, cause
from circuitlab.model.files.gguf.tensors import GgufTensors

BLOCK = re.compile(r"blk\.(\d{1,6})\.(.+)")


@dataclass(frozen=True)
class Heads:
    """Query heads, key-value heads and columns of a head."""

    n: int
    kv: int
    d: int


Step = Callable[[Heads, Tensor], Tensor]


@dataclass(frozen=True)
class From:
    """The tensor `name` of the file, of which the slice `part` along its first axis if that is stated, after `steps`."""

    name: str
    steps: tuple[Step, ...] = ()
    part: int | None = None

    def then(self, *steps: Step) -> From:
        """The same with further steps."""
        return From(self.name, (*self.steps, *steps), self.part)


def halves(of: str) -> Step:
    """Rows of queries ("q") or keys ("k") from interleaved pairs to halves."""

    def undone(heads: Heads, x: Tensor) -> Tensor:
        n = heads.n if of == "q" else heads.kv
        _need(x.shape[0] == n * heads.d and heads.d % 2 == 0, f"{n * heads.d} rows of pairs", x)
        return x.unflatten(0, (n, heads.d // 2, 2)).transpose(1, 2).flatten(0, 2)

    return undone


def by_head(heads: Heads, x: Tensor) -> Tensor:
    """Rows from all queries, all keys, all values to the queries, key and value of each key-value head."""
    group = heads.n // heads.kv
    rows = (heads.n * heads.d, heads.kv * heads.d, heads.kv * heads.d)
    _need(x.shape[0] == sum(rows), f"{sum(rows)} rows of queries, keys and values", x)
    q, k, v = x.split(rows)
    parts = (
        q.unflatten(0, (heads.kv, group, heads.d)),
        k.unflatten(0, (heads.kv, 1, heads.d)),
        v.unflatten(0, (heads.kv, 1, heads.d)),
    )
    return torch.cat(parts, 1).flatten(0, 2)


def rows_of(which: str) -> Step:
    """The rows of queries, keys or values ("q", "k", "v") of a tensor that has all of them in this order."""

    def undone(heads: Heads, x: Tensor) -> Tensor:
        rows = (heads.n * heads.d, heads.kv * heads.d, heads.kv * heads.d)
        _need(x.shape[0] == sum(rows), f"{sum(rows)} rows of queries, keys and values", x)
        return x.split(rows)["qkv".index(which)]

    return undone


def transposed(heads: Heads, x: Tensor) -> Tensor:
    """[out, in] to [in, out]; a vector as it is."""
    return x.T if x.dim() == 2 else x


def minus_one(heads: Heads, x: Tensor) -> Tensor:
    """A gain as it is in files that store gain − 1."""
    return x.float() - 1


def as_row(heads: Heads, x: Tensor) -> Tensor:
    """[d_model] to [1, d_model]; a matrix as it is."""
    return x if x.dim() == 2 else x[None]


class _Misfit(ValueError):
    """A tensor that a step does not apply to."""


def _need(fits: bool, expected: str, x: Tensor) -> None:
    if not fits:
        raise _Misfit(f"{expected}, not {tuple(x.shape)}")


class Undone:
    """A `TensorSource` of Hugging Face's names: `table` says from which tensor of the file each comes, and how."""

    resident = False

    def __init__(self, source: GgufTensors, table: Mapping[str, From], heads: Heads) -> None:
        self._source, self._table, self._heads = source, dict(table), heads

    def names(self) -> frozenset[str]:
        """All names."""
        return frozenset(self._table)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor, by its steps on a tensor without data. Raises `BadModel` where they do not apply."""
        where = self._from(name)
        shape = self._source.shape(where.name)
        shape = shape if where.part is None else shape[1:]
        return tuple(self._after(name, where, torch.empty(shape, device="meta")).shape)

    def kind(self, name: str) -> str:
        """The dtype of its numbers when they are read."""
        return self._source.kind(self._from(name).name)

    def tensor(self, name: str) -> Tensor:
        """One tensor, in memory of its own; that its numbers are finite is checked the first time."""
        where = self._from(name)
        return self._after(name, where, self._source.tensor(where.name, where.part))

    def copy(self, name: str) -> Tensor:
        """One tensor in memory of its own."""
        where = self._from(name)
        return self._after(name, where, self._source.copy(where.name, where.part)).contiguous()

    def alias(self, name: str) -> Hashable:
        """The place of its numbers, and what is done to them."""
        where = self._from(name)
        return self._source.alias(where.name), where.part, where.steps

    def _from(self, name: str) -> From:
        if name not in self._table:
            raise BadModel("The weights lack a tensor.", expected=name, got=number_of(len(self._table), "other"))
        return self._table[name]

    def _after(self, name: str, where: From, x: Tensor) -> Tensor:
        try:
            for step in where.steps:
                x = step(self._heads, x)
        except (_Misfit, RuntimeError, IndexError) as error:
            raise BadModel(
                f"The tensor {where.name} does not fit the configuration.", expected=f"rows for {name}", got=cause(error)
            ) from error
        return x
