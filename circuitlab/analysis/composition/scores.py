"""Composition scores: how much of an earlier head's output a later head reads (Elhage et al. 2021), for all pairs.

    Q: ‖W_OV^{h1} W_QK^{h2}‖     K: ‖W_OV^{h1} W_QK^{h2}ᵀ‖     V: ‖W_OV^{h1} W_OV^{h2}‖

each over the product of the two norms; all norms are Frobenius norms. The factors are reduced first: with C Cᵀ = W_Vᵀ W_V,
‖W_V W_O X‖ = ‖Cᵀ W_O X‖, and on the right W_Q R, R Rᵀ = W_Kᵀ W_K [Q]; W_K R, R Rᵀ = W_Qᵀ W_Q [K]; W_V R, R Rᵀ = W_O W_Oᵀ [V].
The squared norms of all products of reduced factors are computed in `_frobenius`, one chunk of layers with another at a time.

Baseline: one side rotated at random, both spectra kept, in d dimensions (P and R: A Aᵀ and Bᵀ B of the reduced factors A, B)

    E[score²] = 1/d,     Var[score²] = 2 nP nR / ((d−1)(d+2)(tr P tr R)²),     nP = ‖P‖² − (tr P)²/d,     z = (score² − 1/d)/sd

The distribution is skewed: z ranks edges, but is not a p-value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, naming, number_size, over
from circuitlab.analysis.circuits.factor_products import factors_of, gram, reading_words, reads_centred, root, working_dtype
from circuitlab.analysis.circuits.factors import Heads, refuse_inexact, words
from circuitlab.analysis.composition._frobenius import (
    GRAM_ROWS,
    SMALL,
    TILE_FLOPS,
    by_blocks,
    by_grams,
    by_grams_is_cheaper,
    recompute_small,
)
from circuitlab.analysis.ordering import descending
from circuitlab.errors import UsageError
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head

Kind = Literal["Q", "K", "V"]
KEPT_SHARE = 8  # of the memory budget, one part may hold the outputs of earlier layers, another a chunk of layers
CHUNK = 12  # layers between partial results


@dataclass(frozen=True)
class CompositionParams:
    """`kinds`: through the query, the key or the value of the later head."""

    kinds: tuple[Kind, ...] = ("Q", "K", "V")


PAIR = ("destination layer", "destination head", "source layer", "source head")


@dataclass(frozen=True, kw_only=True, eq=False)
class CompositionResult(Result):
    """`scores`, `z` [kind, dest_layer, dest_head, src_layer, src_head]; `baseline` √(1/d).

    NaN if the source is not in an earlier layer or one of the two matrices is 0; z also if the baseline has no variance.
    """

    scores: np.ndarray = over(
        "kind", "destination layer", "destination head", "source layer", "source head", unit="dimensionless"
    )
    z: np.ndarray = over(
        "kind", "destination layer", "destination head", "source layer", "source head", unit="standard deviations"
    )
    baseline: float
    kinds: tuple[str, ...] = naming("kind")

    def table(self) -> Table:
        """One row per pair and kind, the strongest first, those without a score last."""
        n_layers, n_heads = self.scores.shape[1:3]
        layers = np.arange(n_layers)
        earlier = np.broadcast_to((layers[None, :] < layers[:, None])[None, :, None, :, None], self.scores.shape)
        places = np.flatnonzero(earlier)
        places = places[descending(self.scores.ravel()[places])]
        kind, dest_layer, dest, src_layer, src = np.unravel_index(places, self.scores.shape)
        names = np.array([str(Head(i, h)) for i in range(n_layers) for h in range(n_heads)] or [""])
        score = self.scores.ravel()[places]
        return Table(
            (
                Column("kind", np.array(self.kinds)[kind]),
                Column("destination", names[dest_layer * n_heads + dest]),
                Column("source", names[src_layer * n_heads + src]),
                Column("score", score),
                Column("minus_baseline", score - score.dtype.type(self.baseline)),
                Column("z", self.z.ravel()[places]),
            )
        )


def _mean_square(d: int) -> float:
    """E[score²] of the baseline; of a stream that centring leaves nothing of, whose matrices are 0, it is 0."""
    return 1 / d if d else 0.0


@dataclass(frozen=True)
class _Side:
    """Reduced factors of the heads of a layer. `squared` [head]: ‖W_OV‖² or ‖W_QK‖²; `spread` [head]: nP/(tr P)², NaN for 0."""

    squared: Tensor
    spread: Tensor

    @classmethod
    def of(cls, reduced: Tensor, inner: Tensor, d: int) -> _Side:
        """From the d_head × d_head root R and the Gram of the factor that it multiplies: Rᵀ inner R is the product's Gram."""
        both = reduced.mT @ inner @ reduced
        trace = both.diagonal(dim1=-2, dim2=-1).sum(-1)
        spread = both.square().sum((-2, -1)) / trace**2 - _mean_square(d)
        return cls(trace, torch.where(spread > 1e-12, spread, torch.zeros_like(spread)))

    def size(self, d: int) -> Tensor:
        """[head] ‖A Aᵀ‖ (or ‖Bᵀ B‖) of the reduced factors."""
        return self.squared * (self.spread + _mean_square(d)).clamp(min=0).sqrt()


class _Sources:
    """Reduced outputs Cᵀ W_O of earlier layers, kept if all fit in `budget` bytes; else C is kept and W_O is read again."""

    def __init__(self, inputs: Inputs, d: int, budget: int) -> None:
        c = inputs.weights.config
        self._inputs, self._d, self._n_heads = inputs, d, c.n_heads
        dtype = working_dtype(inputs)
        shape = (c.n_layers - 1) * c.n_heads, c.d_head, c.d_model
        self._kept = torch.empty(shape, dtype=dtype) if dtype.itemsize * math.prod(shape) <= budget else None
        self._roots: list[Tensor] = []
        self.sides: list[_Side] = []

    def add(self, heads: Heads, grams: Mapping[str, Tensor]) -> None:
        """Add the next layer."""
        C, at = root(grams["V"]), len(self.sides) * self._n_heads
        self.sides.append(_Side.of(C, grams["O"], self._d))
        C = C.to(heads.W_O.dtype)
        if self._kept is None:
            self._roots.append(C)
        else:
            self._kept[at : at + self._n_heads] = C.mT @ heads.W_O

    def left(self, layers: range) -> Tensor:
        """[layer · head, d_head, d_model]: Cᵀ W_O of these layers."""
        if self._kept is not None:
            return self._kept[layers.start * self._n_heads : layers.stop * self._n_heads]
        one = lambda i: self._roots[i].mT @ factors_of(self._inputs, i).W_O
        return one(layers.start) if len(layers) == 1 else torch.cat([one(i) for i in layers])

    def size(self, layers: range) -> Tensor:
        """[layer · head]: `_Side.size` of these layers."""
        return torch.cat([self.sides[i].size(self._d) for i in layers])


def _grams(heads: Heads, kinds: tuple[str, ...]) -> dict[str, Tensor]:
    """[head, d_head, d_head] float64: WᵀW of W_Q, W_K, W_V, and W_O W_Oᵀ, as far as these kinds need them."""
    needed = {"V": heads.W_V.mT, "O": heads.W_O}
    needed |= {"Q": heads.W_Q.mT, "K": heads.W_K.mT} if {"Q", "K"} & set(kinds) else {}
    return {name: gram(W) for name, W in needed.items()}


def _reader(heads: Heads, grams: Mapping[str, Tensor], kind: str, d: int) -> tuple[Tensor, _Side]:
    """[head, d_model, d_head] reduced right factor of one kind, and its norms."""
    R = root(grams[{"Q": "K", "K": "Q", "V": "O"}[kind]])
    W = {"Q": heads.W_Q, "K": heads.W_K, "V": heads.W_V}[kind]
    return W @ R.to(W.dtype), _Side.of(R, grams[kind], d)


def _per_layer(c: ModelConfig, kinds: int) -> int:
    """Bytes in float64 of one more layer in a chunk: its reduced factors, and rows of its Grams."""
    return 8 * c.n_heads * c.d_model * ((kinds + 1) * c.d_head + GRAM_ROWS)


def _layer_memory(c: ModelConfig, wide: int) -> int:
    """Bytes for a destination and a source layer, `wide` a number: weights, centred copies, factors, a tile of the product."""
    factor = wide * c.n_heads * c.d_head * c.d_model
    rows = min(c.n_heads, max(1, int(TILE_FLOPS / (6 * c.d_head**2 * c.n_heads * c.d_model)))) * c.d_head
    small = 8 * c.n_heads * c.d_head**2 * (c.n_layers + 16)
    blocks, grams = 3 * wide * 3 * rows * c.n_heads * c.d_head, wide * 4 * c.n_heads * GRAM_ROWS * c.d_model
    return 16 * factor + small + max(blocks, grams)


def _memory(c: ModelConfig, n: int, p: CompositionParams, dtype: str = "float32") -> int:
    """The result (twice, for partial results), a layer, and up to a quarter of the budget for reduced factors."""
    fixed = _layer_memory(c, number_size(dtype)) + 8 * 6 * len(p.kinds) * (c.n_layers * c.n_heads) ** 2
    return 4 * fixed // 3


def _cost(c: ModelConfig, n: int, p: CompositionParams) -> float:
    return len(p.kinds) * c.d_model * float(c.n_layers * c.n_heads * c.d_head) ** 2


@analysis(version=1, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=refuse_inexact, cost=_cost)
def composition(inputs: Inputs, p: CompositionParams, ctx: Ctx) -> CompositionResult:
    """Q-, K- and V-composition scores of every head with every earlier head, against a random baseline."""
    kinds = tuple(dict.fromkeys(p.kinds))
    if not kinds:
        raise UsageError(
            "No kind of composition is given.", expected="one or more of Q K V", got="none", remedy="Name one or more of them."
        )
    c = inputs.weights.config
    d = c.d_model - 1 if reads_centred(inputs) else c.d_model
    shape = (len(kinds), c.n_layers, c.n_heads, c.n_layers, c.n_heads)
    scores, z = (np.full(shape, np.nan, inputs.subject.conventions.dtype) for _ in range(2))
    conventions = words(
        inputs,
        reading_words(inputs),
        f"baseline √(1/{d}): one side rotated at random, both spectra kept",
        "rotary: at distance 0" if c.positions == "rotary" and kinds != ("V",) else "",
        "one layer: there are no pairs" if c.n_layers < 2 else "",
        scores=() if kinds == ("V",) else None,
        ends=False,
    )
    result = lambda done: CompositionResult(
        scores=scores if done == 1 else scores.copy(),
        z=z if done == 1 else z.copy(),
        baseline=math.sqrt(1 / d) if d else math.nan,
        kinds=kinds,
        conventions=conventions,
        done=done,
    )
    if c.n_layers > 1:
        for layers, layer_scores, layer_z in _Pairs(inputs, kinds, d, ctx):
            scores[:, layers], z[:, layers] = layer_scores, layer_z
            at = layers.stop * (layers.stop - 1) / (c.n_layers * (c.n_layers - 1))
            if layers.stop < c.n_layers:
                ctx.partial(result(at))
    return result(1.0)


class _Pairs:
    """Iterates over chunks of layers: (layers, scores, z [kind, layer, dest_head, src_layer, src_head])."""

    def __init__(self, inputs: Inputs, kinds: tuple[str, ...], d: int, ctx: Ctx) -> None:
        self._inputs, self._kinds, self._d, self._ctx = inputs, kinds, d, ctx
        self._c = inputs.weights.config
        share = inputs.memory // KEPT_SHARE
        doubles = inputs.subject.conventions.dtype == "float64"
        self._chunk = min(CHUNK, max(1, (1 if doubles else 2) * share // _per_layer(self._c, len(kinds))))
        self._sources = _Sources(inputs, d, share)

    def __iter__(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        for start in range(0, self._c.n_layers, self._chunk):
            readers, sides = self._read(range(start, min(start + self._chunk, self._c.n_layers)))
            squares = self._squares(readers, sides)
            scored = [self._scored(squares[layer], sides[layer]) for layer in squares]
            yield slice(start, start + len(scored)), np.stack([m[0] for m in scored], 1), np.stack([m[1] for m in scored], 1)

    def _read(self, layers: range) -> tuple[dict[int, Tensor], dict[int, list[_Side]]]:
        """Reduced reading factors [kind · head, d_model, d_head] of these layers; their outputs are added to the sources."""
        readers, sides = {}, {}
        for layer in layers:
            self._tick(layer, 0)
            heads = factors_of(self._inputs, layer)
            grams = _grams(heads, self._kinds)
            n_heads, W = len(heads.W_Q), heads.W_Q
            readers[layer] = torch.empty(len(self._kinds) * n_heads, *W.shape[1:], dtype=W.dtype)
            sides[layer] = []
            for i, kind in enumerate(self._kinds):  # one at a time, without copies, for models larger than memory
                readers[layer][i * n_heads : (i + 1) * n_heads], side = _reader(heads, grams, kind, self._d)
                sides[layer].append(side)
            if layer < self._c.n_layers - 1:
                self._sources.add(heads, grams)
        return readers, sides

    def _tick(self, layer: int, source: int) -> None:
        total = self._c.n_layers * (self._c.n_layers - 1) // 2
        self._ctx.tick(layer * (layer - 1) // 2 + min(source, layer), total, f"composition with layer {layer}")

    def _squares(self, readers: dict[int, Tensor], sides: dict[int, list[_Side]]) -> dict[int, Tensor]:
        """[source layer · head, kind · head] float64 by layer: squared norms with all heads of earlier layers."""
        n_heads = self._c.n_heads
        out = {layer: torch.empty(layer * n_heads, len(B), dtype=torch.float64) for layer, B in readers.items()}
        last = max(readers)
        for start in range(0, last, self._chunk):
            sources = range(start, min(start + self._chunk, last))
            later = {layer: B for layer, B in readers.items() if layer > start}
            for layer, layer_squares in self._between(sources, later, sides):
                out[layer][start * n_heads : start * n_heads + len(layer_squares)] = layer_squares
        return out

    def _between(self, sources: range, readers: dict[int, Tensor], sides: dict[int, list[_Side]]) -> Iterator[tuple[int, Tensor]]:
        """(layer, squared norms with the heads of `sources` in earlier layers)."""
        A, n_heads = self._sources.left(sources), self._c.n_heads
        _, d_head, d_model = A.shape
        before = {layer: min(len(A), (layer - sources.start) * n_heads) for layer in readers}
        tick = lambda: self._tick(max(readers), sources.start)
        pairs = sum(before[layer] * len(B) for layer, B in readers.items())
        if not by_grams_is_cheaper(len(A), sum(map(len, readers.values())), pairs, d_model, d_head):
            for layer, B in readers.items():
                right = B.permute(1, 0, 2).reshape(d_model, -1)
                yield layer, by_blocks(A[: before[layer]].flatten(0, 1), right, d_head, tick)
            return
        by_layer = by_grams(A, list(readers.values()), list(before.values()), tick)
        source_sizes = self._sources.size(sources)
        for (layer, B), squares in zip(readers.items(), by_layer, strict=True):
            reader_sizes = torch.cat([side.size(self._d) for side in sides[layer]])
            recompute_small(A, B, squares, squares < SMALL * source_sizes[: len(squares), None] * reader_sizes, tick)
            yield layer, squares

    def _scored(self, squares: Tensor, sides: list[_Side]) -> tuple[np.ndarray, np.ndarray]:
        """Scores and z [kind, dest_head, src_layer, src_head] of one layer; NaN for sources not in earlier layers."""
        c, d = self._c, self._d
        layer = len(squares) // c.n_heads
        squares = squares.view(layer, c.n_heads, len(self._kinds), c.n_heads).permute(2, 3, 0, 1)
        before, kind = self._sources.sides[:layer], self._inputs.subject.conventions.dtype
        scores, z = (np.full((len(self._kinds), c.n_heads, c.n_layers, c.n_heads), np.nan, kind) for _ in range(2))
        if not layer:
            return scores, z
        norms = _outer([s.squared for s in sides], [s.squared for s in before])
        spread = _outer([s.spread for s in sides], [s.spread for s in before])
        score2 = squares / torch.where(norms > 0, norms, torch.nan)
        variance = 2 * spread / ((d - 1) * (d + 2)) if d > 1 else torch.zeros_like(spread)
        deviations = (
            (score2 - 1 / d) / torch.where(variance > 0, variance, torch.nan).sqrt() if d else torch.full_like(score2, torch.nan)
        )
        scores[:, :, :layer], z[:, :, :layer] = score2.sqrt().cpu().numpy(), deviations.cpu().numpy()
        return scores, z


def _outer(readers: list[Tensor], sources: list[Tensor]) -> Tensor:
    """[kind, dest_head, src_layer, src_head] products."""
    return torch.stack(readers)[:, :, None, None] * torch.stack(sources)
