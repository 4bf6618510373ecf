"""Definitions of head scores as functions of attention patterns and token ids.

A is a pattern [..., head, dest, src], `tokens` [..., pos] its ids (d destination, s source); leading axes are free (a batch of
samples, or none):

    previous token   mean over d ≥ 1 of A[d, d−1]
    prefix matching  mean over d with at least one such s of Σ_{1 ≤ s ≤ d, t_{s−1} = t_d} A[d, s]
    duplicate token  mean over d with at least one such s of Σ_{s < d, t_s = t_d} A[d, s]
    first token      mean over d ≥ 1 of A[d, 0];     current token: mean over d ≥ 1 of A[d, d]
    entropy          mean over d of −Σ_s A ln A (nats);     distance: mean over d of Σ_s A (d − s)

Prefix matching after Olsson et al. (2022): attention to the tokens after earlier occurrences of the current token. Values for
different lengths and numbers of repeats are not comparable. A layer's window hides sources `window` positions back and more (0:
none): only sources that are seen count, and only destinations that see one. A score without any destination is NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor


def prefix_matching_mask(tokens: Tensor) -> Tensor:
    """[..., dest, src] bool: 1 ≤ s ≤ d and the token at s − 1 is the token at d."""
    n = tokens.shape[-1]
    before = torch.cat([torch.full_like(tokens[..., :1], -1), tokens[..., :-1]], dim=-1)
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    return (tokens[..., :, None] == before[..., None, :]) & causal


def duplicate_mask(tokens: Tensor) -> Tensor:
    """[..., dest, src] bool: an earlier position with the same token."""
    n = tokens.shape[-1]
    return (tokens[..., :, None] == tokens[..., None, :]) & torch.ones(n, n, dtype=torch.bool).tril(-1)


def seen(tokens: Tensor, window: int) -> Tensor:
    """[dest, src] bool: the sources that a window leaves, without regard to what is causal."""
    n = tokens.shape[-1]
    return torch.ones(n, n, dtype=torch.bool).triu(1 - window if window else -n)


def masked_mass(pattern: Tensor, mask: Tensor) -> Tensor:
    """[..., head]: the attention on `mask`, averaged over destinations with at least one such source; NaN without any."""
    rows = mask.any(dim=-1).sum(-1)  # 0 / 0 is NaN
    # one pass over the pattern, all heads against the mask of their sample
    mass = torch.einsum("...hds,...ds->...h", pattern, mask.to(pattern.dtype))
    return mass / rows[..., None].to(pattern.dtype)


def prefix_matching(pattern: Tensor, tokens: Tensor, window: int = 0) -> Tensor:
    """[..., head]: see the module."""
    return masked_mass(pattern, prefix_matching_mask(tokens) & seen(tokens, window))


def duplicate_token(pattern: Tensor, tokens: Tensor, window: int = 0) -> Tensor:
    """[..., head]: see the module."""
    return masked_mass(pattern, duplicate_mask(tokens) & seen(tokens, window))


def previous_token(pattern: Tensor, tokens: Tensor, window: int = 0) -> Tensor:
    """[..., head]: see the module."""
    return _mean(pattern.diagonal(offset=-1, dim1=-2, dim2=-1)[..., : 0 if window == 1 else None])


def first_token(pattern: Tensor, tokens: Tensor, window: int = 0) -> Tensor:
    """[..., head]: see the module."""
    return _mean(pattern[..., 1 : window or None, 0])


def current_token(pattern: Tensor, tokens: Tensor, window: int = 0) -> Tensor:
    """[..., head]: see the module."""
    return _mean(pattern.diagonal(dim1=-2, dim2=-1)[..., 1:])


def entropy(pattern: Tensor, tokens: Tensor, window: int = 0) -> Tensor:
    """[..., head], nats: see the module."""
    logs = pattern.clamp(min=torch.finfo(pattern.dtype).tiny).log()  # 0 ln 0 = 0; three times as fast as `entr`
    return -(logs * pattern).sum(-1).mean(-1)


def mean_distance(pattern: Tensor, tokens: Tensor, window: int = 0) -> Tensor:
    """[..., head], positions: see the module."""
    n = pattern.shape[-1]
    back = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).clamp(min=0).to(pattern.dtype)
    return torch.einsum("...hds,ds->...h", pattern, back) / n


def _mean(x: Tensor) -> Tensor:
    return x.mean(-1) if x.shape[-1] else torch.full(x.shape[:-1], torch.nan)


SCORES = {
    "prefix_matching": prefix_matching,
    "previous_token": previous_token,
    "duplicate_token": duplicate_token,
    "first_token": first_token,
    "current_token": current_token,
    "entropy": entropy,
    "mean_distance": mean_distance,
}

UNITS = dict.fromkeys(SCORES, "share of attention") | {"entropy": "nats", "mean_distance": "positions"}
