"""Copying score of a head on random tokens (Olsson et al. 2022): the share of raised logits on the tokens it attends to.

For a head with pattern A on tokens t, take its output's contribution to the logits minus the mean over the vocabulary, keep the
positive part, and measure the share that falls on the tokens attended to:

    ℓ_d = relu(c(A x W_OV W_U)_d),      c(y) = y − mean over the vocabulary
    r_d = Σ_{s ≤ d} A[d, s] ℓ_d[t_s] / Σ_{distinct t of the prompt} ℓ_d[t]
    score = 2 · mean over d of r_d − 1,      in [−1, 1]

x is the head's input at recorded norm scales, without biases; norms after the head enter by their centring and gain, since a
positive scale per position cancels in r. Destinations at which the head raises no token of the prompt (0/0) are left out; a head
without any other destination is NaN.

`unrepeated`: 25 random tokens once, every destination but BOS. `repeated`: the same tokens several times over, destinations whose
token occurred before. A head that copies whatever it attends to scores alike on both; an induction head finds nothing to attend
to on unrepeated tokens. Not the same as the copying score of `copying_scores`, which needs no text.

Zero is not the chance level. If logits are unrelated to attention, each of n different tokens has a share of 1/n: 2/n − 1, −0.92
for 25 tokens after a BOS; fewer are different where the vocabulary is smaller. And a head that raises the attended token far more
than any other may still stay below 0, since the positive parts of noise on the other n − 1 tokens add up in the denominator: 13
for its target and 1.1 for each of 25 others is a third, −0.36. Compare heads of one model with each other and with chance, not
with 0; or count own tokens (`own_tokens`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attention.score_definitions import duplicate_mask
from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, naming, over
from circuitlab.analysis.behaviour.samples import check_counts, drawn_words, fit_to_context, no_room, repeated_random
from circuitlab.analysis.cost import of_run
from circuitlab.analysis.ordering import head_names
from circuitlab.caption_parts import About, Part, Sense, sampled
from circuitlab.counting import number, number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import forward
from circuitlab.model.recorded_norm import before_norm, norm_at_scale
from circuitlab.model.run import Run
from circuitlab.model.weights import Layer, Weights, bos_of

NAMES = ("unrepeated", "repeated")


@dataclass(frozen=True)
class CopyingHeadScoreParams:
    """`samples` blocks of `block` random tokens, once and `repeats` times, drawn with `seed`; fewer if the context is shorter."""

    block: int = at_least(1, 25)
    repeats: int = at_least(1, 4)
    samples: int = at_least(1, 10)
    seed: int = at_least(0, 0)

    @property
    def needs(self) -> Literal["weights", "tokens"]:
        """Random tokens need no prompt: the scores stay cached while the prompt changes."""
        return "weights"


@dataclass(frozen=True, kw_only=True, eq=False)
class CopyingHeadScoreResult(Result):
    """`mean`, `spread` (standard deviation over samples) [on, layer, head]; on: unrepeated, repeated. NaN: no destination."""

    mean: np.ndarray = over("on", "layer", "head", unit="dimensionless")
    spread: np.ndarray = over("on", "layer", "head", unit="dimensionless")
    names: tuple[str, ...] = naming("on", NAMES)

    def of(self, name: str) -> np.ndarray:
        """[layer, head] means on "unrepeated" or "repeated" tokens."""
        return self.mean[self.names.index(name)]

    def table(self) -> Table:
        """One row per head."""
        columns = [Column("head", head_names(*np.indices(self.mean.shape[1:]).reshape(2, -1)))]
        for i, name in enumerate(self.names):
            columns += [Column(name, self.mean[i].ravel()), Column(f"{name}_sd", self.spread[i].ravel())]
        return Table(tuple(columns))

    def across(self) -> Mapping[str, np.ndarray]:
        """`mean` [on, layer, head]."""
        return {"mean": self.mean}


def _refuse(config: ModelConfig, p: CopyingHeadScoreParams) -> str | None:
    if config.norm_placement == "post_residual":
        return "this model normalises the residual stream itself, so a head's output has no logits of its own."
    return no_room(config, p.block, p.repeats)


def _memory(config: ModelConfig, n: int, p: CopyingHeadScoreParams) -> int:
    length = min(p.block * p.repeats + 1, config.n_ctx)
    run = length * (config.d_model * 8 + config.n_layers * (config.d_model + 3 * config.n_heads * config.d_head))
    return 8 * (run + config.n_heads * length * (3 * length + config.d_head) + config.d_model * (config.d_vocab_out + length))


def _cost(config: ModelConfig, n: int, p: CopyingHeadScoreParams) -> float:
    return p.samples * of_run(config, min(p.block * (p.repeats + 1), config.n_ctx))


@analysis(version=3, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def copying_head_score(inputs: Inputs, p: CopyingHeadScoreParams, ctx: Ctx) -> CopyingHeadScoreResult:
    """Copying score on random tokens, unrepeated and repeated: share of raised logits on attended tokens; chance is near −1."""
    check_counts(block=p.block, repeats=p.repeats, samples=p.samples)
    weights, config = inputs.weights, inputs.weights.config
    bos, fit = bos_of(weights), fit_to_context(config, p.block, p.repeats)
    assert fit is not None  # else refused
    scores = np.full((2, p.samples, config.n_layers, config.n_heads), np.nan)
    mean_out, chance = _vocabulary_mean(weights), np.empty((2, p.samples))
    for i, repeats in enumerate((1, fit.repeats)):
        for sample, tokens in enumerate(repeated_random(config, bos, fit.block, repeats, p.samples, p.seed)):
            ctx.tick(i * p.samples + sample, 2 * p.samples, f"{NAMES[i]} random tokens")
            chance[i, sample] = 2 / len(torch.unique(tokens)) - 1
            counted = duplicate_mask(tokens).any(-1) if i else tokens != (-1 if bos is None else bos)
            scores[i, sample] = _scores(weights, tokens, counted, mean_out, ctx)
    front = "BOS + " if bos is not None else ""
    return CopyingHeadScoreResult(
        mean=_over_samples(scores, 0),
        spread=_over_samples(scores, 1),
        conventions=(
            *inputs.convention_words(),
            sampled(f"{number_of(p.samples, 'sample')} of {front}{fit.words(p.block, p.repeats)} and once, seed {p.seed}"),
            *drawn_words(config, bos, fit.block),
            Part(f"chance {number(chance.mean())}: logits that have nothing to do with attention", Sense(About.CHANCE)),
            "repeated: destinations whose token occurred before",
            "no interventions",
        ),
    )


def _over_samples(scores: np.ndarray, ddof: int) -> np.ndarray:
    """[on, layer, head]: mean (ddof 0) or standard deviation (ddof 1) over the samples that have a number."""
    count = np.isfinite(scores).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(scores, axis=1) / count
        if ddof == 0:
            return mean
        square = np.nansum((scores - mean[:, None]) ** 2, axis=1)
        return np.where(count > 1, np.sqrt(square / np.maximum(count - 1, 1)), np.nan)


def _vocabulary_mean(weights: Weights) -> Tensor:
    """[d_model]: the mean column of W_U."""
    with torch.inference_mode():
        return weights.unembed().W_U.mean(dim=1)


def _scores(weights: Weights, tokens: Tensor, counted: Tensor, mean_out: Tensor, ctx: Ctx) -> np.ndarray:
    """[layer, head]: scores of one sample, tokens [pos]; `counted` [pos] bool: destinations that enter the mean."""
    config = weights.config
    distinct, where = torch.unique(tokens, return_inverse=True)
    out = np.full((config.n_layers, config.n_heads), np.nan)
    run = forward(weights, tuple(tokens.tolist()), tick=lambda i, n: ctx.tick(i, n, "forward pass"))
    with torch.inference_mode():
        directions = weights.unembed().W_U[:, distinct] - mean_out[:, None]
        directions = before_norm(directions, weights.unembed().norm, config.norm, axis=0) if config.final_norm else directions
        for layer in range(config.n_layers):
            ctx.tick(layer, config.n_layers, "shares")
            shares = _shares(run, layer, directions, where)[:, counted]
            out[layer] = (2 * shares.nanmean(dim=-1) - 1).double().cpu().numpy()
    return out


def _shares(run: Run, layer: int, directions: Tensor, where: Tensor) -> Tensor:
    """[head, dest]: r of every head of one layer; `directions` [d_model, distinct]; `where` [pos]: each token's column of it."""
    config, weights = run.weights.config, run.weights.layer(layer)
    if config.norm_placement in ("both", "post_sublayer"):
        directions = before_norm(directions, weights.attn_post_norm, config.norm, axis=0)
    pattern = run.get("pattern", layer)
    values = _read(run, weights, layer) @ weights.W_V
    z = pattern @ values[[config.kv_head(h) for h in range(config.n_heads)]]
    raised = torch.relu(z @ (weights.W_O @ directions))  # [head, dest, distinct]
    attended = (pattern * raised[..., where]).sum(-1)
    return attended / raised.sum(-1)


def _read(run: Run, weights: Layer, layer: int) -> Tensor:
    """[pos, d_model]: the input of attention at its recorded scale, without the norm's bias."""
    config, x = run.weights.config, run.get("resid_pre", layer)
    if config.norm == "none" or config.norm_placement not in ("pre", "both"):
        return x
    return norm_at_scale(x, weights.attn_norm, config.norm, run.get("attn_norm_scale", layer), bias=False)
