"""First-order (gradient) estimates of every single-head ablation from one backward pass.

    effect of ablating head h  ≈  Σ_{pos, d_head} (∂ value / ∂ z_h) · (z'_h − z_h)

Exact in the limit of a small change. For zero ablation z' = 0, and it is minus gradient times activation (Molchanov et al. 2017;
Nanda 2023, “Attribution Patching”). Layers are recomputed one at a time from the recorded residual streams, so that only one
layer's activations are in memory. Gradients do not pass through patterns that are held.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.interventions.ablation_sweep import AblationSweep
from circuitlab.model.forward import after_heads, attended
from circuitlab.model.weights import Layer, Unread, mapped


def for_autograd(layer: Layer) -> Layer:
    """The same weights as tensors that autograd accepts: copies of those created in inference mode; experts as they are read."""
    copied = lambda x: x.clone() if x.is_inference() else x
    return mapped(layer, copied, lambda experts: Unread(len(experts), lambda e: mapped(experts[e], copied)))


def kinds_of(exact: np.ndarray, values: np.ndarray) -> np.ndarray:
    """As `values`, text: whether each is "exact", a "first-order" estimate, or "not computed" (NaN)."""
    return np.where(exact, "exact", np.where(np.isnan(values), "not computed", "first-order"))


def first_order(sweep: AblationSweep, tick: Callable[[], None], show: Callable[[Tensor], None] | None = None) -> Tensor:
    """[layer, head] float64: the estimates, for a sweep with a slope on a run without interventions along paths.

    `show(estimate)` is called after each layer, from the last to the first; NaN where not computed yet.
    """
    assert sweep.slope is not None
    run = sweep.run
    config = run.weights.config
    out = torch.full((config.n_layers, config.n_heads), torch.nan, dtype=torch.float64)
    with torch.inference_mode(False), torch.enable_grad():
        after = sweep.slope.clone()
        for i in reversed(range(config.n_layers)):
            tick()
            layer = for_autograd(run.weights.layer(i))
            before = run.get("resid_post", i - 1) if i else run.get("resid_pre", 0)
            x = before.clone().requires_grad_()
            edited = run.editor.apply("resid_pre", i, x) if i else x
            z = attended(run, i, layer, edited, sweep.held)
            end = after_heads(run, i, layer, edited, z)
            tick()
            by_z, after = torch.autograd.grad(end, (z, x), after, allow_unused=True, materialize_grads=True)
            with torch.no_grad():
                change = sweep.replacement(i, z.detach()) - z.detach()
                out[i] = (by_z * change).sum(dim=(-1, -2)).double()
                if show is not None:
                    show(out)
    return out
