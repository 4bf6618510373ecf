"""Positions: the sinusoidal table and the rotation of queries and keys."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from circuitlab.model.config import Rotary

ANGLES = (1.0, 1e-4)  # radians a token: the largest of the sinusoids, and the one that they go towards


def sinusoid_table(
    n: int,
    d_model: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    angles: tuple[float, float] = ANGLES,
) -> Tensor:
    """[n, d_model]: the left half sin(p·θ_i), the right half cos(p·θ_i), θ_i = a (a/b)^(−2i/d_model) of angles (a, b).

    By default θ_i = 10000^(−2i/d_model) (Vaswani et al. 2017).
    """
    # on the CPU in float64 and then moved: an Apple GPU has none
    position = torch.arange(n, dtype=torch.float64, device="cpu")[:, None]
    first, towards = angles
    theta = first * (first / towards) ** (-2 * torch.arange(d_model // 2, dtype=torch.float64, device="cpu") / d_model)
    angle = position * theta
    return torch.cat([angle.sin(), angle.cos()], dim=1).to(dtype).to(device)


@lru_cache(maxsize=32)
def _turns(rotary: Rotary, d_head: int, start: int, stop: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False):  # cached: must serve gradients too, whichever caller came first
        position = torch.arange(start, stop, dtype=torch.float64, device="cpu")[:, None]
        angle = position * torch.tensor(rotary.frequencies(d_head), dtype=torch.float64, device="cpu")
        cos, sin = ((rotary.amplitude * turn).to(dtype) for turn in (angle.cos(), angle.sin()))
        return cos.to(device), sin.to(device)


def rotate(x: Tensor, rotary: Rotary, start: int) -> Tensor:
    """Rotate x [..., pos, d_head], whose first position is `start`, by each position's angles.

    As a row vector, a pair (a, b) at angle φ becomes (a cos φ − b sin φ, a sin φ + b cos φ), so that
    `rotate(q)_m · rotate(k)_n` depends on m − n alone (Su et al. 2021, section 3.4).
    """
    d_head = x.shape[-1]
    dims = rotary.dims or d_head
    cos, sin = _turns(rotary, d_head, start, start + x.shape[-2], x.dtype, x.device)
    rotary_part, rest = x[..., :dims], x[..., dims:]
    if rotary.pairs == "interleaved":
        a, b = rotary_part[..., 0::2], rotary_part[..., 1::2]
        rotated = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
    else:
        a, b = rotary_part.chunk(2, dim=-1)
        rotated = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return torch.cat([rotated, rest], dim=-1) if rest.shape[-1] else rotated
