"""Gram matrices of the vocabulary, W_Eᵀ W_E and W_U W_Uᵀ, each computed once per model and cached.

The embedding's gives the spectra and singular values of all QK circuits:

    W_K^{h}ᵀ (W_Eᵀ W_E) W_Q^{h}   has the non-zero eigenvalues of W_E W_QK W_Eᵀ

With the unembedding's it gives the singular values of all OV circuits:

    squared singular values of W_E W_OV W_U  =  eigenvalues of (W_Vᵀ (W_EᵀW_E) W_V) (W_O (W_U W_Uᵀ) W_Oᵀ)

Centring over the vocabulary is a correction of rank one: W_Eᵀ W_E − N mean(W_E)ᵀ mean(W_E). Either side of the embedding's may be
another reading of it (`token_readings`): E_sᵀ E_d, sources s and destinations d.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, number_size, over
from circuitlab.analysis.circuits.effective_embedding import cost_of_readings
from circuitlab.analysis.circuits.embedding_products import rows_as, uncentred
from circuitlab.analysis.circuits.factors import words
from circuitlab.analysis.circuits.token_readings import Embedding, matrix_words, refuse_effective
from circuitlab.analysis.cost import of_gram
from circuitlab.errors import NOT_FINITE, BadModel
from circuitlab.model.config import ModelConfig
from circuitlab.model.folding import TILE, unembed_columns


def _centred(gram: np.ndarray, mean: np.ndarray, other: np.ndarray, n_vocab: int) -> np.ndarray:
    """[d_model, d_model]: a Gram matrix with one side centred over the vocabulary: minus n_vocab · mean otherᵀ."""
    correction = np.outer(mean, other)
    correction *= n_vocab  # in place, to save memory with large models
    return np.subtract(gram, correction, out=correction)


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
        return _centred(self.G, self.mean, self.mean_destination, self.n_vocab) if centred else self.G

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


def _memory(c: ModelConfig, n: int, p: EmbeddingGramParams | UnembeddingGramParams, dtype: str = "float32") -> int:
    return 8 * 6 * c.d_model**2 + number_size(dtype) * 4 * TILE * c.d_model


def _cost(c: ModelConfig, n: int, p: EmbeddingGramParams) -> float:
    return of_gram(c) + cost_of_readings(c, p.source, p.destination)


@analysis(version=2, needs="weights", lane="slow", memory=_memory, refuse=_refuse, derived=True, cost=_cost)
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
        raise BadModel("The embedding is not finite.", expected="finite W_E", got="NaN or infinity", remedy=NOT_FINITE)
    if inputs.subject.conventions.centres_writes(c):  # W_E is centred over d_model on both sides
        G, other, total = G - G.mean(1, keepdim=True), other - other.mean(), total - total.mean()
        G = G - G.mean(0, keepdim=True)
    about = ("W_E not centred over the vocabulary", *dict.fromkeys(matrix_words(c, side) for side in (p.source, p.destination)))
    conventions = words(inputs, *about, scores=(), layers=False, ends=False)
    return EmbeddingGramResult(
        G=G.cpu().numpy(),
        mean=(total / c.d_vocab).cpu().numpy(),
        mean_destination=(other / c.d_vocab).cpu().numpy(),
        n_vocab=c.d_vocab,
        conventions=conventions,
    )


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
        return _centred(self.K, self.mean, self.mean, self.n_vocab) if centred else self.K

    def table(self) -> Table:
        """One row per dimension: the mean and the diagonal."""
        return Table(
            (
                Column("dimension", np.arange(len(self.K))),
                Column("mean", self.mean, "weight units"),
                Column("gram", self.K.diagonal(), "weight units²"),
            )
        )


def _cost_unembed(c: ModelConfig, n: int, p: UnembeddingGramParams) -> float:
    return 2.0 * c.d_vocab_out * c.d_model**2


@analysis(version=1, needs="weights", lane="slow", memory=_memory, derived=True, cost=_cost_unembed)
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
        raise BadModel("The unembedding is not finite.", expected="finite W_U", got="NaN or infinity", remedy=NOT_FINITE)
    return UnembeddingGramResult(
        K=K.cpu().numpy(),
        mean=(total / c.d_vocab_out).cpu().numpy(),
        n_vocab=c.d_vocab_out,
        conventions=words(inputs, "W_U not centred over the vocabulary", scores=(), layers=False),
    )
