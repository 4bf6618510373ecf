"""Attribution patching: first-order (gradient) estimates of every patch from one backward pass.

    effect of patching activation a  ≈  Σ_width (∂ target / ∂ a) · (a in the other run − a in this run)

Exact in the limit of a small difference between the two runs (Nanda 2023, Attribution Patching: Activation Patching At Industrial
Scale; Syed, Rager and Conmy 2023, Attribution Patching Outperforms Automated Circuit Discovery). The gradient is that of this
run, its interventions included. Layers are recomputed one at a time from the recorded streams, from the last to the first, so
that only one layer's activations are in memory.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.interventions._gradient_estimate import for_autograd
from circuitlab.analysis.interventions._metric import Measure
from circuitlab.analysis.interventions._partial_reruns import Tick, projected
from circuitlab.analysis.interventions._prompt_pair import PromptPair
from circuitlab.analysis.interventions.patched_block import PatchedBlock, What
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run, after_attention, after_mlp, mlp_written, post_norm
from circuitlab.model.weights import Layer

WRITTEN = ("head", "attn_out")  # the gradient is the same for every head's output, since they are summed


def slope_of(pair: PromptPair, tick: Tick) -> Tensor:
    """[pos, d_model]: the gradient of the target with respect to the last stream, up to the span's stop."""
    measure = Measure(pair.run.tokens, torch.tensor([pair.at]), torch.zeros(0, dtype=torch.float64), pair.aim, "", "")
    return measure.slope(pair.run, tick)[1][: pair.span.stop]


def gradients(run: Run, i: int, what: What, after: Tensor, tick: Tick) -> tuple[Tensor, Tensor]:
    """Gradients with respect to an activation of block i, [(head,) pos, width], and to the stream before it, [pos, d_model].

    `after` [pos, d_model] is the gradient with respect to the stream after the block. For head outputs one gradient,
    [pos, d_model], holds for all heads.
    """
    with torch.inference_mode(False), torch.enable_grad():
        before = run.get("resid_post", i - 1) if i else run.get("resid_pre", 0)
        x = before[: len(after)].clone().requires_grad_()
        named = _values(run, for_autograd(run.weights.layer(i)), i, x, tick)
        value = named["written" if what in WRITTEN else what]
        tick()
        by_value, by_x = torch.autograd.grad(
            named["resid_post"], (value, x), after.clone(), allow_unused=True, materialize_grads=True
        )
    return by_value, by_x


def estimated_effects(patched: PatchedBlock, by_value: Tensor) -> Tensor:
    """[head or 1, pos] float64: the estimated effect of patching one position."""
    change = patched.new - patched.here
    change = change.sum(0) if patched.what == "attn_out" else change
    return torch.atleast_2d((by_value * change).sum(-1).double())


def error_words(effect: np.ndarray, estimate: np.ndarray) -> tuple[str, ...]:
    """For captions: the error of estimates against the exact effects that replaced them; () while no cell has both."""
    both = ~np.isnan(effect) & ~np.isnan(estimate)
    if not both.any():
        return ()
    off, largest = np.abs(estimate[both] - effect[both]), np.abs(effect[both]).max()
    return (
        f"first-order estimates off by {off.mean():.3f} on average, {off.max():.3f} at most, for effects up to {largest:.3f}",
    )


def backward_entries(config: ModelConfig, n: int) -> int:
    """How many numbers a backward pass holds at most: a copy of a layer, its activations and patterns, and their gradients."""
    layer = config.d_model * (4 * config.n_heads * config.d_head + 3 * config.d_mlp)
    rows = 8 * config.n_heads * n + 16 * config.n_heads * config.d_head + 12 * config.d_model + 8 * config.d_mlp
    return layer + n * rows


def _values(run: Run, layer: Layer, i: int, x: Tensor, tick: Tick) -> dict[str, Tensor]:
    """Every activation of block i that can be patched, from the stream x [pos, d_model] before it, interventions included."""
    config, editor, n = run.weights.config, run.editor, len(x)
    x = editor.apply("resid_pre", i, x) if i else x  # interventions are already in the recorded stream of the first block
    named = {"resid_pre": x}
    named |= {name: editor.apply(name, i, part) for name, part in projected(run, layer, i, x, 0)._asdict().items()}
    k, v = (block.per_query_head(config, named[name]) for name in ("k", "v"))
    scores = editor.apply("scores", i, block.biased(config, i, block.scores(config, named["q"], k), 0))
    tick()
    pattern = editor.apply("pattern", i, block.pattern(scores, block.allowed(n, n, 0, config.window(i))))
    z = editor.apply("z", i, pattern @ v)
    if editor.touches(i, "result"):
        written = editor.apply("result", i, block.head_results(layer, z)).sum(-3)
        written = written if layer.b_O is None else written + layer.b_O
    else:
        written = block.write(layer, z)
    mid = after_attention(config, layer, x, post_norm(config, layer, written, "attn"))
    named |= {"pattern": pattern, "written": written, "resid_mid": mid}
    if layer.mlp is None:
        return named | {"resid_post": mid}
    tick()
    mlp = editor.apply("mlp_out", i, mlp_written(config, layer, x if config.parallel else mid))
    return named | {"mlp_out": mlp, "resid_post": after_mlp(config, layer, mid, mlp)}
