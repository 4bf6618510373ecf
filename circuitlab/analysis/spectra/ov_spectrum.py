"""Spectra of a head's OV circuit: eigenvalues and singular values of W_E W_OV W_U, or of W_OV alone.

    full   the non-zero eigenvalues of W_E W_OV W_U [d_vocab, d_vocab] are those of W_O (W_U W_E) W_V [d_head, d_head]
    bare   the non-zero eigenvalues of W_V W_O [d_model, d_model] are those of W_O W_V

    copying = Σλ / Σ|λ| ∈ [−1, 1]        (Elhage et al. 2021, "Summarizing OV/QK matrices": positive eigenvalues copy)

Σλ is the trace, real and exact. A positive eigenvalue raises its own mixture of tokens, not necessarily a single token. Softmax
is invariant to a vector added to every column of W_U, but the raw score is not: so W_U is centred over the vocabulary, and the
raw value is given too. These matrices are not normal: their size is in the singular values, not in the eigenvalues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, number_size, over
from circuitlab.analysis.chosen_heads import chosen_heads
from circuitlab.analysis.circuits.embedding_products import (
    EFFECTIVE,
    EmbeddingProductsParams,
    embedding_products,
)
from circuitlab.analysis.circuits.factor_products import (
    Middle,
    SpectraArrays,
    ThroughEarlier,
    Values,
    effective_rank,
    factors_of,
    gram,
    head_batches,
    reading_words,
    singular_values,
    tensor,
)
from circuitlab.analysis.circuits.factors import Heads, by_layer, is_token_map, refuse_inexact, words
from circuitlab.analysis.circuits.vocabulary_grams import (
    EmbeddingGramParams,
    UnembeddingGramParams,
    embedding_gram,
    unembedding_gram,
)
from circuitlab.analysis.circuits.vocabulary_rows import Embedding, read_as, refuse_pair, refuse_table
from circuitlab.analysis.ordering import head_names
from circuitlab.model.config import ModelConfig
from circuitlab.model.folding import TILE
from circuitlab.model.subject import Head

NOT_A_MAP = "input and output vocabulary differ, so W_E W_OV W_U has no eigenvalues; choose the bare W_OV."

NO_BIAS = "value bias left out"
ZEROS = "a matrix of zeros has no eigenvalue: NaN"


@dataclass(frozen=True)
class OvSpectrumParams:
    """`heads`: `()` means all. `matrix`: the full circuit from tokens to tokens, or W_OV alone.

    `through`: an earlier head that composes with the heads, W_OV^{h1} W_OV^{h2} instead of W_OV: virtual heads. `embed`: the
    embedding that the full circuit reads; heads of the first layer always read the token itself.
    """

    heads: tuple[Head, ...] = (Head(0, 0),)
    matrix: Literal["full", "bare"] = "full"
    through: Head | None = None
    embed: Embedding = "tokens"


@dataclass(frozen=True, kw_only=True, eq=False)
class OvSpectrumResult(Result):
    """`heads` int32 [n, 2]; `eigenvalues`, `eigenvalues_raw` complex128 [n, d_head], largest modulus first.

    The other eigenvalues are 0. `singular_values` [n, d_head], largest first, and `effective_rank` [n] are of the centred matrix;
    `copying`, `copying_raw` [n]: NaN for a zero matrix. For the bare matrix raw and centred are the same.
    """

    heads: np.ndarray = over("head", "(layer, head)", unit="index")
    eigenvalues: np.ndarray = over("head", "index", unit="{unit}")
    eigenvalues_raw: np.ndarray = over("head", "index", unit="{unit}")
    singular_values: np.ndarray = over("head", "index", unit="{unit}")
    effective_rank: np.ndarray = over("head", unit="dimensionless")
    copying: np.ndarray = over("head", unit="dimensionless")
    copying_raw: np.ndarray = over("head", unit="dimensionless")
    unit: str = "logit"

    def table(self) -> Table:
        """One row per eigenvalue, head by head."""
        return spectrum_table(self.heads, self.eigenvalues, self.eigenvalues_raw, self.singular_values, self.unit)


def zeros(score: np.ndarray) -> str:
    """Words for the caption if a score is NaN, else ""."""
    return ZEROS if np.isnan(score).any() else ""


def spectrum_table(heads: np.ndarray, values: np.ndarray, raw: np.ndarray, singular: np.ndarray, unit: str) -> Table:
    """One row per eigenvalue: head, index, real and imaginary parts, centred and raw, and the singular value of that index."""
    n, d = values.shape
    return Table(
        (
            Column("head", np.repeat(head_names(*heads.T), d)),
            Column("index", np.tile(np.arange(d), n)),
            Column("real", np.real(values).ravel(), unit),
            Column("imaginary", np.imag(values).ravel(), unit),
            Column("modulus", np.abs(values).ravel(), unit),
            Column("real_raw", np.real(raw).ravel(), unit),
            Column("imaginary_raw", np.imag(raw).ravel(), unit),
            Column("singular_value", singular.ravel(), unit),
        )
    )


def _refuse(c: ModelConfig, p: OvSpectrumParams) -> str | None:
    if p.matrix == "full" and not is_token_map(c):
        return refuse_inexact(c) or NOT_A_MAP
    if reason := refuse_table(c, p.embed if p.matrix == "full" else "tokens", readers(c, p.heads, p.through)):
        return reason
    return refuse_behind(p.heads, p.through)


def readers(c: ModelConfig, heads: tuple[Head, ...], earlier: Head | None) -> tuple[Head, ...]:
    """The heads that read token embeddings: the earlier head if there is one, else `heads`, `()` meaning all."""
    return (earlier,) if earlier is not None else heads or tuple(Head(layer, 0) for layer in range(c.n_layers))


def refuse_behind(heads: tuple[Head, ...], earlier: Head | None) -> str | None:
    """Why one of the heads cannot compose with `earlier`, or None; `()` means all heads, of which the first layer's cannot."""
    return next((why for head in heads or (Head(0, 0),) if (why := refuse_pair(head, earlier))), None)


def spectrum_memory(c: ModelConfig, n_heads: int, dtype: str = "float32", n_products: int = 3) -> int:
    """Bytes of a layer's factors and centred copies, its small matrices, a few d_model × d_model products, and the result."""
    n_heads = n_heads or c.n_layers * c.n_heads
    wide = number_size(dtype)
    layer = 6 * wide * c.n_heads * c.d_head * c.d_model + 8 * 16 * c.n_heads * c.d_head**2
    # the products of embeddings in float64, one more while it is centred, and each in the working precision
    products = (8 * (n_products + 4) + wide * (n_products + 2)) * c.d_model**2 + wide * 4 * TILE * c.d_model
    return layer + products + 8 * 8 * n_heads * c.d_head


def _memory(c: ModelConfig, n: int, p: OvSpectrumParams, dtype: str = "float32") -> int:
    return spectrum_memory(c, len(p.heads), dtype)


@analysis(version=2, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse)
def ov_spectrum(inputs: Inputs, p: OvSpectrumParams, ctx: Ctx) -> OvSpectrumResult:
    """OV circuit spectra: eigenvalues, singular values, effective rank and copying score Σλ/Σ|λ| of chosen heads."""
    c = inputs.weights.config
    heads_chosen = chosen_heads(c, p.heads)
    sides = {e: _full(inputs, e) for e in embeddings(p.embed, p.through, heads_chosen)} if p.matrix == "full" else {}
    spectra = SpectraArrays(len(heads_chosen), c.d_head)
    with torch.inference_mode():
        through = ThroughEarlier(inputs, p.through)
        for layer, index, places in by_layer(heads_chosen):
            heads = factors_of(inputs, layer)
            for part, where in head_batches(heads, index):
                ctx.tick(places[0], len(heads_chosen), f"OV spectrum of layer {layer}")
                part = replace(part, W_V=through(part.W_V))
                side = sides.get(read_as(p.embed, p.through or Head(layer, 0)), _Sides())
                values = Values.of(*side.small(part), part.W_O.dtype)
                spectra.fill(places[where], values, singular_values(*side.grams(part)))
    return OvSpectrumResult(
        heads=np.array(heads_chosen, dtype=np.int32).reshape(-1, 2),
        eigenvalues=spectra.eigenvalues,
        eigenvalues_raw=spectra.eigenvalues_raw,
        singular_values=spectra.singular_values,
        effective_rank=effective_rank(spectra.singular_values),
        copying=spectra.score,
        copying_raw=spectra.score_raw,
        unit="logit" if p.matrix == "full" else "weight units",
        conventions=words(inputs, *_conventions(inputs, p), zeros(spectra.score)),
    )


@dataclass(frozen=True)
class _Sides:
    """The products of embeddings around W_V and W_O; None for the bare matrix."""

    middle: Middle | None = None
    embed: Tensor | None = None
    unembed: Tensor | None = None

    def small(self, heads: Heads) -> tuple[Tensor, Tensor]:
        """[head, d_head, d_head]: matrices with the non-zero eigenvalues, centred and raw."""
        if self.middle is None:
            bare = heads.W_O.double() @ heads.W_V.double()
            return bare, bare
        return self.middle.between(heads.W_O, heads.W_V)

    def grams(self, heads: Heads) -> tuple[Tensor, Tensor]:
        """(LᵀL, R Rᵀ) [head, d_head, d_head] of the centred matrix L R."""
        if self.embed is None or self.unembed is None:
            return gram(heads.W_V.mT), gram(heads.W_O)
        return heads.W_V.mT @ (self.embed @ heads.W_V), heads.W_O @ (self.unembed @ heads.W_O.mT)


def embeddings(embed: Embedding, earlier: Head | None, heads: tuple[Head, ...]) -> set[Embedding]:
    """The embeddings that these heads read, or that the earlier head reads if there is one."""
    return {read_as(embed, earlier or head) for head in heads}


def _full(inputs: Inputs, embed_as: Embedding) -> _Sides:
    products = inputs.answer(embedding_products, EmbeddingProductsParams(embed_as))
    unembedding = inputs.answer(unembedding_gram, UnembeddingGramParams())
    embed = inputs.answer(embedding_gram, EmbeddingGramParams(embed_as, embed_as))
    dtype = torch.float64 if inputs.subject.conventions.dtype == "float64" else torch.float32
    cast = lambda array: tensor(array, dtype)
    return _Sides(Middle.unembed_embed(products, dtype), cast(embed.gram(False)), cast(unembedding.gram(True)))


def _conventions(inputs: Inputs, p: OvSpectrumParams) -> list[str]:
    behind = "" if p.through is None else f"composed with {p.through}: virtual heads, both patterns the identity"
    if p.matrix == "bare":
        return [behind, "W_OV on its own: no vocabulary to centre over, raw is the same", reading_words(inputs), NO_BIAS]
    return [
        "" if p.embed == "tokens" else EFFECTIVE,
        behind,
        "W_U centred over the vocabulary, raw beside",
        "singular values of the centred matrix",
        NO_BIAS,
    ]
