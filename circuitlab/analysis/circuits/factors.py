"""What every weight analysis reads: the factors of W_QK = W_Q W_Kᵀ and W_OV = W_V W_O of a layer's heads, and the embeddings.

Row vectors, as everywhere. A factor is taken as the model uses it: the gain of a norm before the sublayer stands in W_Q, W_K,
W_V, that of a norm behind it in W_O, those of q/k norms in W_Q and W_K; the key-value head of a query head is its group's. How
exact such a reading is depends on where the norms stand (`exactness`), and is printed with every result.

Nothing here is `d_model × d_model` per head or `d_vocab × d_vocab`: a product is read through its `d_head` factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from circuitlab.analysis.base import Inputs
from circuitlab.errors import BadModel
from circuitlab.model.config import ModelConfig
from circuitlab.model.folding import Tokens, embed_rows
from circuitlab.model.positions import rotate
from circuitlab.model.subject import Head
from circuitlab.model.weights import Layer, Norm, Weights


def exactness(c: ModelConfig) -> str:
    """How exact weight analyses of this model are (they read W_QK and W_OV without a text)."""
    if c.norm != "none" and c.norm_placement == "post_residual":
        return "none: the norm stands on the stream itself"
    scaled = c.qk_norm != "none" or (c.norm != "none" and c.norm_placement in ("post_sublayer", "both"))
    said = ["exact up to a positive scale per position"] * scaled
    said += ["offset-dependent (rotary)"] * (c.positions == "rotary")
    said += ["biases of the q/k norm left out"] * (c.qk_norm == "layer")  # they stand behind that scale
    if c.positions == "alibi":  # the one part of a score that no weight holds; it is the same for all tokens
        said = [f"{', '.join(said) or 'exact'} but for ALiBi (−slope · distance on each score)"]
    return ", ".join(said) or "exact"


def refuse_inexact(config: ModelConfig, p: Any = None) -> str | None:
    """The reason why a model's weights cannot be read on their own, None where they can; for `@analysis(refuse=…)`."""
    kind, _, reason = exactness(config).partition(": ")
    return f"weights alone say nothing exact about this model ({reason})." if kind == "none" else None


def words(inputs: Inputs, *more: str) -> tuple[str, ...]:
    """The caption of a weight analysis: conventions, exactness, and what the analysis itself has to say."""
    return (*inputs.subject.conventions.words(), exactness(inputs.weights.config), *(m for m in more if m))


@dataclass(frozen=True)
class Heads:
    """Factors of all query heads of one layer. Biases are None where the model has none.

    W_Q, W_K, W_V [head, d_model, d_head]; W_O [head, d_head, d_model]; b_Q, b_K, b_V [head, d_head];
    `sigma` [head]: with smeared keys, the share of the current token's key (the previous one has 1 − sigma).
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


def heads_of(inputs: Inputs, layer: int, weights: Weights | None = None) -> Heads:
    """The factors of one layer's heads, under the subject's conventions (or of other `weights`).

    Float32 or better, whatever the file holds. Raises `BadModel`, with the tensor's name, where a weight is not finite.
    """
    weights = weights or inputs.weights
    c, raw = weights.config, weights.layer(layer, mlp=False)
    check_finite(raw, layer)
    spread = lambda W: None if W is None else W if c.group == 1 else W.repeat_interleave(c.group, dim=0)
    W_Q, b_Q = _read(raw.W_Q, raw.b_Q, raw.attn_norm, inputs)
    W_K, b_K = _read(raw.W_K, raw.b_K, raw.attn_norm, inputs)
    W_V, b_V = _read(raw.W_V, raw.b_V, raw.attn_norm, inputs)
    W_Q, b_Q = _normed(W_Q, b_Q, c.qk_norm, c.qk_norm_over, raw.q_norm)
    W_K, b_K = _normed(W_K, b_K, c.qk_norm, c.qk_norm_over, raw.k_norm)
    smear = None if raw.smear is None else torch.sigmoid(raw.smear)
    W_K, W_V, b_K, b_V, sigma = map(spread, (W_K, W_V, b_K, b_V, smear))
    return Heads(layer, W_Q, W_K, W_V, _written(raw.W_O, c, raw.attn_post_norm), b_Q, b_K, b_V, sigma)  # type: ignore[arg-type]


def _read(W: Tensor, b: Tensor | None, norm: Norm, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
    """A reading weight behind a norm whose gain has not been folded yet (shortformer positions stand between the two)."""
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


def _written(W_O: Tensor, c: ModelConfig, norm: Norm) -> Tensor:
    """A writing weight with the linear part of a norm behind the sublayer."""
    if c.norm == "none" or c.norm_placement not in ("post_sublayer", "both"):
        return W_O
    W_O = W_O - W_O.mean(dim=-1, keepdim=True) if c.norm == "layer" else W_O
    return W_O if norm.gain is None else W_O * norm.gain


def check_finite(layer: Layer, i: int) -> None:
    """Raise `BadModel` with the name of an attention weight that is not finite (models that fit are checked when opened)."""
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
        value = getattr(layer, name)
        if value is not None and not bool(torch.isfinite(value.sum())) and not bool(torch.isfinite(value).all()):
            raise BadModel(f"The weights layers.{i}.{name} are not finite.", expected="finite weights", got="NaN or infinity")


def rotated(x: Tensor, config: ModelConfig, layer: int, distance: int) -> Tensor:
    """Query weights (or queries) [..., d_head] as a destination sees them `distance` positions behind the source.

    `x R_δ` with δ = source − destination = −distance ≤ 0, so that `rotated(x_d W_Q) · (x_s W_K)` is the model's own `q · k`.
    Distance 0 is "position-free". The same tensor where this layer does not rotate.
    """
    rotary = config.rotation(layer)
    if rotary is None or (distance == 0 and rotary.amplitude == 1):
        return x
    # rotated by its own angle and scaled for both sides: the keys that it meets are left as they are
    return rotate(x.unsqueeze(-2), replace(rotary, amplitude=rotary.amplitude**2), distance).squeeze(-2)


def embedding_rows(weights: Weights, tokens: Tokens) -> Tensor:
    """[token, d_model]: rows of W_E as they enter the stream."""
    rows, scale = embed_rows(weights, tokens), weights.config.embed_scale
    return rows if scale == 1.0 else rows * scale


def embedding(weights: Weights) -> Tensor:
    """[d_vocab, d_model]: W_E as it enters the stream (some families scale it)."""
    W_E = weights.embed().W_E
    scale = weights.config.embed_scale
    return W_E if scale == 1.0 else W_E * scale


def by_layer(heads: tuple[Head, ...]) -> Iterator[tuple[int, list[int], list[int]]]:
    """(layer, its heads, their places in `heads`), layer by layer, so that each layer is read once."""
    for layer in sorted({h.layer for h in heads}):
        places = [i for i, h in enumerate(heads) if h.layer == layer]
        yield layer, [heads[i].head for i in places], places


def is_token_map(config: ModelConfig) -> bool:
    """Whether what goes in and what comes out are the same vocabulary, so that `W_E W_OV W_U` has a diagonal and eigenvalues."""
    return config.d_vocab == config.d_vocab_out
