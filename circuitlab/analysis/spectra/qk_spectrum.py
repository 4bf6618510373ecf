"""Spectra of a head's QK circuit: eigenvalues and singular values of W_E W_QK W_Eᵀ, or of W_QK alone.

    full   the non-zero eigenvalues of W_E W_QK W_Eᵀ [d_vocab, d_vocab] are those of W_Kᵀ (W_EᵀW_E) W_Q [d_head, d_head]
    bare   the non-zero eigenvalues of W_Q W_Kᵀ [d_model, d_model] are those of W_Kᵀ W_Q

    positivity = Σλ / Σ|λ| ∈ [−1, 1]        (Elhage et al. 2021: positive eigenvalues attend to tokens like the destination's)

Rows are destinations. Softmax is invariant to a constant added to all sources of a row, so the source's W_E is centred over the
vocabulary (for eigenvalues the same as centring both); the raw value is given too. For rotary models at distance d from source to
destination, W_Q is W_Q R(−d).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Ctx, Inputs, Result, Table, analysis, at_least, over
from circuitlab.analysis.chosen_heads import chosen_heads
from circuitlab.analysis.circuits.embedding_products import EFFECTIVE
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
from circuitlab.analysis.circuits.factors import by_layer, rotated, words
from circuitlab.analysis.circuits.vocabulary_grams import EmbeddingGramParams, EmbeddingGramResult, embedding_gram
from circuitlab.analysis.circuits.vocabulary_rows import Embedding, read_as, refuse_table
from circuitlab.analysis.spectra.ov_spectrum import readers, refuse_behind, spectrum_memory, spectrum_table, zeros
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head


@dataclass(frozen=True)
class QkSpectrumParams:
    """`heads`: `()` means all. `matrix`: the full circuit between tokens, or W_QK alone.

    `distance` from source to destination (rotary models only); 0 is position-free. `behind`: an earlier head that `side` reads
    through, W_OV^{h1} W_K instead of W_K (K-composition), or W_OV^{h1} W_Q instead of W_Q. `embed`: the embedding that the full
    circuit reads; heads of the first layer always read the token itself.
    """

    heads: tuple[Head, ...] = (Head(0, 0),)
    matrix: Literal["full", "bare"] = "full"
    distance: int = at_least(0, 0)
    behind: Head | None = None
    side: Literal["key", "query"] = "key"
    embed: Embedding = "tokens"


def _refuse(c: ModelConfig, p: QkSpectrumParams) -> str | None:
    embed = p.embed if p.matrix == "full" else "tokens"
    return refuse_table(c, embed, readers(c, p.heads, None)) or refuse_behind(p.heads, p.behind)


@dataclass(frozen=True, kw_only=True, eq=False)
class QkSpectrumResult(Result):
    """`heads` int32 [n, 2]; `eigenvalues`, `eigenvalues_raw` complex128 [n, d_head], largest modulus first.

    The other eigenvalues are 0. `singular_values` [n, d_head], largest first, and `effective_rank` [n] are of the matrix with
    centred sources (and uncentred destinations); `positivity`, `positivity_raw` [n]: NaN for a zero matrix. For the bare matrix
    raw and centred are the same.
    """

    heads: np.ndarray = over("head", "(layer, head)", unit="index")
    eigenvalues: np.ndarray = over("head", "index", unit="{unit}")
    eigenvalues_raw: np.ndarray = over("head", "index", unit="{unit}")
    singular_values: np.ndarray = over("head", "index", unit="{unit}")
    effective_rank: np.ndarray = over("head", unit="dimensionless")
    positivity: np.ndarray = over("head", unit="dimensionless")
    positivity_raw: np.ndarray = over("head", unit="dimensionless")
    unit: str = "unscaled score"

    def table(self) -> Table:
        """One row per eigenvalue, head by head."""
        return spectrum_table(self.heads, self.eigenvalues, self.eigenvalues_raw, self.singular_values, self.unit)


def _memory(c: ModelConfig, n: int, p: QkSpectrumParams, dtype: str = "float32") -> int:
    return spectrum_memory(c, len(p.heads), dtype, n_products=1)


@analysis(version=2, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse)
def qk_spectrum(inputs: Inputs, p: QkSpectrumParams, ctx: Ctx) -> QkSpectrumResult:
    """QK circuit spectra: eigenvalues, singular values, effective rank and positivity Σλ/Σ|λ| of chosen heads."""
    if p.distance < 0:
        raise BadInput("A destination does not come before its source.", expected="distance ≥ 0", got=str(p.distance))
    c = inputs.weights.config
    chosen = chosen_heads(c, p.heads)
    sides: dict[tuple[Embedding, Embedding], _Sides] = {}
    if p.matrix == "full":
        sides = {ends: _full(inputs, *ends) for ends in {_ends(p, head) for head in chosen}}
    spectra = SpectraArrays(len(chosen), c.d_head)
    with torch.inference_mode():
        through = ThroughEarlier(inputs, p.behind)
        for layer, index, places in by_layer(chosen):
            heads = factors_of(inputs, layer)
            for part, where in head_batches(heads, index):
                ctx.tick(places[0], len(chosen), f"QK spectrum of layer {layer}")
                W_Q, W_K = rotated(part.W_Q, c, layer, p.distance), part.W_K
                W_Q, W_K = (W_Q, through(W_K)) if p.side == "key" else (through(W_Q), W_K)
                side = sides.get(_ends(p, Head(layer, 0)), _Sides())
                values = Values.of(*side.small(W_Q, W_K), W_Q.dtype)
                spectra.fill(places[where], values, singular_values(*side.grams(W_Q, W_K)))
    return QkSpectrumResult(
        heads=np.array(chosen, dtype=np.int32).reshape(-1, 2),
        eigenvalues=spectra.eigenvalues,
        eigenvalues_raw=spectra.eigenvalues_raw,
        singular_values=spectra.singular_values,
        effective_rank=effective_rank(spectra.singular_values),
        positivity=spectra.score,
        positivity_raw=spectra.score_raw,
        unit="unscaled score" if p.matrix == "full" else "weight units",
        conventions=words(inputs, *_conventions(inputs, p), zeros(spectra.score)),
    )


@dataclass(frozen=True)
class _Sides:
    """The products of embeddings around W_Q and W_K; None for the bare matrix."""

    middle: Middle | None = None
    raw_gram: Tensor | None = None
    key_gram: Tensor | None = None

    def small(self, W_Q: Tensor, W_K: Tensor) -> tuple[Tensor, Tensor]:
        """[head, d_head, d_head]: matrices with the non-zero eigenvalues, centred and raw."""
        if self.middle is None:
            bare = W_K.mT.double() @ W_Q.double()
            return bare, bare
        return self.middle.between(W_K.mT, W_Q)

    def grams(self, W_Q: Tensor, W_K: Tensor) -> tuple[Tensor, Tensor]:
        """(LᵀL, R Rᵀ) [head, d_head, d_head] of the matrix L R with centred sources."""
        if self.key_gram is None or self.raw_gram is None:
            return gram(W_Q.mT), gram(W_K.mT)
        return W_Q.mT @ (self.raw_gram @ W_Q), W_K.mT @ (self.key_gram @ W_K)


def _ends(p: QkSpectrumParams, head: Head) -> tuple[Embedding, Embedding]:
    """The embeddings of sources and destinations: on its side, the earlier head is the one that reads."""
    key, query = (p.behind or head, head) if p.side == "key" else (head, p.behind or head)
    return read_as(p.embed, key), read_as(p.embed, query)


def _full(inputs: Inputs, source: Embedding, destination: Embedding) -> _Sides:
    def of(one: Embedding, other: Embedding) -> EmbeddingGramResult:
        return inputs.answer(embedding_gram, EmbeddingGramParams(one, other))

    dtype = torch.float64 if inputs.subject.conventions.dtype == "float64" else torch.float32
    middle = Middle.gram(of(source, destination), dtype)
    query = tensor(of(destination, destination).gram(False), dtype)
    return _Sides(middle, query, middle.product if source == destination else tensor(of(source, source).gram(True), dtype))


def qk_words(c: ModelConfig, distance: int) -> list[str]:
    """Words for captions of W_QK without a text."""
    biased = {"q", "k"} & set(c.biases) or c.norm == "layer"
    phrases = ["no score scale", "query and key biases left out" if biased else ""]
    phrases += ["keys before smearing"] if c.smeared_keys else []
    return phrases + ([f"rotary: at distance {distance}"] if c.positions == "rotary" else [])


def _conventions(inputs: Inputs, p: QkSpectrumParams) -> list[str]:
    phrases = [*qk_words(inputs.weights.config, p.distance)]
    phrases += [] if p.embed == "tokens" or p.matrix == "bare" else [EFFECTIVE]
    phrases += [] if p.behind is None else [f"{p.side} composed with {p.behind}, its pattern the identity"]
    if p.matrix == "bare":
        return ["W_QK on its own: no vocabulary to centre over, raw is the same", reading_words(inputs), *phrases]
    return ["source W_E centred over the vocabulary, raw beside", "singular values of the matrix with centred sources", *phrases]
