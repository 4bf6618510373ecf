"""Copying scores of every head from its weights: eigenvalues and diagonal of the OV circuit, and QK positivity.

    copying             Σλ/Σ|λ| of W_E W_OV W_U                         (Elhage et al. 2021), W_U centred over the vocabulary
    qk_positivity       Σλ/Σ|λ| of W_E W_QK W_Eᵀ, sources centred
    identity_likeness   tr W_OV / (√d_head ‖W_OV‖), in [−1, 1]; 1 exactly for a positive multiple of an orthogonal projector
    diagonal            diag(W_E W_OV W_U)[t]: how much attending to t raises t above the mean of the vocabulary

`diagonal_mean` is the exact trace over the vocabulary size. The share of tokens that raise themselves and the histogram need
each token's own entry (2 d_model² operations per layer and token), so they are taken from a sample unless all are requested. The
histogram's unit is the rms entry of the same head's circuit between the same tokens, so that heads can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, number_size, over
from circuitlab.analysis.circuits.embedding_products import (
    EmbeddingProductsParams,
    EmbeddingProductsResult,
    embedding_products,
)
from circuitlab.analysis.circuits.factor_products import (
    PART_FLOPS,
    Middle,
    Values,
    factors_of,
    head_batches,
    reading_words,
    working_dtype,
)
from circuitlab.analysis.circuits.factors import Heads, embedding_rows, is_token_map, words
from circuitlab.analysis.circuits.token_readings import Embedding, left_unscaled, matrix_words, norm_read, read_as, refuse_table
from circuitlab.analysis.circuits.vocabulary_grams import EmbeddingGramParams, embedding_gram
from circuitlab.analysis.ordering import head_names
from circuitlab.analysis.spectra._head_spectra import centred_words, zeros_words
from circuitlab.analysis.spectra.ov_spectrum import value_bias_words
from circuitlab.analysis.spectra.qk_spectrum import qk_words
from circuitlab.counting import number_of
from circuitlab.model.block import normalise
from circuitlab.model.config import ModelConfig
from circuitlab.model.folding import TILE, Tokens, unembed_columns
from circuitlab.model.subject import Head
from circuitlab.model.weights import Norm

WHOLE, SAMPLE = 8192, 1024  # the largest vocabulary that is taken whole; the number of tokens sampled from a larger one
BINS = np.linspace(-10.25, 10.25, 42)
FIELDS = ("copying", "copying_raw", "identity_likeness", "qk_positivity", "qk_positivity_raw", "diagonal_share", "diagonal_mean")


@dataclass(frozen=True)
class CopyingScoresParams:
    """`diagonal`: the tokens of share and histogram (a sample is all of a small vocabulary). `qk`: QK positivity too.

    `embed`: the embedding that circuits read; after the first MLP the diagonal is not computed, and heads of the first layer
    read before it.
    """

    diagonal: Literal["sample", "all", "none"] = "sample"
    qk: bool = True
    embed: Embedding = "tokens"


@dataclass(frozen=True, kw_only=True, eq=False)
class CopyingScoresResult(Result):
    """Scores [layer, head] float64, see the module; `_raw`: W_U or W_E not centred over the vocabulary.

    NaN: not requested, a zero matrix, or (OV) input and output vocabulary differ. `diagonal_share` and `diagonal_histogram` int64
    [layer, head, 41], with bin edges `bins` [42] in units of the rms entry, are over `n_tokens` tokens; the outermost bins hold
    everything beyond. A head whose OV circuit is 0 has share 0, mean 0, and all tokens in the middle bin.
    """

    copying: np.ndarray = over("layer", "head", unit="dimensionless")
    copying_raw: np.ndarray = over("layer", "head", unit="dimensionless")
    identity_likeness: np.ndarray = over("layer", "head", unit="dimensionless")
    qk_positivity: np.ndarray = over("layer", "head", unit="dimensionless")
    qk_positivity_raw: np.ndarray = over("layer", "head", unit="dimensionless")
    diagonal_share: np.ndarray = over("layer", "head", unit="share of tokens")
    diagonal_mean: np.ndarray = over("layer", "head", unit="logit")
    diagonal_histogram: np.ndarray = over("layer", "head", "bin", unit="tokens")
    bins: np.ndarray = over("bin edge", unit="rms entries")
    n_tokens: int

    def table(self) -> Table:
        """One row per head."""
        names = head_names(*np.indices(self.copying.shape).reshape(2, -1))
        return Table(
            (Column("head", names), *(Column(name, getattr(self, name).ravel(), str(self.unit_of(name))) for name in FIELDS))
        )


def _memory(c: ModelConfig, n: int, p: CopyingScoresParams, dtype: str = "float32") -> int:
    """A layer, products of the embeddings in float64, tiles of the embeddings, and the diagonals of a layer's heads."""
    wide, tokens = number_size(dtype), c.d_vocab if p.diagonal == "all" or c.d_vocab <= WHOLE else SAMPLE
    layer = 6 * wide * c.n_heads * c.d_head * c.d_model + 8 * 16 * c.n_heads * c.d_head**2
    ends = wide * (4 * TILE + (3 * SAMPLE if tokens < c.d_vocab else 0)) * c.d_model
    own = (3 * wide + 8 * 3) * c.n_heads * tokens if p.diagonal != "none" else 0
    return layer + 8 * 7 * c.d_model**2 + ends + own + 8 * 50 * c.n_layers * c.n_heads


def _has_diagonal(p: CopyingScoresParams) -> bool:
    return p.diagonal != "none" and p.embed != "after the first MLP"


def _refuse(c: ModelConfig, p: CopyingScoresParams) -> str | None:
    return refuse_table(c, p.embed, tuple(Head(layer, 0) for layer in range(c.n_layers)))


def _cost(c: ModelConfig, n: int, p: CopyingScoresParams) -> float:
    return 4.0 * c.d_vocab * c.d_model**2 + 2000.0 * c.n_layers * c.n_heads * c.d_head**3


@analysis(version=3, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def copying_scores(inputs: Inputs, p: CopyingScoresParams, ctx: Ctx) -> CopyingScoresResult:
    """Copying score Σλ/Σ|λ|, QK positivity, identity-likeness and OV diagonal of every head."""
    c = inputs.weights.config
    products = inputs.answer(embedding_products, EmbeddingProductsParams())
    ways: set[Embedding] = {read_as(p.embed, Head(layer, 0)) for layer in range(c.n_layers)}
    shape, mapped = (c.n_layers, c.n_heads), is_token_map(c)
    scores = {name: np.full(shape, np.nan) for name in FIELDS}
    counts = np.zeros((*shape, len(BINS) - 1), np.int64)
    with torch.inference_mode():
        score = {embed: _scores(inputs, embed, p, scores) for embed in ways}
        own = _Diagonal(inputs, products, p) if mapped and _has_diagonal(p) else None
        for layer in range(c.n_layers):
            heads = factors_of(inputs, layer)
            for part, where in head_batches(heads, list(range(c.n_heads))):
                tick = lambda at=layer: ctx.tick(at, c.n_layers, f"copying scores of layer {at}")
                tick()
                score[read_as(p.embed, Head(layer, 0))](part, (layer, where))
                if own is not None:
                    scores["diagonal_share"][layer, where], counts[layer, where] = own(part, tick)
    n_tokens = 0 if own is None else own.n
    return CopyingScoresResult(
        copying=scores["copying"],
        copying_raw=scores["copying_raw"],
        identity_likeness=scores["identity_likeness"],
        qk_positivity=scores["qk_positivity"],
        qk_positivity_raw=scores["qk_positivity_raw"],
        diagonal_share=scores["diagonal_share"],
        diagonal_mean=scores["diagonal_mean"],
        diagonal_histogram=counts,
        bins=BINS.copy(),
        n_tokens=n_tokens,
        conventions=words(
            inputs,
            reading_words(inputs),
            *_conventions(inputs, p, n_tokens),
            zeros_words(scores["copying"]),
            scores=None if p.qk else (),
            unscaled=left_unscaled(c, p.embed),
        ),
    )


def _scores(
    inputs: Inputs, embed_as: Embedding, p: CopyingScoresParams, arrays: dict[str, np.ndarray]
) -> Callable[[Heads, tuple[int, slice]], None]:
    """A function that fills in the scores from d_head × d_head matrices, for a batch of a layer's heads."""
    c = inputs.weights.config
    dtype = working_dtype(inputs)
    products = inputs.answer(embedding_products, EmbeddingProductsParams(embed_as))
    ov = Middle.unembed_embed(products, dtype) if is_token_map(c) else None
    qk = None
    if p.qk:
        embed = inputs.answer(embedding_gram, EmbeddingGramParams(embed_as, embed_as))
        qk = Middle.gram(embed, dtype)

    def score(heads: Heads, at: tuple[int, slice]) -> None:
        arrays["identity_likeness"][at] = identity_likeness(heads)
        if ov is not None:
            small, raw = ov.between(heads.W_O, heads.W_V)
            values = Values.of(small, raw, dtype)
            arrays["copying"][at], arrays["copying_raw"][at] = values.score, values.score_raw
            arrays["diagonal_mean"][at] = _trace(small) / c.d_vocab
        if qk is not None:
            values = Values.of(*qk.between(heads.W_K.mT, heads.W_Q), dtype)
            arrays["qk_positivity"][at], arrays["qk_positivity_raw"][at] = values.score, values.score_raw

    return score


def _trace(matrices: Tensor) -> np.ndarray:
    return matrices.diagonal(dim1=-2, dim2=-1).sum(-1).cpu().numpy()


def identity_likeness(heads: Heads) -> np.ndarray:
    """[head]: tr W_OV / (√d_head ‖W_OV‖); NaN if W_OV is 0."""
    trace = (heads.W_V.mT * heads.W_O).sum((-2, -1), dtype=torch.float64).cpu().numpy()
    reads, writes = heads.W_V.mT @ heads.W_V, heads.W_O @ heads.W_O.mT
    norm = np.sqrt(np.maximum(_trace(reads.double() @ writes.double()), 0))
    scale = np.sqrt(heads.W_V.shape[-1]) * norm
    return np.divide(trace, scale, out=np.full_like(trace, np.nan), where=scale > 0)


class _Diagonal:
    """Diagonal entries (t, t) of W_E W_OV W_U, W_U centred, for n tokens: all, or a sample of evenly spaced ids."""

    def __init__(self, inputs: Inputs, products: EmbeddingProductsResult, p: CopyingScoresParams) -> None:
        c = inputs.weights.config
        raw = inputs.presented(replace(inputs.subject.conventions, centre=False))
        self._weights, self._raw = inputs.weights, raw
        sampled = p.diagonal == "sample" and c.d_vocab > WHOLE
        self._ids = torch.arange(SAMPLE) * c.d_vocab // SAMPLE if sampled else None
        self.n = SAMPLE if sampled else c.d_vocab
        self._kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self._mean = torch.as_tensor(products.unembed_mean.copy())[:, None]
        self._norm = norm_read(c, p.embed)

    def __call__(self, heads: Heads, tick: Callable[[], None]) -> tuple[np.ndarray, np.ndarray]:
        """(share [head] of tokens that raise themselves, histogram [head, 41])."""
        n_heads, d_model, d_head = heads.W_V.shape
        W_V = heads.W_V.permute(1, 0, 2).reshape(d_model, -1)
        own = torch.empty(n_heads, self.n, dtype=W_V.dtype)
        reads, writes = (torch.zeros(n_heads, d_head, d_head, dtype=torch.float64) for _ in range(2))
        step = max(64, int(PART_FLOPS / (4 * W_V.numel())))
        for start in range(0, self.n, step):
            tick()
            rows, columns = self._tokens(start, step)
            z = (rows @ W_V).unflatten(1, (n_heads, d_head)).permute(1, 2, 0)
            out = (heads.W_O.flatten(0, 1) @ (columns - self._mean.to(columns.dtype))).unflatten(0, (n_heads, d_head))
            own[:, start : start + step] = (z * out).sum(1)
            reads += z @ z.mT
            writes += out @ out.mT
        rms = np.sqrt(np.maximum(_trace(reads @ writes), 0)) / self.n
        return (own > 0).double().mean(1).cpu().numpy(), _histogram(own.double().cpu().numpy(), rms)

    def _tokens(self, start: int, step: int) -> tuple[Tensor, Tensor]:
        """(rows [token, d_model] of W_E as they are read, columns [d_model, token] of W_U); those of a sample are cached."""
        at: Tokens = slice(start, min(start + step, self.n))
        if self._ids is None:
            return self._rows(at), unembed_columns(self._raw, at)
        if (start, step) not in self._kept:
            at = self._ids[at]
            self._kept[start, step] = self._rows(at), unembed_columns(self._raw, at)
        return self._kept[start, step]

    def _rows(self, at: Tokens) -> Tensor:
        kind, eps = self._norm
        return normalise(embedding_rows(self._weights, at), Norm(), kind, eps)


def _histogram(own: np.ndarray, rms: np.ndarray) -> np.ndarray:
    """[head, 41]: counts of `own` [head, token] in units of `rms` [head]; values beyond the bins count in the outermost ones."""
    unit = np.divide(own, rms[:, None], out=np.zeros_like(own), where=rms[:, None] > 0).clip(BINS[0], BINS[-1])
    return np.array([np.histogram(row, BINS)[0] for row in unit])


def _conventions(inputs: Inputs, p: CopyingScoresParams, n: int) -> list[str]:
    c = inputs.weights.config
    phrases = [centred_words("W_U and source W_E"), value_bias_words(inputs), *(qk_words(c, 0) if p.qk else [])]
    if not is_token_map(c):
        return [*phrases, "input and output vocabulary differ: OV circuits have neither eigenvalues nor a diagonal"]
    phrases += [matrix_words(c, p.embed, c.n_layers - 1)]
    if not _has_diagonal(p):
        return phrases
    error = f": share ± {50 / np.sqrt(n):.1f} % at most" if n < c.d_vocab else ""
    return [*phrases, f"diagonal of {n:,} of {number_of(c.d_vocab, 'token')}{error}, histogram in units of the rms entry"]
