"""The Gram matrix W_Eᵀ W_E, computed once per model and cached: spectra of QK circuits and singular values need no more.

    W_K^{h}ᵀ (W_Eᵀ W_E) W_Q^{h}   has the non-zero eigenvalues of W_E W_QK W_Eᵀ

Centring W_E over the vocabulary is a correction of rank one: W_Eᵀ W_E − N mean(W_E)ᵀ mean(W_E). Either side may be the effective
embedding, every token as heads after the first MLP read it (`effective_embedding`): E_sᵀ E_d, sources s and destinations d.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, number_size, over
from circuitlab.analysis.circuits.embedding_products import EFFECTIVE, rows_as, uncentred
from circuitlab.analysis.circuits.factors import words
from circuitlab.analysis.circuits.vocabulary_rows import Embedding, refuse_effective
from circuitlab.errors import BadModel
from circuitlab.model.config import ModelConfig
from circuitlab.model.folding import TILE, centres_writes


@dataclass(frozen=True)
class EmbeddingGramParams:
    """The embeddings of sources and of destinations."""

    source: Embedding = "tokens"
    destination: Embedding = "tokens"


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddingGramResult(Result):
    """`G` [d_model, d_model] float64, not centred over the vocabulary of `n_vocab` tokens.

    `mean`, `mean_destination` [d_model]: means of the embeddings of sources and of destinations.
    """

    G: np.ndarray = over("dimension", "dimension", unit="residual units²")
    mean: np.ndarray = over("dimension", unit="residual units")
    mean_destination: np.ndarray = over("dimension", unit="residual units")
    n_vocab: int

    def gram(self, centred: bool) -> np.ndarray:
        """[d_model, d_model]: W_Eᵀ W_E; `centred`: with one of the two centred over the vocabulary, which equals both."""
        if not centred:
            return self.G
        correction = np.outer(self.mean, self.mean_destination)
        correction *= self.n_vocab  # in place, to save memory with large models
        return np.subtract(self.G, correction, out=correction)

    def table(self) -> Table:
        """One row per dimension: the mean and the diagonal."""
        return Table(
            (
                Column("dimension", np.arange(len(self.G))),
                Column("mean", self.mean, "residual units"),
                Column("gram", self.G.diagonal(), "residual units²"),
            )
        )


def _refuse(c: ModelConfig, p: EmbeddingGramParams) -> str | None:
    return refuse_effective(c) if "after the first MLP" in (p.source, p.destination) else None


def _memory(c: ModelConfig, n: int, p: EmbeddingGramParams, dtype: str = "float32") -> int:
    return 8 * 6 * c.d_model**2 + number_size(dtype) * 4 * TILE * c.d_model


@analysis(version=2, needs="weights", lane="slow", memory=_memory, refuse=_refuse)
def embedding_gram(inputs: Inputs, p: EmbeddingGramParams, ctx: Ctx) -> EmbeddingGramResult:
    """Gram matrix W_Eᵀ W_E, from which QK spectra and singular values are computed; once per model."""
    weights = uncentred(inputs)
    c, same = weights.config, p.source == p.destination
    sources, destinations = rows_as(inputs, p.source), rows_as(inputs, p.destination)
    G = torch.zeros(c.d_model, c.d_model, dtype=torch.float64)
    total, other = (torch.zeros(c.d_model, dtype=torch.float64) for _ in range(2))
    for start in range(0, c.d_vocab, TILE):
        ctx.tick(start, c.d_vocab, "W_Eᵀ W_E")
        rows = sources(slice(start, start + TILE))
        columns = rows if same else destinations(slice(start, start + TILE))
        G += rows.T @ columns
        total += rows.sum(0, dtype=torch.float64)
        other += columns.sum(0, dtype=torch.float64)
    if not bool(torch.isfinite(G).all()):
        raise BadModel("The embedding is not finite.", expected="finite W_E", got="NaN or infinity")
    if centres_writes(c, inputs.subject.conventions):  # W_E is centred over d_model on both sides
        if p.destination == "tokens":
            G, other = G - G.mean(1, keepdim=True), other - other.mean()
        if p.source == "tokens":
            G, total = G - G.mean(0, keepdim=True), total - total.mean()
    conventions = words(inputs, "W_E not centred over the vocabulary", *(() if same and p.source == "tokens" else (EFFECTIVE,)))
    mean, beside = ((x / c.d_vocab).cpu().numpy() for x in (total, other))
    return EmbeddingGramResult(G=G.cpu().numpy(), mean=mean, mean_destination=beside, n_vocab=c.d_vocab, conventions=conventions)
