"""The matrices of `rope-induction`, for row vectors, float64. The residual stream is

    tok [width] | prev [feature] | out [feature] | one | bos (sinusoidal embedding only; one-hot: part of tok)

with one head per layer, no norm, MLP or biases, score scale 1, rotary positions in layer 0 only. Layer 0 copies the features of
the token at m − offset into `prev`; layer 1 attends to positions whose `prev` is the token at m and copies their token to `out`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from circuitlab.model.config import ModelConfig, Rotary
from circuitlab.model.constructed.features import code_map, embedding, feature_map, output_features
from circuitlab.model.constructed.parameters import RopeInduction


def stream(p: RopeInduction) -> dict[str, slice]:
    """The columns of the residual stream, by name."""
    width, n_features = feature_map(p).shape
    sizes = {"tok": width, "prev": n_features, "out": n_features, "one": 1, "bos": int(p.variant != "one-hot")}
    stops = np.cumsum(list(sizes.values()))
    slices = {name: slice(int(stop) - size, int(stop)) for (name, size), stop in zip(sizes.items(), stops, strict=True)}
    return slices if p.variant != "one-hot" else {**slices, "bos": slice(0, 1)}


def configuration(p: RopeInduction) -> ModelConfig:
    """The model's configuration; `family` holds the canonical parameters, so that a saved copy can be recognised."""
    width, n_features = feature_map(p).shape
    d_head = max(p.d_head, n_features, code_map(p).shape[1] + 1)
    theta = p.theta() if p.frequencies == "equal" else ()
    return ModelConfig(
        n_layers=2,
        n_heads=1,
        d_model=width + 2 * n_features + 1 + (p.variant != "one-hot"),
        d_head=d_head,
        d_vocab=p.d_vocab,
        n_ctx=p.n_ctx,
        positions="rotary",
        rotary=Rotary(base=p.base, pairs="interleaved", dims=0 if d_head == p.d_head else p.d_head, theta=theta),
        position_layers=(0,),
        score_scale=1.0,
        prepend_bos=p.bos,
        family=str(p),
    )


def _rotated(x: np.ndarray, p: RopeInduction, steps: float) -> np.ndarray:
    """Rows [n, d_head] rotated by `steps` positions, `x R(steps)ᵀ`; columns beyond `p.d_head` do not rotate."""
    out, angle = x.copy(), steps * np.array(p.theta())
    a, b = x[:, 0 : p.d_head : 2], x[:, 1 : p.d_head : 2]
    out[:, 0 : p.d_head : 2] = a * np.cos(angle) - b * np.sin(angle)
    out[:, 1 : p.d_head : 2] = a * np.sin(angle) + b * np.cos(angle)
    return out


def _layer_0(p: RopeInduction, d_model: int, d_head: int) -> dict[str, np.ndarray]:
    at, read = stream(p), feature_map(p)
    W_K, W_V, W_O = np.zeros((d_model, d_head)), np.zeros((d_model, d_head)), np.zeros((d_head, d_model))
    W_K[at["one"], 0 : p.d_head : 2] = 1 - p.token_in_key
    W_K[at["tok"], : read.shape[1]] += p.token_in_key * math.sqrt(p.d_head / 2) * read
    W_V[at["tok"], : read.shape[1]] = read
    W_O[: read.shape[1], at["prev"]] = np.eye(read.shape[1])
    return {"W_Q": p.alpha * _rotated(W_K, p, -p.offset), "W_K": W_K, "W_V": W_V, "W_O": W_O}


def _layer_1(p: RopeInduction, d_model: int, d_head: int) -> dict[str, np.ndarray]:
    at, read, code = stream(p), feature_map(p), code_map(p)
    W_Q, W_K, W_V = (np.zeros((d_model, d_head)) for _ in range(3))
    W_O, columns, n = np.zeros((d_head, d_model)), slice(1, 1 + code.shape[1]), read.shape[1]
    W_Q[at["tok"], columns] = p.beta * read @ code
    if p.variant == "rank-one":
        W_K[at["tok"], columns] = read @ code
    else:
        W_K[at["prev"], columns] = code
        W_Q[at["one"], 0] = p.beta
        W_K[at["bos"], 0] = p.sigma
    W_V[at["tok"], :n] = read
    if p.variant == "one-hot":
        W_V[at["bos"]] = 0
    W_O[:n, at["out"]] = p.gamma * np.eye(n)
    return {"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O}


def tensors(p: RopeInduction) -> dict[str, Tensor]:
    """Float64 tensors by canonical name."""
    config, at = configuration(p), stream(p)
    W_E, W_U = np.zeros((p.d_vocab, config.d_model)), np.zeros((config.d_model, p.d_vocab))
    W_E[:, at["tok"]] = embedding(p)
    W_E[:, at["one"]] = 1
    W_E[0, at["bos"]] = 1
    # W_U reads `out` only: the direct path contributes nothing, the prediction is the head's
    W_U[at["out"]] = np.eye(p.d_vocab) if p.variant == "one-hot" else output_features(p).T
    named_tensors = {"embed.W_E": W_E, "unembed.W_U": W_U}
    for i, layer in enumerate((_layer_0, _layer_1)):
        named = layer(p, config.d_model, config.d_head)
        named_tensors |= {f"layers.{i}.{name}": value[None] for name, value in named.items()}
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in named_tensors.items()}
