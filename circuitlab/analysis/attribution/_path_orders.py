"""The residual stream of a run split by order: the number of attention heads that each part has passed through.

    x = x⁽⁰⁾ + x⁽¹⁾ + x⁽²⁾ + …,        x⁽ᵏ⁺¹⁾ gains Σ_h A^h σ x⁽ᵏ⁾ W_OV^h at every layer

Order 0 holds embedding, positions, recorded MLP outputs, output biases, and what interventions put into the stream. Value biases
and what interventions put into a head enter at order 1, through that head. Patterns and norm scales are the recorded ones
(`path_terms`), so the parts add up to the run's own stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from circuitlab.analysis.attribution.path_terms import Paths, Recorded, mlp_output, recorded
from circuitlab.model import block
from circuitlab.model.forward import embedded
from circuitlab.model.recorded_norm import norm_at_scale
from circuitlab.model.run import Run
from circuitlab.model.weights import Norm


def contributions_by_order(run: Run, ends: Sequence[Paths], tick: Callable[[int], None]) -> Tensor:
    """[layer, head, order]: each head's direct contribution to the target, split by the order of the paths that end in it.

    `ends[i]`: the paths of order 1 through layer i's heads, whose `values` sum to what enters at the head itself. Order 0 is 0.
    `tick(layer)` is called before each layer and may raise.
    """
    c, n = run.weights.config, ends[0].weights.shape[1]
    parts = embedded(c, run.weights.embed(), torch.tensor(run.tokens[:n]), 0)[None]
    by_order = torch.zeros(c.n_layers, c.n_heads, c.n_layers + 1, dtype=parts.dtype)
    for i in range(c.n_layers):
        tick(i)
        now = recorded(run, i, n)
        parts = _after_edits(parts, now)
        by_order[i, :, 1 : len(parts) + 1] = _read(parts, ends[i])
        by_order[i, :, 1] += ends[i].values.sum(1)
        if i + 1 < c.n_layers:
            parts = _after_layer(run, i, now, parts, lambda i=i: tick(i))
    return by_order


def _read(parts: Tensor, paths: Paths) -> Tensor:
    """[path, order]: Σ_s weights[s] (x_s · direction) of parts [order, pos, d_model]."""
    return ((paths.weights @ parts) * paths.direction).sum(-1).mT


def _after_edits(parts: Tensor, now: Recorded) -> Tensor:
    """The parts after an intervention on the stream: what it adds is of order 0."""
    if now.stream.factor is None or now.stream.added is None:
        return parts
    parts = parts * now.stream.factor
    return torch.cat([parts[:1] + now.stream.added, parts[1:]])


def _after_layer(run: Run, i: int, now: Recorded, parts: Tensor, tick: Callable[[], None]) -> Tensor:
    """[order + 1, pos, d_model]: the parts after block i."""
    c, n = now.config, now.n
    pattern = run.get("pattern", i, (), slice(0, n))[..., :n]
    attention = torch.zeros_like(parts)
    for k, part in enumerate(parts):
        tick()
        attention[k] = _attention_of(now, pattern, part)
    attention[0] += _constant(now, pattern)
    attention = _post(now, attention)
    direct = torch.zeros_like(parts[0])
    if now.layer.b_O is not None:
        direct = direct + _post(now, now.layer.b_O.expand(n, -1))
    if now.post_scale is not None and now.layer.attn_post_norm.bias is not None:
        direct = direct + now.layer.attn_post_norm.bias
    if not c.attention_only:
        direct = direct + mlp_output(run, i, n, tick)
    zero = torch.zeros_like(parts[:1])
    after = torch.cat([parts, zero]) + torch.cat([zero, attention])
    after[0] += direct
    return after


def _linear(now: Recorded, norm: Norm, x: Tensor, scale: Tensor) -> Tensor:
    """A norm at its recorded scale [pos] without its bias, linear in x [..., pos, d_model]."""
    return norm_at_scale(x, norm, now.config.norm, scale[:, None], bias=False)


def _post(now: Recorded, x: Tensor) -> Tensor:
    return x if now.post_scale is None else _linear(now, now.layer.attn_post_norm, x, now.post_scale)


def _moved(now: Recorded, pattern: Tensor, v: Tensor) -> Tensor:
    """[head, pos, d_head]: the part of z that is linear in the values v."""
    z = pattern @ (v if now.v.factor is None else v * now.v.factor)
    return z if now.z.factor is None else z * now.z.factor


def _together(now: Recorded, z: Tensor) -> Tensor:
    """[pos, d_model]: the sum of head outputs for z [head, pos, d_head]."""
    if now.result.factor is not None:  # a factor per head and position commutes with W_O
        z = z * now.result.factor
    return block.merge_heads(z) @ block.flat_out(now.layer.W_O)


def _attention_of(now: Recorded, pattern: Tensor, x: Tensor) -> Tensor:
    """[pos, d_model]: the sum of head outputs that is linear in a part x [pos, d_model] of the stream."""
    if now.read_scale is not None:
        x = _linear(now, now.layer.attn_norm, x, now.read_scale)
    return _together(now, _moved(now, pattern, x @ now.W_V))


def _constant(now: Recorded, pattern: Tensor) -> Tensor:
    """[pos, d_model]: the sum of head outputs that does not depend on the stream: value biases and interventions."""
    heads, n, width = now.config.n_heads, now.n, now.config.d_head
    v = torch.zeros(heads, n, width, dtype=pattern.dtype)
    if now.b_V is not None:
        v = v + now.b_V[:, None]
    if now.read_scale is not None and now.layer.attn_norm.bias is not None:
        v = v + (now.layer.attn_norm.bias @ now.W_V)[:, None]
    z = _moved(now, pattern, v)
    if now.v.added is not None:
        moved = pattern @ now.v.added
        z = z + (moved if now.z.factor is None else moved * now.z.factor)
    out = _together(now, z if now.z.added is None else z + now.z.added)
    return out if now.result.added is None else out + now.result.added.sum(0)
