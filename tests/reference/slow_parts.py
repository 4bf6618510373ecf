"""What every part of a decoder writes into the stream and what of it reaches a logit, in numpy, part by part.

Built on `SlowModel` alone: raw weights, double precision, norms held at the scale that they had.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.slow_forward import SlowModel


class SlowParts:
    """One prompt: `heads[layer][head]`, `values[layer][head]`, `mlps[layer]`, `biases[layer]`, `begins[name]`, `final`."""

    def __init__(self, config: Any, tensors: dict[str, Any], tokens: tuple[int, ...]) -> None:
        self.c, self.model, self.tokens = config, SlowModel(config, tensors), tokens
        self.logits, self.streams, self.patterns = self.model.run(tokens)
        self.begins = {"embedding": np.stack([self.model.t["embed.W_E"][i] * config.embed_scale for i in tokens])}
        if config.positions in ("learned", "sinusoidal"):
            self.begins["position"] = self.streams[0] - self.begins["embedding"]
        self.heads: list[list[np.ndarray]] = []
        self.values: list[list[np.ndarray]] = []
        self.biases: list[np.ndarray] = []
        self.mlps: list[np.ndarray] = []
        self.mids: list[np.ndarray] = []
        for layer, x in enumerate(self.streams):
            self._layer(layer, x)
        self.final = self.mids[-1] + (self.mlps[-1] if self.mlps else 0)

    def frozen(self, name: str, of: np.ndarray, x: np.ndarray) -> np.ndarray:
        """x [pos, d_model] through the norm `name` without its bias, at the scale that it has on `of`."""
        c = self.c
        if c.norm == "none":
            return x
        centred = of - of.mean(-1, keepdims=True) if c.norm == "layer" else of
        scale = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + c.norm_eps)
        x = x - x.mean(-1, keepdims=True) if c.norm == "layer" else x
        gain = self.model.t.get(f"{name}.gain")
        return x * scale if gain is None else x * scale * gain

    def shift(self, name: str) -> Any:
        """The norm's bias, 0 without one."""
        result = self.model.t.get(f"{name}.bias")
        return 0.0 if result is None or self.c.norm != "layer" else result

    def _layer(self, layer: int, x: np.ndarray) -> None:
        c, t, m = self.c, self.model.t, self.model
        before, after = c.norm_placement in ("pre", "both"), c.norm_placement in ("post_sublayer", "both")
        read = m._named_norm(layer, "attn_norm", x) if before else x
        values = [m._vectors(layer, "V", h // (c.n_heads // c.n_kv_heads), read) for h in range(c.n_heads)]
        written = [self.patterns[layer][h] @ values[h] @ t[f"layers.{layer}.W_O"][h] for h in range(c.n_heads)]
        bias = np.zeros_like(x) + (t[f"layers.{layer}.b_O"] if "o" in c.biases else 0)
        if after:
            name, whole = f"layers.{layer}.attn_post_norm", np.sum(written, axis=0) + bias
            written = [self.frozen(name, whole, w) for w in written]
            bias = self.frozen(name, whole, bias) + self.shift(name)
        self.values.append(values)
        self.heads.append(written)
        self.biases.append(bias)
        self.mids.append(x + np.sum(written, axis=0) + bias)
        if c.d_mlp:
            source = x if c.parallel else self.mids[-1]
            out = m._mlp(layer, m._named_norm(layer, "mlp_norm", source) if before else source)
            self.mlps.append(m._named_norm(layer, "mlp_post_norm", out) if after else out)

    def to_logits(self, part: np.ndarray) -> np.ndarray:
        """[pos, d_vocab_out]: what a part [pos, d_model] of the final stream adds to the logits before a soft cap."""
        t = self.model.t
        seen = self.frozen("unembed.norm", self.final, part) if self.c.final_norm else part
        return seen @ (t["embed.W_E"].T if self.c.tied else t["unembed.W_U"])

    def constant(self) -> np.ndarray:
        """[d_vocab_out]: what no part adds, the final norm's bias and b_U."""
        t, c = self.model.t, self.c
        W_U = t["embed.W_E"].T if c.tied else t["unembed.W_U"]
        bias = self.shift("unembed.norm") @ W_U if c.final_norm and np.ndim(self.shift("unembed.norm")) else 0.0
        return np.zeros(W_U.shape[1]) + bias + (t["unembed.b_U"] if "unembed" in c.biases else 0)
