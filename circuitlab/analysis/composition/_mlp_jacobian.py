"""An MLP as a matrix at recorded activations: the Jacobian of its output by the residual stream, at a position or averaged.

    J_t = s_t C diag(g) W_in diag(f′(h_t)) W_out                    h_t: what the neurons read at position t, f the nonlinearity
    gated:  s_t C diag(g) (W_gate diag(f′(h_t) ⊙ u_t) + W_in diag(f(h_t))) W_out       u_t: what the gate multiplies

s_t is the norm's recorded scale, held constant (1 without a norm), C its centring, g its gain. The mean over positions is again
one matrix, since only the diagonals depend on t. It is the linear map that is right on average for small changes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.recorded_norm import before_norm
from circuitlab.model.run import Run
from circuitlab.model.weights import NO_NEURONS, Mlp


class At(NamedTuple):
    """A run, and the positions over which its Jacobians are averaged."""

    run: Run
    positions: slice


def refuse_jacobian(c: ModelConfig) -> str | None:
    """Why the MLPs of this model have no Jacobian of this form, or None if they have."""
    if c.attention_only:
        return "the model has no MLP."
    if c.experts is not None:
        return NO_NEURONS
    if c.norm != "none" and c.norm_placement != "pre":
        return "a Jacobian at recorded scales needs pre-norm blocks."
    if c.activation == "solu_ln":
        return "this activation mixes neurons: its Jacobian is not diagonal between W_in and W_out."
    return None


def jacobian_of(at: At, layer: int) -> tuple[Tensor, Tensor]:
    """([d_model, d_mlp], W_out [d_mlp, d_model]): their product is the mean Jacobian of the layer's MLP over the positions."""
    c, weights = at.run.weights.config, at.run.weights.layer(layer)
    mlp = weights.mlp
    assert isinstance(mlp, Mlp)
    x = at.run.get("resid_pre" if c.parallel else "resid_mid", layer, (), at.positions)
    read = block.normalise(x, weights.mlp_norm, c.norm, c.norm_eps)
    scale = at.run.get("mlp_norm_scale", layer, (), at.positions) if c.norm != "none" else torch.ones_like(x[:, :1])
    up = block.affine(read, mlp.W_in, mlp.b_in)
    if mlp.W_gate is None:
        reads = mlp.W_in * (scale * _slope(up, c.activation)).mean(0)
    else:
        gate = block.affine(read, mlp.W_gate, mlp.b_gate)
        reads = mlp.W_gate * (scale * _slope(gate, c.activation) * up).mean(0)
        reads = reads + mlp.W_in * (scale * block.activate(gate, c.activation)).mean(0)
    return before_norm(reads, weights.mlp_norm, c.norm, axis=0), mlp.W_out


def attention_scale(at: At, layer: int) -> float:
    """The mean of the recorded scale of the norm before the layer's heads."""
    if at.run.weights.config.norm == "none":
        return 1.0
    return float(at.run.get("attn_norm_scale", layer, (), at.positions).mean())


def _slope(h: Tensor, activation: str) -> Tensor:
    """f′ of an elementwise nonlinearity, by automatic differentiation."""
    with torch.inference_mode(False), torch.enable_grad():
        x = h.detach().clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(block.activate(x, activation).sum(), x)
    return slope
