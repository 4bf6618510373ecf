"""The sets of heads or edges that are ablated in turn to test a circuit, and other sets of the same size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from circuitlab.analysis.chosen_heads import chosen_heads
from circuitlab.analysis.interventions import ablation_sweep
from circuitlab.analysis.interventions._edge_ablation import cut_final, cut_of
from circuitlab.analysis.interventions._other_sets import other_sets
from circuitlab.analysis.interventions.ablation_sweep import AblationSweep
from circuitlab.analysis.interventions.edges import Through, Universe, universe
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head

NONE, KEPT, CUT = 0, 1, 2  # the first three sets: everything ablated, all but the circuit ablated, the circuit ablated


class Sets(Protocol):
    """What `keep_only` needs of heads and of edges: `members` and `random` as in the result, `of` the size of the universe."""

    members: np.ndarray
    random: np.ndarray

    @property
    def of(self) -> int: ...
    def words(self) -> tuple[str, ...]:
        """What is ablated and what never is, for captions."""
        ...

    def at_once(self, n: int) -> int:
        """How many sets fit in one batch on a prompt of n tokens."""
        ...

    def values(self, sweep: AblationSweep, batch: list[int], tick: Callable[[], None]) -> np.ndarray:
        """[set]: the measure F with each of these sets ablated; indices as in `cut_members`."""
        ...


def cut_members(circuit: np.ndarray, random: np.ndarray, of: int, which: int) -> np.ndarray:
    """Bool [of]: what set number `which` ablates, from indices of the circuit [k] and of random sets [sample, k].

    The order: NONE, KEPT, CUT; the circuit without each member; each random set kept alone; each random set ablated.
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
    kept_alone = which < 3 + k + n
    cut = every if kept_alone else ~every
    cut[random[(which - 3 - k) % max(n, 1)]] = not kept_alone
    return cut


@dataclass(eq=False)
class HeadSets:
    """Sets of heads. `circuit` [k] and `drawn` [sample, k] are indices layer · n_heads + head."""

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
        return ("only heads are ablated",)

    def at_once(self, n: int) -> int:
        return ablation_sweep.at_once(n)

    def values(self, sweep: AblationSweep, batch: list[int], tick: Callable[[], None]) -> np.ndarray:
        cut = np.stack([cut_members(self.circuit, self.drawn, self.of, i) for i in batch])
        shaped = torch.as_tensor(cut.reshape(-1, self.config.n_layers, self.config.n_heads))
        return sweep.cut(shaped, tick)[0].cpu().numpy()


@dataclass(eq=False)
class EdgeSets:
    """Sets of edges. `circuit` [k] and `drawn` [sample, k] are indices into `edges`."""

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
        group = ["heads of a key-value group share their edges through K and V"] if self.config.group > 1 else []
        return (f"edges: {' and '.join((*heads, *ends))}, {self.of} in all", f"never ablated: {never}", *group)

    def at_once(self, n: int) -> int:
        return 1

    def values(self, sweep: AblationSweep, batch: list[int], tick: Callable[[], None]) -> np.ndarray:
        values = []
        for which in batch:
            rows = self.edges.rows[cut_members(self.circuit, self.drawn, self.of, which)]
            source = lambda tokens: sweep.inputs.run(tokens, ())
            final = cut_final(sweep.run, cut_of(self.config, rows, self.edges.through), sweep.replacement, source, tick)
            values.append(float(sweep.measure(sweep.run, final[None, sweep.measure.dest], tick)[0][0]))
        return np.array(values)


def head_sets(config: ModelConfig, heads: tuple[Head, ...], samples: int, seed: int) -> HeadSets:
    """The circuit (`heads`; () for all) and other sets. Raises `BadInput` for a head that the model does not have."""
    flat = np.array([h.layer * config.n_heads + h.head for h in chosen_heads(config, tuple(sorted(set(heads))))], dtype=np.int64)
    return HeadSets(config, flat, other_sets(flat, config.n_layers * config.n_heads, samples, seed))


def edge_sets(config: ModelConfig, edges: tuple[str, ...], through: tuple[Through, ...], samples: int, seed: int) -> EdgeSets:
    """The circuit by edge names, and other sets of as many edges. Raises `UsageError`, or `BadInput` for an unknown edge."""
    every = universe(config, through)
    if not len(every):
        raise BadInput(
            "There is no edge to ablate.",
            expected="through Q, K, V or logits",
            got=", ".join(through) or "none",
            remedy="Name edges that the circuit does not keep, or leave the list out.",
        )
    circuit = every.find(config, edges)
    return EdgeSets(config, every, circuit, other_sets(circuit, len(every), samples, seed))
