"""QK positivity of every head composed with every earlier head, through which its keys read.

    Σλ/Σ|λ| of W_E W_QK^{h2} (W_OV^{h1})ᵀ W_Eᵀ          rows are destinations, columns the tokens that h1 moved

(the K-composition term of Elhage et al. 2021. If h1 attends to the previous token, it is positive for an h2 that looks for the
token after an earlier copy.) With row vectors its non-zero eigenvalues are those of a d_head × d_head matrix,

    W_K^{h2}ᵀ (W_OV^{h1})ᵀ (W_EᵀW_E) W_Q^{h2}  =  (W_O^{h1} W_K^{h2})ᵀ (W_V^{h1}ᵀ (W_EᵀW_E) W_Q^{h2}).

Source tokens are centred over the vocabulary; raw values are given too. Nothing here depends on where earlier heads attend:
`previous_head_spectrum` weights them by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, over
from circuitlab.analysis.circuits.factor_products import (
    PART_FLOPS,
    Middle,
    Values,
    factors_of,
    head_batches,
    reading_words,
    working_dtype,
)
from circuitlab.analysis.circuits.factors import Heads, words
from circuitlab.analysis.circuits.token_readings import Embedding, left_unscaled, matrix_words, read_as, refuse_reading
from circuitlab.analysis.circuits.vocabulary_grams import EmbeddingGramParams, embedding_gram
from circuitlab.analysis.ordering import descending
from circuitlab.analysis.spectra._head_spectra import ZEROS, centred_words
from circuitlab.analysis.spectra.qk_spectrum import qk_words
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head

SHOWN_EVERY = 0.5  # seconds between partial results


@dataclass(frozen=True)
class PairPositivityParams:
    """`embed`: the embedding that circuits read; heads of the first layer read before the first MLP."""

    embed: Embedding = "tokens"


@dataclass(frozen=True, kw_only=True, eq=False)
class PairPositivityResult(Result):
    """`pairs`, `pairs_raw` float64 [dest_layer, dest_head, src_layer, src_head].

    NaN if the source is not in an earlier layer, or for a zero matrix.
    """

    pairs: np.ndarray = over("destination layer", "destination head", "source layer", "source head", unit="dimensionless")
    pairs_raw: np.ndarray = over("destination layer", "destination head", "source layer", "source head", unit="dimensionless")

    def table(self) -> Table:
        """One row per pair, the most positive first."""
        return pair_table(self.pairs, self.pairs_raw)


def pair_table(pairs: np.ndarray, raw: np.ndarray) -> Table:
    """One row per pair of heads of different layers, the most positive first, those without a value last."""
    n_layers, n_heads = pairs.shape[:2]
    layers = np.arange(n_layers)
    earlier = np.broadcast_to((layers[None, :] < layers[:, None])[:, None, :, None], pairs.shape)
    places = np.flatnonzero(earlier)
    places = places[descending(pairs.ravel()[places])]
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


def pair_memory(c: ModelConfig) -> int:
    """Bytes of two layers' factors and centred copies, d_model × d_model products, small matrices of a step, the result."""
    layer = 16 * c.n_heads * c.d_head * c.d_model
    return 8 * (2 * layer + 10 * c.d_model**2 + 16 * _step(c) * c.n_heads * c.d_head**2 + 6 * (c.n_layers * c.n_heads) ** 2)


def _memory(c: ModelConfig, n: int, p: PairPositivityParams) -> int:
    return pair_memory(c)


def _step(c: ModelConfig) -> int:
    """How many earlier heads at a time, by the flops of their products with a layer and of eigenvalues (100 d_head³ each)."""
    return max(1, min(c.n_heads, int(PART_FLOPS / (c.n_heads * (4 * c.d_head**2 * c.d_model + 200 * c.d_head**3)))))


def columns_of_heads(W: Tensor) -> Tensor:
    """[d_model, head · d_head]: the heads of [head, d_model, d_head] side by side."""
    return W.transpose(0, 1).flatten(1)


@dataclass(frozen=True)
class Reader:
    """The heads of a later layer: W_K and G W_Q [d_model, head · d_head], side by side; `left`, `row`: the raw correction."""

    W_K: Tensor
    GW_Q: Tensor
    row: Tensor
    left: Tensor
    d_head: int

    @classmethod
    def of(cls, heads: Heads, G: Middle, tick: Callable[[], None]) -> Reader:
        """The readers of a layer's factors and the embeddings' product G."""
        assert G.left is not None and G.right is not None
        n_heads, _, d_head = heads.W_Q.shape
        row, rotated = (G.right.to(heads.W_Q.dtype) @ heads.W_Q).double(), []
        for part, _ in head_batches(heads, list(range(n_heads))):
            tick()
            rotated.append(G.product @ columns_of_heads(part.W_Q))
        return cls(columns_of_heads(heads.W_K), torch.cat(rotated, 1), row, G.left.to(heads.W_Q.dtype), d_head)

    def blocks(self, product: Tensor) -> Tensor:
        """[src, dest, n, d_head] float64, from [src, n, dest · d_head]."""
        return product.unflatten(-1, (-1, self.d_head)).transpose(1, 2).double()


def pairs_between(reader: Reader, W_V: Tensor, W_O: Tensor, tick: Callable[[], None]) -> tuple[Tensor, Tensor]:
    """(centred, raw) scores [src, dest] of earlier heads, W_V [src, d_model, d_head] and W_O, with a later layer's heads."""
    A = reader.blocks(W_O @ reader.W_K)
    small = A.mT @ reader.blocks(W_V.mT @ reader.GW_Q)
    column = (A.mT @ (reader.left @ W_V).double()[:, None, :, None]).squeeze(-1)
    raw = small + column[..., :, None] * reader.row[None, :, None, :]
    shape, dtype = small.shape[:2], W_V.dtype
    small, raw = small.flatten(0, 1), raw.flatten(0, 1)
    step = max(1, int(PART_FLOPS / (200 * reader.d_head**3)))
    scores = []
    for start in range(0, len(small), step):
        tick()
        values = Values.of(small[start : start + step], raw[start : start + step], dtype)
        scores.append(np.stack([values.score, values.score_raw]))
    both = torch.as_tensor(np.concatenate(scores, axis=1)).unflatten(1, shape)
    return both[0], both[1]


def _refuse(c: ModelConfig, p: PairPositivityParams) -> str | None:
    return refuse_reading(c, p.embed)


@analysis(version=3, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse)
def pair_positivity(inputs: Inputs, p: PairPositivityParams, ctx: Ctx) -> PairPositivityResult:
    """QK positivity of every head whose keys read through a head of an earlier layer (K-composition), for all pairs."""
    c = inputs.weights.config
    shape = (c.n_layers, c.n_heads, c.n_layers, c.n_heads)
    pairs, raw = np.full(shape, np.nan), np.full(shape, np.nan)
    before = ctx.previous if isinstance(ctx.previous, PairPositivityResult) else None
    result = lambda done: PairPositivityResult(
        pairs=pairs if done == 1 else pairs.copy(),
        pairs_raw=raw if done == 1 else raw.copy(),
        conventions=words(inputs, *pair_words(inputs, p.embed), ends=False, unscaled=left_unscaled(c, p.embed, shared=True)),
        done=done,
    )
    shown = time.monotonic()
    with torch.inference_mode():
        grams = grams_of(inputs, p.embed) if c.n_layers > 1 else {}
        for layer in range(1, c.n_layers):
            if before is not None and np.isfinite(before.pairs_raw[layer]).any():
                pairs[layer], raw[layer] = before.pairs[layer], before.pairs_raw[layer]
                continue
            pairs[layer, :, :layer], raw[layer, :, :layer] = _into(inputs, layer, p.embed, grams, ctx)
            if time.monotonic() - shown >= SHOWN_EVERY and layer < c.n_layers - 1:
                ctx.partial(result(layer * (layer + 1) / (c.n_layers * (c.n_layers - 1))))
                shown = time.monotonic()
    return result(1.0)


def _into(
    inputs: Inputs, layer: int, embed: Embedding, grams: Mapping[Embedding, Middle], ctx: Ctx
) -> tuple[np.ndarray, np.ndarray]:
    """(centred, raw) [dest_head, src_layer, src_head] of one later layer with all earlier layers."""
    c = inputs.weights.config
    total, done = c.n_layers * (c.n_layers - 1) // 2, layer * (layer - 1) // 2
    begin = lambda: ctx.tick(done, total, f"pairs with layer {layer}")
    begin()
    later, step = factors_of(inputs, layer), _step(c)
    ways: set[Embedding] = {read_as(embed, Head(source, 0)) for source in range(layer)}
    reading = {way: Reader.of(later, grams[way], begin) for way in ways}
    pairs, raw = np.empty((c.n_heads, layer, c.n_heads)), np.empty((c.n_heads, layer, c.n_heads))
    for source in range(layer):
        tick = lambda at=source: ctx.tick(done + at, total, f"pairs with layer {layer}")
        tick()
        heads, reader = factors_of(inputs, source), reading[read_as(embed, Head(source, 0))]
        for start in range(0, c.n_heads, step):
            some = slice(start, start + step)
            centred, plain = pairs_between(reader, heads.W_V[some], heads.W_O[some], tick)
            pairs[:, source, some], raw[:, source, some] = centred.T.cpu().numpy(), plain.T.cpu().numpy()
    return pairs, raw


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
