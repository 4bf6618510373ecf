"""Head ablation: how a metric changes when heads' outputs are replaced.

    effect(h) = value(z_h replaced) − value(unchanged)           value: a mean loss (nats), an in-context score, a logit

z_h is replaced by zero, by a mean, or by z of another text (`ablation_sweep`): heads one by one, a set together, or all pairs.
Patterns of later layers are recomputed, or held at their recorded values (Olsson et al. 2022, “pattern-preserving ablation”), so
that what later heads read changes but not where they attend. In the last layer the two are the same.
Each head shows a first-order estimate (`_gradient_estimate`) until its exact value replaces it; `exact` says which is which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, over, scalar
from circuitlab.analysis.chosen_heads import chosen_heads
from circuitlab.analysis.cost import of_run
from circuitlab.analysis.interventions._gradient_estimate import first_order, kinds_of
from circuitlab.analysis.interventions._metric import Effect
from circuitlab.analysis.interventions.ablation_sweep import (
    AblationSweep,
    How,
    at_once,
    has_paths,
    prepare_sweep,
    sweep_bytes,
    sweep_conventions,
    sweep_refusal,
    ticker,
)
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head, Target

What = Literal["each", "set", "pairs"]
MOST = 64  # heads of which pairs are taken: 2 016 of them


@dataclass(frozen=True)
class AblationParams:
    """`how` z is replaced; `frozen`: later patterns are held. `what`: each head alone; also `heads` together, or all their pairs.

    `heads` () means all for "each"; for "pairs", the `most` heads with the largest effects. `effect`: mean loss of the prompt's
    tokens, of its second half, the `target` at `position`, or the in-context score. `source`: tokens of the other text for
    resample and mean; () with mean: the mean over this prompt's positions.
    """

    how: How = "zero"
    frozen: bool = False
    what: What = "each"
    heads: tuple[Head, ...] = ()
    most: int = at_least(1, 6)
    effect: Effect = "loss"
    target: Target = Target()
    position: int = -1
    source: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class AblationResult(Result):
    """`effect` [layer, head] = value after ablation − `baseline`; an estimate or NaN where `exact` [layer, head] is false.

    `token_change` [layer, head, pos]: change of the loss of the token at pos, NaN if not computed. Of sets: `members` int
    [set, member, 2] as (layer, head), `set_effect` [set], `set_change` [set, pos]. `unit` of effects: nats or logit.
    """

    effect: np.ndarray = over("layer", "head", unit="{unit}")
    exact: np.ndarray = over("layer", "head", unit="true or false")
    token_change: np.ndarray = over("layer", "head", "position", unit="nats")
    members: np.ndarray = over("set", "member", "(layer, head)", unit="index")
    set_effect: np.ndarray = over("set", unit="{unit}")
    set_change: np.ndarray = over("set", "position", unit="nats")
    baseline: float = scalar("{unit}")
    unit: str

    @property
    def set_names(self) -> tuple[str, ...]:
        """The name of each set: `L0H1 + L1H4`."""
        return tuple(" + ".join(str(Head(*head)) for head in one) for one in self.members.tolist())

    def entries_along(self, axis: str) -> tuple[str, ...] | None:
        return self.set_names if axis == "set" else None

    @property
    def set_sums(self) -> np.ndarray:
        """[set]: the sum of the members' own effects; NaN until all of them are exact."""
        layer, head = self.members[..., 0], self.members[..., 1]
        return np.where(self.exact[layer, head], self.effect[layer, head], np.nan).sum(axis=-1)

    def table(self) -> Table:
        """One row per head, then one per set."""
        n_layers, n_heads = self.effect.shape
        heads = [str(Head(i, h)) for i in range(n_layers) for h in range(n_heads)]
        alone = np.concatenate([np.full(len(heads), np.nan), self.set_sums])
        kind = kinds_of(self.exact.ravel(), self.effect.ravel())
        set_kind = kinds_of(~np.isnan(self.set_effect), self.set_effect)
        return Table(
            (
                Column("ablated", np.array([*heads, *self.set_names])),
                Column("effect", np.concatenate([self.effect.ravel(), self.set_effect]), self.unit),
                Column("is", np.concatenate([kind, set_kind])),
                Column("sum_of_each", alone, self.unit),
            )
        )

    def across(self) -> Mapping[str, np.ndarray]:
        """`effect` [layer, head], exact values only."""
        return {"effect": np.where(self.exact, self.effect, np.nan)}


class _PartialResult:
    """The arrays while they are computed, starting from what a cancelled attempt holds."""

    def __init__(self, sweep: AblationSweep, previous: object, words: tuple[str, ...], total: int) -> None:
        config, n = sweep.run.weights.config, sweep.run.n
        shape = (config.n_layers, config.n_heads)
        self.sweep, self.words, self.total = sweep, words, total
        self.effect, self.exact = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
        self.dtype = np.float64 if sweep.losses.dtype == torch.float64 else np.float32
        self.token_change = np.full((*shape, n), np.nan, dtype=self.dtype)
        self.set_sets(())
        if isinstance(previous, AblationResult) and previous.token_change.shape == self.token_change.shape:
            self.effect, self.exact = previous.effect.copy(), previous.exact.copy()
            self.token_change = previous.token_change.copy()
            self.members, self.set_effect = previous.members.copy(), previous.set_effect.copy()
            self.set_change = previous.set_change.copy()

    def set_sets(self, sets: tuple[tuple[Head, ...], ...]) -> None:
        """Allocate arrays for these sets, unless they are allocated already."""
        members = np.array(sets, dtype=np.int64).reshape(len(sets), len(sets[0]) if sets else 0, 2)
        if sets and np.array_equal(members, self.members):
            return
        self.members, self.set_effect = members, np.full(len(sets), np.nan)
        self.set_change = np.full((len(sets), self.sweep.run.n), np.nan, dtype=self.dtype)

    def count(self) -> int:
        """The number of ablations computed so far."""
        return int(self.exact.sum()) + int((~np.isnan(self.set_effect)).sum())

    def result(self, complete: bool = False) -> AblationResult:
        """A snapshot."""
        arrays = {name: getattr(self, name).copy() for name in ("effect", "exact", "token_change")}
        arrays |= {name: getattr(self, name).copy() for name in ("members", "set_effect", "set_change")}
        estimates = bool((~self.exact & ~np.isnan(self.effect)).any())
        words = (*self.words, "first-order estimates where not exact") if estimates else self.words
        done = 1.0 if complete else min(0.99, self.count() / self.total)
        return AblationResult(**arrays, baseline=self.sweep.before, unit=self.sweep.measure.unit, conventions=words, done=done)


def _singles(partial: _PartialResult, heads: tuple[Head, ...]) -> Iterator[list[Head]]:
    """Heads still to be ablated alone, last layer first, in batches within a layer."""
    for layer in sorted({h.layer for h in heads}, reverse=True):
        mine, size = sorted({h for h in heads if h.layer == layer and not partial.exact[h]}), partial.sweep.at_once(layer)
        yield from (mine[i : i + size] for i in range(0, len(mine), size))


def _cut(partial: _PartialResult, sets: list[list[Head]], ctx: Ctx) -> tuple[np.ndarray, np.ndarray]:
    """(effect [batch], loss change [batch, pos]) of ablating each of these sets."""
    sweep, done = partial.sweep, partial.count()
    cut = torch.zeros(len(sets), *partial.exact.shape, dtype=torch.bool)
    for i, heads in enumerate(sets):
        for head in heads:
            cut[i, head.layer, head.head] = True
    value, losses = sweep.cut(cut, ticker(ctx, done, partial.total, f"ablation {done + 1}/{partial.total}"))
    change = np.full((len(sets), sweep.run.n), np.nan, dtype=partial.dtype)
    if losses.shape[1]:
        change[:, (sweep.measure.at + 1).cpu().numpy()] = (losses - sweep.losses).cpu().numpy()
    return value.cpu().numpy() - sweep.before, change


def _each(partial: _PartialResult, heads: tuple[Head, ...], ctx: Ctx) -> None:
    for batch in _singles(partial, heads):
        effect, change = _cut(partial, [[h] for h in batch], ctx)
        for h, value, row in zip(batch, effect, change, strict=True):
            partial.effect[h], partial.token_change[h], partial.exact[h] = value, row, True
        ctx.partial(partial.result())


def _sets(partial: _PartialResult, ctx: Ctx) -> None:
    waiting = np.flatnonzero(np.isnan(partial.set_effect))
    if not len(waiting):
        return
    order = waiting[np.argsort(-partial.members[waiting, :, 0].min(axis=1), kind="stable")]  # late layers first
    size = at_once(partial.sweep.run.n)
    for rows in (order[i : i + size] for i in range(0, len(order), size)):
        sets = [[Head(*head) for head in partial.members[i].tolist()] for i in rows]
        partial.set_effect[rows], partial.set_change[rows] = _cut(partial, sets, ctx)
        ctx.partial(partial.result())


def _strongest(effect: np.ndarray, most: int) -> tuple[Head, ...]:
    order = np.argsort(-np.abs(effect), axis=None, kind="stable")[:most]
    return tuple(Head(*map(int, divmod(i, effect.shape[1]))) for i in order)


def _refuse(config: ModelConfig, p: AblationParams) -> str | None:
    if p.what == "set" and not p.heads:
        return "ablating a set needs heads, and none is given."
    if p.what == "pairs" and not 2 <= (len(set(p.heads)) if p.heads else p.most) <= MOST:
        return f"all pairs can be ablated of 2 to {MOST} heads."
    return sweep_refusal(config, p.how, p.source, p.effect)


def _memory(config: ModelConfig, n: int, p: AblationParams) -> int:
    k = len(p.heads) or p.most
    sets = {"each": 0, "set": 1, "pairs": k * (k - 1) // 2}[p.what]
    results = 3 * 4 * n * (config.n_layers * config.n_heads + sets)
    per_layer = config.d_model * (4 * config.n_heads * config.d_head + 3 * config.d_mlp)
    gradient = 8 * (config.d_model * config.d_vocab_out + per_layer)  # copies of weights for the backward pass
    return results + gradient + sweep_bytes(config, n, p.source)


def _cost(config: ModelConfig, n: int, p: AblationParams) -> float:
    return of_run(config, n) * (len(p.heads) or config.n_layers * config.n_heads)


@analysis(version=2, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def ablation(inputs: Inputs, p: AblationParams, ctx: Ctx) -> AblationResult:
    """Head ablation: change of loss or target for each head, a set, or pairs; gradient estimates first, then exact values."""
    config = inputs.weights.config
    heads = chosen_heads(config, tuple(sorted(set(p.heads))))
    # sets that are given are computed exactly at once, so no estimate is needed
    estimated = isinstance(ctx.previous, AblationResult) and not np.isnan(ctx.previous.effect).any()
    estimated |= p.what != "each" and bool(p.heads)
    tick = ticker(ctx, 0, 1, "first-order estimate")
    sweep = prepare_sweep(inputs, p.how, p.source, p.frozen, p.effect, p.target, p.position, tick, sloped=not estimated)
    words = (*inputs.convention_words(), *sweep_conventions(sweep), "effect = after − before")
    k = len(heads) if p.heads else p.most
    total = len(heads) + {"each": 0, "set": 1, "pairs": k * (k - 1) // 2}[p.what]
    partial = _PartialResult(sweep, ctx.previous, words, total)
    if np.isnan(sweep.before):
        return partial.result(complete=True)
    if p.what != "each" and p.heads:
        partial.set_sets((heads,) if p.what == "set" else tuple(combinations(heads, 2)))
    if sweep.slope is not None and not has_paths(sweep.run):

        def show(estimate: torch.Tensor) -> None:
            partial.effect = np.where(partial.exact, partial.effect, estimate.cpu().numpy())
            ctx.partial(partial.result())

        first_order(sweep, ticker(ctx, 0, total, "first-order estimate"), show)
    _sets(partial, ctx)
    _each(partial, heads, ctx)
    if p.what == "pairs" and not p.heads:
        partial.set_sets(tuple(combinations(sorted(_strongest(partial.effect, p.most)), 2)))
        _sets(partial, ctx)
    return partial.result(complete=True)
