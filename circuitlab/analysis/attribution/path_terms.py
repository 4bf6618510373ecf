"""Attention as a linear map at recorded patterns and norm scales, and paths followed backwards through it.

At its recorded pattern A, head h of a layer writes, at destination d,

    result_d = ρ_d ζ_d Σ_s A[d, s] ν_s (σ_s n(x_s) W_V + b W_V + b_V) W_O + what interventions add

σ is the recorded scale of the norm before attention, n its gain (and centring, for a LayerNorm), b its bias; ν, ζ, ρ are the
factors that interventions at v, z and result leave (1 without one, 0 if the value is replaced). Hence a path through heads, read
backwards from the target, is a weight per position times one direction of the stream: `weights` [path, pos] ⊗ `direction`
[path, d_model]. Its value for a component's output y is Σ_s weights[s] (y_s · direction).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import embedded
from circuitlab.model.intervention import SiteName
from circuitlab.model.recorded_norm import before_norm
from circuitlab.model.run import Run
from circuitlab.model.weights import Layer

TILE = 256  # positions of an MLP between two ticks

Index = Mapping[str, int]  # source name -> column of `Paths.values`


@dataclass(frozen=True, eq=False)
class Share:
    """The effect of interventions on an activation: factor · activation + added; None if there are none.

    `factor` and `added` broadcast over the activation: [head, pos, 1 or width], at resid_pre [pos, 1 or d_model].
    """

    factor: Tensor | None = None
    added: Tensor | None = None


@dataclass(frozen=True, eq=False)
class RecordedAttention:
    """One attention layer at a run's recorded norm scales, for positions 0..n−1: see the module.

    `read_scale`, `post_scale` [pos]: of the norms before and after attention, None without one. `W_V`, `b_V` are per query head.
    """

    config: ModelConfig
    layer: Layer
    n: int
    W_V: Tensor
    b_V: Tensor | None
    read_scale: Tensor | None
    post_scale: Tensor | None
    stream: Share
    v: Share
    z: Share
    result: Share


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths of one order: `heads` int64 [path, order, 2], earliest first; `values` [path, source], summed so far."""

    heads: Tensor
    weights: Tensor
    direction: Tensor
    values: Tensor


def refuse_on_stream(config: ModelConfig) -> str | None:
    """Why paths are not products of weights in this model (a norm on the stream itself), or None."""
    if config.norm_placement == "post_residual" and config.norm != "none":
        return "this model normalises the stream itself after every sublayer, so no path is a product of weights alone."
    return None


def _share(run: Run, layer: int, site: SiteName, recorded: Tensor, before: Tensor, n: int) -> Share:
    """The `Share` of an activation that interventions change from `before` to `recorded`."""
    factor = run.editor.kept_share(layer, (site,), before)
    return Share(factor[..., :n, :], (recorded - factor * before)[..., :n, :])


def recorded_attention(run: Run, i: int, n: int) -> RecordedAttention:
    """Attention layer i of a run, for its first n positions."""
    c, layer = run.weights.config, run.weights.layer(i, mlp=False)
    group = None if c.group == 1 else [c.kv_head(h) for h in range(c.n_heads)]
    b_V = layer.b_V
    reads = c.norm != "none" and c.norm_placement in ("pre", "both")
    touched = lambda site: run.editor.touches(i, site)
    return RecordedAttention(
        config=c,
        layer=layer,
        n=n,
        W_V=layer.W_V if group is None else layer.W_V[group],
        b_V=b_V if group is None or b_V is None else b_V[group],
        read_scale=run.get("attn_norm_scale", i, (), slice(0, n))[:, 0] if reads else None,
        post_scale=_post_scale(run, layer, i, n),
        stream=_stream(run, i, n) if touched("resid_pre") else Share(),
        v=_values(run, layer, i, n, group) if touched("v") else Share(),
        z=_share(run, i, "z", run.get("z", i), _unedited_z(run, i), n) if touched("z") else Share(),
        result=_share(run, i, "result", run.get("result", i), run.get("z", i) @ layer.W_O, n) if touched("result") else Share(),
    )


def _unedited_z(run: Run, i: int) -> Tensor:
    return run.get("pattern", i) @ block.per_query_head(run.weights.config, run.get("v", i))


def _post_scale(run: Run, layer: Layer, i: int, n: int) -> Tensor | None:
    c = run.weights.config
    if c.norm == "none" or c.norm_placement not in ("post_sublayer", "both"):
        return None
    if run.editor.touches(i, "result"):
        out = run.get("result", i)[:, :n].sum(0)
        out = out if layer.b_O is None else out + layer.b_O
    else:
        out = block.write(layer, run.get("z", i, (), slice(0, n)))
    return block.norm_scale(out, c.norm, c.norm_eps)[:, 0]


def _stream(run: Run, i: int, n: int) -> Share:
    c = run.weights.config
    tokens = torch.tensor(run.tokens)
    before = run.get("resid_post", i - 1) if i else embedded(c, run.weights.embed(), tokens, 0)
    return _share(run, i, "resid_pre", run.get("resid_pre", i), before, n)


def _values(run: Run, layer: Layer, i: int, n: int, group: list[int] | None) -> Share:
    c, x = run.weights.config, run.get("resid_pre", i)
    if c.norm_placement in ("pre", "both"):
        x = block.normalise(x, layer.attn_norm, c.norm, c.norm_eps)
    before = x @ layer.W_V
    before = before if layer.b_V is None else before + layer.b_V[:, None]
    share = _share(run, i, "v", run.get("v", i), before, n)
    assert share.factor is not None and share.added is not None
    return share if group is None else Share(share.factor[group], share.added[group])


def mlp_output(run: Run, i: int, n: int, tick: Callable[[], None]) -> Tensor:
    """[pos, d_model]: the recorded output of layer i's MLP at the first n positions; `tick()` before each tile of positions."""
    step = n if run.editor.touches(i, "mlp_out") else TILE
    parts = []
    for first in range(0, n, step):
        tick()
        parts.append(run.get("mlp_out", i, (), slice(first, min(first + step, n))))
    return torch.cat(parts)


def positions_read(run: Run, position: int) -> int:
    """How many positions, from 0, paths to `position` can read: those up to it, unless an intervened pattern looks ahead."""
    ahead = any(run.editor.touches(i, "pattern") for i in range(run.weights.config.n_layers))
    return run.n if ahead else position + 1


def start(direction: Tensor, position: int, n: int, n_sources: int) -> Paths:
    """The path of order 0, which reads the final stream at `position` (of n) along `direction` [d_model]."""
    weights = torch.zeros(1, n, dtype=direction.dtype)
    weights[0, position] = 1
    values = torch.zeros(1, n_sources, dtype=direction.dtype)
    return Paths(torch.zeros(1, 0, 2, dtype=torch.int64), weights, direction[None], values)


def add(paths: Paths, column: int, output: Tensor) -> None:
    """Add the value of a component's output [pos, d_model] along every path to a column of `values`."""
    paths.values[:, column] += ((paths.weights @ output) * paths.direction).sum(-1)


def add_constant(paths: Paths, column: int, bias: Tensor) -> None:
    """As `add`, for a vector [d_model] that is written at every position."""
    paths.values[:, column] += paths.weights.sum(-1) * (paths.direction @ bias)


def through_post_norm(paths: Paths, attention: RecordedAttention, index: Index) -> Paths:
    """Paths as they read the sum of the layer's head outputs; adds b_O and the bias of a norm after it to `values`."""
    weights, direction = paths.weights, paths.direction
    if attention.post_scale is not None:
        norm = attention.layer.attn_post_norm
        if norm.bias is not None:
            add_constant(paths, index["output bias"], norm.bias)
        weights, direction = weights * attention.post_scale, before_norm(direction, norm, attention.config.norm)
    before = Paths(paths.heads, weights, direction, paths.values)
    if attention.layer.b_O is not None:
        add_constant(before, index["output bias"], attention.layer.b_O)
    return before


def through(paths: Paths, attention: RecordedAttention, i: int, pattern: Tensor, rows: slice, index: Index) -> Paths:
    """Every path, which reads the sum of head outputs, extended through every head of layer i: [head · path].

    `pattern` [head, row, src] holds the destinations `rows` that the paths read.
    """
    n_heads, n_paths = attention.config.n_heads, len(paths.weights)
    weights, d = paths.weights.expand(n_heads, -1, -1), paths.direction
    values = torch.zeros(n_heads, n_paths, paths.values.shape[1], dtype=d.dtype)
    q = (attention.layer.W_O @ d.mT).mT  # [head, path, d_head]
    if attention.result.factor is not None and attention.result.added is not None:
        _place(values, index, ((weights @ attention.result.added) * d).sum(-1))
        weights = weights * attention.result.factor.mT
    if attention.z.factor is not None and attention.z.added is not None:
        _place(values, index, ((weights @ attention.z.added) * q).sum(-1))
        weights = weights * attention.z.factor.mT
    weights = weights[..., rows] @ pattern
    if attention.v.factor is not None and attention.v.added is not None:
        _place(values, index, ((weights @ attention.v.added) * q).sum(-1))
        weights = weights * attention.v.factor.mT
    if attention.b_V is not None:
        values[..., index["value bias"]] += weights.sum(-1) * (q @ attention.b_V[:, :, None])[..., 0]
    d = q @ attention.W_V.mT
    if attention.read_scale is not None:
        norm = attention.layer.attn_norm
        if norm.bias is not None:
            values[..., index["value bias"]] += weights.sum(-1) * (d @ norm.bias)
        weights, d = weights * attention.read_scale, before_norm(d, norm, attention.config.norm)
    return Paths(_named(paths.heads, i, n_heads), weights.flatten(0, 1), d.flatten(0, 1), values.flatten(0, 1))


def _place(values: Tensor, index: Index, placed: Tensor) -> None:
    """Add [head, path] to the source of what interventions put there: there is none where they leave alone what is read."""
    if "intervention" in index:
        values[..., index["intervention"]] += placed


def _named(heads: Tensor, i: int, n_heads: int) -> Tensor:
    """[head · path, order + 1, 2]: each head of layer i prepended to each of [path, order, 2]."""
    first = torch.tensor([[i, h] for h in range(n_heads)])[:, None, None].expand(-1, len(heads), 1, 2)
    return torch.cat([first, heads.expand(n_heads, -1, -1, -1)], dim=2).flatten(0, 1)


def before_interventions(paths: Paths, attention: RecordedAttention, index: Index) -> Paths:
    """Paths as they read the stream before interventions on it; adds what these put into the stream to `values`."""
    if attention.stream.factor is None or attention.stream.added is None:
        return paths
    if "intervention" in index:
        add(paths, index["intervention"], attention.stream.added)
    return Paths(paths.heads, paths.weights * attention.stream.factor[:, 0], paths.direction, paths.values)
