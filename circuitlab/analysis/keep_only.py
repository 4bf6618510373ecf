"""Keep only this circuit: every other head is ablated; what is left of what is measured, beside random sets of the same size.

    faithfulness(S) = (F(S) − F(∅)) / (F(all) − F(∅))          F(S): the value with only the heads of S left
    completeness(S) = (F(all) − F(all ∖ S)) / (F(all) − F(∅))  how much goes when S itself is ablated
    minimality(h)   = faithfulness(S) − faithfulness(S ∖ h)    what is lost when h leaves the circuit

Faithfulness 1: the circuit does as well as the model; above 1: better. Completeness 1: nothing is left without it; the two need
not agree, since heads stand in for one another (Wang et al. 2022, Interpretability in the Wild, sections 4 and 5, whose
differences are here divided by F(all) − F(∅)). MLPs, embeddings, norms and biases stay; patterns are computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from circuitlab.analysis.ablation_parts import Bench, How, at_once, bench, bytes_of, refused, said, ticker
from circuitlab.analysis.attention import chosen_heads
from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis
from circuitlab.analysis.measured import Effect
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head, Target

SMALLEST = 1e-5  # of |F(all)| + |F(∅)|: a smaller difference is rounding
MOST = 10_000
NONE, KEPT, CUT = 0, 1, 2  # the first rows of the work: nothing left, the circuit left, the circuit ablated


@dataclass(frozen=True)
class KeepOnlyParams:
    """`heads`: the circuit, () for all. `how`, `source`, `effect`, `target`, `position` as in `ablation`.

    `samples` random sets of as many heads, drawn by `seed`.
    """

    heads: tuple[Head, ...] = ()
    how: How = "zero"
    source: tuple[int, ...] = ()
    effect: Effect = "loss"
    target: Target = Target()
    position: int = -1
    samples: int = 20
    seed: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class KeepOnlyResult(Result):
    """Values F in `unit`: `all_heads`, `no_heads`, `circuit`, `without` (the circuit ablated); NaN: not computed yet.

    `heads` int [head, 2]: the circuit as (layer, head); `left_out` [head]: F(S ∖ h). Random sets: `random_members` bool
    [sample, layer, head], `random_kept` and `random_cut` [sample]: F with only that set, and without it.
    """

    all_heads: float
    no_heads: float
    circuit: float
    without: float
    heads: np.ndarray
    left_out: np.ndarray
    random_members: np.ndarray
    random_kept: np.ndarray
    random_cut: np.ndarray
    unit: str

    @property
    def whole(self) -> float:
        """F(all) − F(∅); NaN where it is too small to divide by."""
        size = abs(self.all_heads) + abs(self.no_heads)
        difference = self.all_heads - self.no_heads
        return difference if abs(difference) > SMALLEST * size else float("nan")

    @property
    def faithfulness(self) -> float:
        """Of the circuit."""
        return (self.circuit - self.no_heads) / self.whole

    @property
    def completeness(self) -> float:
        """Of the circuit."""
        return (self.all_heads - self.without) / self.whole

    @property
    def minimality(self) -> np.ndarray:
        """[head]: what each head of the circuit adds to its faithfulness."""
        return (self.circuit - self.left_out) / self.whole

    @property
    def random_faithfulness(self) -> np.ndarray:
        """[sample]."""
        return (self.random_kept - self.no_heads) / self.whole

    @property
    def random_completeness(self) -> np.ndarray:
        """[sample]."""
        return (self.all_heads - self.random_cut) / self.whole

    def rank(self, name: str) -> tuple[int, int]:
        """(rank from 1, of how many) of the circuit's "faithfulness" or "completeness" among itself and the random sets."""
        own, others = getattr(self, name), getattr(self, f"random_{name}")
        others = others[~np.isnan(others)]
        return 1 + int((others > own).sum()), 1 + len(others)

    def table(self) -> Table:
        """The circuit, the circuit without each of its heads, then each random set."""
        names = ["circuit", *(f"without {Head(*h)}" for h in self.heads.tolist())]
        names += [" ".join(str(Head(*h)) for h in np.argwhere(one).tolist()) for one in self.random_members]
        kind = ["circuit", *["left out"] * len(self.heads), *["random"] * len(self.random_members)]
        nothing = np.full(len(self.heads), np.nan)
        faithful = np.concatenate([[self.faithfulness], self.faithfulness - self.minimality, self.random_faithfulness])
        complete = np.concatenate([[self.completeness], nothing, self.random_completeness])
        kept = np.concatenate([[self.circuit], self.left_out, self.random_kept])
        return Table(
            (
                Column("kind", np.array(kind)),
                Column("heads", np.array(names)),
                Column("value", kept, self.unit),
                Column("faithfulness", faithful),
                Column("completeness", complete),
            )
        )

    def across(self) -> Mapping[str, np.ndarray]:
        """Faithfulness and completeness of the circuit and of the random sets [sample], and minimality [head]."""
        return {
            "faithfulness": np.array(self.faithfulness),
            "completeness": np.array(self.completeness),
            "minimality": self.minimality,
            "random_faithfulness": self.random_faithfulness,
            "random_completeness": self.random_completeness,
        }


def random_sets(config: ModelConfig, size: int, samples: int, seed: int) -> np.ndarray:
    """Bool [sample, layer, head]: sets of `size` heads, uniform and without repeats within a set."""
    rng, n = np.random.default_rng(seed), config.n_layers * config.n_heads
    out = np.zeros((samples, n), dtype=bool)
    for row in out:
        row[rng.choice(n, size, replace=False)] = True
    return out.reshape(samples, config.n_layers, config.n_heads)


def ablated_sets(circuit: np.ndarray, heads: tuple[Head, ...], random: np.ndarray) -> np.ndarray:
    """Bool [set, layer, head]: what is ablated in turn: NONE left, KEPT, CUT, each head left out, random sets kept, then cut."""
    left_out = np.repeat(~circuit[None], len(heads), axis=0)
    for row, head in zip(left_out, heads, strict=True):
        row[head] = True
    return np.concatenate([np.stack([np.ones_like(circuit), ~circuit, circuit]), left_out, ~random, random])


def _result(
    made: Bench, values: np.ndarray, heads: tuple[Head, ...], random: np.ndarray, words: tuple[str, ...]
) -> KeepOnlyResult:
    k, n = len(heads), len(random)
    found = KeepOnlyResult(
        all_heads=made.before,
        no_heads=float(values[NONE]),
        circuit=float(values[KEPT]),
        without=float(values[CUT]),
        heads=np.array(heads, dtype=np.int64).reshape(-1, 2),
        left_out=values[3 : 3 + k].copy(),
        random_members=random.copy(),
        random_kept=values[3 + k : 3 + k + n].copy(),
        random_cut=values[3 + k + n :].copy(),
        unit=made.measure.unit,
        conventions=words,
        done=float(np.mean(~np.isnan(values))),
    )
    return found


def _left_by(previous: object, values: np.ndarray, random: np.ndarray) -> np.ndarray:
    """What a cancelled attempt already holds, in the order of `ablated_sets`."""
    if not isinstance(previous, KeepOnlyResult) or not np.array_equal(previous.random_members, random):
        return values
    first = [previous.no_heads, previous.circuit, previous.without]
    return np.concatenate([first, previous.left_out, previous.random_kept, previous.random_cut])


def _refuse(config: ModelConfig, p: KeepOnlyParams) -> str | None:
    if not 0 <= p.samples <= MOST:
        return f"0 to {MOST} random sets can be compared with."
    return refused(config, p.how, p.source, p.effect)


def _memory(config: ModelConfig, n: int, p: KeepOnlyParams) -> int:
    sets = 2 * p.samples + (len(p.heads) or config.n_layers * config.n_heads) + 3
    return 3 * sets * config.n_layers * config.n_heads + bytes_of(config, n, p.source)


@analysis(version=1, needs="tokens", lane="slow", memory=_memory, refuse=_refuse)
def keep_only(inputs: Inputs, p: KeepOnlyParams, ctx: Ctx) -> KeepOnlyResult:
    """Faithfulness, completeness and minimality of a set of heads, against random sets of the same size."""
    config = inputs.weights.config
    heads = chosen_heads(config, tuple(sorted(set(p.heads))))
    made = bench(inputs, p.how, p.source, False, p.effect, p.target, p.position, ticker(ctx, 0, 1, "the whole model"))
    circuit = np.zeros((config.n_layers, config.n_heads), dtype=bool)
    for head in heads:
        circuit[head] = True
    random = random_sets(config, len(heads), p.samples, p.seed)
    cut = ablated_sets(circuit, heads, random)
    words = (*inputs.subject.conventions.words(), *said(made), "everything but heads stays", _sample(p, len(heads)))
    values = _left_by(ctx.previous, np.full(len(cut), np.nan), random)
    waiting = np.flatnonzero(np.isnan(values)) if not np.isnan(made.before) else np.zeros(0, dtype=np.int64)
    # the circuit and each sample's two sets come early and together
    order = sorted(waiting.tolist(), key=lambda i: i if i < 3 + len(heads) else 3 + len(heads) + (i - 3 - len(heads)) % p.samples)
    for batch in (order[i : i + at_once(made.run.n)] for i in range(0, len(order), at_once(made.run.n))):
        done = int((~np.isnan(values)).sum())
        tick = ticker(ctx, done, len(cut), f"set {done + 1}/{len(cut)}")
        values[batch] = made.cut(torch.from_numpy(cut[batch]), tick)[0].numpy()
        ctx.partial(_result(made, values, heads, random, words))
    return _finished(_result(made, values, heads, random, words))


def _sample(p: KeepOnlyParams, size: int) -> str:
    plural = "s" if size > 1 else ""
    return f"{p.samples} random sets of {size} head{plural}, seed {p.seed}" if p.samples else "no random sets"


def _finished(found: KeepOnlyResult) -> KeepOnlyResult:
    if not np.isnan(found.whole):
        return replace(found, done=1.0)
    words = "shares not computed: ablating every head changes nothing"
    return replace(found, done=1.0, conventions=(*found.conventions, words))
