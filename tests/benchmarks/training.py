"""Training: our loop against a plain PyTorch loop of the same model on the same batches, rounds in turn.

The plain model is what one writes without a library: parameters, queries and keys (or all three) in one product, the fused
attention kernel, `F.cross_entropy`, `torch.optim.AdamW`. Its batches lie ready; ours makes its own within the time that is
measured, as it does in use, and checks each loss. One thread, as `circuitlab train` has by default; what is measured is the
processor's time, which a busy neighbour changes less than the clock's.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from circuitlab.training.batches import batch
from circuitlab.training.corpus import Stream
from circuitlab.training.loop import Trainer, rate_at
from circuitlab.training.recipe import Recipe
from circuitlab.training.recipe_file import read_recipe
from tests.benchmarks.common import Row, child

GPT_MINI: dict[str, Any] = {
    "n_layers": 2,
    "n_heads": 4,
    "d_model": 128,
    "d_head": 32,
    "d_mlp": 512,
    "positions": "learned",
    "norm": "layer",
    "activation": "gelu_new",
    "biases": ["q", "k", "v", "o", "mlp"],
    "tied": True,
}
SHAPES = ("attn-only-2l", "gpt-mini")
CODE = "import json, sys; from tests.benchmarks.training import measured; print(json.dumps(measured(*sys.argv[1:])))"


class PlainAttentionOnly(nn.Module):
    """Attention only, positions added to what queries and keys read."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        c, t = trainer.config, {n: v.detach().clone() for n, v in trainer.weights.tensors.items()}
        self.n_heads = c.n_heads
        flat = lambda w: w.permute(1, 0, 2).flatten(1)
        self.wte, self.wpe = nn.Parameter(t["embed.W_E"]), nn.Parameter(t["embed.W_pos"])
        layers = range(c.n_layers)
        joined = lambda i: torch.cat([flat(t[f"layers.{i}.W_Q"]), flat(t[f"layers.{i}.W_K"])], 1)
        self.w_qk = nn.ParameterList([nn.Parameter(joined(i)) for i in layers])
        self.w_v = nn.ParameterList([nn.Parameter(flat(t[f"layers.{i}.W_V"])) for i in layers])
        self.w_o = nn.ParameterList([nn.Parameter(t[f"layers.{i}.W_O"].flatten(0, 1)) for i in layers])
        self.unembed = nn.Parameter(t["unembed.W_U"])

    def forward(self, ids: Tensor) -> Tensor:
        x, n = self.wte[ids], ids.shape[1]
        for w_qk, w_v, w_o in zip(self.w_qk, self.w_v, self.w_o, strict=True):
            q, k = ((x + self.wpe[:n]) @ w_qk).chunk(2, dim=-1)
            x = x + attention(q, k, x @ w_v, self.n_heads) @ w_o
        return x @ self.unembed


class PlainGpt2(nn.Module):
    """GPT-2: pre-norm blocks of attention and MLP, tied unembedding."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        c, t = trainer.config, {n: v.detach().clone() for n, v in trainer.weights.tensors.items()}
        self.n_heads = c.n_heads
        self.wte, self.wpe = nn.Parameter(t["embed.W_E"]), nn.Parameter(t["embed.W_pos"])
        flat = lambda w: w.permute(1, 0, 2).flatten(1)
        self.blocks = nn.ModuleList()
        for i in range(c.n_layers):
            at = f"layers.{i}."
            block = nn.ParameterDict({n.replace(".", "_"): t[at + n] for n in ("W_O", "b_O", "mlp.W_in", "mlp.b_in")})
            block |= {n.replace(".", "_"): t[at + n] for n in ("mlp.W_out", "mlp.b_out", "attn_norm.gain", "attn_norm.bias")}
            block |= {n.replace(".", "_"): t[at + n] for n in ("mlp_norm.gain", "mlp_norm.bias")}
            block["W_O"] = t[at + "W_O"].flatten(0, 1)
            block["W_qkv"] = torch.cat([flat(t[at + n]) for n in ("W_Q", "W_K", "W_V")], 1)
            block["b_qkv"] = torch.cat([t[at + n].flatten() for n in ("b_Q", "b_K", "b_V")])
            self.blocks.append(block)
        self.gain, self.bias = nn.Parameter(t["unembed.norm.gain"]), nn.Parameter(t["unembed.norm.bias"])

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte[ids] + self.wpe[: ids.shape[1]]
        width = x.shape[-1:]
        for b in self.blocks:
            h = F.layer_norm(x, width, b["attn_norm_gain"], b["attn_norm_bias"])
            q, k, v = torch.addmm(b["b_qkv"], h.flatten(0, 1), b["W_qkv"]).view(*h.shape[:2], -1).chunk(3, dim=-1)
            x = x + attention(q, k, v, self.n_heads) @ b["W_O"] + b["b_O"]
            h = F.layer_norm(x, width, b["mlp_norm_gain"], b["mlp_norm_bias"])
            x = x + F.gelu(h @ b["mlp_W_in"] + b["mlp_b_in"], approximate="tanh") @ b["mlp_W_out"] + b["mlp_b_out"]
        return F.layer_norm(x, width, self.gain, self.bias) @ self.wte.T


def attention(q: Tensor, k: Tensor, v: Tensor, n_heads: int) -> Tensor:
    """[batch, pos, d_model] of each, causal."""
    q, k, v = (x.unflatten(-1, (n_heads, -1)).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class PlainLoop:
    """A model, an optimiser, batches: one step after the other."""

    def __init__(self, model: nn.Module, recipe: Recipe, batches: list[Tensor]) -> None:
        self.model, self.recipe, self.batches, self.step = model, recipe, batches, 0
        o = recipe.optimiser
        self.adam = torch.optim.AdamW(model.parameters(), lr=o.rate, betas=o.betas, weight_decay=o.weight_decay)

    def loss(self, tokens: Tensor) -> Tensor:
        return F.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def one_step(self) -> float:
        for group in self.adam.param_groups:
            group["lr"] = rate_at(self.recipe.optimiser, self.step)
        loss = self.loss(self.batches[self.step])
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.optimiser.clip)
        self.adam.step()
        self.step += 1
        return loss.item()


def recipe_of(shape: str) -> Recipe:
    """The shipped two-layer recipe, or the same with a GPT-2's blocks."""
    shipped = read_recipe("attn-only-2l")
    init = {n: v for n, v in shipped.init.items() if n != "W_U"}
    return shipped if shape == "attn-only-2l" else replace(shipped, model=GPT_MINI, init=init, positions_amplitude=0.3)


def measured(shape: str, rounds: str, steps: str) -> dict[str, float]:
    """Tokens/s of both, the median ratio, the largest difference of the losses before and while training."""
    torch.set_num_threads(1)
    recipe, n = recipe_of(shape), int(steps)
    rng = np.random.default_rng(0)
    zipf = np.minimum(rng.zipf(1.2, 400_000), recipe.vocab - 1).astype(np.uint16)
    streams = (Stream("drawn", 1.0, zipf[:390_000], zipf[390_000:]),)
    with tempfile.TemporaryDirectory() as folder:
        ours = Trainer(recipe, streams, Path(folder))
        wanted = n * (int(rounds) + 1)
        batches = [batch(streams, recipe.data, recipe.stage(k), recipe.vocab, recipe.seed, k) for k in range(wanted)]
        plain = PlainLoop((PlainAttentionOnly if shape == "attn-only-2l" else PlainGpt2)(ours), recipe, batches)
        losses: tuple[list[float], list[float]] = [], []
        run = lambda loop, kept: kept.extend(loop.one_step() for _ in range(n))
        pairs = [(seconds(run, plain, losses[0]), seconds(run, ours, losses[1])) for _ in range(int(rounds) + 1)][1:]
    apart = [abs(a - b) for a, b in zip(*losses, strict=True)]
    tokens = n * recipe.stage(0).batch * recipe.stage(0).context
    theirs_s, ours_s, ratio = (
        statistics.median(v) for v in ((a for a, _ in pairs), (b for _, b in pairs), (a / b for a, b in pairs))
    )
    return {"ratio": ratio, "ours": tokens / ours_s, "theirs": tokens / theirs_s, "first": apart[0], "apart": max(apart)}


def seconds(work: Callable[..., Any], *given: Any) -> float:
    """The processor's seconds of a call."""
    began = time.process_time()
    work(*given)
    return time.process_time() - began


def rows(quick: bool = False) -> list[Row]:
    """One row for each shape."""
    out = []
    for shape in SHAPES:
        result = child(CODE, shape, "7" if quick else "25", "4" if quick else "8")
        what, against = f"training {shape}, tokens/s", "a plain PyTorch loop"
        if result["first"] > 1e-5:
            out.append(Row(what, against, f"another loss: {result['first']:.1e} apart", "the same to 1e-5", False))
            continue
        note = f" ({result['ours']:,.0f} and {result['theirs']:,.0f}; losses at most {result['apart']:.0e} apart)"
        out.append(Row(what, against, f"{result['ratio']:.2f}×{note}", "≥ 0.95×", result["ratio"] >= 0.95))
    return out
