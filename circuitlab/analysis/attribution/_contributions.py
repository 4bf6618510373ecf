"""What writes into the stream, and how a direction of the final stream looks to it: shared by everything that adds parts up.

A norm after a sublayer (placements "post_sublayer" and "both") stands between what a sublayer writes and the stream. At its
recorded scale s it is linear, so that a direction D of the stream is to the sublayer

    E = s · centre(gain ∘ D)   (LayerNorm; RMSNorm does not centre),        with bias · D on top

and without such a norm E = D. A norm on the stream itself ("post_residual") leaves nothing that can be added up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circuitlab.analysis.target import TargetVector, final_scale
from circuitlab.model import block
from circuitlab.model.block import QKV
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import Intervention
from circuitlab.model.positions import sinusoid_table
from circuitlab.model.run import Run
from circuitlab.model.weights import Layer, Norm, Weights

NORM_ON_STREAM = "a norm stands on the stream itself here, so what is written into it does not add up to the logits."


def refuse_norm_on_stream(config: ModelConfig) -> str | None:
    """Why contributions cannot be added up in this model, None where they can."""
    return NORM_ON_STREAM if config.norm_placement == "post_residual" else None


@dataclass(frozen=True, eq=False)
class Directions:
    """Directions D [pos, d_model] = scale [pos, 1] · base [pos or 1, d_model]: one row where all point the same way."""

    base: Tensor
    scale: Tensor

    def of(self, x: Tensor) -> Tensor:
        """[..., pos]: `x · D` for x [..., pos, d_model]."""
        one = len(self.base) == 1
        return (x @ self.base[0] if one else (x * self.base).sum(-1)) * self.scale[:, 0]

    def behind(self, config: ModelConfig, norm: Norm, written: Tensor) -> tuple[Directions, Tensor]:
        """As seen before a norm behind a sublayer that reads `written` [pos, d_model], and the constant [pos] of its bias."""
        bias = torch.zeros_like(self.scale[:, 0]) if norm.bias is None else self.of(norm.bias.expand(len(self.scale), -1))
        E = self.base if norm.gain is None else self.base * norm.gain
        E = E - E.mean(dim=-1, keepdim=True) if config.norm == "layer" else E
        return Directions(E, self.scale * block.norm_scale(written, config.norm, config.norm_eps)), bias


def directions(weights: Weights, aim: TargetVector, final: Tensor, shared: bool) -> tuple[Directions, Tensor]:
    """(D', constant [pos]) of a target at the recorded scale of final streams [pos, d_model]; `shared`: the same D at each."""
    scale = final_scale(weights, final)
    base, constant = aim.at_scale(weights, torch.ones_like(scale))
    return Directions(base[:1] if shared else base, scale), constant


def entering(run: Run, dest: slice) -> dict[str, Tensor]:
    """What the stream begins with, [dest, d_model] each: "embedding" and, where they are added to it, "position"."""
    c, embed = run.weights.config, run.weights.embed()
    found = {"embedding": embed.W_E[torch.tensor(run.tokens[dest])] * c.embed_scale}
    if c.positions == "learned" and embed.W_pos is not None:
        found["position"] = embed.W_pos[: run.n][dest]
    if c.positions == "sinusoidal":
        found["position"] = sinusoid_table(run.n, c.d_model, embed.W_E.dtype)[dest]
    return found


def replaced(run: Run, layer: int, dest: slice) -> Tensor | None:
    """[dest, d_model]: what an intervention on the stream before `layer` added to it; None without one."""
    if not run.editor.touches(layer, "resid_pre"):
        return None
    whole = run.get("resid_post", layer - 1, (), dest) if layer else torch.stack(list(entering(run, dest).values())).sum(0)
    return run.get("resid_pre", layer, (), dest) - whole


def z_of(run: Run, layer: int, dest: slice) -> Tensor:
    """[head, dest, d_head]: as `run.get("z")`, without building patterns where no intervention looks at them."""
    c, kept = run.weights.config, run.captured[layer]
    whole = dest.indices(run.n) == (0, run.n, 1)
    if not whole or c.score_soft_cap or run.editor.touches(layer, "scores", "pattern", "z", "result"):
        return run.get("z", layer, (), dest)
    return block.attend(c, layer, QKV(kept.q, kept.k, kept.v), 0)


def results_by_head(run: Run, layer: int, dest: slice) -> list[Tensor]:
    """What each head writes, [dest, d_model] each, one at a time: where an intervention changed it on the way out."""
    return [run.get("result", layer, (h,), dest)[0] for h in range(run.weights.config.n_heads)]


def attention_written(run: Run, layer: int, weights: Layer, z: Tensor, dest: slice) -> Tensor:
    """[dest, d_model]: all heads and the output bias, before any norm behind them."""
    if not run.editor.touches(layer, "result"):
        return block.write(weights, z)
    out = torch.stack(results_by_head(run, layer, dest)).sum(0)
    return out if weights.b_O is None else out + weights.b_O


def seen_by_heads(run: Run, layer: int, weights: Layer, D: Directions, z: Tensor, dest: slice) -> tuple[Directions, Tensor]:
    """The directions as the heads of `layer` see them, and a constant [dest]; `z` [head, dest, d_head]."""
    c = run.weights.config
    if c.norm_placement not in ("post_sublayer", "both") or c.norm == "none":
        return D, torch.zeros_like(D.scale[:, 0])
    return D.behind(c, weights.attn_post_norm, attention_written(run, layer, weights, z, dest))


def by_head(run: Run, layer: int, weights: Layer, E: Directions, z: Tensor, dest: slice) -> Tensor:
    """[head, dest]: `z W_O · E` of every head, as `<z, E W_Oᵀ>`, so that nothing [head, dest, d_model] is made."""
    if run.editor.touches(layer, "result"):
        return torch.stack([E.of(one) for one in results_by_head(run, layer, dest)])
    q = block.split_heads(E.base @ block.flat_out(weights.W_O).T, z.shape[0])
    dots = (z @ q.transpose(1, 2))[..., 0] if q.shape[1] == 1 else (z * q).sum(-1)
    return dots * E.scale[:, 0]


def kept_share(edits: tuple[Intervention, ...], layer: int, names: tuple[str, ...], heads: int, positions: Tensor) -> Tensor:
    """[head, pos]: the share of what was computed that interventions on these sites leave: 1 without, 0 where they replace it."""
    share = torch.ones(heads, len(positions))
    for edit in (e for name in names for e in edits if (e.site.name, e.site.layer) == (name, layer) and e.path_from is None):
        where = (
            torch.isin(positions, torch.tensor(edit.site.positions)) if edit.site.positions else torch.ones(len(positions)) > 0
        )
        rows = list(edit.site.heads) or list(range(heads))
        share[rows] = torch.where(where, share[rows] * (edit.value[0] if edit.op == "scale" else 0.0), share[rows])
    return share
