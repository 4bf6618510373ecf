"""Edges between heads: their names, and the universe of all edges.

An edge leads from what a head writes to the input of one later head's query, key or value (Elhage et al. 2021: Q-, K- and
V-composition), or to the unembedding: `L0H1->L1H2:K`, `L1H2->logits`. As numbers: (source layer, head, destination layer, head,
kind), with kind an index into KINDS and destination (−1, −1) for the unembedding. Heads of a key-value group share a key and a
value, so an edge through K or V is named after the first head of the group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from circuitlab.errors import BadInput, UsageError, quoted
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head

Through = Literal["Q", "K", "V", "logits"]
KINDS: tuple[Through, ...] = ("Q", "K", "V", "logits")
_FORM = re.compile(r"^\s*(L\d+H\d+)\s*(?:->|→)\s*(?:(L\d+H\d+)\s*:\s*([QKV])|(logits))\s*$", re.IGNORECASE)


class Edge(NamedTuple):
    """An edge `source` -> `dest` through `kind`; `dest` None means the unembedding."""

    source: Head
    dest: Head | None
    kind: Through

    def __str__(self) -> str:
        return f"{self.source}->logits" if self.dest is None else f"{self.source}->{self.dest}:{self.kind}"

    @classmethod
    def parse(cls, text: str) -> Edge:
        """The edge of a name, `"L0H1->L1H2:K"` or `"L1H2->logits"`. Raises `UsageError`."""
        match = _FORM.match(text)
        if not match:
            raise UsageError(
                "An edge could not be read.",
                expected="L0H1->L1H2:K, or L1H2->logits",
                got=quoted(text),
                remedy="Write the earlier head, the later one and what it reads, as expected.",
            )
        if match[4]:
            return cls(Head.parse(match[1]), None, "logits")
        return cls(Head.parse(match[1]), Head.parse(match[2]), match[3].upper())  # type: ignore[arg-type]

    @classmethod
    def of(cls, row: Iterable[int]) -> Edge:
        """The edge of its five numbers."""
        a, b, c, d, kind = map(int, row)
        return cls(Head(a, b), None if c < 0 else Head(c, d), KINDS[kind])

    def row(self) -> tuple[int, int, int, int, int]:
        """Its five numbers."""
        dest = Head(-1, -1) if self.dest is None else self.dest
        return (self.source.layer, self.source.head, dest.layer, dest.head, KINDS.index(self.kind))

    def grouped(self, config: ModelConfig) -> Edge:
        """The same edge, named after the first head of the group that shares this key or value."""
        if self.dest is None or self.kind == "Q":
            return self
        return self._replace(dest=Head(self.dest.layer, self.dest.head - self.dest.head % config.group))


@dataclass(frozen=True, eq=False)
class Universe:
    """All edges that may be ablated: `rows` int32 [edge, 5], sorted; `through`: the kinds among them."""

    rows: np.ndarray
    through: tuple[Through, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def find(self, config: ModelConfig, names: Iterable[str]) -> np.ndarray:
        """[edge] sorted unique indices of edges given by name. Raises `UsageError`, or `BadInput` for an unknown edge."""
        keys = _keys(self.rows)
        indices = []
        for edge in (Edge.parse(name).grouped(config) for name in names):
            key = _keys(np.array([edge.row()], dtype=np.int64))[0]
            at = int(np.searchsorted(keys, key))
            if at == len(keys) or keys[at] != key or not _inside(config, edge):
                raise BadInput(
                    "There is no such edge.",
                    expected=_expected(config, self.through),
                    got=str(edge),
                    remedy="Name an edge between heads of this model.",
                )
            indices.append(at)
        return np.unique(np.array(indices, dtype=np.int64))


def count(config: ModelConfig, through: tuple[Through, ...]) -> int:
    """The number of edges in the universe."""
    pairs = config.n_layers * (config.n_layers - 1) // 2
    readers = sum(config.n_heads if kind == "Q" else config.n_kv_heads for kind in set(through) - {"logits"})
    return pairs * config.n_heads * readers + ("logits" in through) * config.n_layers * config.n_heads


def universe(config: ModelConfig, through: tuple[Through, ...]) -> Universe:
    """All edges from each head to each later head through the given Q, K and V, and with "logits" to the unembedding."""
    layers, heads, parts = np.arange(config.n_layers), np.arange(config.n_heads), []
    for kind in sorted(set(through), key=KINDS.index):
        readers = heads if kind == "Q" else heads[:: config.group]
        to = (np.array([-1]), np.array([-1])) if kind == "logits" else (layers, readers)
        grid = np.meshgrid(layers, heads, *to, np.array([KINDS.index(kind)]), indexing="ij")
        rows = np.stack([axis.ravel() for axis in grid], axis=1).astype(np.int32)
        parts.append(rows[(rows[:, 2] > rows[:, 0]) | (rows[:, 2] < 0)])
    rows = np.concatenate(parts) if parts else np.zeros((0, 5), dtype=np.int32)
    return Universe(rows[np.argsort(_keys(rows))], tuple(k for k in KINDS if k in through))


def _keys(rows: np.ndarray) -> np.ndarray:
    """[edge] int64: one sortable number per edge."""
    keys = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        keys = keys * 4096 + column.astype(np.int64) + 1
    return keys


def _inside(config: ModelConfig, edge: Edge) -> bool:
    heads = [edge.source] if edge.dest is None else [edge.source, edge.dest]
    return all(h.layer < config.n_layers and h.head < config.n_heads for h in heads)


def _expected(config: ModelConfig, through: tuple[Through, ...]) -> str:
    last = Head(config.n_layers - 1, config.n_heads - 1)
    ways = ", ".join(kind for kind in through if kind != "logits")
    heads = f"a head to a later one up to {last} through {ways}" if ways else ""
    return " or ".join(x for x in (heads, "a head to logits" if "logits" in through else "") if x)
