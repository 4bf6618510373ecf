"""Ablation: how much what is measured changes when a head's output is taken away.

    effect(h) = value(z_h replaced) − value(as it is)           value: a mean loss (nats), an in-context score, a logit

z_h is replaced by zero, by a mean, or by z of another text (`ablation_parts`); heads one by one, a set together, or all pairs.
Patterns of later layers are computed again, or held at their recorded values (Olsson et al. 2022, “pattern-preserving
ablation”): then only what later heads are given changes, not where they look. In the last layer the two are the same.
A first-order estimate of every head (`first_order`) stands until its exact value replaces it; `exact` says which is which.
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
from circuitlab.analysis.interventions._gradient_estimate import first_order
from circuitlab.analysis.interventions._metric import Effect
from circuitlab.analysis.interventions.ablation_sweep import (
    Bench,
    How,
    at_once,
    bench,
    bytes_of,
    has_paths,
    refused,
    said,
    ticker,
)
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head, Target

What = Literal["each", "set", "pairs"]
MOST = 64  # heads of which pairs are taken: 2 016 of them


@dataclass(frozen=True)
class AblationParams:
    """`how` z is replaced; `frozen`: later patterns held. `what`: heads one by one, `heads` together as well, or all their pairs.

    `heads` () means all for "each"; for "pairs" the strongest `most` by their own effect. `effect`: mean loss of the prompt's
    tokens, of its second half, the `target` at `position`, or the in-context score. `source`: tokens of the other text for
    resample and mean; () with mean: this prompt's own mean over positions.
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
    """`effect` [layer, head] = value after − `baseline`; where not `exact` bool [layer, head]: a first-order estimate, or NaN.

    `token_change` [layer, head, pos]: change of the loss of the token at pos, NaN where it was not computed. Sets: `members` int
    [set, member, 2] as (layer, head), `set_effect` [set], `set_change` [set, pos]; `unit` of effects: nats or logit.
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
        """Of each set: `L0H1 + L1H4`."""
        return tuple(" + ".join(str(Head(*head)) for head in one) for one in self.members.tolist())

    @property
    def set_sums(self) -> np.ndarray:
        """[set]: what the members' own effects add up to; NaN until all of them are exact."""
        layer, head = self.members[..., 0], self.members[..., 1]
        return np.where(self.exact[layer, head], self.effect[layer, head], np.nan).sum(axis=-1)

    def table(self) -> Table:
        """One row a head, then one a set."""
        n_layers, n_heads = self.effect.shape
        heads = [str(Head(i, h)) for i in range(n_layers) for h in range(n_heads)]
        alone = np.concatenate([np.full(len(heads), np.nan), self.set_sums])
        kind = np.where(self.exact.ravel(), "exact", np.where(np.isnan(self.effect.ravel()), "not computed", "first-order"))
        done = np.where(np.isnan(self.set_effect), "not computed", "exact")
        return Table(
            (
                Column("ablated", np.array([*heads, *self.set_names])),
                Column("effect", np.concatenate([self.effect.ravel(), self.set_effect]), self.unit),
                Column("is", np.concatenate([kind, done])),
                Column("sum_of_each", alone, self.unit),
            )
        )

    def across(self) -> Mapping[str, np.ndarray]:
        """`effect` [layer, head], exact values only."""
        return {"effect": np.where(self.exact, self.effect, np.nan)}


class _Found:
    """The arrays as they fill, begun from what a cancelled attempt left."""

    def __init__(self, made: Bench, previous: object, words: tuple[str, ...], total: int) -> None:
        config, n = made.run.weights.config, made.run.n
        shape = (config.n_layers, config.n_heads)
        self.made, self.words, self.total = made, words, total
        self.effect, self.exact = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
        self.dtype = np.float64 if made.losses.dtype == torch.float64 else np.float32
        self.token_change = np.full((*shape, n), np.nan, dtype=self.dtype)
        self.set_sets(())
        if isinstance(previous, AblationResult) and previous.token_change.shape == self.token_change.shape:
            self.effect, self.exact = previous.effect.copy(), previous.exact.copy()
            self.token_change = previous.token_change.copy()
            self.members, self.set_effect = previous.members.copy(), previous.set_effect.copy()
            self.set_change = previous.set_change.copy()

    def set_sets(self, sets: tuple[tuple[Head, ...], ...]) -> None:
        """Make room for these sets, unless they are there already."""
        members = np.array(sets, dtype=np.int64).reshape(len(sets), len(sets[0]) if sets else 0, 2)
        if sets and np.array_equal(members, self.members):
            return
        self.members, self.set_effect = members, np.full(len(sets), np.nan)
        self.set_change = np.full((len(sets), self.made.run.n), np.nan, dtype=self.dtype)

    def count(self) -> int:
        """How many ablations are done."""
        return int(self.exact.sum()) + int((~np.isnan(self.set_effect)).sum())

    def result(self, complete: bool = False) -> AblationResult:
        """A snapshot."""
        arrays = {name: getattr(self, name).copy() for name in ("effect", "exact", "token_change")}
        arrays |= {name: getattr(self, name).copy() for name in ("members", "set_effect", "set_change")}
        estimates = bool((~self.exact & ~np.isnan(self.effect)).any())
        words = (*self.words, "where not exact: first-order estimates") if estimates else self.words
        done = 1.0 if complete else min(0.99, self.count() / self.total)
        return AblationResult(**arrays, baseline=self.made.before, unit=self.made.measure.unit, conventions=words, done=done)


def _singles(found: _Found, heads: tuple[Head, ...]) -> Iterator[list[Head]]:
    """Heads that are still to be done, last layer first, in batches of one layer."""
    for layer in sorted({h.layer for h in heads}, reverse=True):
        mine, size = sorted({h for h in heads if h.layer == layer and not found.exact[h]}), found.made.at_once(layer)
        yield from (mine[i : i + size] for i in range(0, len(mine), size))


def _cut(found: _Found, sets: list[list[Head]], ctx: Ctx) -> tuple[np.ndarray, np.ndarray]:
    """(effect [batch], loss change [batch, pos]) of cutting each of these sets."""
    made, done = found.made, found.count()
    cut = torch.zeros(len(sets), *found.exact.shape, dtype=torch.bool)
    for i, heads in enumerate(sets):
        for head in heads:
            cut[i, head.layer, head.head] = True
    value, losses = made.cut(cut, ticker(ctx, done, found.total, f"ablation {done + 1}/{found.total}"))
    change = np.full((len(sets), made.run.n), np.nan, dtype=found.dtype)
    if losses.shape[1]:
        change[:, (made.measure.at + 1).cpu().numpy()] = (losses - made.losses).cpu().numpy()
    return value.cpu().numpy() - made.before, change


def _each(found: _Found, heads: tuple[Head, ...], ctx: Ctx) -> None:
    for batch in _singles(found, heads):
        effect, change = _cut(found, [[h] for h in batch], ctx)
        for h, value, row in zip(batch, effect, change, strict=True):
            found.effect[h], found.token_change[h], found.exact[h] = value, row, True
        ctx.partial(found.result())


def _sets(found: _Found, ctx: Ctx) -> None:
    waiting = np.flatnonzero(np.isnan(found.set_effect))
    if not len(waiting):
        return
    order = waiting[np.argsort(-found.members[waiting, :, 0].min(axis=1), kind="stable")]  # those that begin late first
    size = at_once(found.made.run.n)
    for rows in (order[i : i + size] for i in range(0, len(order), size)):
        sets = [[Head(*head) for head in found.members[i].tolist()] for i in rows]
        found.set_effect[rows], found.set_change[rows] = _cut(found, sets, ctx)
        ctx.partial(found.result())


def _strongest(effect: np.ndarray, most: int) -> tuple[Head, ...]:
    order = np.argsort(-np.abs(effect), axis=None, kind="stable")[:most]
    return tuple(Head(*map(int, divmod(i, effect.shape[1]))) for i in order)


def _refuse(config: ModelConfig, p: AblationParams) -> str | None:
    if p.what == "set" and not p.heads:
        return "no heads are given that could be ablated together."
    if p.what == "pairs" and not 2 <= (len(set(p.heads)) if p.heads else p.most) <= MOST:
        return f"pairs are taken of 2 to {MOST} heads."
    return refused(config, p.how, p.source, p.effect)


def _memory(config: ModelConfig, n: int, p: AblationParams) -> int:
    k = len(p.heads) or p.most
    sets = {"each": 0, "set": 1, "pairs": k * (k - 1) // 2}[p.what]
    results = 3 * 4 * n * (config.n_layers * config.n_heads + sets)
    per_layer = config.d_model * (4 * config.n_heads * config.d_head + 3 * config.d_mlp)
    gradient = 8 * (config.d_model * config.d_vocab_out + per_layer)  # copies of weights for the backward pass
    return results + gradient + bytes_of(config, n, p.source)


@analysis(version=1, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse)
def ablation(inputs: Inputs, p: AblationParams, ctx: Ctx) -> AblationResult:
    """What changes when heads are taken away: every head, a set, or pairs; estimates first, exact values as they come."""
    config = inputs.weights.config
    heads = chosen_heads(config, tuple(sorted(set(p.heads))))
    # given sets are exact at once: nothing needs an estimate
    known = isinstance(ctx.previous, AblationResult) and not np.isnan(ctx.previous.effect).any()
    known |= p.what != "each" and bool(p.heads)
    tick = ticker(ctx, 0, 1, "first-order estimate")
    made = bench(inputs, p.how, p.source, p.frozen, p.effect, p.target, p.position, tick, sloped=not known)
    words = (*inputs.subject.conventions.words(), *said(made), "effect = after − before")
    k = len(heads) if p.heads else p.most
    total = len(heads) + {"each": 0, "set": 1, "pairs": k * (k - 1) // 2}[p.what]
    found = _Found(made, ctx.previous, words, total)
    if np.isnan(made.before):
        return found.result(complete=True)
    if p.what != "each" and p.heads:
        found.set_sets((heads,) if p.what == "set" else tuple(combinations(heads, 2)))
    if made.slope is not None and not has_paths(made.run):

        def show(estimate: torch.Tensor) -> None:
            found.effect = np.where(found.exact, found.effect, estimate.cpu().numpy())
            ctx.partial(found.result())

        first_order(made, ticker(ctx, 0, total, "first-order estimate"), show)
    _sets(found, ctx)
    _each(found, heads, ctx)
    if p.what == "pairs" and not p.heads:
        found.set_sets(tuple(combinations(sorted(_strongest(found.effect, p.most)), 2)))
        _sets(found, ctx)
    return found.result(complete=True)
