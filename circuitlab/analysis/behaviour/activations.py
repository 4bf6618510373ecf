"""A named activation of one layer, or the logits, as the forward pass with its interventions has them (`model/run.py:Run.get`).

Names: resid_pre, q, k, v, scores, pattern, z, result, attn_out, resid_mid, mlp_out, resid_post, attn_norm_scale, mlp_norm_scale;
of no layer: logits, log_probs. `q`, `k` and `v` are what attention uses: after biases, norms of them, smearing and rotation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, number_size, over, read_only
from circuitlab.counting import number_of
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import ROWS

Name = Literal[
    "resid_pre", "q", "k", "v", "scores", "pattern", "z", "result", "attn_out", "resid_mid", "mlp_out", "resid_post",
    "attn_norm_scale", "mlp_norm_scale", "logits", "log_probs",
]  # fmt: skip
OF_NO_LAYER = ("logits", "log_probs")
_AXES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("q", "z"), ("head", "position", "d_head")),
    **dict.fromkeys(("k", "v"), ("key-value head", "position", "d_head")),
    **dict.fromkeys(("scores", "pattern"), ("head", "destination", "source")),
    "result": ("head", "position", "d_model"),
    **dict.fromkeys(("attn_norm_scale", "mlp_norm_scale"), ("position",)),
    **dict.fromkeys(OF_NO_LAYER, ("position", "token")),
}
_UNITS = {"scores": "score", "pattern": "share of attention", "logits": "logit", "log_probs": "nats"}


@dataclass(frozen=True)
class ActivationsParams:
    """`name` of the activation, `layer` from 0; logits and log_probs are of no layer, and leave it unread."""

    name: Name = "resid_pre"
    layer: int = at_least(0, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class ActivationsResult(Result):
    """`values` over `axes`, NaN where the mask hides a source of scores and pattern."""

    values: np.ndarray = over("…", unit="{unit}")
    axes: tuple[str, ...]
    unit: str = "activation units"

    def table(self) -> Table:
        """One row per number."""
        where = np.indices(self.values.shape).reshape(self.values.ndim, -1)
        of = {"position": "position", "destination": "position", "source": "position", "token": "token"}
        columns = [Column(axis, index, of=of.get(axis, "")) for axis, index in zip(self.axes, where, strict=True)]  # type: ignore[arg-type]
        return Table((*columns, Column("value", self.values.ravel(), self.unit)))


def axes_of(name: str) -> tuple[str, ...]:
    """The axes of an activation: of a stream, and what is added to it, position and d_model."""
    return _AXES.get(name, ("position", "d_model"))


def names_in(config: ModelConfig) -> tuple[str, ...]:
    """Every activation of a model, layers first, as `layers.1.z`; then those of no layer."""
    names = [n for n in Name.__args__ if n not in OF_NO_LAYER and not (config.attention_only and n.startswith("mlp"))]
    return (*(f"layers.{i}.{n}" for i in range(config.n_layers) for n in names), *OF_NO_LAYER)


def _refuse(config: ModelConfig, p: ActivationsParams) -> str | None:
    if p.name in OF_NO_LAYER:
        return None
    if p.layer >= config.n_layers:
        return f"this model has {number_of(config.n_layers, 'layer')}, counted from 0: none is {p.layer}."
    if config.attention_only and p.name.startswith("mlp"):
        return "this model has no MLPs."
    return None


def _memory(config: ModelConfig, n: int, p: ActivationsParams, dtype: str = "float32") -> int:
    """What is returned, twice, and what it is made from: all patterns, all heads' outputs, a tile of logits."""
    heads, wide = config.n_heads, max(config.d_model, config.n_heads * config.d_head)
    size = {"scores": heads * n, "pattern": heads * n, "result": heads * config.d_model}.get(p.name, wide)
    size = config.d_vocab_out if p.name in OF_NO_LAYER else size
    made = 0 if p.name in ("resid_pre", "q", "k", "v", "attn_norm_scale", *OF_NO_LAYER) else 3 * heads * n + 2 * config.d_mlp
    return number_size(dtype) * (
        n * (2 * size + made + 2 * wide) + 3 * min(n, ROWS) * config.d_vocab_out * (p.name in OF_NO_LAYER)
    )


@analysis(version=2, needs="tokens", lane="live", memory=_memory, refuse=_refuse, doubles=False)
def activations(inputs: Inputs, p: ActivationsParams, ctx: Ctx) -> ActivationsResult:
    """A named activation of one layer, or the logits, of the prompt with its interventions."""
    run = inputs.run()
    with torch.inference_mode():
        if p.name in OF_NO_LAYER:
            values = np.empty((run.n, inputs.weights.config.d_vocab_out), inputs.subject.conventions.dtype)
            of = run.logits if p.name == "logits" else run.log_probs
            for start in range(0, run.n, ROWS):
                ctx.tick(start, run.n, "unembedding")
                rows = slice(start, min(start + ROWS, run.n))
                values[rows] = of(rows).cpu().numpy()
        else:
            value = run.get(p.name, p.layer)
            if p.name in ("scores", "pattern"):
                mask = block.allowed(run.n, run.n, 0, inputs.weights.config.window(p.layer)).to(value.device)
                value = value.masked_fill(~mask, torch.nan)
            values = value[..., 0] if p.name.endswith("norm_scale") else value
            values = values.cpu().numpy().copy()
    return ActivationsResult(
        values=read_only(values),
        axes=axes_of(p.name),
        unit=_UNITS.get(p.name, "activation units"),
        conventions=inputs.convention_words(),
    )
