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

from circuitlab.analysis.base import Ctx, Inputs, analysis, at_least, over
from circuitlab.analysis.chosen_heads import chosen_heads
from circuitlab.analysis.circuits.effective_embedding import cost_of_readings
from circuitlab.analysis.circuits.factor_products import Middle, ThroughEarlier, reading_words, tensor, working_dtype
from circuitlab.analysis.circuits.factors import BEFORE_SMEARING, Heads, has_bias, rotated, words
from circuitlab.analysis.circuits.token_readings import Embedding, left_unscaled, matrix_words, read_as, refuse_table
from circuitlab.analysis.circuits.vocabulary_grams import EmbeddingGramParams, EmbeddingGramResult, embedding_gram
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
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head


@dataclass(frozen=True)
class QkSpectrumParams:
    """`heads`: `()` means all. `matrix`: the full circuit between tokens, or W_QK alone.

    `distance` from source to destination (rotary models only); 0 is position-free. `behind`: an earlier head that `side` reads
    through, W_OV^{h1} W_K instead of W_K (K-composition), or W_OV^{h1} W_Q instead of W_Q. `embed`: the embedding that the full
    circuit reads; heads of the first layer read before the first MLP.
    """

    heads: tuple[Head, ...] = (Head(0, 0),)
    matrix: Literal["full", "bare"] = "full"
    distance: int = at_least(0, 0)
    behind: Head | None = None
    side: Literal["key", "query"] = "key"
    embed: Embedding = "tokens"


def _refuse(c: ModelConfig, p: QkSpectrumParams) -> str | None:
    embed = p.embed if p.matrix == "full" else "tokens"
    return refuse_table(c, embed, readers(c, p.heads, None)) or refuse_composition(p.heads, p.behind)


@dataclass(frozen=True, kw_only=True, eq=False)
class QkSpectrumResult(SpectrumResult):
    """As `SpectrumResult`, sources centred over the vocabulary and destinations not; `positivity`, `positivity_raw` [n].

    Both are NaN for a zero matrix.
    """

    positivity: np.ndarray = over("head", unit="dimensionless")
    positivity_raw: np.ndarray = over("head", unit="dimensionless")
    unit: str = "unscaled score"


def _memory(c: ModelConfig, n: int, p: QkSpectrumParams, dtype: str = "float32") -> int:
    return spectrum_memory(c, len(p.heads), dtype, n_products=1)


def _cost(c: ModelConfig, n: int, p: QkSpectrumParams) -> float:
    products = of_gram(c) + cost_of_readings(c, p.embed) if p.matrix == "full" else 0.0
    return products + of_spectra(c, len(p.heads))


@analysis(version=3, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def qk_spectrum(inputs: Inputs, p: QkSpectrumParams, ctx: Ctx) -> QkSpectrumResult:
    """QK circuit spectra: eigenvalues, singular values, effective rank and positivity Σλ/Σ|λ| of chosen heads."""
    if p.distance < 0:
        raise BadInput(
            "A destination cannot come before its source.",
            expected="distance ≥ 0",
            got=str(p.distance),
            remedy="Choose a distance of 0 or more.",
        )
    c = inputs.weights.config
    heads = chosen_heads(c, p.heads)
    full = {ends: _full(inputs, *ends) for ends in {_ends(p, head) for head in heads}} if p.matrix == "full" else {}
    around = lambda layer: full.get(_ends(p, Head(layer, 0)), EmbeddingsAround())
    with torch.inference_mode():
        through = ThroughEarlier(inputs, p.behind)

        def factors(batch: Heads) -> tuple[Tensor, Tensor]:
            W_Q, W_K = rotated(batch.W_Q, c, batch.layer, p.distance), batch.W_K
            return (W_Q, through(W_K).mT) if p.side == "key" else (through(W_Q), W_K.mT)

        spectra = head_spectra(inputs, heads, factors, around, ctx, "QK", p.behind)
    return QkSpectrumResult(
        **spectra.fields(),
        positivity=spectra.score,
        positivity_raw=spectra.score_raw,
        unit="unscaled score" if p.matrix == "full" else "weight units",
        conventions=words(
            inputs,
            *_conventions(inputs, p),
            zeros_words(spectra.score),
            spectra.rounding_words(),
            ends=False,
            unscaled=left_unscaled(c, p.embed, p.behind is not None) if p.matrix == "full" else (),
        ),
    )


def _ends(p: QkSpectrumParams, head: Head) -> tuple[Embedding, Embedding]:
    """The embeddings of sources and destinations: on its side, the earlier head is the one that reads."""
    key, query = (p.behind or head, head) if p.side == "key" else (head, p.behind or head)
    return read_as(p.embed, key), read_as(p.embed, query)


def _full(inputs: Inputs, source: Embedding, destination: Embedding) -> EmbeddingsAround:
    """For L = W_Q and R = W_Kᵀ: X and Y are W_E as destinations and as sources, Y centred."""

    def of(one: Embedding, other: Embedding) -> EmbeddingGramResult:
        return inputs.answer(embedding_gram, EmbeddingGramParams(one, other))

    dtype = working_dtype(inputs)
    middle = Middle.gram(of(source, destination), dtype)
    left = tensor(of(destination, destination).gram(False), dtype)
    right = middle.product if source == destination else tensor(of(source, source).gram(True), dtype)
    return EmbeddingsAround(middle, left, right)


def qk_words(c: ModelConfig, distance: int) -> list[str]:
    """Words for captions of W_QK without a text."""
    biased, turning = has_bias(c, "q") or has_bias(c, "k"), [c.rotation(layer) is not None for layer in range(c.n_layers)]
    phrases = ["score scale left out", "query and key biases left out" if biased else ""]
    phrases += [BEFORE_SMEARING] if c.smeared_keys else []
    some = "" if all(turning) else " in the layers that rotate"
    return phrases + ([f"rotary: at distance {distance}{some}"] if any(turning) else [])


def _conventions(inputs: Inputs, p: QkSpectrumParams) -> list[str]:
    c = inputs.weights.config
    deepest = max((head.layer for head in p.heads), default=0)  # its query reads tokens too where the key is composed
    phrases = [*qk_words(c, p.distance), "" if p.matrix == "bare" else matrix_words(c, p.embed, deepest)]
    phrases += [] if p.behind is None else [f"{p.side} composed with {p.behind}, its pattern the identity"]
    if p.matrix == "bare":
        return ["W_QK alone: no vocabulary to centre over, so raw is the same", reading_words(inputs), *phrases]
    return [centred_words("source W_E"), "singular values of the matrix with centred sources", *phrases]
