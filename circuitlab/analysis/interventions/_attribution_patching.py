"""The first-order estimate of every patch at once: one backward pass.

    effect of taking value a from the other run  ≈  Σ_width (∂ target / ∂ a) · (a there − a here)

exact in the limit of a small difference between the two runs (Nanda 2023, Attribution Patching: Activation Patching At Industrial
Scale; Syed, Rager and Conmy 2023, Attribution Patching Outperforms Automated Circuit Discovery). The gradient is that of this
run, its interventions included. Layers are computed again one at a time from the recorded streams, the last one first, so that
only one layer's values are held.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.interventions._gradient_estimate import ordinary
from circuitlab.analysis.interventions._metric import Measure
from circuitlab.analysis.interventions._partial_reruns import Tick, projected
from circuitlab.analysis.interventions._prompt_pair import TwoRuns
from circuitlab.analysis.interventions.patched_block import PatchedBlock, What
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run, after_attention, after_mlp, mlp_written, post_norm
from circuitlab.model.weights import Layer

WRITTEN = ("head", "attn_out")  # every head's output enters the sum of them alike


def slope_of(two: TwoRuns, tick: Tick) -> Tensor:
    """[pos, d_model]: the gradient of the target with respect to the last stream, up to the span's stop."""
    measure = Measure(two.run.tokens, torch.tensor([two.at]), torch.zeros(0, dtype=torch.float64), two.aim, "", "")
    return measure.slope(two.run, tick)[1][: two.span.stop]


def gradients(run: Run, i: int, what: What, after: Tensor, tick: Tick) -> tuple[Tensor, Tensor]:
    """Gradients with respect to a value of block i and to the stream before the block [pos, d_model].

    From `after` [pos, d_model], that with respect to the stream after the block. The value's is [(head,) pos, width]; of what
    heads write, [pos, d_model] for all of them.
    """
    with torch.inference_mode(False), torch.enable_grad():
        before = run.get("resid_post", i - 1) if i else run.get("resid_pre", 0)
        x = before[: len(after)].clone().requires_grad_()
        named = _values(run, ordinary(run.weights.layer(i)), i, x, tick)
        value = named["written" if what in WRITTEN else what]
        tick()
        by_value, by_x = torch.autograd.grad(
            named["resid_post"], (value, x), after.clone(), allow_unused=True, materialize_grads=True
        )
    return by_value, by_x


def first_order(made: PatchedBlock, by_value: Tensor) -> Tensor:
    """[head or 1, pos] float64: the estimated effect of exchanging one position's value."""
    change = made.new - made.here
    change = change.sum(0) if made.what == "attn_out" else change
    return torch.atleast_2d((by_value * change).sum(-1).double())


def off_by(effect: np.ndarray, estimate: np.ndarray) -> tuple[str, ...]:
    """For captions: how far estimates are from the exact effects that have replaced them, () where nothing has both."""
    both = ~np.isnan(effect) & ~np.isnan(estimate)
    if not both.any():
        return ()
    off, largest = np.abs(estimate[both] - effect[both]), np.abs(effect[both]).max()
    return (f"first-order estimates off by {off.mean():.3f}, at most {off.max():.3f}, of effects up to {largest:.3f}",)


def passed_entries(config: ModelConfig, n: int) -> int:
    """How many numbers a backward pass holds at most: a copy of a layer, its values and patterns, and their gradients."""
    layer = config.d_model * (4 * config.n_heads * config.d_head + 3 * config.d_mlp)
    rows = 8 * config.n_heads * n + 16 * config.n_heads * config.d_head + 12 * config.d_model + 8 * config.d_mlp
    return layer + n * rows


def _values(run: Run, layer: Layer, i: int, x: Tensor, tick: Tick) -> dict[str, Tensor]:
    """Every value of block i that can be patched, after the run's own interventions, from the stream x [pos, d_model] before."""
    config, editor, n = run.weights.config, run.editor, len(x)
    x = editor.apply("resid_pre", i, x) if i else x  # the recorded stream of the first block has been edited already
    found = {"resid_pre": x}
    found |= {name: editor.apply(name, i, part) for name, part in projected(run, layer, i, x, 0)._asdict().items()}
    k, v = (block.per_query_head(config, found[name]) for name in ("k", "v"))
    scores = editor.apply("scores", i, block.biased(config, i, block.scores(config, found["q"], k), 0))
    tick()
    pattern = editor.apply("pattern", i, block.pattern(scores, block.allowed(n, n, 0, config.window(i))))
    z = editor.apply("z", i, pattern @ v)
    if editor.touches(i, "result"):
        written = editor.apply("result", i, block.head_results(layer, z)).sum(-3)
        written = written if layer.b_O is None else written + layer.b_O
    else:
        written = block.write(layer, z)
    mid = after_attention(config, layer, x, post_norm(config, layer, written, "attn"))
    found |= {"pattern": pattern, "written": written, "resid_mid": mid}
    if layer.mlp is None:
        return found | {"resid_post": mid}
    tick()
    mlp = editor.apply("mlp_out", i, mlp_written(config, layer, x if config.parallel else mid))
    return found | {"mlp_out": mlp, "resid_post": after_mlp(config, layer, mid, mlp)}
