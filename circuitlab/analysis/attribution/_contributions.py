"""Contributions to a direction of the final residual stream: what every decomposition into components is computed with.

A norm after a sublayer (placements "post_sublayer" and "both") stands between the sublayer's output and the stream. At its
recorded scale s it is linear, so that for the sublayer's output a direction D of the stream becomes

    E = s · centre(gain ∘ D)   (LayerNorm; RMSNorm does not centre),        plus the constant bias · D

and without such a norm E = D. With a norm on the stream itself ("post_residual") contributions do not add up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circuitlab.analysis.target import TargetVector, final_scale
from circuitlab.model import block
from circuitlab.model.block import QKV
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import positions_in_stream
from circuitlab.model.recorded_norm import before_norm
from circuitlab.model.run import Run
from circuitlab.model.weights import Layer, Norm, Weights

PARTS_SUM = "sum of the parts' sizes"  # what the remainder of a sum of contributions is judged by
NORM_ON_STREAM = "this model normalises the residual stream itself, so its parts do not add up to the logits."


def refuse_norm_on_stream(config: ModelConfig) -> str | None:
    """Why contributions do not add up in this model, or None if they do."""
    return NORM_ON_STREAM if config.norm_placement == "post_residual" else None


@dataclass(frozen=True, eq=False)
class Directions:
    """Directions D [pos, d_model] = scale [pos, 1] · base [pos or 1, d_model]; one row of `base` if it is the same everywhere."""

    base: Tensor
    scale: Tensor

    def of(self, x: Tensor) -> Tensor:
        """[..., pos]: `x · D` for x [..., pos, d_model]."""
        one = len(self.base) == 1
        return (x @ self.base[0] if one else (x * self.base).sum(-1)) * self.scale[:, 0]

    def before_norm(self, config: ModelConfig, norm: Norm, sublayer_output: Tensor) -> tuple[Directions, Tensor]:
        """(E, constant [pos]): the directions for the input `sublayer_output` [pos, d_model] of a norm after a sublayer."""
        bias = torch.zeros_like(self.scale[:, 0]) if norm.bias is None else self.of(norm.bias.expand(len(self.scale), -1))
        E = before_norm(self.base, norm, config.norm)
        return Directions(E, self.scale * block.norm_scale(sublayer_output, config.norm, config.norm_eps)), bias


def directions(weights: Weights, target: TargetVector, final: Tensor, shared: bool) -> tuple[Directions, Tensor]:
    """(D', constant [pos]) of a target at the recorded scale of final streams [pos, d_model]; `shared`: one D for all rows."""
    scale = final_scale(weights, final)
    base, constant = target.at_scale(weights, torch.ones_like(scale))
    return Directions(base[:1] if shared else base, scale), constant


def initial_stream(run: Run, dest: slice) -> dict[str, Tensor]:
    """The initial stream's parts, [dest, d_model] each: "embedding" and, if they are added to it, "position"."""
    c, embed = run.weights.config, run.weights.embed()
    parts = {"embedding": embed.W_E[torch.tensor(run.tokens[dest])] * c.embed_scale}
    positions = positions_in_stream(c, embed, 0, run.n)
    return parts if positions is None else parts | {"position": positions[dest]}


def stream_intervention(run: Run, layer: int, dest: slice) -> Tensor | None:
    """[dest, d_model]: the change that interventions make to the stream before `layer`; None without one."""
    if not run.editor.touches(layer, "resid_pre"):
        return None
    whole = run.get("resid_post", layer - 1, (), dest) if layer else torch.stack(list(initial_stream(run, dest).values())).sum(0)
    return run.get("resid_pre", layer, (), dest) - whole


def z_of(run: Run, layer: int, dest: slice) -> Tensor:
    """[head, dest, d_head]: as `run.get("z")`, but without materialising patterns unless an intervention needs them."""
    c, recorded = run.weights.config, run.captured[layer]
    whole = dest.indices(run.n) == (0, run.n, 1)
    if not whole or c.score_soft_cap or run.editor.touches(layer, "scores", "pattern", "z", "result"):
        return run.get("z", layer, (), dest)
    return block.attend(c, layer, QKV(recorded.q, recorded.k, recorded.v), 0)


def head_outputs(run: Run, layer: int, dest: slice) -> list[Tensor]:
    """The output of each head, [dest, d_model] each, computed one head at a time, interventions at `result` included."""
    return [run.get("result", layer, (h,), dest)[0] for h in range(run.weights.config.n_heads)]


def attention_output(run: Run, layer: int, weights: Layer, z: Tensor, dest: slice) -> Tensor:
    """[dest, d_model]: the sum of head outputs and b_O, before a norm after the sublayer."""
    if not run.editor.touches(layer, "result"):
        return block.write(weights, z)
    out = torch.stack(head_outputs(run, layer, dest)).sum(0)
    return out if weights.b_O is None else out + weights.b_O


def directions_at_heads(run: Run, layer: int, weights: Layer, D: Directions, z: Tensor, dest: slice) -> tuple[Directions, Tensor]:
    """(E, constant [dest]): the directions for the sum of head outputs of `layer`; `z` [head, dest, d_head]."""
    c = run.weights.config
    if c.norm_placement not in ("post_sublayer", "both") or c.norm == "none":
        return D, torch.zeros_like(D.scale[:, 0])
    return D.before_norm(c, weights.attn_post_norm, attention_output(run, layer, weights, z, dest))


def head_contributions(run: Run, layer: int, weights: Layer, E: Directions, z: Tensor, dest: slice) -> Tensor:
    """[head, dest]: `z W_O · E` of every head, computed as `<z, E W_Oᵀ>` without an array [head, dest, d_model]."""
    if run.editor.touches(layer, "result"):
        return torch.stack([E.of(one) for one in head_outputs(run, layer, dest)])
    q = block.split_heads(E.base @ block.flat_out(weights.W_O).T, z.shape[0])
    dots = (z @ q.transpose(1, 2))[..., 0] if q.shape[1] == 1 else (z * q).sum(-1)
    return dots * E.scale[:, 0]
