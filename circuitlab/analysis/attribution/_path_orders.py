"""The stream of a run split by order: how many attention heads each part of it has passed through.

    x = x⁽⁰⁾ + x⁽¹⁾ + x⁽²⁾ + …,        x⁽ᵏ⁺¹⁾ gains Σ_h A^h σ x⁽ᵏ⁾ W_OV^h at every layer

Order 0 holds embedding, positions, MLP outputs as recorded, output biases, and what interventions put into the stream; value
biases and what interventions put into a head enter at order 1, through that head. Patterns and scales are recorded
(`path_terms`), so the parts add up to the run's own stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from circuitlab.analysis.attribution.path_terms import Paths, Recorded, mlp_output, recorded
from circuitlab.model import block
from circuitlab.model.forward import embedded
from circuitlab.model.run import Run
from circuitlab.model.weights import Norm


def contributions_by_order(run: Run, ends: Sequence[Paths], tick: Callable[[int], None]) -> Tensor:
    """[layer, head, order]: what each head writes to the target directly, by the order of the paths that end in it.

    `ends[i]` are the paths of order 1 through layer i's heads, with what enters at the head itself
    as the sum of their `values`. Order 0 is 0; `tick(layer)` is called before each layer and may raise.
    """
    c, n = run.weights.config, ends[0].weights.shape[1]
    parts = embedded(c, run.weights.embed(), torch.tensor(run.tokens[:n]), 0)[None]
    found = torch.zeros(c.n_layers, c.n_heads, c.n_layers + 1, dtype=parts.dtype)
    for i in range(c.n_layers):
        tick(i)
        now = recorded(run, i, n)
        parts = _after_edits(parts, now)
        found[i, :, 1 : len(parts) + 1] = _read(parts, ends[i])
        found[i, :, 1] += ends[i].values.sum(1)
        if i + 1 < c.n_layers:
            parts = _after_layer(run, i, now, parts, lambda i=i: tick(i))
    return found


def _read(parts: Tensor, paths: Paths) -> Tensor:
    """[path, order]: Σ_s weights[s] (x_s · direction) of parts [order, pos, d_model]."""
    return ((paths.weights @ parts) * paths.direction).sum(-1).mT


def _after_edits(parts: Tensor, now: Recorded) -> Tensor:
    """The parts behind an intervention on the stream: what it puts there is of order 0."""
    if now.stream.factor is None or now.stream.added is None:
        return parts
    parts = parts * now.stream.factor
    return torch.cat([parts[:1] + now.stream.added, parts[1:]])


def _after_layer(run: Run, i: int, now: Recorded, parts: Tensor, tick: Callable[[], None]) -> Tensor:
    """[order + 1, pos, d_model]: the parts after block i."""
    c, n = now.config, now.n
    pattern = run.get("pattern", i, (), slice(0, n))[..., :n]
    written = torch.zeros_like(parts)
    for k, part in enumerate(parts):
        tick()
        written[k] = _written(now, pattern, part)
    written[0] += _constant(now, pattern)
    written = _post(now, written)
    direct = torch.zeros_like(parts[0])
    if now.layer.b_O is not None:
        direct = direct + _post(now, now.layer.b_O.expand(n, -1))
    if now.post_scale is not None and now.layer.attn_post_norm.bias is not None:
        direct = direct + now.layer.attn_post_norm.bias
    if not c.attention_only:
        direct = direct + mlp_output(run, i, n, tick)
    nothing = torch.zeros_like(parts[:1])
    made = torch.cat([parts, nothing]) + torch.cat([nothing, written])
    made[0] += direct
    return made


def _scaled(x: Tensor, norm: Norm, kind: str, scale: Tensor) -> Tensor:
    """A norm at its recorded scale [pos], its bias left out: linear in x [..., pos, d_model]."""
    x = x - x.mean(dim=-1, keepdim=True) if kind == "layer" else x
    x = x * scale[:, None]
    return x if norm.gain is None else x * norm.gain


def _post(now: Recorded, x: Tensor) -> Tensor:
    return x if now.post_scale is None else _scaled(x, now.layer.attn_post_norm, now.config.norm, now.post_scale)


def _moved(now: Recorded, pattern: Tensor, v: Tensor) -> Tensor:
    """[head, pos, d_head]: z of values v, as far as it is linear in them."""
    z = pattern @ (v if now.v.factor is None else v * now.v.factor)
    return z if now.z.factor is None else z * now.z.factor


def _together(now: Recorded, z: Tensor) -> Tensor:
    """[pos, d_model]: what the heads write from z [head, pos, d_head], together."""
    if now.result.factor is not None:  # a factor per head and position commutes with W_O
        z = z * now.result.factor
    return block.merge_heads(z) @ block.flat_out(now.layer.W_O)


def _written(now: Recorded, pattern: Tensor, x: Tensor) -> Tensor:
    """[pos, d_model]: what all heads together write of a part x [pos, d_model] of the stream."""
    if now.read_scale is not None:
        x = _scaled(x, now.layer.attn_norm, now.config.norm, now.read_scale)
    return _together(now, _moved(now, pattern, x @ now.W_V))


def _constant(now: Recorded, pattern: Tensor) -> Tensor:
    """[pos, d_model]: what the heads write whatever the stream is: value biases and interventions."""
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
