"""W_Eᵀ W_E, made once per model and kept: what QK spectra and singular values are read from.

    W_K^{h}ᵀ (W_Eᵀ W_E) W_Q^{h}   has the non-zero eigenvalues of W_E W_QK W_Eᵀ

W_E centred over the vocabulary is a correction of rank one: W_Eᵀ W_E − N mean(W_E)ᵀ mean(W_E).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, number_size, over
from circuitlab.analysis.embedding_products import uncentred
from circuitlab.analysis.weight_view import embedding_rows, words
from circuitlab.errors import BadModel
from circuitlab.model.config import ModelConfig
from circuitlab.model.folding import TILE, centres_writes


@dataclass(frozen=True)
class EmbeddingGramParams:
    """Nothing to choose."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddingGramResult(Result):
    """`G` [d_model, d_model] float64, W_E not centred over the vocabulary of `n_vocab`; `mean` [d_model] of its rows."""

    G: np.ndarray = over("dimension", "dimension")
    mean: np.ndarray = over("dimension")
    n_vocab: int

    def gram(self, centred: bool) -> np.ndarray:
        """[d_model, d_model] W_Eᵀ W_E; `centred`: one of the two centred over the vocabulary, which is the same as both."""
        if not centred:
            return self.G
        made = np.outer(self.mean, self.mean)
        made *= self.n_vocab  # in place: of a large model each of these takes much
        return np.subtract(self.G, made, out=made)

    def table(self) -> Table:
        """One row a dimension: the mean and the diagonal."""
        return Table((Column("dimension", np.arange(len(self.G))), Column("mean", self.mean), Column("gram", self.G.diagonal())))


def _memory(c: ModelConfig, n: int, p: EmbeddingGramParams, dtype: str = "float32") -> int:
    return 8 * 6 * c.d_model**2 + number_size(dtype) * 4 * TILE * c.d_model


@analysis(version=1, needs="weights", lane="slow", memory=_memory)
def embedding_gram(inputs: Inputs, p: EmbeddingGramParams, ctx: Ctx) -> EmbeddingGramResult:
    """W_Eᵀ W_E, once per model: what QK spectra and singular values are read from."""
    weights = uncentred(inputs)
    c = weights.config
    G = torch.zeros(c.d_model, c.d_model, dtype=torch.float64)
    total = torch.zeros(c.d_model, dtype=torch.float64)
    for start in range(0, c.d_vocab, TILE):
        ctx.tick(start, c.d_vocab, "W_Eᵀ W_E")
        rows = embedding_rows(weights, slice(start, start + TILE))
        G += rows.T @ rows
        total += rows.sum(0, dtype=torch.float64)
    if not bool(torch.isfinite(G).all()):
        raise BadModel("The embedding is not finite.", expected="finite W_E", got="NaN or infinity")
    if centres_writes(c, inputs.subject.conventions):  # W_E loses its mean over d_model, at both of its places
        G = G - G.mean(1, keepdim=True)
        G = G - G.mean(0, keepdim=True)
        total = total - total.mean()
    said = words(inputs, "W_E not centred over the vocabulary")
    return EmbeddingGramResult(G=G.cpu().numpy(), mean=(total / c.d_vocab).cpu().numpy(), n_vocab=c.d_vocab, conventions=said)
