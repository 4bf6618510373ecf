"""A run gone through again with its attention held: what the terms of an order do to the stream.

Held at their recorded values: attention patterns, norm scales, and what each MLP writes. What is left is linear: a head's output
is A (x W_V + b_V) W_O of the stream x that it reads, so that heads can be made to read a stream to which only some terms have
been added. Interventions of the run act in every pass as they do in the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.analysis.base import Ctx
from circuitlab.errors import BadInput
from circuitlab.model import block
from circuitlab.model.block import QKV
from circuitlab.model.run import ROWS, Run
from circuitlab.model.weights import Layer, Norm

# what the heads of one layer add to the stream: their z [head, pos, d_head] and which of them are let through [head]; None: none
Added = tuple[Tensor, Tensor] | None


@dataclass(frozen=True, eq=False)
class _Held:
    """One layer of the run: what the MLP wrote [pos, d_model], and the scales of norms behind the sublayers [pos, 1]."""

    mlp: Tensor | None
    sublayer: Tensor | None
    middle: Tensor | None
    end: Tensor | None


class ForcedPass:
    """The passes of one run. Raises `BadInput` for an intervention on values along a path, which is not linear in the stream."""

    def __init__(self, run: Run, ctx: Ctx) -> None:
        self.run, self.config, self._ctx = run, run.weights.config, ctx
        if any(run.editor.paths(i, "v") for i in range(self.config.n_layers)):
            expected = "interventions on heads, streams and patterns"
            raise BadInput("Values that are changed along a path have no order.", expected=expected, got="path_from at v")
        with torch.inference_mode():
            self._held = [self._record(i) for i in range(self.config.n_layers)]

    def _record(self, i: int) -> _Held:
        self._ctx.tick(i, self.config.n_layers, "recorded pass")
        c, run, layer = self.config, self.run, self.run.weights.layer(i)
        sublayer = middle = end = None
        mlp = None if layer.mlp is None else run.get("mlp_out", i)
        if c.norm_placement in ("post_sublayer", "both"):
            sublayer = block.norm_scale(self._written(i, layer, (run.get("z", i), self.every())), c.norm, c.norm_eps)
        if c.norm_placement == "post_residual":
            middle = block.norm_scale(run.get("resid_pre", i) + run.get("attn_out", i), c.norm, c.norm_eps)
            end = None if mlp is None else block.norm_scale(run.get("resid_mid", i) + mlp, c.norm, c.norm_eps)
        return _Held(mlp, sublayer, middle, end)

    def every(self) -> Tensor:
        """[head]: all heads of a layer let through."""
        return torch.ones(self.config.n_heads, dtype=self.run.captured[0].q.dtype)

    def streams(self, added: Sequence[Added]) -> list[Tensor]:
        """[layer + 1] streams [pos, d_model] before each block and after the last, with these head outputs and no others."""
        found: list[Tensor] = []
        with torch.inference_mode():
            for i, heads in enumerate(added):
                self._ctx.tick(i, self.config.n_layers, "forced pass")
                # the first stream has no head in it: it is the run's own
                x = self.run.editor.apply("resid_pre", i, found[i]) if i else self.run.get("resid_pre", 0)
                found[i:] = [x, self._after(i, x, heads)]
        assert self.run.final is not None
        return found or [self.run.final]

    def _after(self, i: int, x: Tensor, heads: Added) -> Tensor:
        held, layer = self._held[i], self.run.weights.layer(i)
        out = self._written(i, layer, heads)
        out = out if held.sublayer is None else self._scaled(out, layer.attn_post_norm, held.sublayer)
        x = x + out
        x = x if held.middle is None else self._scaled(x, layer.attn_post_norm, held.middle)
        x = x if held.mlp is None else x + held.mlp
        return x if held.end is None else self._scaled(x, layer.mlp_post_norm, held.end)

    def _written(self, i: int, layer: Layer, heads: Added) -> Tensor:
        """[pos, d_model]: the chosen heads' outputs and the output bias, before any norm behind them."""
        bias = torch.zeros_like(layer.W_O[0, 0]) if layer.b_O is None else layer.b_O
        if heads is None:
            return bias.expand(self.run.n, -1)
        z, through = heads
        if self.run.editor.touches(i, "result"):
            return (self.run.editor.apply("result", i, z @ layer.W_O) * through[:, None, None]).sum(0) + bias
        return block.merge_heads(z * through[:, None, None]) @ block.flat_out(layer.W_O) + bias

    def _scaled(self, x: Tensor, norm: Norm, scale: Tensor) -> Tensor:
        """x through a norm at a recorded scale."""
        kind = self.config.norm
        x = x - x.mean(dim=-1, keepdim=True) if kind == "layer" else x
        x = x * scale
        x = x if norm.gain is None else x * norm.gain
        return x if norm.bias is None else x + norm.bias

    def heads(self, i: int, x: Tensor) -> Added:
        """All heads of layer i: z [head, pos, d_head], gathered from the stream x [pos, d_model] by the recorded patterns."""
        c, run, layer = self.config, self.run, self.run.weights.layer(i)
        with torch.inference_mode():
            if c.norm != "none" and c.norm_placement in ("pre", "both"):
                x = self._scaled(x, layer.attn_norm, run.get("attn_norm_scale", i))
            v = block.split_heads(x @ block.flat_in(layer.W_V), c.n_kv_heads)
            v = run.editor.apply("v", i, v if layer.b_V is None else v + layer.b_V[:, None, :])
            kept = run.captured[i]
            if c.score_soft_cap or run.editor.touches(i, "scores", "pattern"):
                z = run.get("pattern", i) @ block.per_query_head(c, v)
            else:
                z = block.attend(c, i, QKV(kept.q, kept.k, v), 0)
            return run.editor.apply("z", i, z), self.every()

    def loss(self, x: Tensor) -> float:
        """Mean loss in nats of the run's tokens under a final stream x [pos, d_model], at the recorded final scale."""
        c, run, ends = self.config, self.run, self.run.weights.unembed()
        targets, total = torch.tensor(run.tokens[1:]), 0.0
        assert run.final is not None
        with torch.inference_mode():
            if c.final_norm and c.norm != "none":
                x = self._scaled(x, ends.norm, block.norm_scale(run.final, c.norm, c.norm_eps))
            for start in range(0, run.n - 1, ROWS):
                self._ctx.tick(start, run.n, "unembedding")
                rows = slice(start, min(start + ROWS, run.n - 1))
                logits = x[rows] @ ends.W_U if ends.b_U is None else x[rows] @ ends.W_U + ends.b_U
                logits = block.soft_cap(logits, c.logit_soft_cap)
                total += float(F.cross_entropy(logits, targets[rows], reduction="none").double().sum())
        return total / (run.n - 1) if run.n > 1 else float("nan")
