"""W_U W_E [d_model, d_model], computed once per model and cached: it gives the eigenvalues of every OV circuit.

    W_O^{h} (W_U W_E) W_V^{h}   has the non-zero eigenvalues of W_E W_OV W_U

Centring W_U over the vocabulary (subtracting `unembed_mean` from each column) is a correction of rank one, so that centred and
raw values cost the same: M_centred = M − mean(W_U) (Σ_t W_E[t]).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, number_size, over
from circuitlab.analysis.circuits.effective_embedding import EffectiveEmbeddingParams, cost_of_readings, effective_embedding
from circuitlab.analysis.circuits.factors import embedding_rows, is_token_map, words
from circuitlab.analysis.circuits.token_readings import Embedding, matrix_words, norm_read, refuse_effective
from circuitlab.analysis.cost import of_gram
from circuitlab.errors import NOT_FINITE, BadModel
from circuitlab.model.block import normalise
from circuitlab.model.config import ModelConfig
from circuitlab.model.folding import TILE, unembed_columns
from circuitlab.model.weights import Norm, Weights


@dataclass(frozen=True)
class EmbeddingProductsParams:
    """`embed`: the embedding that is W_E here."""

    embed: Embedding = "tokens"


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddingProductsResult(Result):
    """`M` [d_model, d_model] float64, W_U not centred over the vocabulary; `unembed_mean`, `embed_mean` [d_model].

    `M` is NaN if the output vocabulary is not the input vocabulary.
    """

    M: np.ndarray = over("dimension", "dimension", unit="weight units")
    unembed_mean: np.ndarray = over("dimension", unit="weight units")
    embed_mean: np.ndarray = over("dimension", unit="residual units")
    n_vocab: int

    def unembed_embed(self, centred: bool) -> np.ndarray:
        """[d_model, d_model]: W_U W_E, with W_U `centred` over the vocabulary or as it is."""
        if not centred:
            return self.M
        correction = np.outer(self.unembed_mean, self.n_vocab * self.embed_mean)
        return np.subtract(self.M, correction, out=correction)  # in place, to save memory with large models

    def table(self) -> Table:
        """One row per dimension: the means and the diagonal."""
        return Table(
            (
                Column("dimension", np.arange(len(self.M))),
                Column("unembed_mean", self.unembed_mean, "weight units"),
                Column("embed_mean", self.embed_mean, "residual units"),
                Column("unembed_embed_diagonal", self.M.diagonal(), "weight units"),
            )
        )


def rows_as(inputs: Inputs, embed: Embedding) -> Callable[[slice], Tensor]:
    """A function from a slice of tokens to rows [token, d_model] of a reading of the embedding; W_E itself is not centred."""
    if embed == "after the first MLP":
        effective = inputs.answer(effective_embedding, EffectiveEmbeddingParams())
        return lambda some: torch.tensor(effective.values[some])
    weights = uncentred(inputs)
    kind, eps = norm_read(weights.config, embed)
    return lambda some: normalise(embedding_rows(weights, some), Norm(), kind, eps)


def uncentred(inputs: Inputs) -> Weights:
    """The weights with embeddings not centred: centring is applied to the products instead."""
    return inputs.presented(replace(inputs.subject.conventions, centre=False))


def _refuse(c: ModelConfig, p: EmbeddingProductsParams) -> str | None:
    return refuse_effective(c) if p.embed == "after the first MLP" else None


def _memory(config: ModelConfig, n: int, p: EmbeddingProductsParams, dtype: str = "float32") -> int:
    return 8 * 6 * config.d_model**2 + number_size(dtype) * 4 * TILE * config.d_model


def _cost(c: ModelConfig, n: int, p: EmbeddingProductsParams) -> float:
    return of_gram(c) + cost_of_readings(c, p.embed)


@analysis(version=3, needs="weights", lane="slow", memory=_memory, refuse=_refuse, derived=True, cost=_cost)
def embedding_products(inputs: Inputs, p: EmbeddingProductsParams, ctx: Ctx) -> EmbeddingProductsResult:
    """Product W_U W_E, from which eigenvalues of OV circuits are computed; once per model."""
    weights = uncentred(inputs)
    c = weights.config
    both, d = is_token_map(c), c.d_model
    M = torch.zeros(d, d, dtype=torch.float64)
    embed_sum, unembed_sum = torch.zeros(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
    read = rows_as(inputs, p.embed)
    for start in range(0, c.d_vocab, TILE):
        ctx.tick(start, c.d_vocab, "W_U W_E")
        rows = read(slice(start, start + TILE))
        embed_sum += rows.sum(0, dtype=torch.float64)
        if both:
            columns = unembed_columns(weights, slice(start, start + TILE))
            M += columns @ rows.to(columns.dtype)
    for start in range(0, c.d_vocab_out, TILE):
        ctx.tick(c.d_vocab, c.d_vocab, "W_U")
        unembed_sum += unembed_columns(weights, slice(start, start + TILE)).sum(1, dtype=torch.float64)
    if not bool(torch.isfinite(M).all() & torch.isfinite(embed_sum).all() & torch.isfinite(unembed_sum).all()):
        raise BadModel(
            "An embedding is not finite.", expected="finite W_E and W_U", got="NaN or infinity in one of them", remedy=NOT_FINITE
        )
    if inputs.subject.conventions.centres_writes(c):  # W_E is centred over d_model on both sides
        M = M - M.mean(1, keepdim=True)
        embed_sum = embed_sum - embed_sum.mean()
    return EmbeddingProductsResult(
        M=M.cpu().numpy() if both else np.full((d, d), np.nan),
        unembed_mean=(unembed_sum / c.d_vocab_out).cpu().numpy(),
        embed_mean=(embed_sum / c.d_vocab).cpu().numpy(),
        n_vocab=c.d_vocab,
        conventions=words(inputs, "W_U not centred over the vocabulary", matrix_words(c, p.embed), scores=(), layers=False),
    )
