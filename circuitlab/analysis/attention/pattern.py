"""Attention patterns of chosen heads: pattern, scores, and patterns weighted by the norm of values or outputs.

    pattern        A = softmax(score_scale · q kᵀ)           each row sums to 1
    scores         score_scale · q kᵀ, before the softmax
    value_weighted A[d, s] · ‖v_s‖                            as the papers draw it; depends on the gauge of W_V, W_O
    contribution   A[d, s] · ‖v_s W_O‖                        gauge-invariant: the norm of what is moved from s to d

A contribution is as it enters the stream: a norm after the sublayer or after the addition acts on v_s W_O by its gain and
centring, and at d by its recorded scale.

v_s is the value of the query head's own key-value group (Elhage et al. 2021; Kobayashi et al. 2020 for the norms).

Over prompts, whose positions hold other tokens, three means over destinations are averaged: to the first position, to the one
before, to itself. `head_scores` averages properties that depend on the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, number_size, over, read_only
from circuitlab.analysis.chosen_heads import chosen_heads
from circuitlab.caption_parts import Part, Sense
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.recorded_norm import linear_part
from circuitlab.model.run import Run
from circuitlab.model.subject import Head

Show = Literal["pattern", "scores", "value_weighted", "contribution"]

SHOW_WORDS: dict[str, str] = {
    "pattern": Part("pattern: rows sum to 1", Sense(of_differences="pattern")),
    "scores": "scores at the model's own scale, before the softmax",
    "value_weighted": "pattern × ‖v‖, depends on the gauge of W_V",
    "contribution": "pattern × ‖v W_O‖",
}

UNITS: dict[str, str] = {
    "pattern": "share of attention",
    "scores": "score",
    "value_weighted": "activation units",
    "contribution": "residual units",
}


def passes_norm(show: Show, config: ModelConfig) -> bool:
    """Whether the values pass a norm on their way into the stream."""
    return show == "contribution" and config.norm != "none" and config.norm_placement != "pre"


def show_words(show: Show, config: ModelConfig) -> str:
    """What a caption says of the values: of a contribution also the norm that it passes on its way into the stream."""
    words = SHOW_WORDS[show]
    return f"{words}, through the norm after it at its recorded scale" if passes_norm(show, config) else words


@dataclass(frozen=True)
class AttentionParams:
    """`heads` () means all heads."""

    heads: tuple[Head, ...] = ()
    show: Show = "pattern"


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionResult(Result):
    """`values` [head, dest, src], NaN where the mask hides a source; `heads` [head, 2] (layer, head); `unit` of the values."""

    values: np.ndarray = over("head", "destination", "source", unit="{unit}")
    heads: np.ndarray = over("head", "(layer, head)", unit="index")
    unit: str = "share of attention"

    ACROSS: ClassVar[Mapping[str, str]] = dict.fromkeys(("to_first", "to_previous", "to_itself"), "{unit}")

    def across(self) -> Mapping[str, np.ndarray]:
        """[head] means over the destinations that have such a source besides themselves: from the second position on for the
        first and the previous one, from the first on for itself; NaN where the mask hides the source from all."""
        values = self.values.astype(np.float64)
        last, before = values[:, 1:], np.diagonal(values, -1, 1, 2)
        means = {"to_first": last[:, :, 0], "to_previous": before, "to_itself": np.diagonal(values, 0, 1, 2)}
        return {name: _mean(one) for name, one in means.items()}

    def table(self) -> Table:
        """One row per head and visible (destination, source)."""
        head, dest, src = np.nonzero(~np.isnan(self.values))
        names = np.array([str(Head(*map(int, h))) for h in self.heads])
        return Table(
            (
                Column("head", names[head]),
                Column("destination", dest, of="position"),
                Column("source", src, of="position"),
                Column("value", self.values[head, dest, src], self.unit),
            )
        )


def _mean(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis without NaN, NaN where nothing else is there."""
    count = (~np.isnan(values)).sum(axis=-1)
    return np.where(count > 0, np.nansum(values, axis=-1) / np.maximum(count, 1), np.nan)


def values_of(run: Run, layer: int, heads: tuple[int, ...], show: Show) -> Tensor:
    """[head, dest, src]: values of one layer, NaN where the mask hides a source."""
    config = run.weights.config
    values = run.get("scores" if show == "scores" else "pattern", layer, heads)
    if show in ("value_weighted", "contribution"):
        carried = run.get("v", layer)[[config.kv_head(h) for h in heads]]
        if show == "contribution":
            carried = carried @ run.weights.layer(layer).W_O[list(heads)]
            if (after := run.norm_after_heads(layer)) is not None:  # its scale is the destination's
                carried, values = linear_part(carried, after[0], config.norm), values * after[1]
        values = values * carried.norm(dim=-1)[:, None, :]
    mask = block.allowed(run.n, run.n, 0, config.window(layer))
    return values.masked_fill(~mask, float("nan"))


def _memory(config: ModelConfig, n: int, p: AttentionParams, dtype: str = "float32") -> int:
    count = len(p.heads) or config.n_layers * config.n_heads
    return number_size(dtype) * n * n * (count + 3 * config.n_heads)


def _holds(version: int, config: ModelConfig, p: AttentionParams) -> bool:
    return version == 1 and not passes_norm(p.show, config)


@analysis(version=2, needs="tokens", of_heads=True, lane="live", memory=_memory, doubles=False, holds=_holds)
def attention(inputs: Inputs, p: AttentionParams, ctx: Ctx) -> AttentionResult:
    """Attention of chosen heads: pattern, scores, value-weighted pattern, or contribution."""
    heads = chosen_heads(inputs.weights.config, p.heads)
    run = inputs.run()
    out = np.empty((len(heads), run.n, run.n), dtype=inputs.subject.conventions.dtype)
    with torch.inference_mode():
        for layer in sorted({h.layer for h in heads}):
            ctx.tick(layer, inputs.weights.config.n_layers, f"layer {layer}")
            where = [i for i, h in enumerate(heads) if h.layer == layer]
            out[where] = values_of(run, layer, tuple(heads[i].head for i in where), p.show).cpu().numpy()
    return AttentionResult(
        values=out,
        heads=read_only(np.array(heads, dtype=np.int64).reshape(-1, 2)),
        unit=UNITS[p.show],
        conventions=(*inputs.convention_words(), show_words(p.show, inputs.weights.config)),
    )
