"""The forward pass of every model of the zoo, in numpy and float64: the definition, from the raw tensors of the file.

It shares nothing with the package but the names of tensors and of the configuration's fields. Everything on the way is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Tensors = dict[str, np.ndarray]
Hook = Callable[[str, int, np.ndarray], np.ndarray]  # (what, layer, its value) -> the value that goes on


def unchanged(what: str, layer: int, value: np.ndarray) -> np.ndarray:
    """The hook that changes nothing."""
    return value


@dataclass
class Scaled:
    """A norm as it acted: x -> (x − mean) · scale · gain + bias, the mean for LayerNorm alone. `scale` [pos, 1]."""

    kind: str
    scale: np.ndarray
    gain: np.ndarray
    bias: np.ndarray

    def linear(self, x: np.ndarray) -> np.ndarray:
        """x [..., pos, d] at the recorded scale, without the bias."""
        x = x - x.mean(-1, keepdims=True) if self.kind == "layer" else x
        return x * self.scale * self.gain

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.linear(x) + self.bias


def later() -> Any:
    """A field that the pass fills in."""
    return field(default_factory=lambda: np.zeros(0))


@dataclass
class Block:
    """Of one block, [pos, d_model] where nothing else is said; `q`, `k`, `v`, `z` [head, pos, d_head], one of each a query head.

    `scores` (soft-capped, ALiBi added, −inf where masked) and `pattern` [head, dest, src]; `result` [head, pos, d_model] before
    any norm after the sublayer. `attn_out` and `mlp_out` are what is added to the stream, `mlp_raw` before its post-norm.
    """

    pre: np.ndarray
    read: np.ndarray = later()
    q: np.ndarray = later()
    k: np.ndarray = later()
    v: np.ndarray = later()
    dots: np.ndarray = later()
    scores: np.ndarray = later()
    pattern: np.ndarray = later()
    z: np.ndarray = later()
    result: np.ndarray = later()
    attn_out: np.ndarray = later()
    mid: np.ndarray = later()
    hidden: np.ndarray = later()
    mlp_raw: np.ndarray = later()
    mlp_out: np.ndarray = later()
    post: np.ndarray = later()
    norms: dict[str, Scaled] = field(default_factory=dict)


@dataclass
class Passed:
    """One prompt: `embedded` (without positions), the blocks, the stream at the end, its norm, and the logits."""

    tokens: tuple[int, ...]
    embedded: np.ndarray
    blocks: list[Block]
    final: np.ndarray
    normed: np.ndarray
    uncapped: np.ndarray
    logits: np.ndarray
    final_norm: Scaled

    @property
    def log_probs(self) -> np.ndarray:
        """[pos, d_vocab_out], nats."""
        return log_softmax(self.logits)


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def softmax(x: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    return np.exp(log_softmax(x))


_erf = np.vectorize(math.erf, otypes=[float])


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^−x)."""
    return (1 + np.tanh(x / 2)) / 2


def activated(x: np.ndarray, name: str) -> np.ndarray:
    """The activation functions by their definitions."""
    return {
        "relu": lambda: np.where(x > 0, x, 0),
        "relu2": lambda: np.where(x > 0, x, 0) ** 2,
        "silu": lambda: x * sigmoid(x),
        "quick_gelu": lambda: x * sigmoid(1.702 * x),
        "gelu": lambda: x * (1 + _erf(x / math.sqrt(2))) / 2,
        "gelu_new": lambda: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        "solu_ln": lambda: x * softmax(x),
    }[name]()


def capped(x: np.ndarray, cap: float) -> np.ndarray:
    """cap · tanh(x / cap), x where there is none."""
    return cap * np.tanh(x / cap) if cap else x


def turned(x: np.ndarray, rotary: Any, offset: int = 0) -> np.ndarray:
    """x [..., pos, d_head], position 0 being at `offset`, each pair of columns as a complex number times e^{i p θ}."""
    out, dims = x.copy(), rotary.dims or x.shape[-1]
    at = np.arange(x.shape[-2]) + offset
    for i in range(dims // 2):
        theta = rotary.theta[i] if rotary.theta else rotary.base ** (-2 * i / dims)
        a, b = (2 * i, 2 * i + 1) if rotary.pairs == "interleaved" else (i, i + dims // 2)
        moved = (x[..., a] + 1j * x[..., b]) * np.exp(1j * theta * at) * rotary.amplitude
        out[..., a], out[..., b] = moved.real, moved.imag
    return out


class Model:
    """A configuration and its tensors; called with tokens it gives a `Passed`."""

    def __init__(self, config: Any, tensors: Tensors) -> None:
        self.c, self.t = config, tensors

    def of(self, layer: int, name: str) -> Any:
        """A tensor of a layer, None without one."""
        return self.t.get(f"layers.{layer}.{name}")

    @property
    def W_U(self) -> np.ndarray:
        """[d_model, d_vocab_out]."""
        return self.t["embed.W_E"].T if self.c.tied else self.t["unembed.W_U"]

    @property
    def positions(self) -> np.ndarray:
        """[n_ctx, d_model]: what is added to the stream at each position; 0 where nothing is."""
        c = self.c
        if c.positions == "learned":
            return self.t["embed.W_pos"]
        if c.positions != "sinusoidal":
            return np.zeros((c.n_ctx, c.d_model))
        angle = np.outer(np.arange(c.n_ctx), 10000.0 ** (-2 * np.arange(c.d_model // 2) / c.d_model))
        return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)

    def acts(self, layer: int) -> bool:
        """Whether shortformer, rotary or ALiBi positions act in a layer."""
        return not self.c.position_layers or layer in self.c.position_layers

    def rotation(self, layer: int) -> Any:
        """The rotation of a layer, None without one."""
        c = self.c
        if c.positions != "rotary" or not self.acts(layer):
            return None
        return c.rotary_windowed if c.rotary_windowed is not None and c.windows and c.windows[layer] else c.rotary

    def norm(self, name: str, on: np.ndarray, kind: str = "", axes: tuple[int, ...] = (-1,)) -> Scaled:
        """The norm of this name as it acts on `on`."""
        kind = kind or self.c.norm
        if kind == "none":
            return Scaled(kind, np.ones_like(on[..., :1]), np.ones(1), np.zeros(1))
        centred = on - on.mean(-1, keepdims=True) if kind == "layer" else on
        scale = 1 / np.sqrt((centred**2).mean(axes, keepdims=True) + self.c.norm_eps)
        gain, bias = self.t.get(f"{name}.gain"), self.t.get(f"{name}.bias")
        return Scaled(kind, scale, np.ones(1) if gain is None else gain, np.zeros(1) if bias is None else bias)

    def _qk_normed(self, layer: int, which: str, x: np.ndarray) -> np.ndarray:
        """x [head, pos, d_head] through the norm of queries or keys."""
        c, name = self.c, f"layers.{layer}.{which.lower()}_norm"
        if c.qk_norm == "none":
            return x
        if c.qk_norm_over == "head":
            return self.norm(name, x, c.qk_norm)(x)
        scale = 1 / np.sqrt((x**2).mean((0, 2), keepdims=True) + c.norm_eps)
        return x * scale * self.t[f"{name}.gain"][:, None, :]

    def _projected(self, layer: int, which: str, read: np.ndarray) -> np.ndarray:
        """[head or key-value head, pos, d_head]: with its bias, before any norm."""
        made = np.stack([read @ W for W in self.of(layer, f"W_{which}")])
        return made + self.of(layer, f"b_{which}")[:, None, :] if which.lower() in self.c.biases else made

    def queries_keys_values(self, layer: int, read: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As attention uses them, one of each per query head, of its input [pos, d_model]."""
        c, placed = self.c, read
        if c.positions == "shortformer" and self.acts(layer):
            placed = read + self.t["embed.W_pos"][: len(read)]
        q = self._qk_normed(layer, "Q", self._projected(layer, "Q", placed))
        k = self._qk_normed(layer, "K", self._projected(layer, "K", placed))
        v = self._projected(layer, "V", read)
        if c.smeared_keys:
            own = sigmoid(self.of(layer, "smear"))[:, None, None]
            k = np.concatenate([k[:, :1], own * k[:, 1:] + (1 - own) * k[:, :-1]], axis=1)
        if (rotary := self.rotation(layer)) is not None:
            q, k = turned(q, rotary), turned(k, rotary)
        group = c.n_heads // c.n_kv_heads
        return q, np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)

    def allowed(self, layer: int, n: int) -> np.ndarray:
        """[dest, src] bool."""
        far = np.arange(n)[:, None] - np.arange(n)[None, :]
        window = self.c.windows[layer] if self.c.windows else 0
        return (far >= 0) & ((far < window) if window else True)

    def _attend(self, layer: int, b: Block, hook: Hook) -> None:
        c, n = self.c, len(b.pre)
        b.q, b.k, b.v = self.queries_keys_values(layer, b.read)
        b.dots = np.einsum("hdk,hsk->hds", b.q, b.k) * c.score_scale
        scores = capped(b.dots, c.score_soft_cap)
        if c.positions == "alibi" and self.acts(layer):
            far = np.arange(n)[:, None] - np.arange(n)[None, :]
            scores = scores - np.array(c.slopes)[:, None, None] * far
        b.scores = np.where(self.allowed(layer, n), scores, -np.inf)
        b.pattern = hook("pattern", layer, softmax(b.scores))
        b.z = hook("z", layer, b.pattern @ b.v)
        b.result = hook("result", layer, b.z @ self.of(layer, "W_O"))

    def _expert(self, name: str, x: np.ndarray) -> np.ndarray:
        up, gate = x @ self.t[f"{name}.W_in"], self.t.get(f"{name}.W_gate")
        hidden = activated(up, self.c.activation) if gate is None else activated(x @ gate, self.c.activation) * up
        return hidden @ self.t[f"{name}.W_out"]

    def _mixture(self, layer: int, x: np.ndarray) -> np.ndarray:
        experts, name, out = self.c.experts, f"layers.{layer}.mlp", np.zeros_like(x)
        for p, token in enumerate(x):
            share = softmax(token @ self.t[f"{name}.router"])
            chosen = sorted(range(experts.n), key=lambda e: -share[e])[: experts.active]
            whole = sum(share[e] for e in chosen) if experts.renormalise else 1.0
            for e in chosen:
                out[p] += share[e] / whole * self._expert(f"{name}.experts.{e}", token)
        if experts.shared:
            gate = sigmoid(x @ self.t[f"{name}.shared_gate"]) if experts.shared_gate else 1.0
            out = out + gate * self._expert(f"{name}.shared", x)
        return out

    def neurons(self, layer: int, x: np.ndarray) -> np.ndarray:
        """[pos, d_mlp]: the activations for an MLP's input [pos, d_model]."""
        c, of = self.c, lambda name: self.of(layer, f"mlp.{name}")
        with_bias = lambda W, b: x @ of(W) + (of(b) if "mlp" in c.biases else 0)
        if c.gated:
            return activated(with_bias("W_gate", "b_gate"), c.activation) * with_bias("W_in", "b_in")
        hidden = activated(with_bias("W_in", "b_in"), c.activation)
        return self.norm(f"layers.{layer}.mlp.norm", hidden, "layer")(hidden) if c.activation == "solu_ln" else hidden

    def _mlp(self, layer: int, b: Block, x: np.ndarray) -> None:
        if self.c.experts is not None:
            b.mlp_raw = self._mixture(layer, x)
            return
        b.hidden = self.neurons(layer, x)
        b.mlp_raw = b.hidden @ self.of(layer, "mlp.W_out")
        b.mlp_raw = b.mlp_raw + (self.of(layer, "mlp.b_out") if "mlp" in self.c.biases else 0)

    def _through(self, layer: int, b: Block, name: str, x: np.ndarray, does: bool) -> np.ndarray:
        """x through a norm of the block where there `does` stand one."""
        if not does:
            return x
        b.norms[name] = self.norm(f"layers.{layer}.{name}", x)
        return b.norms[name](x)

    def block(self, layer: int, x: np.ndarray, hook: Hook = unchanged) -> Block:
        """One block on the stream [pos, d_model]."""
        c, b = self.c, Block(hook("resid_pre", layer, x))
        before, after = c.norm_placement in ("pre", "both"), c.norm_placement in ("post_sublayer", "both")
        residual = c.norm_placement == "post_residual"
        b.read = self._through(layer, b, "attn_norm", b.pre, before)
        self._attend(layer, b, hook)
        out = b.result.sum(0) + (self.of(layer, "b_O") if "o" in c.biases else 0)
        b.attn_out = self._through(layer, b, "attn_post_norm", out, after)
        b.mid = self._through(layer, b, "attn_post_norm", b.pre + b.attn_out, residual)
        b.post = b.mid
        if c.d_mlp:
            read = self._through(layer, b, "mlp_norm", b.pre if c.parallel else b.mid, before)
            self._mlp(layer, b, read)
            b.mlp_out = hook("mlp_out", layer, self._through(layer, b, "mlp_post_norm", b.mlp_raw, after))
            b.post = self._through(layer, b, "mlp_post_norm", b.mid + b.mlp_out, residual)
        return b

    def unembedded(self, tokens: tuple[int, ...], embedded: np.ndarray, blocks: list[Block], x: np.ndarray) -> Passed:
        """The end of a pass, from its last stream."""
        c = self.c
        norm = self.norm("unembed.norm", x, c.norm if c.final_norm else "none")
        uncapped = norm(x) @ self.W_U + (self.t["unembed.b_U"] if "unembed" in c.biases else 0)
        return Passed(tokens, embedded, blocks, x, norm(x), uncapped, capped(uncapped, c.logit_soft_cap), norm)

    def __call__(self, tokens: tuple[int, ...], hook: Hook = unchanged) -> Passed:
        embedded = self.t["embed.W_E"][list(tokens)] * self.c.embed_scale
        x, blocks = embedded + self.positions[: len(tokens)], list[Block]()
        for layer in range(self.c.n_layers):
            blocks.append(self.block(layer, x, hook))
            x = blocks[-1].post
        return self.unembedded(tokens, embedded, blocks, x)
