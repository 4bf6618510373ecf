"""`Run`: what one forward pass stores, and what it recomputes on demand.

Stored, per layer: the stream before the block, queries, keys, values and the norms' scales. Scores, patterns, z, what each head
writes, the MLP's output, logits and losses are recomputed per call with the run's own interventions, so a run costs
`resid_pre + q + k + v` and one head's pattern costs one small product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.errors import BadInput, UsageError, quoted
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.editor import Editor
from circuitlab.model.intervention import Intervention
from circuitlab.model.weights import Layer, Norm, Unembed, Weights

ROWS = 128  # rows unembedded at a time: at d_vocab 50 257 one tile is 26 MB

NAMES = ("resid_pre resid_mid resid_post q k v scores pattern z result attn_out mlp_out attn_norm_scale mlp_norm_scale").split()


@dataclass(frozen=True, eq=False)
class Captured:
    """The stored values of one layer: resid_pre [pos, d_model]; q [head, pos, d_head]; k, v [kv_head, pos, d_head].

    `attn_scale` [pos, 1]: the scale of the norm before attention.
    """

    resid_pre: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    attn_scale: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of these tensors."""
        return sum(t.numel() * t.element_size() for t in (self.resid_pre, self.q, self.k, self.v, self.attn_scale))


@dataclass(eq=False)
class Run:
    """One forward pass of one prompt. Treat as immutable.

    `final` [pos, d_model] is the stream after the last block; `reused` is the number of positions taken from an earlier
    run; `start` of every recomputation is 0: a run always holds all its positions.
    """

    weights: Weights
    tokens: tuple[int, ...]
    edits: tuple[Intervention, ...]
    editor: Editor
    captured: list[Captured] = field(default_factory=list)
    final: Tensor | None = None
    reused: int = 0

    @property
    def n(self) -> int:
        """Number of positions."""
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        """Bytes of all stored tensors."""
        captured = sum(c.nbytes for c in self.captured)
        return captured + (self.final.numel() * self.final.element_size() if self.final is not None else 0)

    def get(self, name: str, layer: int, heads: tuple[int, ...] = (), dest: slice = slice(None)) -> Tensor:
        """A named value of one layer, interventions included. Do not write to it.

        Shapes: resid_pre, resid_mid, resid_post, attn_out, mlp_out [dest, d_model]; q, z [head, dest, d_head]; k, v
        [kv_head, src, d_head] (`heads` are key-value heads there);
        scores, pattern [head, dest, src] (scores unmasked); result [head, dest,
        d_model]; attn_norm_scale, mlp_norm_scale [dest, 1]. `heads` () means all. Raises `UsageError` for an unknown name.
        """
        if name not in NAMES:
            raise UsageError(
                "There is no such activation.", expected=" ".join(NAMES), got=quoted(name), remedy="Name one of them."
            )
        if not 0 <= layer < self.weights.config.n_layers:
            raise BadInput(
                "There is no such layer.",
                expected=f"0..{self.weights.config.n_layers - 1}",
                got=str(layer),
                remedy="Choose a layer of the model, counted from 0.",
            )
        with torch.inference_mode():
            return getattr(self, f"_{name}")(layer, heads, dest)

    def _resid_pre(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        return self.captured[layer].resid_pre[dest]

    def _resid_post(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        if layer + 1 < len(self.captured):
            # before any intervention on the next layer's resid_pre, which belongs to that layer
            if not self.editor.touches(layer + 1, "resid_pre"):
                return self.captured[layer + 1].resid_pre[dest]
        elif self.final is not None:
            return self.final[dest]
        config, weights = self.weights.config, self.weights.layer(layer)
        return block_output(config, weights, layer, self._resid_pre(layer, (), dest), self, dest)

    def _resid_mid(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        config, weights = self.weights.config, self.weights.layer(layer)
        return after_attention(config, weights, self._resid_pre(layer, (), dest), self._attn_out(layer, (), dest))

    def _q(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        return _pick(self.captured[layer].q, heads)[:, dest]

    def _k(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        return _pick(self.captured[layer].k, heads)[:, dest]

    def _v(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        return _pick(self.captured[layer].v, heads)[:, dest]

    def _attn_norm_scale(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        return self.captured[layer].attn_scale[dest]

    def _mlp_norm_scale(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        config = self.weights.config
        x = self._resid_pre(layer, (), dest) if config.parallel else self._resid_mid(layer, (), dest)
        return block.norm_scale(x, config.norm, config.norm_eps)

    def _grouped(self, by_kv_head: Tensor, heads: tuple[int, ...]) -> Tensor:
        """Keys or values per query head, each head with those of its group."""
        config = self.weights.config
        chosen = heads or tuple(range(config.n_heads))
        return by_kv_head[[config.kv_head(h) for h in chosen]]

    def _scores(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        captured, n = self.captured[layer], self.captured[layer].q.shape[1]
        rows = dest if not self._mixes_rows(layer) else slice(None)
        q = _pick(captured.q, heads)[:, rows]
        raw = block.scores(self.weights.config, q, self._grouped(captured.k, heads))
        start = rows.indices(n)[0]
        raw = block.biased(self.weights.config, layer, raw, start, heads or None)
        raw = self.editor.apply("scores", layer, raw, start, heads or None)
        return raw if rows is dest else raw[:, dest]

    def _mixes_rows(self, layer: int) -> bool:
        """Whether an intervention reads all destinations at once, so that rows cannot be computed alone."""
        return self.editor.touches(layer, "scores", "pattern", "z", "result")

    def _pattern(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        config, n = self.weights.config, self.captured[layer].q.shape[1]
        rows = slice(None) if self._mixes_rows(layer) else dest
        every = torch.arange(n, device=self.captured[layer].q.device)
        positions, src = every[rows], every[None, :]
        mask = src <= positions[:, None]
        if window := config.window(layer):
            mask &= src > positions[:, None] - window
        pattern = block.pattern(self._scores(layer, heads, rows), mask)
        pattern = self.editor.apply("pattern", layer, pattern, rows.indices(n)[0], heads or None)
        return pattern if rows is dest else pattern[:, dest]

    def _z(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        captured = self.captured[layer]
        rows = slice(None) if self._mixes_rows(layer) else dest
        z = self._pattern(layer, heads, rows) @ self._grouped(captured.v, heads)
        z = self.editor.apply("z", layer, z, rows.indices(captured.q.shape[1])[0], heads or None)
        return z if rows is dest else z[:, dest]

    def _result(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        rows = slice(None) if self._mixes_rows(layer) else dest
        written = self._z(layer, heads, rows) @ _pick(self.weights.layer(layer).W_O, heads)
        start = rows.indices(self.captured[layer].q.shape[1])[0]
        written = self.editor.apply("result", layer, written, start, heads or None)
        return written if rows is dest else written[:, dest]

    def _attn_out(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        weights = self.weights.layer(layer)
        return post_norm(self.weights.config, weights, self._heads_summed(weights, layer, dest), "attn")

    def _heads_summed(self, weights: Layer, layer: int, dest: slice) -> Tensor:
        """[dest, d_model]: the sum of head outputs and b_O, before a norm after the sublayer."""
        if not self.editor.touches(layer, "result"):
            return block.write(weights, self._z(layer, (), dest))
        out = self._result(layer, (), dest).sum(0)
        return out if weights.b_O is None else out + weights.b_O

    def norm_after_heads(self, layer: int, dest: slice = slice(None)) -> tuple[Norm, Tensor] | None:
        """The norm that head outputs pass on their way into the stream, and its recorded scale [dest, 1]; None without one.

        It stands after the sublayer, or after the addition.
        """
        config, weights = self.weights.config, self.weights.layer(layer, mlp=False)
        if config.norm == "none" or config.norm_placement == "pre":
            return None
        with torch.inference_mode():
            x = self._heads_summed(weights, layer, dest)
            x = x + self._resid_pre(layer, (), dest) if config.norm_placement == "post_residual" else x
            return weights.attn_post_norm, block.norm_scale(x, config.norm, config.norm_eps)

    def _mlp_out(self, layer: int, heads: tuple[int, ...], dest: slice) -> Tensor:
        config, weights = self.weights.config, self.weights.layer(layer)
        if weights.mlp is None:
            raise BadInput(
                "This model has no MLP.",
                expected="a model with MLPs",
                got="attention only",
                remedy="Choose an activation of attention or of the stream.",
            )
        whole = self.editor.touches(layer, "mlp_out")
        rows = slice(None) if whole else dest
        x = self._resid_pre(layer, (), rows) if config.parallel else self._resid_mid(layer, (), rows)
        out = self.editor.apply("mlp_out", layer, mlp_written(config, weights, x))
        return out[dest] if whole else out

    def logits(self, dest: slice = slice(None)) -> Tensor:
        """[dest, d_vocab_out]: final norm, unembedding, soft cap."""
        assert self.final is not None
        with torch.inference_mode():
            return unembed(self.weights, self.weights.unembed(), self.final[dest])

    def log_probs(self, dest: slice = slice(None)) -> Tensor:
        """[dest, d_vocab_out]: log-softmax of the logits, nats."""
        with torch.inference_mode():
            return torch.log_softmax(self.logits(dest), dim=-1)

    def losses(self, tick: Callable[[int], None] = lambda row: None) -> Tensor:
        """[pos − 1], nats: entry i is the loss of token i + 1 predicted at position i. `tick(row)` before each tile of rows.

        NaN for a token that the model reads but cannot predict (id from d_vocab_out on).
        """
        assert self.final is not None
        targets = torch.tensor(self.tokens[1:], device=self.final.device)
        predictable = targets < self.weights.config.d_vocab_out
        with torch.inference_mode():
            parts = list(loss_tiles(self.logits, targets * predictable, tick))
            return torch.cat(parts).masked_fill(~predictable, torch.nan) if parts else self.final.new_zeros(0)


def loss_tiles(
    logits: Callable[[slice], Tensor], targets: Tensor, tick: Callable[[int], None] = lambda row: None
) -> Iterator[Tensor]:
    """Losses [row] in nats of `targets` [n] under `logits(rows)` [row, d_vocab_out], by tiles; `tick(row)` before each tile."""
    for start in range(0, len(targets), ROWS):
        tick(start)
        rows = slice(start, min(start + ROWS, len(targets)))
        yield F.cross_entropy(logits(rows), targets[rows], reduction="none")


def _pick(x: Tensor, heads: tuple[int, ...]) -> Tensor:
    return x[list(heads)] if heads else x


def post_norm(config: ModelConfig, weights: Layer, out: Tensor, which: str) -> Tensor:
    """What a sublayer adds: normalised after it for "post_sublayer" and "both" placements."""
    if config.norm_placement not in ("post_sublayer", "both"):
        return out
    norm = weights.attn_post_norm if which == "attn" else weights.mlp_post_norm
    return block.normalise(out, norm, config.norm, config.norm_eps)


def after_attention(config: ModelConfig, weights: Layer, x: Tensor, attn_out: Tensor) -> Tensor:
    """The stream between the sublayers (for parallel blocks: before the MLP's part is added)."""
    mid = x + attn_out
    if config.norm_placement == "post_residual":
        return block.normalise(mid, weights.attn_post_norm, config.norm, config.norm_eps)
    return mid


def mlp_written(config: ModelConfig, weights: Layer, x: Tensor) -> Tensor:
    """What the MLP adds, from the stream it reads."""
    assert weights.mlp is not None
    reads = config.norm_placement in ("pre", "both")
    read = block.normalise(x, weights.mlp_norm, config.norm, config.norm_eps) if reads else x
    return post_norm(config, weights, block.mlp_out(config, weights.mlp, read), "mlp")


def after_mlp(config: ModelConfig, weights: Layer, mid: Tensor, mlp_out: Tensor) -> Tensor:
    """The stream after the block."""
    post = mid + mlp_out
    if config.norm_placement == "post_residual":
        return block.normalise(post, weights.mlp_post_norm, config.norm, config.norm_eps)
    return post


def block_output(config: ModelConfig, weights: Layer, layer: int, x: Tensor, run: Run, dest: slice) -> Tensor:
    """The stream after block `layer`, recomputed from a run."""
    mid = after_attention(config, weights, x, run.get("attn_out", layer, (), dest))
    return mid if weights.mlp is None else after_mlp(config, weights, mid, run.get("mlp_out", layer, (), dest))


def unembed(weights: Weights, ends: Unembed, x: Tensor) -> Tensor:
    """Logits [..., d_vocab_out] of a final stream [..., d_model]."""
    return block.soft_cap(uncapped(weights, ends, x), weights.config.logit_soft_cap)


def uncapped(weights: Weights, ends: Unembed, x: Tensor) -> Tensor:
    """Logits before the soft cap, [..., d_vocab_out], of a final stream [..., d_model]."""
    config = weights.config
    if config.final_norm:
        x = block.normalise(x, ends.norm, config.norm, config.norm_eps)
    logits = x @ ends.W_U
    return logits if ends.b_U is None else logits + ends.b_U
