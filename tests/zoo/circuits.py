"""Whole circuits of a model of the zoo, materialised: weights as an analysis of weights presents them, worked out from the file.

Gains go into what reads after them, the linear part of a norm after a sublayer into what it writes; what cannot matter is left
out: the mean of W_U over the vocabulary, and, where LayerNorms alone read the stream, the mean over d_model of both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.zoo.forward import Model, turned


def without_mean(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """x minus its mean along an axis."""
    return x - x.mean(axis, keepdims=True)


def normalised(x: np.ndarray, kind: str, eps: float) -> np.ndarray:
    """Rows of x through a norm without gain and bias."""
    x = without_mean(x) if kind == "layer" else x
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)


@dataclass
class Head:
    """The factors of one query head: Q, K, V [d_model, d_head], `out` [d_head, d_model]; `bQ` [d_head]."""

    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray
    out: np.ndarray
    bQ: np.ndarray | None

    @property
    def OV(self) -> np.ndarray:
        """[d_model, d_model]."""
        return self.V @ self.out

    @property
    def QK(self) -> np.ndarray:
        """[d_model, d_model], rows the destination's."""
        return self.Q @ self.K.T


class Circuits:
    """`E` [d_vocab, d_model], `tokens` as attention's norm reads them, `stored` but for its scale, `U` [d_model, d_vocab_out]."""

    def __init__(self, model: Model) -> None:
        c, t = model.c, model.t
        self.m, self.c, self.t = model, c, t
        self.centred = c.norm == "layer" and c.norm_placement == "pre" and c.final_norm
        self.E = t["embed.W_E"] * c.embed_scale
        self.E = without_mean(self.E) if self.centred else self.E
        pre = c.norm != "none" and c.norm_placement in ("pre", "both")
        self.stored = without_mean(self.E) if pre and c.norm == "layer" else self.E
        self.tokens = normalised(self.E, c.norm, c.norm_eps) if pre else self.E
        self.U_raw = model.W_U * (t["unembed.norm.gain"][:, None] if c.final_norm and c.norm != "none" else 1.0)
        self.U_raw = without_mean(self.U_raw, 0) if c.final_norm and c.norm == "layer" and not self.centred else self.U_raw
        self.U = self.U_raw if c.logit_soft_cap else without_mean(self.U_raw)
        self.d = c.d_model - 1 if self.centred else c.d_model

    def _reading(self, layer: int, name: str, head: int, behind_norm: bool) -> np.ndarray:
        c, W = self.c, self.m.of(layer, f"W_{name}")[head]
        if behind_norm:
            return W
        if c.norm != "none" and c.norm_placement in ("pre", "both"):
            W = self.m.of(layer, "attn_norm.gain")[:, None] * W
            W = without_mean(W, 0) if c.norm == "layer" else W
        return without_mean(W, 0) if self.centred else W

    def _bias(self, layer: int, name: str, head: int) -> np.ndarray | None:
        c, b = self.c, self.m.of(layer, f"b_{name}")
        made = None if b is None else b[head]
        shift = self.m.of(layer, "attn_norm.bias") if c.norm == "layer" and c.norm_placement in ("pre", "both") else None
        if shift is None:
            return made
        return shift @ self.m.of(layer, f"W_{name}")[head] + (0 if made is None else made)

    def _qk(self, layer: int, name: str, head: int, W: np.ndarray) -> np.ndarray:
        """A query or key weight [… , d_head] with the linear part of its norm."""
        c, gain = self.c, self.m.of(layer, f"{name.lower()}_norm.gain")
        if c.qk_norm == "none":
            return W
        W = without_mean(W) if c.qk_norm == "layer" else W
        return W * (gain if gain.ndim == 1 else gain[head])

    def head(self, layer: int, h: int, behind_norm: bool = False) -> Head:
        """One query head with the key and value weights of its group; `behind_norm`: as it reads what is added after the norm."""
        c, kv = self.c, h // (self.c.n_heads // self.c.n_kv_heads)
        out = self.m.of(layer, "W_O")[h]
        if c.norm != "none" and c.norm_placement in ("post_sublayer", "both"):
            out = (without_mean(out) if c.norm == "layer" else out) * self.m.of(layer, "attn_post_norm.gain")
        out = without_mean(out) if self.centred else out
        bQ = self._bias(layer, "Q", h)
        Q = self._qk(layer, "Q", h, self._reading(layer, "Q", h, behind_norm))
        K = self._qk(layer, "K", kv, self._reading(layer, "K", kv, behind_norm))
        bQ = None if bQ is None else self._qk(layer, "Q", h, bQ)
        Q, bQ = self._amplified(layer, Q), None if bQ is None else self._amplified(layer, bQ)
        return Head(Q, K, self._reading(layer, "V", kv, behind_norm), out, bQ)

    def _amplified(self, layer: int, x: np.ndarray) -> np.ndarray:
        """x [..., d_head] by the amplitudes of two rotations in the columns that are rotated."""
        rotary = self.m.rotation(layer)
        return (
            x if rotary is None else x * np.where(np.arange(x.shape[-1]) < (rotary.dims or x.shape[-1]), rotary.amplitude**2, 1)
        )

    def beside(self, part: int) -> np.ndarray:
        """[n, d_model]: W_E, W_pos, W_Uᵀ, W_inᵀ of the first MLP, W_out of the last one, by number."""
        c, last = self.c, self.c.n_layers - 1
        if part == 0:
            return self.E
        if part == 1:
            in_stream = c.positions != "shortformer"
            W_pos = self.m.positions if in_stream else self.t["embed.W_pos"]
            return without_mean(W_pos) if self.centred and in_stream else W_pos
        if part == 2:
            return (without_mean(self.U, 0) if self.centred else self.U).T
        if part == 3:
            W = self.m.of(0, "mlp.W_in")
            if c.norm != "none" and c.norm_placement in ("pre", "both"):
                gain = self.m.of(0, "mlp_norm.gain")
                W = (self.m.of(0, "attn_norm.gain") if gain is None else gain)[:, None] * W
                W = without_mean(W, 0) if c.norm == "layer" else W
            return (without_mean(W, 0) if self.centred else W).T
        W = self.m.of(last, "mlp.W_out")
        if c.norm != "none" and c.norm_placement in ("post_sublayer", "both"):
            W = (without_mean(W) if c.norm == "layer" else W) * self.m.of(last, "mlp_post_norm.gain")
        return without_mean(W) if self.centred else W

    def heads(self) -> list[tuple[int, int]]:
        """(layer, head) of all."""
        return [(layer, h) for layer in range(self.c.n_layers) for h in range(self.c.n_heads)]

    def turned(self, layer: int, q: np.ndarray, distance: int) -> np.ndarray:
        """Amplified queries [..., d_head] of a destination so far behind the source at position 0, whose key is turned by 0."""
        rotary = self.m.rotation(layer)
        return q if rotary is None else turned(q[..., None, :], replace(rotary, amplitude=1.0), distance)[..., 0, :]


def positivity(values: np.ndarray) -> float:
    """Σλ / Σ|λ|."""
    return float(values.sum().real / np.abs(values).sum())


def eigenvalues(matrix: np.ndarray, most: Any = None) -> np.ndarray:
    """The largest by modulus; the others of a product of rank `most` are 0."""
    values = np.linalg.eigvals(matrix)
    return values[np.argsort(-np.abs(values))][:most]
