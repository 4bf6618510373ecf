"""The Gram matrix W_U W_Uᵀ, computed once per model and cached: with W_Eᵀ W_E it gives singular values of all OV circuits.

    squared singular values of W_E W_OV W_U  =  eigenvalues of (W_Vᵀ (W_EᵀW_E) W_V) (W_O (W_U W_Uᵀ) W_Oᵀ)

Centring W_U over the vocabulary is a correction of rank one: W_U W_Uᵀ − N mean(W_U) mean(W_U)ᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, number_size, over
from circuitlab.analysis.circuits.factors import words
from circuitlab.errors import BadModel
from circuitlab.model.config import ModelConfig
from circuitlab.model.folding import TILE, unembed_columns


@dataclass(frozen=True)
class UnembeddingGramParams:
    """There is nothing to choose."""


@dataclass(frozen=True, kw_only=True, eq=False)
class UnembeddingGramResult(Result):
    """`K` [d_model, d_model] float64, W_U not centred over the `n_vocab` tokens; `mean` [d_model] of its columns."""

    K: np.ndarray = over("dimension", "dimension", unit="weight units²")
    mean: np.ndarray = over("dimension", unit="weight units")
    n_vocab: int

    def gram(self, centred: bool) -> np.ndarray:
        """[d_model, d_model]: W_U W_Uᵀ, with W_U `centred` over the vocabulary or as it is."""
        if not centred:
            return self.K
        correction = np.outer(self.mean, self.mean)
        correction *= self.n_vocab  # in place, to save memory with large models
        return np.subtract(self.K, correction, out=correction)

    def table(self) -> Table:
        """One row per dimension: the mean and the diagonal."""
        return Table(
            (
                Column("dimension", np.arange(len(self.K))),
                Column("mean", self.mean, "weight units"),
                Column("gram", self.K.diagonal(), "weight units²"),
            )
        )


def _memory(c: ModelConfig, n: int, p: UnembeddingGramParams, dtype: str = "float32") -> int:
    return 8 * 6 * c.d_model**2 + number_size(dtype) * 4 * TILE * c.d_model


@analysis(version=1, needs="weights", lane="slow", memory=_memory)
def unembedding_gram(inputs: Inputs, p: UnembeddingGramParams, ctx: Ctx) -> UnembeddingGramResult:
    """Gram matrix W_U W_Uᵀ, from which singular values of OV circuits are computed; once per model."""
    weights = inputs.presented(replace(inputs.subject.conventions, centre=False))
    c = weights.config
    K = torch.zeros(c.d_model, c.d_model, dtype=torch.float64)
    total = torch.zeros(c.d_model, dtype=torch.float64)
    for start in range(0, c.d_vocab_out, TILE):
        ctx.tick(start, c.d_vocab_out, "W_U W_Uᵀ")
        columns = unembed_columns(weights, slice(start, start + TILE))
        K += columns @ columns.T
        total += columns.sum(1, dtype=torch.float64)
    if not bool(torch.isfinite(K).all()):
        raise BadModel("The unembedding is not finite.", expected="finite W_U", got="NaN or infinity")
    return UnembeddingGramResult(
        K=K.cpu().numpy(),
        mean=(total / c.d_vocab_out).cpu().numpy(),
        n_vocab=c.d_vocab_out,
        conventions=words(inputs, "W_U not centred over the vocabulary"),
    )
