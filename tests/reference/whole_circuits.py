"""Whole circuits `d_vocab × d_vocab`, materialised in double precision from the tensors of a file: nothing is factored.

Norm gains go into what reads, writing weights and W_U are centred, as the conventions say; a rotation is written as the
d_head × d_head matrix of Su et al. 2021, equation 15.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head


def rotation(c: ModelConfig, position: int) -> np.ndarray:
    """[d_head, d_head]: a row vector times this is the vector at `position`."""
    assert c.rotary is not None
    dims, R = c.rotary.dims or c.d_head, np.eye(c.d_head)
    for i in range(dims // 2):
        a, b = (2 * i, 2 * i + 1) if c.rotary.pairs == "interleaved" else (i, i + dims // 2)
        angle = position * c.rotary.base ** (-2 * i / dims)
        R[[a, a, b, b], [a, b, a, b]] = np.cos(angle), np.sin(angle), -np.sin(angle), np.cos(angle)
    return R


def gauged(path: Path, c: ModelConfig) -> None:
    """W_Q S, W_K S⁻ᵀ, W_V T, T⁻¹ W_O in place, S and T of each key-value group; S commutes with rotations."""
    tensors, rng = {n: v.double() for n, v in load_file(path / "model.safetensors").items()}, np.random.default_rng(1)
    near_one = lambda: np.eye(c.d_head) + 0.3 * rng.normal(size=(c.d_head,) * 2)
    for layer in range(c.n_layers):
        for name in ("b_Q", "b_K", "b_V"):
            assert f"layers.{layer}.{name}" not in tensors or c.group == 1
        for kv in range(c.n_kv_heads):
            S = torch.tensor(1.7 * np.eye(c.d_head) if c.positions == "rotary" else near_one())
            T, group = torch.tensor(near_one()), slice(kv * c.group, (kv + 1) * c.group)
            for name, matrix in (("Q", S), ("K", torch.linalg.inv(S).T), ("V", T)):
                part = group if name == "Q" else slice(kv, kv + 1)
                tensors[f"layers.{layer}.W_{name}"][part] @= matrix
                if f"layers.{layer}.b_{name}" in tensors:
                    tensors[f"layers.{layer}.b_{name}"][part] @= matrix
            W_O = tensors[f"layers.{layer}.W_O"]
            W_O[group] = torch.linalg.inv(T) @ W_O[group]
    save_file(tensors, path / "model.safetensors")


def as_double(path: Path) -> None:
    """The file in float64, so that a gauge is not rounded."""
    save_file({n: v.double() for n, v in load_file(path / "model.safetensors").items()}, path / "model.safetensors")


class Whole:
    """The circuits of a CircuitLab directory. `ov`, `qk` [row, column] as papers write them, rows minus their means."""

    def __init__(self, path: Path, config: ModelConfig) -> None:
        self.c = config
        self.t = {n: v.double().numpy() for n, v in load_file(path / "model.safetensors").items()}
        self.centring = config.norm == "layer" and config.norm_placement == "pre"
        self.W_E = self.wrote(self.t["embed.W_E"]) * config.embed_scale
        self.tokens = self.norm(self.W_E) if config.norm_placement in ("pre", "both") else self.W_E
        W_U = self.t.get("unembed.W_U", self.t["embed.W_E"].T)
        W_U = self.gain("unembed.norm")[:, None] * W_U
        self.W_U = W_U - W_U.mean(1, keepdims=True)

    def gain(self, name: str) -> np.ndarray:
        return self.t.get(f"{name}.gain", np.ones(self.c.d_model))

    def shift(self, name: str) -> np.ndarray:
        return self.t.get(f"{name}.bias", np.zeros(self.c.d_model))

    def wrote(self, W: np.ndarray) -> np.ndarray:
        return W - W.mean(-1, keepdims=True) if self.centring else W

    def norm(self, x: np.ndarray) -> np.ndarray:
        """Without gain and bias."""
        if self.c.norm == "none":
            return x
        x = x - x.mean(-1, keepdims=True) if self.c.norm == "layer" else x
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + self.c.norm_eps)

    def factors(self, head: Head) -> dict[str, np.ndarray]:
        """Q, K, V, O and bQ (query bias with what the norm's bias adds)."""
        at, kv = f"layers.{head.layer}.", head.head // self.c.group
        g, b = self.gain(f"{at}attn_norm"), self.shift(f"{at}attn_norm")
        raw = {n: self.t[f"{at}W_{n}"][head.head if n in "QO" else kv] for n in "QKVO"}
        made = {n: g[:, None] * raw[n] for n in "QKV"} | {"O": self.wrote(raw["O"])}
        own = self.t[f"{at}b_Q"][head.head] if f"{at}b_Q" in self.t else 0
        return made | {"bQ": b @ raw["Q"] + own}

    def moved(self, x: np.ndarray, through: Head | None) -> np.ndarray:
        if through is None:
            return x
        f = self.factors(through)
        return x @ (f["V"] @ f["O"])

    def effective(self) -> np.ndarray:
        """norm(W_E + MLP_0(norm(W_E))) for GELU (tanh) or gated SiLU MLPs."""
        at, t = "layers.0.mlp", self.t
        read = self.norm(self.W_E) * self.gain("layers.0.mlp_norm") + self.shift("layers.0.mlp_norm")
        hidden = read @ t[f"{at}.W_in"] + t.get(f"{at}.b_in", 0)
        if self.c.gated:
            gate = read @ t[f"{at}.W_gate"]
            hidden = hidden * gate / (1 + np.exp(-gate))
        else:
            hidden = 0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))
        return self.norm(self.W_E + self.wrote(hidden @ t[f"{at}.W_out"] + t.get(f"{at}.b_out", 0)))

    def ov(self, head: Head, through: Head | None = None, x: np.ndarray | None = None) -> np.ndarray:
        """[source, out]; x [d_vocab, d_model]: what is read of each token, W_E as the norm before attention scales it."""
        f = self.factors(head)
        return self.moved(self.tokens if x is None else x, through) @ (f["V"] @ f["O"]) @ self.W_U

    def qk(
        self,
        head: Head,
        distance: int = 0,
        behind: Head | None = None,
        side: str = "key",
        x: np.ndarray | None = None,
        bias: bool = False,
    ) -> np.ndarray:
        """[destination, source], not centred; `bias`: [source], the row of the query bias."""
        f, x = self.factors(head), self.tokens if x is None else x
        queries = self.moved(x, behind if side == "query" else None) @ f["Q"]
        keys = self.moved(x, behind if side == "key" else None) @ f["K"]
        queries = f["bQ"] if bias else queries
        if self.c.positions == "rotary" and self.c.positional(head.layer):
            queries = queries @ rotation(self.c, distance)
        return queries @ keys.T * self.c.score_scale


def centred(M: np.ndarray) -> np.ndarray:
    """Minus the mean of each row."""
    return M - M.mean(-1, keepdims=True)
