"""The steps of a block as small functions, shared by the forward pass, `Run` and training.

Shapes: x [..., pos, d_model]; q [..., head, pos, d_head]; k, v [..., kv_head, pos, d_head]; scores and pattern
[..., head, dest, src]. Leading axes are free (a batch, or none). Positions of q may start later than those of k and v
(`start`), so that a changed suffix can reuse the keys and values of its prefix.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.errors import Refused
from circuitlab.model.config import Experts, ModelConfig, NormKind
from circuitlab.model.positions import rotate
from circuitlab.model.weights import NO_NEURONS, Layer, Mixture, Mlp, Norm, mapped


class QKV(NamedTuple):
    """Queries, keys and values as attention uses them."""

    q: Tensor
    k: Tensor
    v: Tensor


def normalise(x: Tensor, norm: Norm, kind: NormKind, eps: float) -> Tensor:
    """x through a LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019) over its last axis."""
    if kind == "none":
        return x
    if kind == "layer":
        return F.layer_norm(x, x.shape[-1:], norm.gain, norm.bias, eps)
    return F.rms_norm(x, x.shape[-1:], norm.gain, eps)


def norm_scale(x: Tensor, kind: NormKind, eps: float) -> Tensor:
    """[..., pos, 1]: the factor of the norm on the stream (centred for "layer"), before its gain; 1 without a norm."""
    if kind == "none":
        return torch.ones_like(x[..., :1])
    if kind == "layer":
        return (x.var(dim=-1, keepdim=True, unbiased=False) + eps).rsqrt()
    return (x.square().mean(dim=-1, keepdim=True) + eps).rsqrt()


def normalise_heads(config: ModelConfig, x: Tensor, norm: Norm) -> Tensor:
    """Queries or keys x [..., head, pos, d_head] through their norm, over each head or over all heads together.

    Its gain and bias are [d_head], the same for all heads, or [head, d_head].
    """
    if config.qk_norm == "none":
        return x
    if config.qk_norm_over == "head" and (norm.gain is None or norm.gain.dim() == 1):
        return normalise(x, norm, config.qk_norm, config.norm_eps)
    shift = x.mean(dim=_normed_axes(config), keepdim=True) if config.qk_norm == "layer" else 0.0
    x = (x - shift) * heads_scale(config, x)
    x = x if norm.gain is None else x * norm.gain.unsqueeze(-2)
    return x if norm.bias is None else x + norm.bias.unsqueeze(-2)


def heads_scale(config: ModelConfig, x: Tensor) -> Tensor:
    """[..., head or 1, pos, 1]: the factor of the norm of queries or keys [..., head, pos, d_head], before its gain."""
    axes = _normed_axes(config)
    if config.qk_norm == "none":
        return torch.ones_like(x[..., :1])
    spread = x.var(dim=axes, keepdim=True, unbiased=False) if config.qk_norm == "layer" else x.square().mean(axes, keepdim=True)
    return (spread + config.norm_eps).rsqrt()


def _normed_axes(config: ModelConfig) -> tuple[int, ...]:
    return (-1,) if config.qk_norm_over == "head" else (-3, -1)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x W + b`; the bias is added in place to the product, which is new and not needed for gradients."""
    product = x @ weight
    return product if bias is None else product.add_(bias)


def flat_in(weight: Tensor) -> Tensor:
    """[head, d_model, d_head] -> [d_model, head · d_head], without a copy if the storage allows it."""
    return weight.permute(1, 0, 2).reshape(weight.shape[1], -1)


def flat_out(weight: Tensor) -> Tensor:
    """[head, d_head, d_model] -> [head · d_head, d_model]."""
    return weight.reshape(-1, weight.shape[2])


def split_heads(flat: Tensor, n_heads: int) -> Tensor:
    """[..., pos, head · d_head] -> [..., head, pos, d_head]."""
    return flat.unflatten(-1, (n_heads, -1)).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """[..., head, pos, d_head] -> [..., pos, head · d_head]."""
    return x.transpose(-3, -2).flatten(-2)


def _project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return split_heads(affine(x, flat_in(weight), None if bias is None else bias.reshape(-1)), weight.shape[0])


def smear(keys: Tensor, alpha: Tensor) -> Tensor:
    """`k_j <- σ(α) k_j + (1 − σ(α)) k_{j−1}` per key head, the first key unchanged (Olsson et al. 2022)."""
    share = torch.sigmoid(alpha)[:, None, None]
    mixed = share * keys[..., 1:, :] + (1 - share) * keys[..., :-1, :]
    return torch.cat([keys[..., :1, :], mixed], dim=-2)


def queries_keys_values(
    config: ModelConfig, layer: Layer, index: int, x: Tensor, start: int, W_pos: Tensor | None, before: Tensor | None
) -> QKV:
    """q, k and v of the input of attention, x [..., pos, d_model] (already normalised), whose first position is `start`.

    `W_pos`: the shortformer table. `before` [..., 1, d_model]: the input at position start − 1, needed for smeared keys.
    """
    reading = x
    if config.positions == "shortformer" and config.positional(index) and W_pos is not None:
        reading = x + W_pos[start : start + x.shape[-2]]
    q = _project(reading, layer.W_Q, layer.b_Q)
    k = _project(reading, layer.W_K, layer.b_K)
    v = _project(x, layer.W_V, layer.b_V)
    q, k = normalise_heads(config, q, layer.q_norm), normalise_heads(config, k, layer.k_norm)
    if layer.smear is not None:
        k = _smeared(config, layer, index, k, start, W_pos, before)
    if (rotary := config.rotation(index)) is not None:
        q, k = rotate(q, rotary, start), rotate(k, rotary, start)
    return QKV(q, k, v)


def _smeared(
    config: ModelConfig, layer: Layer, index: int, k: Tensor, start: int, W_pos: Tensor | None, before: Tensor | None
) -> Tensor:
    assert layer.smear is not None
    if start == 0 or before is None:
        return smear(k, layer.smear)
    if config.positions == "shortformer" and config.positional(index) and W_pos is not None:
        before = before + W_pos[start - 1 : start]
    earlier = _project(before, layer.W_K, layer.b_K)
    earlier = normalise_heads(config, earlier, layer.k_norm)
    return smear(torch.cat([earlier, k], dim=-2), layer.smear)[..., 1:, :]


def allowed(n_dest: int, n_src: int, start: int, window: int, device: torch.device | None = None) -> Tensor:
    """[dest, src] bool: the causal mask, limited to the last `window` positions unless that is 0. Row 0 is position `start`."""
    dest = torch.arange(start, start + n_dest, device=device)[:, None]
    src = torch.arange(n_src, device=device)[None, :]
    causal = src <= dest
    return causal & (src > dest - window) if window else causal


def per_query_head(config: ModelConfig, x: Tensor) -> Tensor:
    """[..., kv_head, pos, d_head] -> [..., head, pos, d_head]: each query head gets the keys or values of its group."""
    return x if config.group == 1 else x.repeat_interleave(config.group, dim=-3)


def scores(config: ModelConfig, q: Tensor, k: Tensor) -> Tensor:
    """`score_scale · q kᵀ`, soft-capped, unmasked, without ALiBi (`biased`); q and k have the same number of heads."""
    raw = (q * config.score_scale) @ k.transpose(-1, -2)
    return soft_cap(raw, config.score_soft_cap)


def position_bias(
    config: ModelConfig, index: int, n_dest: int, n_src: int, start: int, like: Tensor, heads: tuple[int, ...] | None = None
) -> Tensor | None:
    """[head, dest, src]: the ALiBi bias on the scores of layer `index`, −slope · (dest − src); None in layers without ALiBi.

    Row 0 is position `start`; `heads` None means all. Dtype and device are those of `like`.
    """
    every = config.slopes_in(index)
    if not every:
        return None
    slopes = torch.tensor([every[h] for h in heads] if heads else every, dtype=like.dtype, device=like.device)
    dest = torch.arange(start, start + n_dest, dtype=like.dtype, device=like.device)
    src = torch.arange(n_src, dtype=like.dtype, device=like.device)
    return slopes[:, None, None] * (src - dest[:, None])


def biased(config: ModelConfig, index: int, raw: Tensor, start: int, heads: tuple[int, ...] | None = None) -> Tensor:
    """Scores [..., head, dest, src] of layer `index` plus their position bias; sources begin at position 0."""
    bias = position_bias(config, index, raw.shape[-2], raw.shape[-1], start, raw, heads)
    return raw if bias is None else raw + bias


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """`cap · tanh(x / cap)`; cap 0: x."""
    return x if cap == 0 else cap * torch.tanh(x / cap)


def pattern(raw: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the allowed sources, exactly 0 elsewhere."""
    return torch.softmax(raw.masked_fill(~mask, float("-inf")), dim=-1)


def attend(config: ModelConfig, index: int, qkv: QKV, start: int) -> Tensor:
    """z [..., head, dest, d_head] by the fused kernel, which stores no pattern. Not for soft-capped scores."""
    k, v = per_query_head(config, qkv.k), per_query_head(config, qkv.v)
    n_dest, n_src, window = qkv.q.shape[-2], k.shape[-2], config.window(index)
    bias = position_bias(config, index, n_dest, n_src, start, qkv.q)
    plain = start == 0 and not window and bias is None
    mask = None if plain or (n_dest == 1 and not window) else allowed(n_dest, n_src, start, window, k.device)
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill_(~mask, float("-inf"))
    # without a batch axis the kernel builds the whole [head, dest, src] pattern: 1.6 times as slow at 1 024 tokens
    single = qkv.q.dim() == 3
    q, k, v = (x[None] if single else x for x in (qkv.q, k, v))
    z = _kernel(q, k, v, mask, plain, config.score_scale)
    return z[0] if single else z


def _kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """The fused kernel; in float32 where a CPU trains with rounded products: its gradient takes 2.6 times as long in bfloat16."""
    if q.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            return F.scaled_dot_product_attention(q.float(), k.float(), v.float(), mask, is_causal=causal, scale=scale)
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale)


def head_results(layer: Layer, z: Tensor) -> Tensor:
    """[..., head, dest, d_model]: the output of each head, `z W_O`, without the output bias."""
    return z @ layer.W_O


def write(layer: Layer, z: Tensor) -> Tensor:
    """[..., dest, d_model]: the sum of all heads' outputs and the output bias."""
    return affine(merge_heads(z), flat_out(layer.W_O), layer.b_O)


def activate(x: Tensor, name: str) -> Tensor:
    """relu, relu2 (squared), gelu (exact), gelu_new (tanh form), quick_gelu, silu, solu_ln (without its norm)."""
    if name in ("relu", "relu2"):
        return F.relu(x) if name == "relu" else F.relu(x).square()
    if name == "silu":
        return F.silu(x)
    if name == "quick_gelu":
        return x * torch.sigmoid(1.702 * x)
    if name == "solu_ln":
        return x * torch.softmax(x, dim=-1)
    return F.gelu(x, approximate="tanh" if name == "gelu_new" else "none")


def routed(experts: Experts, router: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """(share, which), each [..., pos, active]: the weights and indices of the experts chosen for x [..., pos, d_model]."""
    share, which = torch.softmax(x @ router, dim=-1).topk(experts.active, dim=-1)
    return (share / share.sum(-1, keepdim=True) if experts.renormalise else share), which


def mixture_out(config: ModelConfig, mixture: Mixture, x: Tensor) -> Tensor:
    """[..., pos, d_model]: the output of a mixture of experts, `Σ share · expert(x)` over the chosen ones, plus the shared one.

    An expert is converted to the dtype and device of x only while tokens are sent to it.
    """
    assert config.experts is not None
    flat = x.reshape(-1, x.shape[-1])
    share, which = routed(config.experts, mixture.router, flat)
    out = torch.zeros_like(flat)
    if mixture.shared is not None:
        always = mlp_out(config, mixture.shared, flat)
        out = always if mixture.shared_gate is None else torch.sigmoid(flat @ mixture.shared_gate) * always
    for e in which.unique().tolist():
        token, place = (which == e).nonzero(as_tuple=True)
        expert = mapped(mixture.experts[e], lambda value: value.to(x))
        out = out.index_add(0, token, share[token, place, None] * mlp_out(config, expert, flat[token]))
    return out.reshape(x.shape)


def mlp_hidden(config: ModelConfig, mlp: Mlp | Mixture, x: Tensor) -> Tensor:
    """[..., pos, d_mlp]: the activations of the neurons, gate included. Raises `Refused` for a mixture of experts."""
    if isinstance(mlp, Mixture):
        raise Refused(NO_NEURONS)
    up = affine(x, mlp.W_in, mlp.b_in)
    if mlp.W_gate is None:
        hidden = activate(up, config.activation)
        return normalise(hidden, mlp.norm, "layer", config.norm_eps) if config.activation == "solu_ln" else hidden
    gate = affine(x, mlp.W_gate, mlp.b_gate)
    return activate(gate, config.activation) * up


def mlp_out(config: ModelConfig, mlp: Mlp | Mixture, x: Tensor) -> Tensor:
    """[..., pos, d_model]: the output of the MLP."""
    if isinstance(mlp, Mixture):
        return mixture_out(config, mlp, x)
    return affine(mlp_hidden(config, mlp, x), mlp.W_out, mlp.b_out)
