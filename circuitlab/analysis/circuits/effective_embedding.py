"""The effective embedding: every token as layers after the first MLP read it, without attention.

    x = W_E + MLP_0(norm(W_E)),    normalised as by the norm of the next layer (without its gain, which is in the weights)

Computed once per model and cached; without an MLP it is W_E.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, over
from circuitlab.analysis.circuits.factors import refuse_inexact, words
from circuitlab.model.block import normalise
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import mlp_written
from circuitlab.model.weights import Norm, Weights

TILE_FLOPS = 4e9  # of one step between two ticks


@dataclass(frozen=True)
class EffectiveEmbeddingParams:
    """There is nothing to choose."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EffectiveEmbeddingResult(Result):
    """`values` [d_vocab, d_model]; `cosine` [d_vocab] with the token's row of W_E (NaN if one of them is 0)."""

    values: np.ndarray = over("token", "dimension", unit="residual units")
    cosine: np.ndarray = over("token", unit="dimensionless")

    def table(self) -> Table:
        """One row per token."""
        norms = np.linalg.norm(self.values, axis=1)
        return Table(
            (Column("id", np.arange(len(norms)), of="token"), Column("norm", norms), Column("cosine_with_W_E", self.cosine))
        )


def _tile(c: ModelConfig) -> int:
    flops = 2 * c.d_model * max(c.d_mlp, 1) * (3 if c.gated else 2)
    return max(1, min(1024, int(TILE_FLOPS / flops)))


def _memory(c: ModelConfig, n: int, p: EffectiveEmbeddingParams) -> int:
    return 8 * (c.d_vocab * (c.d_model + 1) + _tile(c) * (4 * c.d_model + 4 * c.d_mlp))


def _refuse(c: ModelConfig, p: EffectiveEmbeddingParams) -> str | None:
    return refuse_inexact(c) if c.n_layers else "this model has no layers, and so no first MLP."


def _cost(c: ModelConfig, n: int, p: EffectiveEmbeddingParams) -> float:
    return 2.0 * c.d_vocab * c.d_model * c.d_mlp * (3 if c.gated else 2)


def cost_of_readings(c: ModelConfig, *embeds: str) -> float:
    """What readings of the embedding take, of which only that after the first MLP takes something."""
    return _cost(c, 0, EffectiveEmbeddingParams()) if "after the first MLP" in embeds else 0.0


@analysis(version=1, needs="weights", lane="slow", memory=_memory, refuse=_refuse, derived=True, cost=_cost)
def effective_embedding(inputs: Inputs, p: EffectiveEmbeddingParams, ctx: Ctx) -> EffectiveEmbeddingResult:
    """Effective embedding: every token after the first MLP, as later layers read it without attention."""
    c, tile = inputs.weights.config, _tile(inputs.weights.config)
    kind = np.float64 if inputs.subject.conventions.dtype == "float64" else np.float32
    values, cosine = np.empty((c.d_vocab, c.d_model), kind), np.empty(c.d_vocab)
    W_E = inputs.weights.embed().W_E
    with torch.inference_mode():
        for start in range(0, c.d_vocab, tile):
            ctx.tick(start, c.d_vocab, "through the first MLP")
            tokens = torch.arange(start, min(start + tile, c.d_vocab))
            x = effective_rows(inputs.weights, tokens)
            plain = W_E[tokens].double()
            scale = x.double().norm(dim=1) * plain.norm(dim=1)  # 0: no direction, NaN
            values[start : start + tile] = x.cpu().numpy()
            cosine[start : start + tile] = ((x.double() * plain).sum(1) / scale).cpu().numpy()
    return EffectiveEmbeddingResult(
        values=values, cosine=cosine, conventions=words(inputs, _formula(c), scores=(), layers=False, ends=False)
    )


def _formula(c: ModelConfig) -> str:
    """What is computed, with the norms that this model has."""
    if c.attention_only:
        return "no MLP: W_E"
    before, after = (c.norm != "none" and c.norm_placement in places for places in (("pre", "both"), ("post_sublayer", "both")))
    written = f"MLP₀({'norm(W_E)' if before else 'W_E'})"
    return f"W_E + {f'norm({written})' if after else written}{', as the next norm scales it' if before else ''}"


def effective_words(c: ModelConfig) -> str:
    """For the captions of what reads it."""
    return f"{_formula(c)}, attention left out"


def effective_rows(weights: Weights, tokens: Tensor) -> Tensor:
    """[len(tokens), d_model]: W_E + MLP_0(norm(W_E)) of some tokens, as the norm of the next layer scales it (no gain)."""
    c, layer = weights.config, weights.layer(0)
    x = weights.embed().W_E[tokens] * c.embed_scale
    if layer.mlp is not None:
        x = x + mlp_written(c, layer, x)
    reads = c.norm_placement in ("pre", "both")
    return normalise(x, Norm(), c.norm, c.norm_eps) if reads else x
