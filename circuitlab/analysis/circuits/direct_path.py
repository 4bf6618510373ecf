"""The direct path W_E W_U as a whole: its symmetry, and its correlation with the bigrams of the training text.

    symmetry     <P, Pᵀ> / ‖P‖²,   P = W_E W_U with both centred over the vocabulary: 1 symmetric, −1 antisymmetric
    correlation  of log softmax(x_t W_U + b_U) with the text's log P(· | t), over all pairs of tokens, each row minus its mean

(Elhage et al. 2021, "Zero-layer transformers": the best a direct path can learn is the bigram log-likelihood; with tied
embeddings it is symmetric.) With M = W_U W_E: <P, Pᵀ> = tr M², ‖P‖² = <W_Eᵀ W_E, W_U W_Uᵀ>. x_t is the token's embedding,
through the final norm if there is one. Both are computed once per model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, over
from circuitlab.analysis.circuits.embedding_products import EmbeddingProductsParams, embedding_products
from circuitlab.analysis.circuits.factors import is_token_map, refuse_inexact, words
from circuitlab.analysis.circuits.token_readings import UNNORMALISED
from circuitlab.analysis.circuits.vocabulary_grams import (
    EmbeddingGramParams,
    UnembeddingGramParams,
    embedding_gram,
    unembedding_gram,
)
from circuitlab.analysis.circuits.vocabulary_rows import tile_rows
from circuitlab.analysis.cost import of_gram, of_logits
from circuitlab.model.config import ModelConfig
from circuitlab.model.records.corpus_bigrams import CorpusBigrams, corpus_of
from circuitlab.model.run import unembed
from circuitlab.model.weights import Unembed, Weights


@dataclass(frozen=True)
class DirectPathParams:
    """There is nothing to choose."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DirectPathResult(Result):
    """`symmetry` in [−1, 1]; NaN for a path of zeros or another output vocabulary.

    `correlation` over all pairs, within rows; `rows` [d_vocab] of each row alone: NaN without a corpus or for a constant row.
    """

    symmetry: float
    correlation: float
    rows: np.ndarray = over("token", unit="dimensionless")

    def table(self) -> Table:
        """One row per token."""
        return Table((Column("id", np.arange(len(self.rows)), of="token"), Column("correlation", self.rows)))


def direct_logits(weights: Weights, ends: Unembed, W_E: Tensor, tokens: slice | list[int]) -> Tensor:
    """[token, d_vocab_out]: logits of the direct path after each token; `ends`, `W_E` are the model's own."""
    return unembed(weights, ends, W_E[tokens] * weights.config.embed_scale)


def direct_words(c: ModelConfig) -> str:
    """How the embedding reaches the unembedding, for the caption."""
    scaled = ", through the final norm at its own scale" if c.norm != "none" and c.final_norm else ""
    return f"embedding alone{scaled}: no layer" + (
        "" if c.positions in ("none", "rotary", "shortformer", "alibi") else ", no position"
    )


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson correlation of two rows; NaN if one of them is constant."""
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm > 0 else float("nan")


def _memory(c: ModelConfig, n: int, p: DirectPathParams) -> int:
    rows = tile_rows(c.d_vocab_out, 8)
    return 8 * (8 * c.d_model**2 + 5 * rows * c.d_vocab_out + 4 * c.d_model + 16 * c.d_vocab_out + c.d_vocab)


def _cost(c: ModelConfig, n: int, p: DirectPathParams) -> float:
    """The symmetry; and all rows, where the bigrams of its text may lie beside the model, as beside those in our own format."""
    return 3 * of_gram(c) + (of_logits(c, c.d_vocab) if c.family == "circuitlab" else 0.0)


@analysis(version=1, needs="weights", lane="slow", memory=_memory, refuse=refuse_inexact, cost=_cost)
def direct_path(inputs: Inputs, p: DirectPathParams, ctx: Ctx) -> DirectPathResult:
    """Direct path W_E W_U: its symmetry, and the correlation of its rows with the bigrams of the training text."""
    c, corpus = inputs.weights.config, corpus_of(inputs.subject.model, inputs.weights.config)
    with torch.inference_mode():
        symmetry = _symmetry(inputs) if is_token_map(c) else float("nan")
        pooled, rows = _correlations(inputs, corpus, ctx) if corpus else (float("nan"), np.full(c.d_vocab, np.nan))
    scaled = f", {UNNORMALISED} (as in the paper)" if c.norm != "none" and c.final_norm else ""
    phrases = (
        f"symmetry of W_E W_U, both centred over the vocabulary{scaled}",
        corpus.words() if corpus else "no corpus beside the model",
    )
    return DirectPathResult(
        symmetry=symmetry,
        correlation=pooled,
        rows=rows,
        conventions=words(inputs, direct_words(c), *phrases, scores=(), layers=False, ends=False),
    )


def _symmetry(inputs: Inputs) -> float:
    products = inputs.answer(embedding_products, EmbeddingProductsParams())
    embed = inputs.answer(embedding_gram, EmbeddingGramParams())
    unembed = inputs.answer(unembedding_gram, UnembeddingGramParams())
    M, square = products.unembed_embed(True), float((embed.gram(True) * unembed.gram(True)).sum())
    return float((M * M.T).sum()) / square if square > 0 else float("nan")


def _correlations(inputs: Inputs, corpus: CorpusBigrams, ctx: Ctx) -> tuple[float, np.ndarray]:
    """(correlation pooled over all pairs, correlation of each row [d_vocab])."""
    c, ends, W_E = inputs.weights.config, inputs.weights.unembed(), inputs.weights.embed().W_E
    sums, rows = np.zeros(3), np.empty(c.d_vocab)
    step = tile_rows(c.d_vocab_out, 8)
    for start in range(0, c.d_vocab, step):
        ctx.tick(start, c.d_vocab, "bigrams of every token")
        logits = direct_logits(inputs.weights, ends, W_E, slice(start, start + step)).double().cpu().numpy()
        for token, row in enumerate(logits, start):
            a, b = row - row.mean(), corpus.log_probs(token)
            b = b - b.mean()
            products = np.array([a @ b, a @ a, b @ b])
            sums += products
            norm = float(np.sqrt(products[1] * products[2]))
            rows[token] = products[0] / norm if norm > 0 else np.nan
    norm = float(np.sqrt(sums[1] * sums[2]))
    return sums[0] / norm if norm > 0 else float("nan"), rows
