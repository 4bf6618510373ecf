"""QK positivity of every head composed with every earlier head, through which its keys read.

    Σλ/Σ|λ| of W_E W_QK^{h2} (W_OV^{h1})ᵀ W_Eᵀ          rows are destinations, columns the tokens that h1 moved

(the K-composition term of Elhage et al. 2021. If h1 attends to the previous token, it is positive for an h2 that looks for the
token after an earlier copy.) With row vectors its non-zero eigenvalues are those of a d_head × d_head matrix,

    W_K^{h2}ᵀ (W_OV^{h1})ᵀ (W_EᵀW_E) W_Q^{h2}  =  (W_O^{h1} W_K^{h2})ᵀ (W_V^{h1}ᵀ (W_EᵀW_E) W_Q^{h2}).

Source tokens are centred over the vocabulary; raw values are given too. Nothing here depends on where earlier heads attend:
`previous_head_spectrum` weights them by it.

Nearly all of the time goes to eigenvalues, one d_head × d_head problem a pair, so pairs come in the order of their K-composition,
which costs little: those that a person looks for are among the first. Query heads of one key-value group share W_K and W_V, and
so the products with them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, number_size, over
from circuitlab.analysis.circuits.factor_products import (
    PART_FLOPS,
    Middle,
    factors_of,
    positivity,
    reading_words,
    rounding_floor,
    working_dtype,
)
from circuitlab.analysis.circuits.factors import Heads, words
from circuitlab.analysis.circuits.token_readings import Embedding, left_unscaled, matrix_words, read_as, refuse_reading
from circuitlab.analysis.circuits.vocabulary_grams import EmbeddingGramParams, embedding_gram
from circuitlab.analysis.composition.scores import CompositionParams, composition
from circuitlab.analysis.cost import EIGENVALUES
from circuitlab.analysis.ordering import descending
from circuitlab.analysis.spectra._head_spectra import ZEROS, centred_words
from circuitlab.analysis.spectra.qk_spectrum import qk_words
from circuitlab.errors import OverBudget
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head

SHOWN_EVERY = 0.5  # seconds between partial results
FIRST, GROWTH = 512, 8  # pairs in the first chunk of the order; how many times as many are in the next
KEPT_SHARE = 8  # of the memory budget, one part may hold the factors of all layers
MOST_AT_ONCE = 1024  # eigenvalue problems

Scores = Literal["both", "centred", "raw"]


@dataclass(frozen=True)
class PairPositivityParams:
    """`embed`: the embedding that circuits read; heads of the first layer read before the first MLP.

    `scores`: those of centred source tokens, of raw ones, or both, at twice the cost.
    """

    embed: Embedding = "tokens"
    scores: Scores = "both"


@dataclass(frozen=True, kw_only=True, eq=False)
class PairPositivityResult(Result):
    """`pairs`, `pairs_raw` float64 [dest_layer, dest_head, src_layer, src_head].

    NaN if the source is not in an earlier layer, for a zero matrix, and where it was not asked for.
    """

    pairs: np.ndarray = over("destination layer", "destination head", "source layer", "source head", unit="dimensionless")
    pairs_raw: np.ndarray = over("destination layer", "destination head", "source layer", "source head", unit="dimensionless")

    def table(self) -> Table:
        """One row per pair, the most positive first."""
        return pair_table(self.pairs, self.pairs_raw)

    def known(self) -> int:
        """How many pairs have a score, centred or raw."""
        return int((np.isfinite(self.pairs) | np.isfinite(self.pairs_raw)).sum())


def pair_table(pairs: np.ndarray, raw: np.ndarray) -> Table:
    """One row per pair of heads of different layers, the most positive first, those without a value last."""
    n_layers, n_heads = pairs.shape[:2]
    places = _earlier(n_layers, n_heads)
    by = pairs if np.isfinite(pairs).any() else raw
    places = places[descending(by.ravel()[places])]
    dest_layer, dest, src_layer, src = np.unravel_index(places, pairs.shape)
    names = np.array([str(Head(i, h)) for i in range(n_layers) for h in range(n_heads)] or [""])
    return Table(
        (
            Column("destination", names[dest_layer * n_heads + dest]),
            Column("source", names[src_layer * n_heads + src]),
            Column("positivity", pairs.ravel()[places]),
            Column("positivity_raw", raw.ravel()[places]),
        )
    )


def _earlier(n_layers: int, n_heads: int) -> np.ndarray:
    """The flat indices into [dest_layer, dest_head, src_layer, src_head] of all pairs whose source is in an earlier layer."""
    layers = np.arange(n_layers)
    earlier = (layers[None, :] < layers[:, None])[:, None, :, None]
    return np.flatnonzero(np.broadcast_to(earlier, (n_layers, n_heads, n_layers, n_heads)))


def pair_memory(c: ModelConfig) -> int:
    """Bytes of two layers' factors and centred copies, d_model × d_model products, small matrices of a step, the result; and of
    the factors of all layers, where they fit in their share."""
    layer = 16 * c.n_heads * c.d_head * c.d_model
    small = 16 * (_step(c) * c.n_heads + 4 * _at_once(c)) * c.d_head**2
    return KEPT_SHARE * 8 * (2 * layer + 10 * c.d_model**2 + small + 6 * (c.n_layers * c.n_heads) ** 2) // (KEPT_SHARE - 1)


def _memory(c: ModelConfig, n: int, p: PairPositivityParams) -> int:
    return pair_memory(c)


def _step(c: ModelConfig) -> int:
    """How many earlier heads at a time, by the flops of their products with a layer and of eigenvalues (100 d_head³ each)."""
    return max(1, min(c.n_heads, int(PART_FLOPS / (c.n_heads * (4 * c.d_head**2 * c.d_model + 200 * c.d_head**3)))))


def _at_once(c: ModelConfig) -> int:
    """How many eigenvalue problems a part has."""
    return max(1, min(MOST_AT_ONCE, int(PART_FLOPS / (200 * c.d_head**3))))


def columns_of_heads(W: Tensor) -> Tensor:
    """[d_model, head · d_head]: the heads of [head, d_model, d_head] side by side."""
    return W.transpose(0, 1).flatten(1)


@dataclass(frozen=True)
class Reader:
    """What some heads of a later layer read with: W_K [group, d_model, d_head] of their key-value groups, and G W_Q
    [head, d_model, d_head].

    `row` [head, d_head], `left` [d_model]: the raw correction.
    """

    W_K: Tensor
    GW_Q: Tensor
    row: Tensor
    left: Tensor

    @classmethod
    def of(cls, W_K: Tensor, W_Q: Tensor, G: Middle, tick: Callable[[], None]) -> Reader:
        """From the factors and the embeddings' product G."""
        assert G.left is not None and G.right is not None
        step, rotated = max(1, int(PART_FLOPS / (2 * W_Q[0].numel() * W_Q.shape[1]))), []
        for start in range(0, len(W_Q), step):
            tick()
            rotated.append(G.product @ W_Q[start : start + step])
        return cls(W_K, torch.cat(rotated), (G.right.to(W_Q.dtype) @ W_Q).double(), G.left.to(W_Q.dtype))


@dataclass(frozen=True)
class Small:
    """Matrices of pairs, centred [pair, d_head, d_head] float64, and the pairs' flat indices `places` [pair].

    The raw ones are `centred` + `column` ⊗ `row`, [pair, d_head] float64 each.
    """

    places: np.ndarray
    centred: Tensor
    column: Tensor
    row: Tensor

    def __len__(self) -> int:
        return len(self.places)

    def part(self, rows: slice) -> Small:
        """Some of the pairs."""
        return Small(self.places[rows], self.centred[rows], self.column[rows], self.row[rows])

    def scores(self, wanted: Scores, dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
        """(centred, raw) [pair]: Σλ/Σ|λ|, NaN where not wanted. Neither the order of eigenvalues nor any vector is needed."""
        floor, nothing = rounding_floor(self._size(), dtype), np.full(len(self), np.nan)
        of = lambda matrix: positivity(matrix, torch.linalg.eigvals(matrix).cpu().numpy(), floor)
        return (nothing if wanted == "raw" else of(self.centred)), (nothing if wanted == "centred" else of(self._raw()))

    def _raw(self) -> Tensor:
        return self.centred + self.column[:, :, None] * self.row[:, None, :]

    def _size(self) -> np.ndarray:
        """[pair]: the larger of the Frobenius norms of centred and raw matrices, the raw ones not made for it."""
        squared = self.centred.flatten(1).square().sum(1)
        between = (self.column[:, None, :] @ self.centred @ self.row[:, :, None])[:, 0, 0]
        raw = squared + 2 * between + self.column.square().sum(1) * self.row.square().sum(1)
        return torch.maximum(squared, raw).sqrt().cpu().numpy()


def small_between(reader: Reader, W_V: Tensor, W_O: Tensor, at: tuple[np.ndarray, ...], places: np.ndarray) -> Small:
    """The matrices of pairs, given by indices into the heads and groups on either side.

    W_V [src_group, d_model, d_head], W_O [src, d_head, d_model]; `at`: (src, src_group, dest, dest_group), each [pair].
    """
    n = W_O.shape[1]
    blocks = lambda product: product.unflatten(-1, (-1, n)).transpose(1, 2)  # [left, right, n, n]
    A, B = blocks(W_O @ columns_of_heads(reader.W_K)), blocks(W_V.mT @ columns_of_heads(reader.GW_Q))
    src, src_group, dest, dest_group = (torch.as_tensor(index, device=W_O.device) for index in at)
    keys = A[src, dest_group].double().mT
    centred = keys @ B[src_group, dest].double()
    column = keys @ (reader.left @ W_V).double()[src_group, :, None]
    return Small(places, centred, column[:, :, 0], reader.row[dest])


def _refuse(c: ModelConfig, p: PairPositivityParams) -> str | None:
    return refuse_reading(c, p.embed)


def _cost(c: ModelConfig, n: int, p: PairPositivityParams) -> float:
    scores, pairs = 2 if p.scores == "both" else 1, c.n_heads**2 * c.n_layers * (c.n_layers - 1) / 2
    own = pairs * c.d_head**2 * (4 * c.d_model + (2 + scores * EIGENVALUES) * c.d_head)
    return own + 2.0 * c.d_vocab * c.d_model**2 + composition.cost(c, n, CompositionParams())


def _wider(p: PairPositivityParams) -> tuple[PairPositivityParams, ...]:
    return () if p.scores == "both" else (replace(p, scores="both"),)


def _holds(version: int, config: ModelConfig, p: PairPositivityParams) -> bool:
    """Version 3 always had both scores."""
    return version == 3 and p.scores == "both"


@analysis(
    version=4, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost, holds=_holds, wider=_wider
)
def pair_positivity(inputs: Inputs, p: PairPositivityParams, ctx: Ctx) -> PairPositivityResult:
    """QK positivity of every head whose keys read through a head of an earlier layer (K-composition), for all pairs."""
    c = inputs.weights.config
    shape = (c.n_layers, c.n_heads, c.n_layers, c.n_heads)
    pairs, raw = np.full(shape, np.nan), np.full(shape, np.nan)
    if isinstance(ctx.previous, PairPositivityResult):
        pairs[:], raw[:] = ctx.previous.pairs, ctx.previous.pairs_raw
    phrases, unscaled = pair_words(inputs, p.embed), left_unscaled(c, p.embed, shared=True)
    result = lambda done: PairPositivityResult(
        pairs=pairs if done == 1 else pairs.copy(),
        pairs_raw=raw if done == 1 else raw.copy(),
        conventions=words(inputs, *phrases, ends=False, unscaled=unscaled),
        done=done,
    )
    if c.n_layers < 2:
        return result(1.0)
    order = _by_composition(inputs)
    known = np.isfinite(pairs if p.scores != "raw" else raw).ravel()[order]
    left, total, at, size = order[~known], len(order), 0, FIRST
    shown = time.monotonic()
    with torch.inference_mode(), ThreadPoolExecutor(max(1, torch.get_num_threads())) as workers:
        every = _Every(inputs, p, ctx, total - len(left), total, workers)
        while at < len(left):
            for places, centred, plain in every.scores(left[at : at + size]):
                pairs.ravel()[places], raw.ravel()[places] = centred, plain
                if at and time.monotonic() - shown >= SHOWN_EVERY:
                    ctx.partial(result(every.done / total))
                    shown = time.monotonic()
            at, size = at + size, size * GROWTH
            if at < len(left):
                ctx.partial(result(every.done / total))
                shown = time.monotonic()
    return result(1.0)


def _by_composition(inputs: Inputs) -> np.ndarray:
    """Flat indices of all pairs, those of the highest K-composition first; by layers, where its scores do not fit in memory."""
    places = _earlier(inputs.weights.config.n_layers, inputs.weights.config.n_heads)
    try:
        scores = inputs.answer(composition, CompositionParams())
    except OverBudget:
        return places
    return places[descending(scores.scores[scores.kinds.index("K")].ravel()[places])]


class _Every:
    """The scores of pairs of all layers. `done`: how many of the `total` are known."""

    def __init__(
        self, inputs: Inputs, p: PairPositivityParams, ctx: Ctx, done: int, total: int, workers: ThreadPoolExecutor
    ) -> None:
        self._inputs, self._p, self._ctx, self._workers = inputs, p, ctx, workers
        self._c = c = inputs.weights.config
        self._dtype, self._grams = working_dtype(inputs), grams_of(inputs, p.embed)
        self._at_once = _at_once(c)
        size = number_size(inputs.subject.conventions.dtype) * 4 * c.n_layers * c.n_heads * c.d_head * c.d_model
        self._kept: dict[int, Heads] | None = {} if size <= inputs.memory // KEPT_SHARE else None
        self.done, self._total = done, total

    def scores(self, places: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(some of the `places`, centred, raw), part by part: eigenvalues in the workers, products here."""
        waiting: deque[tuple[np.ndarray, Future[tuple[np.ndarray, np.ndarray]]]] = deque()

        def finished(most: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            while len(waiting) > most:
                of, scored = waiting.popleft()
                yield of, *scored.result()
                self.done += len(of)
                self._tick()

        for part in self._parts(places):
            waiting.append((part.places, self._workers.submit(part.scores, self._p.scores, self._dtype)))
            yield from finished(2)
        yield from finished(0)

    def _tick(self) -> None:
        self._ctx.tick(self.done, self._total, "positivity of pairs, by K-composition")

    def _parts(self, places: np.ndarray) -> Iterator[Small]:
        """The matrices of these pairs, `_at_once` together."""
        some: list[Small] = []
        for small in self._matrices(places):
            for start in range(0, len(small), self._at_once):
                rows = slice(start, start + self._at_once)
                some.append(small.part(rows))
                if sum(map(len, some)) >= self._at_once:
                    yield _joined(some)
                    some = []
        if some:
            yield _joined(some)

    def _matrices(self, places: np.ndarray) -> Iterator[Small]:
        """The matrices of these pairs, by the layers of their heads."""
        c, step = self._c, _step(self._c)
        shape = (c.n_layers, c.n_heads, c.n_layers, c.n_heads)
        places = np.sort(places)
        later, dest, source, src = np.unravel_index(places, shape)
        for layer in np.unique(later).tolist():
            here = np.flatnonzero(later == layer)
            heads, at = np.unique(dest[here], return_inverse=True)
            groups, group_at = np.unique(heads // c.group, return_inverse=True)
            factors = self._factors(layer)
            W_K, W_Q = factors.W_K[groups * c.group], factors.W_Q[heads]
            ways: set[Embedding] = {read_as(self._p.embed, Head(other, 0)) for other in np.unique(source[here]).tolist()}
            reading = {way: Reader.of(W_K, W_Q, self._grams[way], self._tick) for way in ways}
            for other in np.unique(source[here]).tolist():
                of_layer = np.flatnonzero(source[here] == other)
                earlier, reader = self._factors(other), reading[read_as(self._p.embed, Head(other, 0))]
                for start in range(0, c.n_heads, step):
                    self._tick()
                    rows = of_layer[(src[here[of_layer]] // step) == start // step]
                    if not len(rows):
                        continue
                    sources, src_at = np.unique(src[here[rows]], return_inverse=True)
                    src_groups, src_group = np.unique(sources // c.group, return_inverse=True)
                    index = src_at, src_group[src_at], at[rows], group_at[at[rows]]
                    W_V, W_O = earlier.W_V[src_groups * c.group], earlier.W_O[sources]
                    yield small_between(reader, W_V, W_O, index, places[here[rows]])

    def _factors(self, layer: int) -> Heads:
        """The factors of a layer, kept where those of all fit in their share of the memory."""
        if self._kept is None:
            return factors_of(self._inputs, layer)
        if layer not in self._kept:
            self._tick()
            self._kept[layer] = factors_of(self._inputs, layer)
        return self._kept[layer]


def _joined(some: list[Small]) -> Small:
    """The matrices of several stacks as one."""
    tensors = (torch.cat([getattr(small, name) for small in some]) for name in ("centred", "column", "row"))
    return Small(np.concatenate([small.places for small in some]), *tensors)


def grams_of(inputs: Inputs, embed: Embedding) -> dict[Embedding, Middle]:
    """E_sᵀE_d by the embedding that the earlier head reads. The later head is never in the first layer."""
    dtype = working_dtype(inputs)
    grams: dict[Embedding, Middle] = {}
    sources: set[Embedding] = {read_as(embed, Head(layer, 0)) for layer in range(inputs.weights.config.n_layers - 1)}
    for source in sources:
        answer = inputs.answer(embedding_gram, EmbeddingGramParams(source, embed))
        grams[source] = Middle.gram(answer, dtype)
    return grams


def pair_words(inputs: Inputs, embed: Embedding = "tokens") -> list[str]:
    """Words for captions of QK circuits whose keys read through earlier heads."""
    c = inputs.weights.config
    phrases = [reading_words(inputs), centred_words("source W_E"), *qk_words(c, 0), ZEROS, matrix_words(c, embed, c.n_layers - 1)]
    return phrases + (["one layer: there are no pairs"] if c.n_layers < 2 else [])
