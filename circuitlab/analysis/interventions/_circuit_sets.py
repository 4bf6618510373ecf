"""The sets that are cut in turn when a circuit of heads or of edges is kept alone, and random sets of as many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from circuitlab.analysis.chosen_heads import chosen_heads
from circuitlab.analysis.interventions import ablation_sweep
from circuitlab.analysis.interventions._edge_ablation import cut_final, cut_of
from circuitlab.analysis.interventions.ablation_sweep import Bench
from circuitlab.analysis.interventions.edges import Through, Universe, random_edges, universe
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head

NONE, KEPT, CUT = 0, 1, 2  # the first sets: nothing left, the circuit left, the circuit cut


class Sets(Protocol):
    """What the sweep asks of heads and of edges: `members` and `random` as the result has them, `of` how many there are."""

    members: np.ndarray
    random: np.ndarray

    @property
    def of(self) -> int: ...
    def words(self) -> tuple[str, ...]:
        """What is cut and what never is, for captions."""
        ...

    def at_once(self, n: int) -> int:
        """How many sets go together on a prompt of n tokens."""
        ...

    def values(self, made: Bench, batch: list[int], tick: Callable[[], None]) -> np.ndarray:
        """[set]: F with each of these sets cut, in the order of `cut_members`."""
        ...


def cut_members(circuit: np.ndarray, random: np.ndarray, of: int, which: int) -> np.ndarray:
    """Bool [of]: what set `which` cuts, from indices of the circuit [k] and of random sets [sample, k].

    NONE left, KEPT, CUT; then each member left out, random sets kept, random sets cut.
    """
    k, n, every = len(circuit), len(random), np.ones(of, dtype=bool)
    if which == NONE:
        return every
    if which < 3 + k:
        cut = every if which != CUT else ~every
        cut[circuit] = which == CUT
        if which >= 3:
            cut[circuit[which - 3]] = True
        return cut
    kept = which < 3 + k + n
    cut = every if kept else ~every
    cut[random[(which - 3 - k) % max(n, 1)]] = not kept
    return cut


@dataclass(eq=False)
class HeadSets:
    """Sets of heads; `circuit` [k] and `drawn` [sample, k] are indices layer · n_heads + head."""

    config: ModelConfig
    circuit: np.ndarray
    drawn: np.ndarray

    def __post_init__(self) -> None:
        pairs = lambda flat: np.stack(np.divmod(flat, self.config.n_heads), axis=-1).astype(np.int64)
        self.members, self.random = pairs(self.circuit), pairs(self.drawn)

    @property
    def of(self) -> int:
        return self.config.n_layers * self.config.n_heads

    def words(self) -> tuple[str, ...]:
        return ("everything but heads stays",)

    def at_once(self, n: int) -> int:
        return ablation_sweep.at_once(n)

    def values(self, made: Bench, batch: list[int], tick: Callable[[], None]) -> np.ndarray:
        cut = np.stack([cut_members(self.circuit, self.drawn, self.of, i) for i in batch])
        shaped = torch.as_tensor(cut.reshape(-1, self.config.n_layers, self.config.n_heads))
        return made.cut(shaped, tick)[0].cpu().numpy()


@dataclass(eq=False)
class EdgeSets:
    """Sets of edges; `circuit` [k] and `drawn` [sample, k] are indices into `edges`."""

    config: ModelConfig
    edges: Universe
    circuit: np.ndarray
    drawn: np.ndarray

    def __post_init__(self) -> None:
        self.members, self.random = self.edges.rows[self.circuit], self.edges.rows[self.drawn]

    @property
    def of(self) -> int:
        return len(self.edges)

    def words(self) -> tuple[str, ...]:
        ways = ", ".join(kind for kind in self.edges.through if kind != "logits")
        heads = [f"a head to a later head's {ways}"] if ways else []
        ends = ["a head to the logits"] if "logits" in self.edges.through else []
        stays = "what heads write to MLPs" if ends else "what heads write to MLPs and to the logits"
        stays = stays if not self.config.attention_only else "" if ends else "what heads write to the logits"
        never = ", ".join(x for x in ("embeddings", "biases", "" if self.config.attention_only else "MLPs", stays) if x)
        group = ["heads of a key-value group read a key or value together"] if self.config.group > 1 else []
        return (f"edges: {' and '.join((*heads, *ends))}, {self.of} in all", f"never cut: {never}", *group)

    def at_once(self, n: int) -> int:
        return 1

    def values(self, made: Bench, batch: list[int], tick: Callable[[], None]) -> np.ndarray:
        found = []
        for which in batch:
            rows = self.edges.rows[cut_members(self.circuit, self.drawn, self.of, which)]
            source = lambda tokens: made.inputs.run(tokens, ())
            final = cut_final(made.run, cut_of(self.config, rows, self.edges.through), made.put, source, tick)
            found.append(float(made.measure(made.run, final[None, made.measure.dest], tick)[0][0]))
        return np.array(found)


def head_sets(config: ModelConfig, heads: tuple[Head, ...], samples: int, seed: int) -> HeadSets:
    """The circuit, () for all heads, and random sets. Raises `BadInput` for a head that is not there."""
    flat = np.array([h.layer * config.n_heads + h.head for h in chosen_heads(config, tuple(sorted(set(heads))))], dtype=np.int64)
    return HeadSets(config, flat, random_sets(config, len(flat), samples, seed))


def edge_sets(config: ModelConfig, edges: tuple[str, ...], through: tuple[Through, ...], samples: int, seed: int) -> EdgeSets:
    """The circuit by name, and random sets of as many edges. Raises `UsageError`, or `BadInput` for one that is not there."""
    every = universe(config, through)
    if not len(every):
        raise BadInput("There is no edge to cut.", expected="through Q, K, V or logits", got=", ".join(through) or "none")
    circuit = every.find(config, edges)
    return EdgeSets(config, every, circuit, random_edges(len(every), len(circuit), samples, seed))


def random_sets(config: ModelConfig, size: int, samples: int, seed: int) -> np.ndarray:
    """[sample, size] indices of heads: sets drawn uniformly, without repeats within a set, each sorted."""
    return random_edges(config.n_layers * config.n_heads, size, samples, seed)
