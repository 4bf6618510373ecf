"""The first-order estimate of every ablation at once: one backward pass.

    effect of cutting head h  ≈  Σ_{pos, d_head} (∂ value / ∂ z_h) · (z'_h − z_h)

exact in the limit of a small change (for zero ablation z' = 0: the gradient times minus the activation; Molchanov et al. 2017,
Nanda 2023 “Attribution Patching”). Layers are computed again one at a time from the recorded streams, so that only one layer's
values are held. With patterns held, gradients do not pass through them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.analysis.ablation_parts import Bench
from circuitlab.model import block
from circuitlab.model.forward import after_heads, attended
from circuitlab.model.run import ROWS, Run, unembed
from circuitlab.model.weights import Layer, Mlp, Norm, Unembed

T = TypeVar("T", Layer, Mlp, Norm, Unembed)


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


def final_gradient(made: Bench, tick: Callable[[], None]) -> Tensor:
    """[pos, d_model]: the gradient of what is measured with respect to the last stream."""
    run, measure, tokens = made.run, made.measure, torch.tensor(made.run.tokens)
    assert run.final is not None
    ends, out = ordinary(run.weights.unembed()), torch.zeros(run.final.shape, dtype=run.final.dtype)
    if measure.aim is not None:
        out[measure.at] = _gradient(partial(_aimed, run, ends, measure.aim.D.clone()), run.final[measure.at])
        return out
    for rows, share in zip(measure.at.split(ROWS), measure.coefficients.split(ROWS), strict=True):
        tick()
        out[rows] = _gradient(partial(_loss, run, ends, tokens[rows + 1], share.to(out.dtype)), run.final[rows])
    return out


def _aimed(run: Run, ends: Unembed, D: Tensor, x: Tensor) -> Tensor:
    c = run.weights.config
    read = block.normalise(x, ends.norm, c.norm, c.norm_eps) if c.final_norm else x
    return (read * D).sum()


def _loss(run: Run, ends: Unembed, wanted: Tensor, share: Tensor, x: Tensor) -> Tensor:
    return F.cross_entropy(unembed(run.weights, ends, x), wanted, reduction="none") @ share


def _gradient(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    x = at.clone().requires_grad_()
    return torch.autograd.grad(function(x), x)[0]


def first_order(made: Bench, tick: Callable[[], None]) -> Tensor:
    """[layer, head] float64: the estimate. Not for a run with interventions along paths."""
    run = made.run
    config = run.weights.config
    out = torch.zeros(config.n_layers, config.n_heads, dtype=torch.float64)
    with torch.inference_mode(False), torch.enable_grad():
        after = final_gradient(made, tick)
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
    return out
