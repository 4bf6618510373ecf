"""The tensor names of a TransformerLens-like file: recognised, without their common prefix, and in today's spelling.

A file whose list of blocks has another name (`attn_blocks.0.W_Q`) is read under `blocks.0.attn.W_Q`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.model.files.renamed import RenamedTensors
from circuitlab.model.files.tensors import TensorSource
from circuitlab.model.lazy_weights import need_names

_BLOCK = re.compile(r"blocks\.(\d{1,9})\.")
_ANY_BLOCK = re.compile(r"((?:[A-Za-z_]\w*\.)+)(\d+)\.(attn\.)?_?W_[QKVO]$")  # of a list of blocks under any name
_OF_ATTENTION = re.compile(r"_?[Wb]_[QKVO]$")


@dataclass(frozen=True)
class Names:
    """The names of a file without their common prefix, with the shape and tensor of each.

    `block_list`: the file's own name of its list of blocks where that is not `blocks`, under which it is read all the same.
    """

    source: TensorSource
    prefix: str
    all: frozenset[str]
    block_list: str = ""

    def __contains__(self, name: str) -> bool:
        return name in self.all

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor."""
        return self.source.shape(self.prefix + name)

    def tensor(self, name: str) -> Tensor:
        """One tensor."""
        return self.source.tensor(self.prefix + name)

    @property
    def n_layers(self) -> int:
        """Number of blocks. Raises `BadModel` where there are fewer names than blocks."""
        n = 1 + max((int(m[1]) for n in self.all if (m := _BLOCK.match(n))), default=-1)
        need_names(n, self.source, number_of(n, "block"))
        return n

    def attention(self, which: str, layer: int = 0) -> str:
        """The name of `W_K` … in one layer; weights of grouped key-value heads have an underscore in front (`_W_K`)."""
        plain = f"blocks.{layer}.attn.{which}"
        grouped = f"blocks.{layer}.attn._{which}"
        return grouped if grouped in self else plain


def names_of(source: TensorSource | None) -> Names | None:
    """The names of a file that follows TransformerLens, None for any other."""
    if source is None:
        return None
    for name in sorted(source.names()):
        prefix = name.removesuffix("embed.W_E")
        if prefix == name or prefix.endswith(("un", "pos_")):
            continue
        names = frozenset(n.removeprefix(prefix) for n in source.names() if n.startswith(prefix))
        if "unembed.W_U" in names and not any(n.startswith("layers.") for n in names):
            return _with_blocks(Names(source, prefix, names))
    return None


def _with_blocks(names: Names) -> Names:
    """With `blocks.0.attn.W_Q` for `attn_blocks.0.attn.W_Q` or `attn_blocks.0.W_Q`, if the file has one list of blocks."""
    lists = {(m[1], m[3]) for n in names.all if (m := _ANY_BLOCK.match(n))}
    if len(lists) != 1 or lists == {("blocks.", "attn.")}:
        return names  # of several lists, all but `blocks` are left over and refused
    ((block_list, attn),) = lists
    table = {}
    for name in names.all:
        number, dot, rest = name.removeprefix(block_list).partition(".")
        if name.startswith(block_list) and number.isdecimal() and dot:
            today = f"attn.{rest}" if attn is None and _OF_ATTENTION.match(rest) else rest
            table[f"{names.prefix}blocks.{number}.{today}"] = names.prefix + name
    source = RenamedTensors(names.source, table)
    renamed = frozenset(n.removeprefix(names.prefix) for n in source.names() if n.startswith(names.prefix))
    return Names(source, names.prefix, renamed, block_list.rstrip("."))
