"""The trained models that ship, from their files and their definitions: plain products in float64, none of the package's code.

A layer of an attention-only model (shortformer: positions on the side of queries and keys alone; smeared keys: k_s becomes
σ(α) k_s + (1 − σ(α)) k_{s−1}), and GPT-2 with LayerNorm and the tanh form of GELU, as their papers write them. Scores are
counted position by position.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load_file

Weights = dict[str, np.ndarray]
GPT2_HEADS = 4  # of gpt-mini, whose matrices of all heads stand side by side


class Ran(NamedTuple):
    """Losses [text, pos] in nats of all tokens but the first; patterns [layer] of [text, head, dest, src]."""

    losses: np.ndarray
    patterns: list[np.ndarray]


def weights(folder: Path, step: int | None) -> Weights:
    """Float64, of a checkpoint or (None) of the final weights."""
    file = folder / "model.safetensors" if step is None else folder / "checkpoints" / f"step-{step:06d}.safetensors"
    return {name: value.astype(np.float64) for name, value in load_file(file).items()}


def ran(
    w: Weights,
    tokens: np.ndarray,
    patterns: list[np.ndarray] | None = None,
    zero: tuple[int, int] | None = None,
    first: int = 1,
) -> Ran:
    """The model on `tokens` [text, pos]; `patterns` stand in place of its own, and `zero` (layer, head) adds nothing. Losses are
    those of the tokens from `first` on."""
    layers = _attention_only if "embed.W_E" in w else _gpt2
    x, W_U, seen = layers(w, tokens, patterns, zero)
    above = x[:, first - 1 : -1] @ W_U
    above -= np.take_along_axis(above, tokens[:, first:, None], -1)
    return Ran(np.log(np.exp(above, out=above).sum(-1)), seen)  # the right token stands for the largest: no loss is above 700


def logits(w: Weights, tokens: np.ndarray) -> np.ndarray:
    """[text, pos, token]"""
    x, W_U, _ = (_attention_only if "embed.W_E" in w else _gpt2)(w, tokens, None, None)
    return x @ W_U


def _softmax(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones(scores.shape[-2:], dtype=bool)), scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _attention_only(
    w: Weights, tokens: np.ndarray, patterns: list[np.ndarray] | None, zero: tuple[int, int] | None
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    x, at, seen = w["embed.W_E"][tokens], w["embed.W_pos"][: tokens.shape[1]], []
    while f"layers.{len(seen)}.W_Q" in w:
        layer = {name.split(".")[-1]: value for name, value in w.items() if name.startswith(f"layers.{len(seen)}.")}
        q, k = ((x + at)[:, None] @ layer[name] for name in ("W_Q", "W_K"))
        if "smear" in layer:
            share = 1 / (1 + np.exp(-layer["smear"]))[:, None, None]
            k[:, :, 1:] = share * k[:, :, 1:] + (1 - share) * k[:, :, :-1]
        A = _softmax(q, k) if patterns is None else patterns[len(seen)]
        out = A @ (x[:, None] @ layer["W_V"]) @ layer["W_O"]
        x = x + sum(out[:, h] for h in range(out.shape[1]) if (len(seen), h) != zero)
        seen.append(A)
    return x, w["unembed.W_U"], seen


def _norm(x: np.ndarray, w: Weights, name: str) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def _gpt2(
    w: Weights, tokens: np.ndarray, patterns: list[np.ndarray] | None, zero: tuple[int, int] | None
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    w = {name.removeprefix("transformer."): value for name, value in w.items()}
    linear = lambda x, name: x @ w[f"{name}.weight"] + w[f"{name}.bias"]
    x, seen = w["wte.weight"][tokens] + w["wpe.weight"][: tokens.shape[1]], []
    while (name := f"h.{len(seen)}") + ".ln_1.weight" in w:
        qkv = np.split(linear(_norm(x, w, f"{name}.ln_1"), f"{name}.attn.c_attn"), 3, axis=-1)
        q, k, v = (np.stack(np.split(part, GPT2_HEADS, axis=-1), axis=1) for part in qkv)
        A = _softmax(q, k) if patterns is None else patterns[len(seen)]
        z = A @ v
        if zero is not None and zero[0] == len(seen):
            z[:, zero[1]] = 0
        x = x + linear(np.concatenate(list(np.moveaxis(z, 1, 0)), axis=-1), f"{name}.attn.c_proj")
        hidden = linear(_norm(x, w, f"{name}.ln_2"), f"{name}.mlp.c_fc")
        hidden = hidden * (1 + np.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3))) / 2
        x = x + linear(hidden, f"{name}.mlp.c_proj")
        seen.append(A)
    return _norm(x, w, "ln_f"), w["wte.weight"].T, seen


def prefix_matching(pattern: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """[head]: mean over texts of the mean over positions that have any of the attention to what followed the same token."""
    each = []
    for A, row in zip(pattern, tokens.tolist(), strict=True):
        held = [[s for s in range(1, d + 1) if row[s - 1] == row[d]] for d in range(len(row))]
        each.append(np.mean([A[:, d, s].sum(-1) for d, s in enumerate(held) if s], axis=0))
    return np.mean(each, axis=0)


def previous_token(pattern: np.ndarray) -> np.ndarray:
    """[head]: mean attention to the position before, from the second position on."""
    return np.mean([pattern[:, :, d, d - 1].mean(0) for d in range(1, pattern.shape[-1])], axis=0)


def copying(w: Weights, layer: int, head: int) -> float:
    """Σλ/Σ|λ| of W_E W_OV W_U, W_U centred over the vocabulary; of GPT-2 the gains of both norms belong to the products, which
    see their inputs centred: non-zero eigenvalues from the small side."""
    if "embed.W_E" in w:
        W_E, W_U = w["embed.W_E"], w["unembed.W_U"]
        W_V, W_O = w[f"layers.{layer}.W_V"][head], w[f"layers.{layer}.W_O"][head]
    else:
        name, W_E = f"transformer.h.{layer}", w["transformer.wte.weight"]
        own = np.split(np.arange(W_E.shape[1]), GPT2_HEADS)[head]
        W_V = w[f"{name}.ln_1.weight"][:, None] * w[f"{name}.attn.c_attn.weight"][:, 2 * W_E.shape[1] + own]
        W_U = w["transformer.ln_f.weight"][:, None] * W_E.T
        W_V, W_U, W_O = W_V - W_V.mean(0), W_U - W_U.mean(0), w[f"{name}.attn.c_proj.weight"][own]
    values = np.linalg.eigvals(W_O @ ((W_U - W_U.mean(1, keepdims=True)) @ W_E) @ W_V)
    return float(values.sum().real / np.abs(values).sum())
