"""Forward passes with attention frozen, in which heads read a stream that contains only some terms of the path expansion.

Attention patterns, norm scales and MLP outputs are frozen at their recorded values. The rest is linear: a head's output is
A (x W_V + b_V) W_O of the stream x that it reads. The run's interventions act in every pass as they do in the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from circuitlab.analysis.base import Ctx
from circuitlab.errors import BadInput
from circuitlab.model import block
from circuitlab.model.block import QKV
from circuitlab.model.recorded_norm import norm_at_scale
from circuitlab.model.run import Run, loss_tiles
from circuitlab.model.weights import Layer, Norm

# one layer's heads: their z [head, pos, d_head] and a factor [head], 1 for heads that write to the stream; None: no head does
HeadOutputs = tuple[Tensor, Tensor] | None


@dataclass(frozen=True, eq=False)
class _RecordedLayer:
    """One layer of the run: the MLP's output [pos, d_model], and the scales [pos, 1] of norms after the sublayers."""

    mlp: Tensor | None
    sublayer: Tensor | None
    middle: Tensor | None
    end: Tensor | None


class FrozenAttentionPass:
    """Frozen-attention passes of one run.

    Raises `BadInput` for an intervention on values along a path, which is not linear in the stream.
    """

    def __init__(self, run: Run, ctx: Ctx) -> None:
        self.run, self.config, self._ctx = run, run.weights.config, ctx
        if any(run.editor.paths(i, "v") for i in range(self.config.n_layers)):
            expected = "interventions that are linear in the residual stream"
            got = "an intervention on values along a path (path_from at v)"
            raise BadInput("The terms of this run have no order.", expected=expected, got=got, remedy="Remove that intervention.")
        with torch.inference_mode():
            self._recorded = [self._record(i) for i in range(self.config.n_layers)]

    def _record(self, i: int) -> _RecordedLayer:
        self._ctx.tick(i, self.config.n_layers, "recorded pass")
        c, run, layer = self.config, self.run, self.run.weights.layer(i)
        sublayer = middle = end = None
        mlp = None if layer.mlp is None else run.get("mlp_out", i)
        if c.norm_placement in ("post_sublayer", "both"):
            sublayer = block.norm_scale(self._attention_output(i, layer, (run.get("z", i), self.every())), c.norm, c.norm_eps)
        if c.norm_placement == "post_residual":
            middle = block.norm_scale(run.get("resid_pre", i) + run.get("attn_out", i), c.norm, c.norm_eps)
            end = None if mlp is None else block.norm_scale(run.get("resid_mid", i) + mlp, c.norm, c.norm_eps)
        return _RecordedLayer(mlp, sublayer, middle, end)

    def every(self) -> Tensor:
        """[head]: the factors with which every head of a layer writes to the stream."""
        return torch.ones(self.config.n_heads, dtype=self.run.captured[0].q.dtype)

    def streams(self, added: Sequence[HeadOutputs]) -> list[Tensor]:
        """[layer + 1] streams [pos, d_model], before each block and after the last, with only these head outputs added."""
        streams: list[Tensor] = []
        with torch.inference_mode():
            for i, heads in enumerate(added):
                self._ctx.tick(i, self.config.n_layers, "frozen-attention pass")
                # the initial stream contains no head output: it is the run's own
                x = self.run.editor.apply("resid_pre", i, streams[i]) if i else self.run.get("resid_pre", 0)
                streams[i:] = [x, self._after(i, x, heads)]
        assert self.run.final is not None
        return streams or [self.run.final]

    def _after(self, i: int, x: Tensor, heads: HeadOutputs) -> Tensor:
        recorded, layer = self._recorded[i], self.run.weights.layer(i)
        out = self._attention_output(i, layer, heads)
        out = out if recorded.sublayer is None else self._at_scale(out, layer.attn_post_norm, recorded.sublayer)
        x = x + out
        x = x if recorded.middle is None else self._at_scale(x, layer.attn_post_norm, recorded.middle)
        x = x if recorded.mlp is None else x + recorded.mlp
        return x if recorded.end is None else self._at_scale(x, layer.mlp_post_norm, recorded.end)

    def _attention_output(self, i: int, layer: Layer, heads: HeadOutputs) -> Tensor:
        """[pos, d_model]: the sum of these head outputs and b_O, before a norm after the sublayer."""
        bias = torch.zeros_like(layer.W_O[0, 0]) if layer.b_O is None else layer.b_O
        if heads is None:
            return bias.expand(self.run.n, -1)
        z, through = heads
        if self.run.editor.touches(i, "result"):
            return (self.run.editor.apply("result", i, z @ layer.W_O) * through[:, None, None]).sum(0) + bias
        return block.merge_heads(z * through[:, None, None]) @ block.flat_out(layer.W_O) + bias

    def _at_scale(self, x: Tensor, norm: Norm, scale: Tensor) -> Tensor:
        return norm_at_scale(x, norm, self.config.norm, scale)

    def heads(self, i: int, x: Tensor) -> HeadOutputs:
        """All heads of layer i: their z [head, pos, d_head] on the stream x [pos, d_model], under the recorded patterns."""
        c, run, layer = self.config, self.run, self.run.weights.layer(i)
        with torch.inference_mode():
            if c.norm != "none" and c.norm_placement in ("pre", "both"):
                x = self._at_scale(x, layer.attn_norm, run.get("attn_norm_scale", i))
            v = block.split_heads(x @ block.flat_in(layer.W_V), c.n_kv_heads)
            v = run.editor.apply("v", i, v if layer.b_V is None else v + layer.b_V[:, None, :])
            recorded = run.captured[i]
            if c.score_soft_cap or run.editor.touches(i, "scores", "pattern"):
                z = run.get("pattern", i) @ block.per_query_head(c, v)
            else:
                z = block.attend(c, i, QKV(recorded.q, recorded.k, v), 0)
            return run.editor.apply("z", i, z), self.every()

    def loss(self, x: Tensor) -> float:
        """Mean loss in nats of the run's tokens for a final stream x [pos, d_model], at the recorded scale of the final norm."""
        c, run, ends = self.config, self.run, self.run.weights.unembed()
        assert run.final is not None
        with torch.inference_mode():
            if c.final_norm and c.norm != "none":
                x = self._at_scale(x, ends.norm, block.norm_scale(run.final, c.norm, c.norm_eps))

            def logits(rows: slice) -> Tensor:
                scores = x[rows] @ ends.W_U if ends.b_U is None else x[rows] @ ends.W_U + ends.b_U
                return block.soft_cap(scores, c.logit_soft_cap)

            tick = lambda row: self._ctx.tick(row, run.n, "unembedding")
            total = sum(float(losses.double().sum()) for losses in loss_tiles(logits, torch.tensor(run.tokens[1:]), tick))
        return total / (run.n - 1) if run.n > 1 else float("nan")
