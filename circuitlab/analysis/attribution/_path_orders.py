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

from circuitlab.analysis.attribution.path_terms import Paths, RecordedAttention, mlp_output, recorded_attention
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
        attention = recorded_attention(run, i, n)
        parts = _after_edits(parts, attention)
        by_order[i, :, 1 : len(parts) + 1] = _read(parts, ends[i])
        by_order[i, :, 1] += ends[i].values.sum(1)
        if i + 1 < c.n_layers:
            parts = _after_layer(run, i, attention, parts, lambda i=i: tick(i))
    return by_order


def _read(parts: Tensor, paths: Paths) -> Tensor:
    """[path, order]: Σ_s weights[s] (x_s · direction) of parts [order, pos, d_model]."""
    return ((paths.weights @ parts) * paths.direction).sum(-1).mT


def _after_edits(parts: Tensor, attention: RecordedAttention) -> Tensor:
    """The parts after an intervention on the stream: what it adds is of order 0."""
    if attention.stream.factor is None or attention.stream.added is None:
        return parts
    parts = parts * attention.stream.factor
    return torch.cat([parts[:1] + attention.stream.added, parts[1:]])


def _after_layer(run: Run, i: int, attention: RecordedAttention, parts: Tensor, tick: Callable[[], None]) -> Tensor:
    """[order + 1, pos, d_model]: the parts after block i."""
    c, n = attention.config, attention.n
    pattern = run.get("pattern", i, (), slice(0, n))[..., :n]
    outputs = torch.zeros_like(parts)
    for k, part in enumerate(parts):
        tick()
        outputs[k] = _head_sum(attention, pattern, part)
    outputs[0] += _constant(attention, pattern)
    outputs = _post(attention, outputs)
    direct = torch.zeros_like(parts[0])
    if attention.layer.b_O is not None:
        direct = direct + _post(attention, attention.layer.b_O.expand(n, -1))
    if attention.post_scale is not None and attention.layer.attn_post_norm.bias is not None:
        direct = direct + attention.layer.attn_post_norm.bias
    if not c.attention_only:
        direct = direct + mlp_output(run, i, n, tick)
    zero = torch.zeros_like(parts[:1])
    after = torch.cat([parts, zero]) + torch.cat([zero, outputs])
    after[0] += direct
    return after


def _linear(attention: RecordedAttention, norm: Norm, x: Tensor, scale: Tensor) -> Tensor:
    """A norm at its recorded scale [pos] without its bias, linear in x [..., pos, d_model]."""
    return norm_at_scale(x, norm, attention.config.norm, scale[:, None], bias=False)


def _post(attention: RecordedAttention, x: Tensor) -> Tensor:
    return x if attention.post_scale is None else _linear(attention, attention.layer.attn_post_norm, x, attention.post_scale)


def _z_of_values(attention: RecordedAttention, pattern: Tensor, v: Tensor) -> Tensor:
    """[head, pos, d_head]: the part of z that is linear in the values v."""
    z = pattern @ (v if attention.v.factor is None else v * attention.v.factor)
    return z if attention.z.factor is None else z * attention.z.factor


def _head_sum_of_z(attention: RecordedAttention, z: Tensor) -> Tensor:
    """[pos, d_model]: the sum of head outputs for z [head, pos, d_head]."""
    if attention.result.factor is not None:  # a factor per head and position commutes with W_O
        z = z * attention.result.factor
    return block.merge_heads(z) @ block.flat_out(attention.layer.W_O)


def _head_sum(attention: RecordedAttention, pattern: Tensor, x: Tensor) -> Tensor:
    """[pos, d_model]: the sum of head outputs that is linear in a part x [pos, d_model] of the stream."""
    if attention.read_scale is not None:
        x = _linear(attention, attention.layer.attn_norm, x, attention.read_scale)
    return _head_sum_of_z(attention, _z_of_values(attention, pattern, x @ attention.W_V))


def _constant(attention: RecordedAttention, pattern: Tensor) -> Tensor:
    """[pos, d_model]: the sum of head outputs that does not depend on the stream: value biases and interventions."""
    heads, n, width = attention.config.n_heads, attention.n, attention.config.d_head
    v = torch.zeros(heads, n, width, dtype=pattern.dtype)
    if attention.b_V is not None:
        v = v + attention.b_V[:, None]
    if attention.read_scale is not None and attention.layer.attn_norm.bias is not None:
        v = v + (attention.layer.attn_norm.bias @ attention.W_V)[:, None]
    z = _z_of_values(attention, pattern, v)
    if attention.v.added is not None:
        moved = pattern @ attention.v.added
        z = z + (moved if attention.z.factor is None else moved * attention.z.factor)
    out = _head_sum_of_z(attention, z if attention.z.added is None else z + attention.z.added)
    return out if attention.result.added is None else out + attention.result.added.sum(0)
