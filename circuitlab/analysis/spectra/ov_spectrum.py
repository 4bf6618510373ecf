"""Spectra of a head's OV circuit: eigenvalues and singular values of W_E W_OV W_U, or of W_OV alone.

    full   the non-zero eigenvalues of W_E W_OV W_U [d_vocab, d_vocab] are those of W_O (W_U W_E) W_V [d_head, d_head]
    bare   the non-zero eigenvalues of W_V W_O [d_model, d_model] are those of W_O W_V

    copying = Σλ / Σ|λ| ∈ [−1, 1]        (Elhage et al. 2021, "Summarizing OV/QK matrices": positive eigenvalues copy)

Σλ is the trace, real and exact. A positive eigenvalue raises its own mixture of tokens, not necessarily a single token. Softmax
is invariant to a vector added to every column of W_U, but the raw score is not: so W_U is centred over the vocabulary, and the
raw value is given too. These matrices are not normal: their size is in the singular values, not in the eigenvalues.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from circuitlab.analysis.base import Ctx, Inputs, analysis, over
from circuitlab.analysis.chosen_heads import chosen_heads
from circuitlab.analysis.circuits.effective_embedding import cost_of_readings
from circuitlab.analysis.circuits.embedding_products import EmbeddingProductsParams, embedding_products
from circuitlab.analysis.circuits.factor_products import Middle, ThroughEarlier, reading_words, tensor, working_dtype
from circuitlab.analysis.circuits.factors import has_bias, is_token_map, refuse_inexact, words
from circuitlab.analysis.circuits.token_readings import Embedding, left_unscaled, matrix_words, read_as, refuse_table
from circuitlab.analysis.circuits.vocabulary_grams import (
    EmbeddingGramParams,
    UnembeddingGramParams,
    embedding_gram,
    unembedding_gram,
)
from circuitlab.analysis.cost import of_gram, of_spectra
from circuitlab.analysis.spectra._head_spectra import (
    EmbeddingsAround,
    SpectrumResult,
    centred_words,
    head_spectra,
    readers,
    refuse_composition,
    spectrum_memory,
    zeros_words,
)
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head

NOT_A_MAP = "input and output vocabulary differ, so W_E W_OV W_U has no eigenvalues; choose the bare W_OV."


@dataclass(frozen=True)
class OvSpectrumParams:
    """`heads`: `()` means all. `matrix`: the full circuit from tokens to tokens, or W_OV alone.

    `through`: an earlier head that composes with the heads, W_OV^{h1} W_OV^{h2} instead of W_OV: virtual heads. `embed`: the
    embedding that the full circuit reads; heads of the first layer read before the first MLP.
    """

    heads: tuple[Head, ...] = (Head(0, 0),)
    matrix: Literal["full", "bare"] = "full"
    through: Head | None = None
    embed: Embedding = "tokens"


@dataclass(frozen=True, kw_only=True, eq=False)
class OvSpectrumResult(SpectrumResult):
    """As `SpectrumResult`, W_U centred over the vocabulary; `copying`, `copying_raw` [n]: NaN for a zero matrix."""

    copying: np.ndarray = over("head", unit="dimensionless")
    copying_raw: np.ndarray = over("head", unit="dimensionless")
    unit: str = "logit"


def _refuse(c: ModelConfig, p: OvSpectrumParams) -> str | None:
    if p.matrix == "full" and not is_token_map(c):
        return refuse_inexact(c) or NOT_A_MAP
    if reason := refuse_table(c, p.embed if p.matrix == "full" else "tokens", readers(c, p.heads, p.through)):
        return reason
    return refuse_composition(p.heads, p.through)


def _memory(c: ModelConfig, n: int, p: OvSpectrumParams, dtype: str = "float32") -> int:
    return spectrum_memory(c, len(p.heads), dtype)


def _cost(c: ModelConfig, n: int, p: OvSpectrumParams) -> float:
    products = 3 * of_gram(c) + cost_of_readings(c, p.embed) if p.matrix == "full" else 0.0
    return products + of_spectra(c, len(p.heads))


@analysis(version=3, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def ov_spectrum(inputs: Inputs, p: OvSpectrumParams, ctx: Ctx) -> OvSpectrumResult:
    """OV circuit spectra: eigenvalues, singular values, effective rank and copying score Σλ/Σ|λ| of chosen heads."""
    heads = chosen_heads(inputs.weights.config, p.heads)
    embeddings: set[Embedding] = {read_as(p.embed, p.through or head) for head in heads} if p.matrix == "full" else set()
    full = {embed: _full(inputs, embed) for embed in embeddings}
    around = lambda layer: full.get(read_as(p.embed, p.through or Head(layer, 0)), EmbeddingsAround())
    with torch.inference_mode():
        through = ThroughEarlier(inputs, p.through)
        spectra = head_spectra(inputs, heads, lambda batch: (through(batch.W_V), batch.W_O), around, ctx, "OV", p.through)
    return OvSpectrumResult(
        **spectra.fields(),
        copying=spectra.score,
        copying_raw=spectra.score_raw,
        unit="logit" if p.matrix == "full" else "weight units",
        conventions=words(
            inputs,
            *_conventions(inputs, p),
            zeros_words(spectra.score),
            spectra.rounding_words(),
            scores=(),
            ends=p.matrix != "bare",
            unscaled=left_unscaled(inputs.weights.config, p.embed, p.through is not None) if p.matrix == "full" else (),
        ),
    )


def _full(inputs: Inputs, embed_as: Embedding) -> EmbeddingsAround:
    """For L = W_V and R = W_O: X = W_E, Yᵀ = W_U."""
    products = inputs.answer(embedding_products, EmbeddingProductsParams(embed_as))
    unembedding = inputs.answer(unembedding_gram, UnembeddingGramParams())
    embed = inputs.answer(embedding_gram, EmbeddingGramParams(embed_as, embed_as))
    dtype = working_dtype(inputs)
    middle = Middle.unembed_embed(products, dtype)
    return EmbeddingsAround(middle, tensor(embed.gram(False), dtype), tensor(unembedding.gram(True), dtype))


def _conventions(inputs: Inputs, p: OvSpectrumParams) -> list[str]:
    composed = "" if p.through is None else f"composed with {p.through}: virtual heads, both patterns the identity"
    if p.matrix == "bare":
        return [
            composed,
            "W_OV alone: no vocabulary to centre over, so raw is the same",
            reading_words(inputs),
            value_bias_words(inputs),
        ]
    readers = p.heads if p.through is None else (p.through,)
    effective = matrix_words(inputs.weights.config, p.embed, max((head.layer for head in readers), default=0))
    return [effective, composed, centred_words("W_U"), "singular values of the centred matrix", value_bias_words(inputs)]


def value_bias_words(inputs: Inputs) -> str:
    """Words for captions if values have a bias, else ""."""
    return "value bias left out" if has_bias(inputs.weights.config, "v") else ""
