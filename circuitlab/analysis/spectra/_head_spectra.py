"""Spectra of the OV or QK circuits of many heads: the result, the loop over layers, and what both circuits refuse and cost.

    A = X L R Yᵀ,    L [d_model, d_head], R [d_head, d_model]: the two factors of W_OV or W_QK

    non-zero eigenvalues: those of R (Yᵀ X) L;     singular values: from Lᵀ (Xᵀ X) L and R (Yᵀ Y) Rᵀ

X and Y hold the embeddings on either side, [d_vocab, d_model]; for the bare matrix L R both are the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, number_size, over
from circuitlab.analysis.chosen_heads import by_layer
from circuitlab.analysis.circuits.factor_products import (
    Middle,
    Values,
    effective_rank,
    factors_of,
    gram,
    head_batches,
    singular_values,
    working_dtype,
)
from circuitlab.analysis.circuits.factors import Heads
from circuitlab.analysis.circuits.rounding import Rounding, below, of_squares, rounding_of
from circuitlab.analysis.circuits.vocabulary_rows import refuse_pair
from circuitlab.analysis.ordering import head_names
from circuitlab.model.config import ModelConfig
from circuitlab.model.folding import TILE
from circuitlab.model.subject import Head

ZEROS = "NaN: a matrix of zeros has no score"


@dataclass(frozen=True, kw_only=True, eq=False)
class SpectrumResult(Result):
    """`heads` int32 [n, 2]; `eigenvalues`, `eigenvalues_raw` complex128 [n, d_head], largest modulus first.

    The other eigenvalues are 0. `singular_values` [n, d_head], largest first, and `effective_rank` [n] are of the centred matrix;
    those under `rounding` [n] of the largest are rounding, of the weights or of what is computed.
    For the bare matrix raw and centred are the same.
    """

    heads: np.ndarray = over("head", "(layer, head)", unit="index")
    eigenvalues: np.ndarray = over("head", "index", unit="{unit}")
    eigenvalues_raw: np.ndarray = over("head", "index", unit="{unit}")
    singular_values: np.ndarray = over("head", "index", unit="{unit}")
    effective_rank: np.ndarray = over("head", unit="dimensionless")
    rounding: np.ndarray = over("head", unit="dimensionless")

    def table(self) -> Table:
        """One row per eigenvalue, head by head, with the singular value of the same index."""
        n, d = self.eigenvalues.shape
        values, raw, unit = self.eigenvalues, self.eigenvalues_raw, str(self.unit_of("eigenvalues"))
        return Table(
            (
                Column("head", np.repeat(head_names(*self.heads.T), d)),
                Column("index", np.tile(np.arange(d), n)),
                Column("real", np.real(values).ravel(), unit),
                Column("imaginary", np.imag(values).ravel(), unit),
                Column("modulus", np.abs(values).ravel(), unit),
                Column("real_raw", np.real(raw).ravel(), unit),
                Column("imaginary_raw", np.imag(raw).ravel(), unit),
                Column("singular_value", self.singular_values.ravel(), unit),
                Column("rounding", np.where(below(self.singular_values, self.rounding), "rounding", "").ravel()),
            )
        )


@dataclass(frozen=True)
class EmbeddingsAround:
    """Products of the embeddings around L and R: `middle` Yᵀ X, `left` Xᵀ X, `right` Yᵀ Y; None for the bare matrix."""

    middle: Middle | None = None
    left: Tensor | None = None
    right: Tensor | None = None

    def small(self, L: Tensor, R: Tensor) -> tuple[Tensor, Tensor]:
        """[head, d_head, d_head] float64: matrices with the non-zero eigenvalues of A, centred and raw."""
        if self.middle is None:
            bare = R.double() @ L.double()
            return bare, bare
        return self.middle.between(R, L)

    def grams(self, L: Tensor, R: Tensor) -> tuple[Tensor, Tensor]:
        """(Lᵀ Xᵀ X L, R Yᵀ Y Rᵀ) [head, d_head, d_head] of the centred A."""
        if self.left is None or self.right is None:
            return gram(L.mT), gram(R)
        return L.mT @ (self.left @ L), R @ (self.right @ R.mT)


@dataclass(frozen=True, eq=False)
class HeadSpectra:
    """Spectra of n heads, and Σλ/Σ|λ| [n]: `score` of the centred matrices, `score_raw` of the raw ones."""

    heads: tuple[Head, ...]
    eigenvalues: np.ndarray
    eigenvalues_raw: np.ndarray
    singular_values: np.ndarray
    score: np.ndarray
    score_raw: np.ndarray
    rounding: tuple[Rounding, ...]

    def fields(self) -> dict[str, Any]:
        """The fields of `SpectrumResult`."""
        return {
            "heads": np.array(self.heads, dtype=np.int32).reshape(-1, 2),
            "eigenvalues": self.eigenvalues,
            "eigenvalues_raw": self.eigenvalues_raw,
            "singular_values": self.singular_values,
            "effective_rank": effective_rank(self.singular_values),
            "rounding": self._shares(),
        }

    def _shares(self) -> np.ndarray:
        return np.array([one.share for one in self.rounding])

    def rounding_words(self) -> str:
        """For captions: how many singular values are rounding, and under what; "" where none is."""
        if not below(self.singular_values, self._shares()).any():
            return ""
        return max(self.rounding, key=lambda one: one.share).of_these(self.singular_values)


def head_spectra(
    inputs: Inputs,
    heads: tuple[Head, ...],
    factors: Callable[[Heads], tuple[Tensor, Tensor]],
    around: Callable[[int], EmbeddingsAround],
    ctx: Ctx,
    name: str,
    earlier: Head | None = None,
) -> HeadSpectra:
    """The spectra of these heads, layer by layer. `factors(batch)`: L and R; `around(layer)`: the embeddings that it reads;
    `earlier`: a head that is in the factors, too."""
    n, d_head = len(heads), inputs.weights.config.d_head
    eigenvalues, eigenvalues_raw = np.zeros((n, d_head), complex), np.zeros((n, d_head), complex)
    singular, score, score_raw = np.zeros((n, d_head)), np.zeros(n), np.zeros(n)
    with torch.inference_mode():
        for layer, index, places in by_layer(heads):
            for batch, where in head_batches(factors_of(inputs, layer), index):
                ctx.tick(places[0], n, f"{name} spectrum of layer {layer}")
                L, R = factors(batch)
                products, at = around(layer), places[where]
                values = Values.of(*products.small(L, R), R.dtype)
                eigenvalues[at], eigenvalues_raw[at] = values.centred, values.raw
                score[at], score_raw[at] = values.score, values.score_raw
                singular[at] = singular_values(*products.grams(L, R))
    through = () if earlier is None else (earlier.layer,)
    grams = {layer: torch.float64 if around(layer).left is None else working_dtype(inputs) for layer in {h.layer for h in heads}}
    rounding = {layer: rounding_of(inputs, (layer, *through), of_squares(dtype)) for layer, dtype in grams.items()}
    return HeadSpectra(heads, eigenvalues, eigenvalues_raw, singular, score, score_raw, tuple(rounding[h.layer] for h in heads))


def centred_words(weights: str) -> str:
    """Words for the caption of scores of which those called raw are not centred."""
    return f"{weights} centred over the vocabulary (raw: not centred)"


def zeros_words(score: np.ndarray) -> str:
    """Words for the caption if a score is NaN, else ""."""
    return ZEROS if np.isnan(score).any() else ""


def readers(c: ModelConfig, heads: tuple[Head, ...], earlier: Head | None) -> tuple[Head, ...]:
    """The heads that read token embeddings: the earlier head if there is one, else `heads`, `()` meaning all."""
    return (earlier,) if earlier is not None else heads or tuple(Head(layer, 0) for layer in range(c.n_layers))


def refuse_composition(heads: tuple[Head, ...], earlier: Head | None) -> str | None:
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
