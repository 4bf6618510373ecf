"""The first-order estimate of every ablation at once: one backward pass.

    effect of cutting head h  ≈  Σ_{pos, d_head} (∂ value / ∂ z_h) · (z'_h − z_h)

exact in the limit of a small change (for zero ablation z' = 0: the gradient times minus the activation; Molchanov et al. 2017,
Nanda 2023 “Attribution Patching”). Layers are computed again one at a time from the recorded streams, so that only one layer's
values are held. With patterns held, gradients do not pass through them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from circuitlab.analysis.interventions.ablation_sweep import Bench
from circuitlab.model.forward import after_heads, attended
from circuitlab.model.weights import Layer, Mlp, Norm

T = TypeVar("T", Layer, Mlp, Norm)


def ordinary(weights: T) -> T:
    """The same weights as tensors that a gradient may pass: what was folded in inference mode is copied."""

    def each(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.clone() if value.is_inference() else value
        if isinstance(value, Mlp):
            return ordinary(value)
        return ordinary(value) if isinstance(value, Norm) else value

    changes: dict[str, Any] = {f.name: each(getattr(weights, f.name)) for f in dataclasses.fields(weights)}
    return dataclasses.replace(weights, **changes)


def first_order(made: Bench, tick: Callable[[], None], show: Callable[[Tensor], None] | None = None) -> Tensor:
    """[layer, head] float64: the estimate, from a bench with a slope. Not for a run with interventions along paths.

    `show(estimate)` is called after each layer, the last one first; NaN: not reached yet.
    """
    assert made.slope is not None
    run = made.run
    config = run.weights.config
    out = torch.full((config.n_layers, config.n_heads), torch.nan, dtype=torch.float64)
    with torch.inference_mode(False), torch.enable_grad():
        after = made.slope.clone()
        for i in reversed(range(config.n_layers)):
            tick()
            layer = ordinary(run.weights.layer(i))
            before = run.get("resid_post", i - 1) if i else run.get("resid_pre", 0)
            x = before.clone().requires_grad_()
            edited = run.editor.apply("resid_pre", i, x) if i else x
            z = attended(run, i, layer, edited, made.held)
            end = after_heads(run, i, layer, edited, z)
            tick()
            by_z, after = torch.autograd.grad(end, (z, x), after, allow_unused=True, materialize_grads=True)
            with torch.no_grad():
                change = made.put(i, z.detach()) - z.detach()
                out[i] = (by_z * change).sum(dim=(-1, -2)).double()
                if show is not None:
                    show(out)
    return out
