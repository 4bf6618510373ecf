"""The slow decoder with edges cut: what each head of each layer reads is added up anew, without what the cut senders wrote."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.slow_forward import SlowModel, _norm

Edge = tuple[Any, int, int, str]  # sender (layer, head) or ("mlp", layer), receiving layer, its (key-value) head, "Q" "K" "V"


class SlowEdges(SlowModel):
    """Norms before sublayers only. `cut` edges; `rows`: the positions at which receivers miss them, all by default.

    `unread`: heads (layer, head) whose writing the unembedding does not read. `by` "zero" or "mean" over positions.
    """

    def __init__(self, config: Any, tensors: dict[str, Any], cut: set[Edge], rows: Any = None, **more: Any) -> None:
        super().__init__(config, tensors)
        assert config.norm_placement == "pre"
        self.cut, self.rows, self.by, self.unread = cut, rows, more.get("by", "zero"), more.get("unread", set())
        self.wrote: dict[Any, np.ndarray] = {}

    def _without(self, sender: Any) -> np.ndarray:
        w = self.wrote[sender]
        return w if self.by == "zero" else w - w.mean(axis=0)

    def _read(self, layer: int, head: int, kind: str, x: np.ndarray) -> np.ndarray:
        """The normed stream [pos, d_model] that this head's query, key or value is made of where it misses its senders."""
        for sender, at, h, k in sorted(self.cut, key=str):
            if (at, h, k) == (layer, head, kind):
                x = x - self._without(sender)
        return self._named_norm(layer, "attn_norm", x)

    def _part(self, layer: int, kind: str, head: int, x: np.ndarray) -> np.ndarray:
        whole = self._vectors(layer, kind, head, self._named_norm(layer, "attn_norm", x))
        missing = self._vectors(layer, kind, head, self._read(layer, head, kind, x))
        chosen = np.isin(np.arange(len(x)), range(len(x)) if self.rows is None else self.rows)
        return np.where(chosen[:, None], missing, whole)

    def _block(self, layer: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        c, n = self.c, len(x)
        patterns, mid = np.zeros((c.n_heads, n, n)), x.copy()
        for head in range(c.n_heads):
            group = head // (c.n_heads // c.n_kv_heads)
            q, k, v = (self._part(layer, w, h, x) for w, h in (("Q", head), ("K", group), ("V", group)))
            for d in range(n):
                scores = c.score_scale * np.array([float(q[d] @ k[s]) for s in range(d + 1)])
                weights = np.exp(scores - scores.max())
                patterns[head, d, : d + 1] = weights / weights.sum()
            self.wrote[(layer, head)] = patterns[head] @ v @ self.t[f"layers.{layer}.W_O"][head]
            mid = mid + self.wrote[(layer, head)]
        mid = mid + (self.t[f"layers.{layer}.b_O"] if "o" in c.biases else 0)
        if c.d_mlp == 0:
            return mid, patterns
        self.wrote[("mlp", layer)] = self._mlp(layer, self._named_norm(layer, "mlp_norm", x if c.parallel else mid))
        return mid + self.wrote[("mlp", layer)], patterns

    def final(self, tokens: tuple[int, ...]) -> np.ndarray:
        """Logits [pos, d_vocab_out] of the stream that the unembedding reads."""
        self.wrote = {}
        c, t = self.c, self.t
        x = np.stack([t["embed.W_E"][i] * c.embed_scale for i in tokens])
        x = x + t["embed.W_pos"][: len(tokens)] if c.positions == "learned" else x
        for layer in range(c.n_layers):
            x, _ = self._block(layer, x)
        for sender in sorted(self.unread):
            x = x - self._without(sender)
        if c.final_norm:
            x = _norm(x, c.norm, self._maybe("unembed.norm.gain"), self._maybe("unembed.norm.bias"), c.norm_eps)
        logits = x @ (t["embed.W_E"].T if c.tied else t["unembed.W_U"])
        return logits + (t["unembed.b_U"] if "unembed" in c.biases else 0)


def losses(logits: np.ndarray, tokens: tuple[int, ...]) -> np.ndarray:
    """[pos − 1], nats."""
    p = logits - logits.max(axis=-1, keepdims=True)
    p = p - np.log(np.exp(p).sum(axis=-1, keepdims=True))
    return -p[np.arange(len(tokens) - 1), tokens[1:]]
