"""A decoder written out in loops over heads and positions, numpy, double precision: the definition, done the slow way.

Shares nothing with `circuitlab.model` but the names of the tensors and of the configuration's fields.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def _norm(x: np.ndarray, kind: str, gain: Any, bias: Any, eps: float) -> np.ndarray:
    if kind == "none":
        return x
    if kind == "layer":
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
    else:
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
    x = x if gain is None else x * gain
    return x if bias is None else x + bias


def _act(x: np.ndarray, name: str) -> np.ndarray:
    if name == "relu":
        return np.maximum(x, 0)
    if name == "silu":
        return x / (1 + np.exp(-x))
    if name == "gelu_new":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    if name == "solu_ln":
        return x * np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    return np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.ravel()]).reshape(x.shape)


def _rotated(vector: np.ndarray, position: int, config: Any, windowed: bool) -> np.ndarray:
    r = config.rotary_windowed if windowed and config.rotary_windowed else config.rotary
    dims = r.dims or len(vector)
    out = vector.copy()
    for i in range(dims // 2):
        theta = r.theta[i] if r.theta else r.base ** (-2 * i / dims)
        a, b = (2 * i, 2 * i + 1) if r.pairs == "interleaved" else (i, i + dims // 2)
        angle = position * theta
        out[a] = r.amplitude * (vector[a] * math.cos(angle) - vector[b] * math.sin(angle))
        out[b] = r.amplitude * (vector[a] * math.sin(angle) + vector[b] * math.cos(angle))
    return out


class SlowModel:
    """`tensors` by canonical name, as numpy float64."""

    def __init__(self, config: Any, tensors: dict[str, Any]) -> None:
        self.c, self.t = config, {k: np.asarray(v, dtype=np.float64) for k, v in tensors.items()}

    def _maybe(self, name: str) -> Any:
        return self.t.get(name)

    def run(self, tokens: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
        """Logits [pos, d_vocab_out], streams before each block, patterns [head, dest, src] of each."""
        c, t = self.c, self.t
        x = np.stack([t["embed.W_E"][i] * c.embed_scale for i in tokens])
        for p in range(len(tokens)):
            if c.positions == "learned":
                x[p] += t["embed.W_pos"][p]
            if c.positions == "sinusoidal":
                half = c.d_model // 2
                angles = [p / 10000 ** (2 * i / c.d_model) for i in range(half)]
                x[p] += np.array([math.sin(a) for a in angles] + [math.cos(a) for a in angles])
        streams, patterns = [], []
        for layer in range(c.n_layers):
            streams.append(x)
            x, pattern = self._block(layer, x)
            patterns.append(pattern)
        if c.final_norm:
            x = _norm(x, c.norm, self._maybe("unembed.norm.gain"), self._maybe("unembed.norm.bias"), c.norm_eps)
        logits = x @ (t["embed.W_E"].T if c.tied else t["unembed.W_U"])
        if "unembed" in c.biases:
            logits = logits + t["unembed.b_U"]
        if c.logit_soft_cap:
            logits = c.logit_soft_cap * np.tanh(logits / c.logit_soft_cap)
        return logits, streams, patterns

    def _named_norm(self, layer: int, name: str, x: np.ndarray) -> np.ndarray:
        prefix = f"layers.{layer}.{name}"
        return _norm(x, self.c.norm, self._maybe(f"{prefix}.gain"), self._maybe(f"{prefix}.bias"), self.c.norm_eps)

    def _block(self, layer: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        c = self.c
        before = c.norm_placement in ("pre", "both")
        after = c.norm_placement in ("post_sublayer", "both")
        out, pattern = self._attention(layer, self._named_norm(layer, "attn_norm", x) if before else x)
        if after:
            out = self._named_norm(layer, "attn_post_norm", out)
        mid = x + out
        if c.norm_placement == "post_residual":
            mid = self._named_norm(layer, "attn_post_norm", mid)
        if c.d_mlp == 0:
            return mid, pattern
        source = x if c.parallel else mid
        out = self._mlp(layer, self._named_norm(layer, "mlp_norm", source) if before else source)
        if after:
            out = self._named_norm(layer, "mlp_post_norm", out)
        post = mid + out
        if c.norm_placement == "post_residual":
            post = self._named_norm(layer, "mlp_post_norm", post)
        return post, pattern

    def _qk_normed(self, layer: int, which: str, head: int, x: np.ndarray) -> np.ndarray:
        c, prefix = self.c, f"layers.{layer}."
        name = f"{prefix}{which.lower()}_norm"
        gain, bias = self._maybe(f"{name}.gain"), self._maybe(f"{name}.bias")
        if c.qk_norm_over == "head":
            made = x @ self.t[f"{prefix}W_{which}"][head]
            made = made + (self.t[f"{prefix}b_{which}"][head] if which.lower() in c.biases else 0)
            return _norm(made, c.qk_norm, gain, bias, c.norm_eps)
        every = np.concatenate([x @ W for W in self.t[f"{prefix}W_{which}"]], axis=1)  # no biases in this family
        flat = _norm(every, c.qk_norm, gain.ravel(), None, c.norm_eps)
        return flat[:, head * c.d_head : (head + 1) * c.d_head]

    def _vectors(self, layer: int, which: str, head: int, x: np.ndarray) -> np.ndarray:
        c, prefix = self.c, f"layers.{layer}."
        reads = x
        acts = not c.position_layers or layer in c.position_layers
        if c.positions == "shortformer" and which in "QK" and acts:
            reads = x + self.t["embed.W_pos"][: len(x)]
        made = reads @ self.t[f"{prefix}W_{which}"][head]
        if which.lower() in c.biases:
            made = made + self.t[f"{prefix}b_{which}"][head]
        if which in "QK" and c.qk_norm != "none":
            made = self._qk_normed(layer, which, head, x)
        if which == "K" and c.smeared_keys:
            share = 1 / (1 + math.exp(-self.t[f"{prefix}smear"][head]))
            made = np.stack([made[0]] + [share * made[j] + (1 - share) * made[j - 1] for j in range(1, len(made))])
        if which in "QK" and c.positions == "rotary" and acts:
            made = np.stack([_rotated(v, p, c, bool(c.windows and c.windows[layer])) for p, v in enumerate(made)])
        return made

    def _attention(self, layer: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        c, n = self.c, len(x)
        out = np.zeros_like(x)
        patterns = np.zeros((c.n_heads, n, n))
        window = c.windows[layer] if c.windows else 0
        for head in range(c.n_heads):
            group = head // (c.n_heads // c.n_kv_heads)
            q, k, v = (self._vectors(layer, w, h, x) for w, h in (("Q", head), ("K", group), ("V", group)))
            for d in range(n):
                first = max(0, d - window + 1) if window else 0
                scores = np.array([c.score_scale * float(q[d] @ k[s]) for s in range(first, d + 1)])
                if c.positions == "alibi" and (not c.position_layers or layer in c.position_layers):
                    scores = scores - c.slopes[head] * (d - np.arange(first, d + 1))
                if c.score_soft_cap:
                    scores = c.score_soft_cap * np.tanh(scores / c.score_soft_cap)
                weights = np.exp(scores - scores.max())
                patterns[head, d, first : d + 1] = weights / weights.sum()
            out += patterns[head] @ v @ self.t[f"layers.{layer}.W_O"][head]
        if "o" in c.biases:
            out = out + self.t[f"layers.{layer}.b_O"]
        return out, patterns

    def _mlp(self, layer: int, x: np.ndarray) -> np.ndarray:
        c, prefix = self.c, f"layers.{layer}.mlp."
        if c.experts is not None:
            return self._mixture(prefix, x)
        get = lambda name: self._maybe(prefix + name)
        bias = "mlp" in c.biases
        hidden = x @ get("W_in") + (get("b_in") if bias else 0)
        if c.gated:
            hidden = _act(x @ get("W_gate") + (get("b_gate") if bias else 0), c.activation) * hidden
        else:
            hidden = _act(hidden, c.activation)
        if c.activation == "solu_ln":
            hidden = _norm(hidden, "layer", get("norm.gain"), get("norm.bias"), c.norm_eps)
        return hidden @ get("W_out") + (get("b_out") if bias else 0)

    def _mixture(self, prefix: str, x: np.ndarray) -> np.ndarray:
        """Token by token: the experts with the largest scores, weighted by the softmax over all of them or over these."""
        c, out = self.c, np.zeros_like(x)
        assert c.experts is not None
        for p, token in enumerate(x):
            scores = np.exp(token @ self.t[f"{prefix}router"])
            scores = scores / scores.sum()
            chosen = np.argsort(-scores)[: c.experts.active]
            whole = scores[chosen].sum() if c.experts.renormalise else 1.0
            out[p] = sum(scores[e] / whole * self._expert(f"{prefix}experts.{e}.", token) for e in chosen)
            if c.experts.shared:
                gate = 1 / (1 + np.exp(-token @ self.t[f"{prefix}shared_gate"])) if c.experts.shared_gate else 1.0
                out[p] += gate * self._expert(f"{prefix}shared.", token)
        return out

    def _expert(self, prefix: str, token: np.ndarray) -> np.ndarray:
        hidden = token @ self.t[f"{prefix}W_in"]
        hidden = (
            _act(token @ self.t[f"{prefix}W_gate"], self.c.activation) * hidden
            if self.c.gated
            else _act(hidden, self.c.activation)
        )
        return hidden @ self.t[f"{prefix}W_out"]
