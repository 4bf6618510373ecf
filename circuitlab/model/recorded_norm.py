"""A norm at a recorded scale. With the scale s held fixed, LayerNorm and RMSNorm are affine in the stream:

    n(x) = s · centre(x) ∘ gain + bias                          centre(x) = x − mean(x) for LayerNorm, x for RMSNorm

and a direction d after the norm is a direction d' before it:

    n(x) · d = s · (x · d') + bias · d                          d' = centre(gain ∘ d)
"""

from __future__ import annotations

from torch import Tensor

from circuitlab.model.config import NormKind
from circuitlab.model.weights import Norm


def norm_at_scale(x: Tensor, norm: Norm, kind: NormKind, scale: Tensor, bias: bool = True) -> Tensor:
    """n(x) at a recorded scale [..., pos, 1], for x [..., pos, d_model]; linear in x without its `bias`."""
    x = _centred(x, kind, -1) * scale
    x = x if norm.gain is None else x * norm.gain
    return x if norm.bias is None or not bias else x + norm.bias


def linear_part(x: Tensor, norm: Norm, kind: NormKind) -> Tensor:
    """centre(x) ∘ gain for x [..., d_model]: the norm without its scale and bias."""
    x = _centred(x, kind, -1)
    return x if norm.gain is None else x * norm.gain


def before_norm(directions: Tensor, norm: Norm, kind: NormKind, axis: int = -1) -> Tensor:
    """d' for directions d whose d_model stands on `axis`: −1 for rows [..., d_model], 0 for columns [d_model, k]. Scale apart."""
    if norm.gain is not None:
        directions = directions * (norm.gain if axis == -1 else norm.gain[:, None])
    return _centred(directions, kind, axis)


def _centred(x: Tensor, kind: NormKind, axis: int) -> Tensor:
    return x - x.mean(dim=axis, keepdim=True) if kind == "layer" else x
