"""The factors of W_QK = W_Q W_Kᵀ and W_OV = W_V W_O of a layer's heads, and the embeddings: the basis of all weight analyses.

Vectors are rows, as everywhere. A factor includes what the model applies to it: W_Q, W_K, W_V the gain of a norm before the
sublayer, W_O that of a norm after it, W_Q and W_K those of q/k norms; a query head has the key and value weights of its group.
How exact an analysis of weights alone is depends on where the norms are (`exactness`), and is stated with every result.

Nothing here has size `d_model × d_model` per head or `d_vocab × d_vocab`: products are handled through their `d_head` factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from circuitlab.analysis.base import Inputs
from circuitlab.caption_parts import About, Part, Sense
from circuitlab.errors import NOT_FINITE, BadModel
from circuitlab.model.config import ModelConfig, Rotary
from circuitlab.model.folding import Tokens, embed_rows
from circuitlab.model.positions import rotate
from circuitlab.model.recorded_norm import linear_part
from circuitlab.model.subject import Conventions
from circuitlab.model.weights import Layer, Norm, Weights

DEFAULT = Conventions()
BEFORE_SMEARING = "keys before smearing"  # what captions say of products of weights, where a model smears its keys


def exactness(
    c: ModelConfig,
    conventions: Conventions = DEFAULT,
    scores: Sequence[int] | None = None,
    layers: bool = True,
    ends: bool = True,
    unscaled: Sequence[str] = (),
    assumed: Sequence[str] = (),
    beside_ov: bool = False,
) -> Part:
    """How exact analyses of this model's weights are, without any text.

    `scores`: the layers whose W_QK is read, None for every layer; `layers`: weights of layers are read at all; `ends`: W_U is
    read. What is not read restricts nothing. `unscaled`: of what ("token", "position") a norm's scale is left out besides.
    `assumed`: what a statement takes for granted that the model need not do. `beside_ov`: OV circuits stand beside the scores,
    and have no rotation.
    """
    if why := why_inexact(c):
        return Part(f"none: {why}")
    missing, limits = _limits(c, conventions, scores, layers, ends, unscaled, beside_ov)
    if assumed:
        return Part("; ".join(filter(None, (f"not exact: {', '.join(assumed)}", limits))))
    return Part(f"not exact: {limits}" if missing else limits) if limits else Part("exact", Sense(About.EXACT))


def why_inexact(c: ModelConfig) -> str:
    """Why weights alone say nothing exact about a model of this configuration; "" where they do."""
    return "the residual stream itself is normalised" if c.norm != "none" and c.norm_placement == "post_residual" else ""


def _limits(
    c: ModelConfig,
    conventions: Conventions,
    scores: Sequence[int] | None,
    layers: bool,
    ends: bool,
    unscaled: Sequence[str],
    beside_ov: bool,
) -> tuple[bool, str]:
    """Whether gains of norms are left out, which are there; and all that restricts how exact it is, "" for nothing."""
    at = range(c.n_layers) if scores is None else scores
    normed, before = c.norm != "none", c.norm_placement in ("pre", "both")
    missing = normed and not conventions.fold_norm and ((layers and before) or (ends and c.final_norm))
    scaled = (c.qk_norm != "none" and bool(at)) or (layers and normed and c.norm_placement in ("post_sublayer", "both"))
    phrases = [f"gains{' and biases' * (c.norm == 'layer')} of norms left out"] * missing
    per = dict.fromkeys((*["position"] * scaled, *unscaled))
    phrases += [f"exact up to a positive scale per {' and per '.join(per)}"] if per and not missing else []
    phrases += [f"{'QK ' * beside_ov}offset-dependent (rotary)"] * any(c.rotation(layer) is not None for layer in at)
    phrases += ["biases of the q/k norm left out"] * (c.qk_norm == "layer" and bool(at))  # they are added after that scale
    if any(c.slopes_in(layer) for layer in at):  # the one part of a score that no weight holds; it is the same for all tokens
        phrases = [f"{', '.join(phrases) or 'exact'} but for ALiBi (−slope · distance on each score)"]
    return missing, ", ".join(phrases)


def has_bias(c: ModelConfig, which: Literal["q", "k", "v"]) -> bool:
    """Whether queries, keys or values have a bias, of their own or of the LayerNorm before them."""
    return which in c.biases or (c.norm == "layer" and c.norm_placement in ("pre", "both"))


def refuse_inexact(config: ModelConfig, p: object = None) -> str | None:
    """Why weights alone say nothing exact about this model, or None; for `@analysis(refuse=…)`."""
    why = why_inexact(config)
    return f"weights alone say nothing exact about this model ({why})." if why else None


def words(
    inputs: Inputs,
    *more: str,
    scores: Sequence[int] | None = None,
    layers: bool = True,
    ends: bool = True,
    unscaled: Sequence[str] = (),
    beside_ov: bool = False,
) -> tuple[str, ...]:
    """The caption of a weight analysis: conventions, `exactness` of what it reads, and the analysis' own words."""
    exact = exactness(inputs.weights.config, inputs.subject.conventions, scores, layers, ends, unscaled, beside_ov=beside_ov)
    return (*inputs.convention_words(), exact, *(m for m in more if m))


@dataclass(frozen=True)
class Heads:
    """Factors of all query heads of one layer. Biases are None if the model has none.

    W_Q, W_K, W_V [head, d_model, d_head]; W_O [head, d_head, d_model]; b_Q, b_K, b_V [head, d_head];
    `sigma` [head]: with smeared keys, the weight of the current token's key (the previous one has 1 − sigma).
    """

    layer: int
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor | None = None
    b_K: Tensor | None = None
    b_V: Tensor | None = None
    sigma: Tensor | None = None


def heads_of(inputs: Inputs, layer: int, weights: Weights | None = None, behind_norm: bool = False) -> Heads:
    """The factors of one layer's heads under the subject's conventions, or of other `weights`; float32 or better.

    `behind_norm`: as they read what is added after the norm before attention, shortformer positions.

    Raises `BadModel` with the tensor's name if a weight is not finite.
    """
    weights = weights or inputs.weights
    c, raw = weights.config, weights.layer(layer, mlp=False)
    check_finite(raw, layer)
    spread = lambda W: None if W is None else W if c.group == 1 else W.repeat_interleave(c.group, dim=0)
    norm = Norm() if behind_norm else raw.attn_norm
    W_Q, b_Q = _read(raw.W_Q, raw.b_Q, norm, inputs)
    W_K, b_K = _read(raw.W_K, raw.b_K, norm, inputs)
    W_V, b_V = _read(raw.W_V, raw.b_V, norm, inputs)
    W_Q, b_Q = _normed(W_Q, b_Q, c.qk_norm, c.qk_norm_over, raw.q_norm)
    W_K, b_K = _normed(W_K, b_K, c.qk_norm, c.qk_norm_over, raw.k_norm)
    W_Q, b_Q = _amplified(W_Q, c.rotation(layer)), None if b_Q is None else _amplified(b_Q, c.rotation(layer))
    smear = None if raw.smear is None else torch.sigmoid(raw.smear)
    W_K, W_V, b_K, b_V, sigma = map(spread, (W_K, W_V, b_K, b_V, smear))
    return Heads(layer, W_Q, W_K, W_V, _output_weight(raw.W_O, c, raw.attn_post_norm), b_Q, b_K, b_V, sigma)  # type: ignore[arg-type]


def _read(W: Tensor, b: Tensor | None, norm: Norm, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
    """A reading weight with the gain of the norm before it, if that is not folded in (shortformer positions lie between them)."""
    if not inputs.subject.conventions.fold_norm or (norm.gain is None and norm.bias is None):
        return W, b
    if norm.bias is not None:
        shift = torch.einsum("d,hdk->hk", norm.bias, W)
        b = shift if b is None else b + shift
    return (W if norm.gain is None else norm.gain[:, None] * W), b


def _normed(W: Tensor, b: Tensor | None, kind: str, over: str, norm: Norm) -> tuple[Tensor, Tensor | None]:
    """A query or key weight with the linear part of a q/k norm: centring over d_head (LayerNorm only) and the gain."""
    if kind == "none":
        return W, b
    if kind == "layer":
        W = W - W.mean(dim=-1 if over == "head" else (0, 2), keepdim=True)
        b = None if b is None else b - b.mean(dim=-1 if over == "head" else (0, 1), keepdim=True)
    gain = norm.gain
    if gain is None:
        return W, b
    # [d_head] for all heads alike, or each head its own
    return (W * (gain if gain.dim() == 1 else gain[:, None, :])), None if b is None else b * gain


def _amplified(x: Tensor, rotary: Rotary | None) -> Tensor:
    """Queries [..., d_head] with the amplitude of their own rotation and of the keys', on the columns that are rotated."""
    if rotary is None or rotary.amplitude == 1:
        return x
    dims = rotary.dims or x.shape[-1]
    return torch.cat([x[..., :dims] * rotary.amplitude**2, x[..., dims:]], dim=-1)


def _output_weight(W_O: Tensor, c: ModelConfig, norm: Norm) -> Tensor:
    """An output weight with the linear part of a norm after the sublayer."""
    if c.norm == "none" or c.norm_placement not in ("post_sublayer", "both"):
        return W_O
    return linear_part(W_O, norm, c.norm)


def check_finite(layer: Layer, i: int) -> None:
    """Raise `BadModel` with the name of an attention weight that is not finite (small models are checked when opened)."""
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
        value = getattr(layer, name)
        if value is not None and not bool(torch.isfinite(value.sum())) and not bool(torch.isfinite(value).all()):
            raise BadModel(
                f"The weights layers.{i}.{name} are not finite.",
                expected="finite weights",
                got="NaN or infinity",
                remedy=NOT_FINITE,
            )


def rotated(x: Tensor, config: ModelConfig, layer: int, distance: int) -> Tensor:
    """Query weights of `heads_of` (or queries) [..., d_head], rotated for a destination `distance` positions after the source.

    `x R_δ` with δ = source − destination = −distance ≤ 0, so that `rotated(x_d W_Q) · (x_s W_K)` is the model's own `q · k`.
    Distance 0 is "position-free". Returns x itself if this layer has no rotation.
    """
    rotary = config.rotation(layer)
    if rotary is None or distance == 0:
        return x
    # one side is rotated by the difference of angles: the other is left as it is; the query weights have the amplitudes
    return rotate(x.unsqueeze(-2), replace(rotary, amplitude=1.0), distance).squeeze(-2)


def embedding_rows(weights: Weights, tokens: Tokens) -> Tensor:
    """[token, d_model]: rows of W_E as they enter the residual stream."""
    rows, scale = embed_rows(weights, tokens), weights.config.embed_scale
    return rows if scale == 1.0 else rows * scale


def embedding(weights: Weights) -> Tensor:
    """[d_vocab, d_model]: W_E as it enters the residual stream (some families scale it)."""
    W_E = weights.embed().W_E
    scale = weights.config.embed_scale
    return W_E if scale == 1.0 else W_E * scale


def is_token_map(config: ModelConfig) -> bool:
    """Whether input and output vocabulary are the same, so that `W_E W_OV W_U` has a diagonal and eigenvalues."""
    return config.d_vocab == config.d_vocab_out
