"""Subspace overlap: principal angles between the subspaces of the residual stream that heads write and read.

    U [d_model, r], orthonormal, spans what a head writes (rows of W_OV) or reads (columns of W_QK, W_QKᵀ, W_OV); for two heads

    cos θ_1 ≥ … ≥ cos θ_r = singular values of U_1ᵀ U_2,     mean cos² = ‖U_1ᵀ U_2‖² / min(r_1, r_2)

(Björck and Golub 1973). Chance: one subspace rotated at random, E[mean cos²] = max(r_1, r_2)/d, d_head/d at full rank. The
subspaces are those of the products, and so gauge-invariant; U comes from QR of the factors and an SVD of a d_head × d_head
matrix. Singular values below what the weights are known to, by the dtype of their file, are rounding, in whatever precision they
are computed (`circuits/rounding.py`): the rank does not count them.

A matrix that spans the whole stream has no angles. With such a matrix the overlap is weighted: X is W_E, W_pos, W_Uᵀ, W_inᵀ of
the first MLP or W_out of the last, and A the head's product on its left side (rows in the stream; for positions of shortformer
as QK reads them, behind the norm):

    ‖A Xᵀ‖ / (‖A‖ ‖X‖),     baseline √(1/d), as for composition.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, naming, over
from circuitlab.analysis.chosen_heads import check_heads
from circuitlab.analysis.circuits.factor_products import factors_of, reading_words, reads_centred
from circuitlab.analysis.circuits.factors import Heads, heads_of, refuse_inexact, words
from circuitlab.analysis.circuits.rounding import rounding_of
from circuitlab.analysis.composition.virtual_weight_path import Side, mlp_of, of_embedding, of_positions, of_rows, of_unembedding
from circuitlab.analysis.cost import SPECTRUM
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head

Which = Literal["writes", "reads_q", "reads_k", "reads_v"]
WEIGHTED = ("W_E", "W_pos", "W_U", "W_in of the first MLP", "W_out of the last MLP")
FLOPS = 2e9  # between two ticks
SHOWN_EVERY = 0.5  # seconds between partial results
KEPT_SHARE = 4  # of the memory budget, one part may hold subspaces


@dataclass(frozen=True)
class SubspaceOverlapParams:
    """Side `left` of one head against `right` of the other; all principal cosines for the pair `first`, `second`."""

    left: Which = "writes"
    right: Which = "reads_q"
    first: Head = Head(0, 0)
    second: Head = Head(0, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class SubspaceOverlapResult(Result):
    """`mean_cos2`, `max_cos` [layer, head, layer, head] float64: left side of one head with right side of the other.

    `chance` of the same shape: `mean_cos2` of subspaces of these ranks with one of them rotated at random; `baseline`: that at
    full rank, min(d_head, d)/d. `cosines` [d_head] of the pair, largest first, NaN beyond its smaller rank. `left_rank`,
    `right_rank` [layer, head] int64; for rank 0 there is no subspace and no angle: NaN. `weighted` [5, layer, head]: left sides
    with the matrices `weighted_names`, NaN if the model has no such matrix or one of the two is 0; `weighted_baseline` √(1/d).
    """

    mean_cos2: np.ndarray = over("left layer", "left head", "right layer", "right head", unit="dimensionless")
    max_cos: np.ndarray = over("left layer", "left head", "right layer", "right head", unit="dimensionless")
    baseline: float
    cosines: np.ndarray = over("index", unit="dimensionless")
    left_rank: np.ndarray = over("layer", "head", unit="dimensions")
    right_rank: np.ndarray = over("layer", "head", unit="dimensions")
    weighted: np.ndarray = over("part", "layer", "head", unit="dimensionless")
    weighted_baseline: float
    chance: np.ndarray = over("left layer", "left head", "right layer", "right head", unit="dimensionless")
    weighted_names: tuple[str, ...] = naming("part", WEIGHTED)

    def table(self) -> Table:
        """One row per pair of left and right head; each against the chance by its ranks."""
        n_layers, n_heads = self.left_rank.shape
        names = np.array([str(Head(i, h)) for i in range(n_layers) for h in range(n_heads)], dtype=str)
        mean = self.mean_cos2.ravel()
        return Table(
            (
                Column("left", np.repeat(names, len(names))),
                Column("right", np.tile(names, len(names))),
                Column("mean_cos2", mean),
                Column("minus_baseline", mean - self.chance.ravel()),
                Column("max_cos", self.max_cos.ravel()),
            )
        )


@dataclass(frozen=True)
class _Subspaces:
    """One layer's heads: `U` [head, d_model, r] orthonormal, 0 beyond `rank` [head]; singular `values` [head, r].

    `distinct`: heads no two of which are known to have one subspace; `place` [head]: where among them each head's is. Heads of a
    key-value group read the same keys and values, so what a product of full rank reads is the span of the one W_K or W_V.
    """

    U: Tensor
    values: Tensor
    rank: Tensor
    distinct: list[int]
    place: Tensor

    @classmethod
    def of(cls, pairs: list[tuple[Tensor, Tensor]], group: int) -> _Subspaces:
        """From (U, values) of each head; `group`: how many heads after one another share the factor that spans theirs."""
        U, values = (torch.stack(parts) for parts in zip(*pairs, strict=True))
        rank = (values > 0).sum(-1)
        whole = (rank == U.shape[-1]).tolist()
        first = [h - h % group if whole[h] and whole[h - h % group] else h for h in range(len(U))]
        distinct = sorted(set(first))
        return cls(U, values, rank, distinct, torch.tensor([distinct.index(h) for h in first]))


def _factors(heads: Heads, which: Which) -> tuple[Tensor, Tensor]:
    """(inner [head, d_model, d_head], outer [head, d_head, d_model]), whose product's rows span the subspace."""
    pairs: dict[Which, tuple[Tensor, Tensor]] = {
        "writes": (heads.W_V, heads.W_O),
        "reads_q": (heads.W_K, heads.W_Q.mT),
        "reads_k": (heads.W_Q, heads.W_K.mT),
        "reads_v": (heads.W_O.mT, heads.W_V.mT),
    }
    return pairs[which]


def _subspace(inner: Tensor, outer: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """(U [d_model, r], singular values [r]) of inner · outer in float64; U is 0 where they are 0."""
    R = torch.linalg.qr(inner.double(), mode="r").R
    Q, R = torch.linalg.qr((R @ outer.double()).T)
    turn, values, _ = torch.linalg.svd(R)
    significant = values > tolerance * values[:1]
    return (Q @ turn) * significant, values * significant


class _SubspaceCache:
    """The subspaces of one side by layer, cached within `budget` bytes, else recomputed.

    `behind_norm`: of heads as they read what is added after the norm before attention.
    """

    def __init__(self, inputs: Inputs, which: Which, budget: int, behind_norm: bool = False) -> None:
        self.which: Which = which
        self._behind_norm = behind_norm
        self._inputs, self._left = inputs, budget
        c = inputs.weights.config
        self.d_head = c.d_head
        shared = which in ("reads_k", "reads_v") and c.d_head <= c.d_model
        self._group = c.group if shared else 1
        self._kept: dict[int, _Subspaces] = {}

    def of(self, layer: int, ctx: Ctx, done: tuple[int, int]) -> _Subspaces:
        """The subspaces of one layer. `done`: (done, total) for the ticks."""
        if layer in self._kept:
            return self._kept[layer]
        heads = heads_of(self._inputs, layer, behind_norm=True) if self._behind_norm else factors_of(self._inputs, layer)
        inner, outer = _factors(heads, self.which)
        noise = rounding_of(self._inputs, (layer,)).share
        pairs: list[tuple[Tensor, Tensor]] = []
        for h in range(len(inner)):
            ctx.tick(*done, f"subspaces of layer {layer}")
            U, values = _subspace(inner[h], outer[h], noise)
            pairs.append((U.to(inner.dtype), values))
        subspaces = _Subspaces.of(pairs, self._group)
        size = subspaces.U.numel() * subspaces.U.element_size()
        if size <= self._left:
            self._kept[layer], self._left = subspaces, self._left - size
        return subspaces


def _refuse(c: ModelConfig, p: SubspaceOverlapParams) -> str | None:
    return refuse_inexact(c)


def _memory(c: ModelConfig, n: int, p: SubspaceOverlapParams) -> int:
    """A layer on both sides, the results (twice, for partial results), Grams; up to a quarter of the budget holds subspaces."""
    r, pairs = min(c.d_head, c.d_model), (c.n_layers * c.n_heads) ** 2
    at_once = min(c.n_heads, max(1, int(FLOPS / (2 * r * r * c.n_heads * c.d_model)))) * c.n_heads * r * r
    mlp = 4 * c.d_model * c.d_mlp
    return (4 * 8 * (10 * c.n_heads * c.d_model * c.d_head + 4 * pairs + 4 * at_once + 6 * c.d_model**2 + mlp)) // 3


def _cost(c: ModelConfig, n: int, p: SubspaceOverlapParams) -> float:
    heads = c.n_layers * c.n_heads
    shared = [c.group for which in (p.left, p.right) if which in ("reads_k", "reads_v")]
    pairs = heads**2 / math.prod(shared) * c.d_head**2 * (2 * c.d_model + (SPECTRUM + 2) * c.d_head)
    return pairs + 4 * heads * SPECTRUM * c.d_head**3 + 2.0 * c.d_model**2 * (c.d_vocab + c.d_vocab_out + 2 * c.d_mlp)


@analysis(version=3, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def subspace_overlap(inputs: Inputs, p: SubspaceOverlapParams, ctx: Ctx) -> SubspaceOverlapResult:
    """Principal angles between the subspaces heads write and read, for all pairs; weighted overlap with embeddings and MLPs."""
    c = inputs.weights.config
    check_heads(c, p.first, p.second)
    d = max(1, c.d_model - 1 if reads_centred(inputs) else c.d_model)
    budget = inputs.memory // KEPT_SHARE
    left = _SubspaceCache(inputs, p.left, budget if p.left == p.right else budget // 2)
    right = left if p.left == p.right else _SubspaceCache(inputs, p.right, budget // 2)
    with torch.inference_mode():
        cosines, weighted = _pair(left, right, p, ctx), np.full((len(WEIGHTED), c.n_layers, c.n_heads), np.nan)
        shape, shown = (c.n_layers, c.n_heads, c.n_layers, c.n_heads), time.monotonic()
        mean, most = np.full(shape, np.nan), np.full(shape, np.nan)
        left_rank, right_rank = (np.zeros((c.n_layers, c.n_heads), dtype=np.int64) for _ in range(2))
        result = lambda done: SubspaceOverlapResult(
            mean_cos2=mean.copy(),
            max_cos=most.copy(),
            baseline=min(c.d_head, d) / d,
            cosines=cosines,
            left_rank=left_rank.copy(),
            right_rank=right_rank.copy(),
            weighted=weighted,
            weighted_baseline=math.sqrt(1 / d),
            chance=_chance(left_rank, right_rank, d),
            conventions=words(inputs, *_conventions(inputs, p), scores=None if reads_scores(p) else ()),
            done=done,
        )
        first = p.first.layer  # the chosen pair is among what is shown first, before the embeddings are read
        for n, i in enumerate((first, *(layer for layer in range(c.n_layers) if layer != first))):
            if n == 1:
                ctx.partial(result(1 / c.n_layers))
                weighted = _weighted(inputs, left, ctx)
            elif n and time.monotonic() - shown > SHOWN_EVERY:
                ctx.partial(result(n / c.n_layers))
                shown = time.monotonic()
            for j in range(c.n_layers):
                if left is right and np.isfinite(mean[i, :, j]).any():
                    continue
                mean[i, :, j], most[i, :, j], left_rank[i], right_rank[j] = _layers(left, right, (i, j), ctx, (n, c.n_layers))
                if left is right:
                    mean[j, :, i], most[j, :, i] = mean[i, :, j].T, most[i, :, j].T
        if c.n_layers == 1:
            weighted = _weighted(inputs, left, ctx)
        return result(1.0)


def _chance(left: np.ndarray, right: np.ndarray, d: int) -> np.ndarray:
    """[layer, head, layer, head]: max(r_1, r_2)/d of ranks [layer, head]; NaN where one of them is 0."""
    pairs = np.broadcast_arrays(left[:, :, None, None], right)
    return np.where(np.minimum(*pairs) > 0, np.maximum(*pairs) / d, np.nan)


def _pair(left: _SubspaceCache, right: _SubspaceCache, p: SubspaceOverlapParams, ctx: Ctx) -> np.ndarray:
    """[d_head]: principal cosines of the chosen pair."""
    one, other = left.of(p.first.layer, ctx, (0, 1)), right.of(p.second.layer, ctx, (0, 1))
    U, V = one.U[p.first.head].double(), other.U[p.second.head].double()
    cosines = torch.linalg.svdvals(U.T @ V).clamp(max=1)
    least = min(int(one.rank[p.first.head]), int(other.rank[p.second.head]))
    out = np.full(left.d_head, np.nan)
    out[:least] = cosines[:least].cpu().numpy()
    return out


def _layers(
    left: _SubspaceCache, right: _SubspaceCache, at: tuple[int, int], ctx: Ctx, row: tuple[int, int]
) -> tuple[np.ndarray, ...]:
    """(mean cos², largest cos) [head, head] of two layers' heads, and the ranks [head] of the left and the right ones.

    `row`: (done, total) rows of layers.
    """
    done = row[0] * row[1] + at[1], row[1] ** 2
    one, other = left.of(at[0], ctx, done), right.of(at[1], ctx, done)
    U, V = one.U[one.distinct], other.U[other.distinct]
    (n, d_model, r), m = U.shape, len(V)
    columns = V.permute(1, 0, 2).reshape(d_model, -1)
    mean, most = (torch.empty(n, m, dtype=torch.float64) for _ in range(2))
    step = max(1, int(FLOPS / (2 * r * columns.numel())))
    for start in range(0, n, step):
        ctx.tick(*done, f"layers {at[0]} and {at[1]}")
        rows = U[start : start + step].mT.reshape(-1, d_model)
        blocks = (rows @ columns).view(-1, r, m, r).transpose(1, 2).double()
        mean[start : start + step] = blocks.square().sum((-2, -1))
        most[start : start + step] = _largest(blocks.flatten(0, 1), ctx, done).view(-1, m)
    mean, most = (of[one.place][:, other.place] for of in (mean, most))
    least = torch.minimum(one.rank[:, None], other.rank[None, :]).double()
    has_angle = least > 0
    mean = torch.where(has_angle, mean / least.clamp(min=1), torch.nan)
    most = torch.where(has_angle, most.clamp(max=1), torch.nan)
    return mean.clamp(max=1).cpu().numpy(), most.cpu().numpy(), one.rank.cpu().numpy(), other.rank.cpu().numpy()


def _largest(blocks: Tensor, ctx: Ctx, done: tuple[int, int]) -> Tensor:
    """[n]: largest singular values of blocks [n, r, r], by the largest eigenvalue of the Gram matrix, which is accurate."""
    step = max(1, int(FLOPS / (50 * blocks.shape[-1] ** 3)))
    roots: list[Tensor] = []
    for part in blocks.split(step):
        ctx.tick(*done, "angles")
        roots.append(torch.linalg.eigvalsh(part.mT @ part)[:, -1].clamp(min=0).sqrt())
    return torch.cat(roots)


def _weighted(inputs: Inputs, left: _SubspaceCache, ctx: Ctx) -> np.ndarray:
    """The weighted overlaps [part, layer, head] of the left sides."""
    c = inputs.weights.config
    overlaps = np.full((len(WEIGHTED), c.n_layers, c.n_heads), np.nan)
    for i, layers, side in _parts(inputs, left.which):
        added = i == 1 and c.positions == "shortformer"  # behind the norm before attention, and never in the stream
        of_heads = _SubspaceCache(inputs, left.which, 0, behind_norm=True) if added else left
        gram = _gram(side, inputs, ctx)
        whole = float(gram.trace())
        for layer in layers if whole > 0 else ():
            ctx.tick(0, 1, side.name)
            one = of_heads.of(layer, ctx, (0, 1))
            factor = (one.U.double() * one.values[:, None, :]).mT
            overlap2 = ((factor @ gram) * factor).sum((-2, -1)).clamp(min=0)
            squared = one.values.square().sum(-1) * whole
            overlaps[i, layer] = torch.where(squared > 0, (overlap2 / squared).sqrt(), torch.nan).cpu().numpy()
    return overlaps


def _parts(inputs: Inputs, which: Which) -> Iterator[tuple[int, range | list[int], Side]]:
    """(index into `WEIGHTED`, the layers whose heads read or write along with it, the matrix as a side)."""
    c = inputs.weights.config
    every = range(c.n_layers)
    yield 0, every, of_embedding(inputs)
    if c.positions in ("learned", "sinusoidal"):
        yield 1, every, of_positions(inputs)
    elif c.positions == "shortformer" and which in ("reads_q", "reads_k"):  # never in the stream: added to what QK reads
        yield 1, [layer for layer in every if c.positional(layer)], of_positions(inputs)
    yield 2, every, of_unembedding(inputs)
    if not c.attention_only and c.experts is None and c.n_layers:
        yield 3, every, of_rows(mlp_of(inputs, 0)[0].T, "W_in")
        yield 4, every, of_rows(mlp_of(inputs, c.n_layers - 1)[1], "W_out")


def _gram(side: Side, inputs: Inputs, ctx: Ctx) -> Tensor:
    """[d_model, d_model] float64: XᵀX of a side's rows X. Raises `BadModel` if a weight is not finite."""
    d = inputs.weights.config.d_model
    side.norm(ctx)
    gram = torch.zeros(d, d, dtype=torch.float64)
    for tile in side.tiles(d, d, ctx):
        gram += tile.T @ tile
    return gram


def reads_scores(p: SubspaceOverlapParams) -> bool:
    """Whether one of the two is a side of W_QK."""
    return bool({"reads_q", "reads_k"} & {p.left, p.right})


def _conventions(inputs: Inputs, p: SubspaceOverlapParams) -> list[str]:
    c = inputs.weights.config
    shared = c.group > 1 and bool({"reads_k", "reads_v"} & {p.left, p.right})
    return [
        reading_words(inputs),
        f"subspaces of the products W_OV, W_QK; singular values under {rounding_of(inputs, (0,)).words()} count as 0",
        "chance: the larger rank of the two over the dimensions of the stream",
        "heads of one key-value group read the same keys and values" if shared else "",
        "W_QK at distance 0" if c.positions == "rotary" and reads_scores(p) else "",
        f"weighted: {p.left} of each head",
        "experts left out: they have no one W_in or W_out" if c.experts else "",
    ]
