"""One prompt through the trained models that ship, stage by stage, from their files: float64, none of the package's code.

The blocks are those of `slow_trained` (which gives losses and patterns of many texts); here the stream between them is kept, and
what each part adds to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.reference.slow_trained import GPT2_HEADS, weights


@dataclass
class Stages:
    """`stream` by stage, `added` and what it was added to by part, [pos, d_model] each; `patterns` and `values` [layer, head, …].

    `neurons` [layer] of [pos, d_mlp]; `w` the tensors of the file, without a prefix.
    """

    w: dict[str, np.ndarray]
    tokens: np.ndarray
    stream: dict[str, np.ndarray] = field(default_factory=dict)
    added: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    patterns: list[np.ndarray] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)
    neurons: list[np.ndarray] = field(default_factory=list)


def stages(folder: Path, tokens: np.ndarray) -> Stages:
    """Of the final weights of an attention-only model (shortformer positions), or of GPT-2's kind."""
    made = Stages({n.removeprefix("transformer."): x for n, x in weights(folder, None).items()}, tokens)
    (_attention_only if "embed.W_E" in made.w else _gpt2)(made)
    return made


def pattern(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """[head, dest, src] of queries and keys [head, pos, d_head]."""
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    e = np.exp(np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf))
    return e / e.sum(-1, keepdims=True)


def output(s: Stages, layer: int, head: int) -> np.ndarray:
    """[d_head, d_model] W_O of a head."""
    if "embed.W_E" in s.w:
        return s.w[f"layers.{layer}.W_O"][head]
    return s.w[f"h.{layer}.attn.c_proj.weight"].reshape(GPT2_HEADS, -1, s.w["wte.weight"].shape[1])[head]


def _attention_only(s: Stages) -> None:
    x, at = s.w["embed.W_E"][s.tokens], s.w["embed.W_pos"][: len(s.tokens)]
    for i in range(2):
        s.stream[f"L{i} in"] = x
        W = {name: s.w[f"layers.{i}.{name}"] for name in ("W_Q", "W_K", "W_V", "W_O")}
        s.patterns.append(pattern((x + at)[None] @ W["W_Q"], (x + at)[None] @ W["W_K"]))
        s.values.append(x[None] @ W["W_V"])
        out = (s.patterns[i] @ s.values[i] @ W["W_O"]).sum(0)
        s.added[f"attention L{i}"] = out, x
        x = x + out
    s.stream["final"] = x


def _norm(s: Stages, x: np.ndarray, name: str) -> np.ndarray:
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * s.w[f"{name}.weight"] + s.w[f"{name}.bias"]


def _gpt2(s: Stages) -> None:
    linear = lambda x, name: x @ s.w[f"{name}.weight"] + s.w[f"{name}.bias"]
    n = len(s.tokens)
    x = s.w["wte.weight"][s.tokens] + s.w["wpe.weight"][:n]
    for i in range(2):
        s.stream[f"L{i} in"] = x
        q, k, v = np.split(linear(_norm(s, x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn"), 3, axis=-1)
        q, k, v = (part.reshape(n, GPT2_HEADS, -1).transpose(1, 0, 2) for part in (q, k, v))
        s.patterns.append(pattern(q, k))
        s.values.append(v)
        out = linear((s.patterns[i] @ v).transpose(1, 0, 2).reshape(n, -1), f"h.{i}.attn.c_proj")
        s.added[f"attention L{i}"] = out, x
        s.stream[f"L{i} mid"] = x = x + out
        h = linear(_norm(s, x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        s.neurons.append(h * (1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3))) / 2)
        out = linear(s.neurons[i], f"h.{i}.mlp.c_proj")
        s.added[f"MLP L{i}"] = out, x
        x = x + out
    s.stream["final"] = x
