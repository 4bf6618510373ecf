"""The positivity plane: each head's copying score against its QK positivity with keys that read through earlier heads.

    copying     Σλ/Σ|λ| of W_E W_OV^{h2} W_U
    weighted    Σλ/Σ|λ| of W_E W_QK^{h2} (Σ_e p_e W_OV^e)ᵀ W_Eᵀ          e: every head of an earlier layer

(Elhage et al. 2021, "Mechanistic view of induction heads": induction heads are in the upper right corner.) With p_e the
previous-token score of head e, it is the measure of Olsson et al. 2022; with p_e = 1, all earlier heads count equally. The
non-zero eigenvalues are those of W_K^{h2}ᵀ (Σ_e p_e W_OV^e)ᵀ (W_EᵀW_E) W_Q^{h2}, d_head × d_head; the weighted sum is one
d_model × d_model matrix, accumulated layer by layer. Values of single pairs come from `pair_positivity` and do not depend on p.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from circuitlab.analysis.attention.head_scores import HeadScoresParams, head_scores, sample_words
from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, over
from circuitlab.analysis.circuits.factor_products import Values, factors_of, head_batches
from circuitlab.analysis.circuits.factors import words
from circuitlab.analysis.circuits.token_readings import Embedding, left_unscaled, read_as, refuse_reading
from circuitlab.analysis.cost import EIGENVALUES
from circuitlab.analysis.ordering import head_names
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams, copying_scores
from circuitlab.analysis.spectra.pair_positivity import (
    PairPositivityParams,
    Scores,
    columns_of_heads,
    grams_of,
    pair_memory,
    pair_positivity,
    pair_table,
    pair_words,
)
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head


@dataclass(frozen=True)
class PreviousHeadSpectrumParams:
    """`p`: the weight of each earlier head, its score on random tokens or 1. `pairs`: every single pair too (slow).

    `embed`: the embedding that circuits read; heads of the first layer read before the first MLP. `scores`: of single pairs those
    of centred source tokens, of raw ones, or both, at twice the cost.
    """

    p: Literal["previous-token scores", "one"] = "previous-token scores"
    pairs: bool = True
    embed: Embedding = "tokens"
    scores: Scores = "both"


@dataclass(frozen=True, kw_only=True, eq=False)
class PreviousHeadSpectrumResult(Result):
    """`copying`, `weighted`, `weighted_raw` [layer, head], and `p` [layer, head]: the weight of each head.

    `pairs`, `pairs_raw` [dest_layer, dest_head, src_layer, src_head]: NaN if the source is not in an earlier layer, and until
    they are computed, or where they were not asked for. Also NaN: zero matrices, and `weighted` of the first layer.
    """

    copying: np.ndarray = over("layer", "head", unit="dimensionless")
    weighted: np.ndarray = over("layer", "head", unit="dimensionless")
    weighted_raw: np.ndarray = over("layer", "head", unit="dimensionless")
    p: np.ndarray = over("layer", "head", unit="dimensionless")
    pairs: np.ndarray = over("destination layer", "destination head", "source layer", "source head", unit="dimensionless")
    pairs_raw: np.ndarray = over("destination layer", "destination head", "source layer", "source head", unit="dimensionless")

    def table(self) -> Table:
        """One row per head, with all earlier heads weighted: a point of the plane; then one per pair, the most positive first."""
        heads, pairs = head_names(*np.indices(self.copying.shape).reshape(2, -1)), pair_table(self.pairs, self.pairs_raw)
        dest, source, positivity, raw = (column.values for column in pairs.columns)
        copying = dict(zip(heads.tolist(), self.copying.ravel().tolist(), strict=True))
        return Table(
            (
                Column("destination", np.array([*heads, *dest], dtype=object)),
                Column("source", np.array([*["all earlier, weighted"] * len(heads), *source], dtype=object)),
                Column("copying", np.array([copying[name] for name in (*heads.tolist(), *dest.tolist())], dtype=float)),
                Column("positivity", np.concatenate([self.weighted.ravel(), positivity])),
                Column("positivity_raw", np.concatenate([self.weighted_raw.ravel(), raw])),
                Column("weight as an earlier head", np.concatenate([self.p.ravel(), np.full(len(dest), np.nan)])),
            )
        )


def _refuse(c: ModelConfig, p: PreviousHeadSpectrumParams) -> str | None:
    wrong = refuse_reading(c, p.embed)
    return wrong or (head_scores.refuse(c, HeadScoresParams()) if p.p != "one" else None)


def _memory(c: ModelConfig, n: int, p: PreviousHeadSpectrumParams) -> int:
    return pair_memory(c)


def _wider(p: PreviousHeadSpectrumParams) -> tuple[PreviousHeadSpectrumParams, ...]:
    return () if p.scores == "both" else (replace(p, scores="both"),)


def _holds(version: int, config: ModelConfig, p: PreviousHeadSpectrumParams) -> bool:
    """Version 4 always had both scores of a pair."""
    return version == 4 and p.scores == "both"


def _cost(c: ModelConfig, n: int, p: PreviousHeadSpectrumParams) -> float:
    own = c.n_layers * c.n_heads * c.d_head * (6.0 * c.d_model**2 + 2 * EIGENVALUES * c.d_head**2)
    asked = copying_scores.cost(c, n, CopyingScoresParams(embed=p.embed))
    asked += head_scores.cost(c, n, HeadScoresParams()) if p.p != "one" else 0
    return own + asked + (pair_positivity.cost(c, n, PairPositivityParams(p.embed, p.scores)) if p.pairs else 0)


@analysis(
    version=5, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost, holds=_holds, wider=_wider
)
def previous_head_spectrum(inputs: Inputs, p: PreviousHeadSpectrumParams, ctx: Ctx) -> PreviousHeadSpectrumResult:
    """Positivity plane: copying score against QK positivity with keys through earlier heads, weighted and for every pair."""
    c = inputs.weights.config
    head_weights = _head_weights(inputs, p)
    with torch.inference_mode():
        weighted, weighted_raw = _weighted(inputs, head_weights, p.embed, ctx)
    copying = inputs.answer(copying_scores, CopyingScoresParams(embed=p.embed))
    empty = np.full((c.n_layers, c.n_heads) * 2, np.nan)
    weighting = f"by its previous-token score on {sample_words(c, HeadScoresParams())}" if p.p != "one" else "equally"
    result = lambda pairs, raw, done: PreviousHeadSpectrumResult(
        copying=copying.copying.copy(),
        weighted=weighted.copy(),
        weighted_raw=weighted_raw.copy(),
        p=head_weights.copy(),
        pairs=pairs,
        pairs_raw=raw,
        conventions=words(
            inputs,
            f"sum over earlier heads, each weighted {weighting}",
            *pair_words(inputs, p.embed),
            ends=False,
            unscaled=left_unscaled(c, p.embed, shared=True),
        ),
        done=done,
    )
    if not p.pairs:
        return result(empty, empty.copy(), 1.0)
    ctx.partial(result(empty, empty.copy(), 0.1))
    answer = inputs.answer(pair_positivity, PairPositivityParams(p.embed, p.scores))
    return result(answer.pairs, answer.pairs_raw, 1.0)


def _head_weights(inputs: Inputs, p: PreviousHeadSpectrumParams) -> np.ndarray:
    """[layer, head]: the weights p_e."""
    c = inputs.weights.config
    if p.p == "one":
        return np.ones((c.n_layers, c.n_heads))
    scores = inputs.answer(head_scores, HeadScoresParams())
    return scores.of("previous_token").astype(np.float64)


def _weighted(inputs: Inputs, head_weights: np.ndarray, embed: Embedding, ctx: Ctx) -> tuple[np.ndarray, np.ndarray]:
    """(centred, raw) [layer, head]: positivity with keys through the weighted sum of all earlier layers' heads."""
    c = inputs.weights.config
    scores, raw = np.full((c.n_layers, c.n_heads), np.nan), np.full((c.n_layers, c.n_heads), np.nan)
    if c.n_layers < 2:
        return scores, raw
    grams, every = grams_of(inputs, embed), list(range(c.n_heads))
    composed = {way: torch.zeros(c.d_model, c.d_model, dtype=G.product.dtype) for way, G in grams.items()}
    for layer in range(c.n_layers):
        heads = factors_of(inputs, layer)
        for part, where in head_batches(heads, every) if layer else ():
            ctx.tick(layer, c.n_layers, f"QK positivity of layer {layer}")
            sums = [G.between((composed[way] @ part.W_K).mT, part.W_Q) for way, G in grams.items()]
            centred, plain = (torch.stack(one).sum(0) for one in zip(*sums, strict=True))
            values = Values.of(centred, plain, part.W_Q.dtype)
            scores[layer, where], raw[layer, where] = values.score, values.score_raw
        for part, where in head_batches(heads, every) if layer < c.n_layers - 1 else ():
            ctx.tick(layer, c.n_layers, f"OV circuits of layer {layer}")
            p = torch.as_tensor(head_weights[layer, where]).to(part.W_V.dtype)
            composed[read_as(embed, Head(layer, 0))] += columns_of_heads(p[:, None, None] * part.W_V) @ part.W_O.flatten(0, 1)
    return scores, raw
