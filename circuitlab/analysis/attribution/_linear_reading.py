"""A linear reading of the stream, taken apart into what was written into it.

    R(x) = s ∘ (x W),        W [d_model, width] the same at every position, s [pos, 1] the recorded norm scales

Behind a norm at its recorded scale s′ (y = s′ ∘ centre(x) ∘ gain + bias; RMSNorm does not centre) R(y) is again such a reading,
of the norm's input:

    W′ = centre(gain ∘ W),  scale s ∘ s′,        plus the constant s ∘ (bias W)

Reading from a layer back to the embedding gives one part for every writer, and the parts add up to R(x) (the sum over the terms
of a path expansion, Elhage et al. 2021, with norms and MLPs as recorded). An MLP's part is what the recorded stream gained in
its layer beyond attention: nothing of it is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from circuitlab.analysis.attribution._contributions import attention_written, entering, replaced, z_of
from circuitlab.model import block
from circuitlab.model.config import ModelConfig, NormKind
from circuitlab.model.run import Run
from circuitlab.model.subject import Head
from circuitlab.model.weights import Layer, Norm

Kind = Literal["embedding", "position", "bias", "mlp", "head", "intervention"]
TILE_FLOPS = 2e9  # of the patterns made at a time, so that cancelling is answered in time
NORM_BIASES, INTERVENTIONS = "norm biases", "interventions"


@dataclass(frozen=True, eq=False)
class Part:
    """What one writer contributes to a reading: `value` [pos, width]. Parts of the same name belong together."""

    name: str
    kind: Kind
    value: Tensor
    head: Head | None = None


@dataclass(frozen=True, eq=False)
class Reading:
    """`scale` ∘ (x `W`): W [d_model, width], scale [pos, 1]."""

    W: Tensor
    scale: Tensor

    def of(self, x: Tensor) -> Tensor:
        """[..., pos, width] of x [..., pos, d_model]."""
        return self.scale * (x @ self.W)

    def behind(self, norm: Norm, kind: NormKind, scale: Tensor) -> tuple[Reading, list[Part]]:
        """The same reading of what went into a norm whose recorded scale was `scale` [pos, 1], and its bias' part."""
        if kind == "none":
            return self, []
        W = self.W if norm.gain is None else norm.gain[:, None] * self.W
        W = W - W.mean(dim=0, keepdim=True) if kind == "layer" else W
        constant = [] if norm.bias is None else [Part(NORM_BIASES, "bias", self.scale * (norm.bias @ self.W))]
        return Reading(W, self.scale * scale), constant


class Passage:
    """All norms between what a head of layer `first` writes and what layer `last`'s attention reads (n_layers: the unembedding).

    At their recorded scales they take x to `scale` ∘ (x N), besides their biases: `scale` [dest, 1], N by `apply`.
    """

    def __init__(self, run: Run, first: int, last: int, dest: slice = slice(None)) -> None:
        self.c, self._norms = run.weights.config, list[Norm]()
        self.scale = torch.ones_like(run.get("resid_pre", first, (), dest)[:, :1])
        c = self.c
        if c.norm_placement in ("post_sublayer", "both"):
            weights = run.weights.layer(first, mlp=False)
            written = attention_written(run, first, weights, run.get("z", first, (), dest), dest)
            self._add(weights.attn_post_norm, written)
        for i in range(first, last) if c.norm_placement == "post_residual" else ():
            weights = run.weights.layer(i)
            self._add(weights.attn_post_norm, run.get("resid_pre", i, (), dest) + run.get("attn_out", i, (), dest))
            if weights.mlp is not None:
                self._add(weights.mlp_post_norm, run.get("resid_mid", i, (), dest) + run.get("mlp_out", i, (), dest))
        if last == c.n_layers and c.final_norm:
            self._add(run.weights.unembed().norm, run.get("resid_post", last - 1, (), dest))
        if last < c.n_layers and c.norm_placement in ("pre", "both"):
            self._add(run.weights.layer(last, mlp=False).attn_norm, run.get("resid_pre", last, (), dest))

    def _add(self, norm: Norm, x: Tensor) -> None:
        self._norms.append(norm)
        self.scale = self.scale * block.norm_scale(x, self.c.norm, self.c.norm_eps)

    def apply(self, x: Tensor) -> Tensor:
        """x N for x [..., d_model]: each norm's centring and gain, no scale and no bias."""
        for norm in self._norms:
            x = x - x.mean(dim=-1, keepdim=True) if self.c.norm == "layer" else x
            x = x if norm.gain is None else x * norm.gain
        return x


def parts_before(run: Run, layer: int, reading: Reading, tick: Callable[[int, int, str], None]) -> list[Part]:
    """Everything that was written into the stream before `layer`, as `reading` sees it, from the embedding on."""
    found: list[list[Part]] = []
    for i in reversed(range(layer)):
        found.append(_replaced(run, i + 1, reading))
        reading, written = _block(run, i, reading, lambda text, i=i: tick(layer - 1 - i, layer, text))
        found.append(written)
    found.append(_replaced(run, 0, reading))
    begins = entering(run, slice(None)).items()
    found.append([Part(name, "embedding" if name == "embedding" else "position", reading.of(x)) for name, x in begins])
    return [part for some in reversed(found) for part in some]


def _replaced(run: Run, layer: int, reading: Reading) -> list[Part]:
    """What an intervention on the stream in front of `layer` put into it."""
    change = replaced(run, layer, slice(None))
    return [] if change is None else [Part(INTERVENTIONS, "intervention", reading.of(change))]


def _block(run: Run, i: int, reading: Reading, tick: Callable[[str], None]) -> tuple[Reading, list[Part]]:
    """The reading as the stream before block i looks to it, and the parts of the block's writers."""
    c = run.weights.config
    if c.norm_placement == "post_residual":
        return _block_behind_norms(run, i, reading, tick)
    attention = _attention(run, i, reading, tick)
    if c.attention_only:
        return reading, attention
    gained = reading.of(run.get("resid_post", i) - run.get("resid_pre", i))
    mlp = gained - torch.stack([part.value for part in attention]).sum(0)
    return reading, [*attention, Part(f"MLP {i}", "mlp", mlp)]


def _block_behind_norms(run: Run, i: int, reading: Reading, tick: Callable[[str], None]) -> tuple[Reading, list[Part]]:
    """The same where norms stand on the stream itself: they stand between every earlier writer and the reader."""
    c, weights, found = run.weights.config, run.weights.layer(i), list[Part]()
    if weights.mlp is not None:
        written = run.get("mlp_out", i)
        scale = block.norm_scale(run.get("resid_mid", i) + written, c.norm, c.norm_eps)
        reading, found = reading.behind(weights.mlp_post_norm, c.norm, scale)
        found.append(Part(f"MLP {i}", "mlp", reading.of(written)))
    scale = block.norm_scale(run.get("resid_pre", i) + run.get("attn_out", i), c.norm, c.norm_eps)
    reading, constant = reading.behind(weights.attn_post_norm, c.norm, scale)
    return reading, [*_attention(run, i, reading, tick), *constant, *found]


def _attention(run: Run, i: int, reading: Reading, tick: Callable[[str], None]) -> list[Part]:
    """One part a head of layer i, one for its output bias; a norm behind attention lies in between."""
    c, weights, found = run.weights.config, run.weights.layer(i, mlp=False), list[Part]()
    if c.norm_placement in ("post_sublayer", "both"):
        written = attention_written(run, i, weights, run.get("z", i), slice(None))
        reading, found = reading.behind(weights.attn_post_norm, c.norm, block.norm_scale(written, c.norm, c.norm_eps))
    for heads in _tiles(c, run.n):
        tick(f"what the heads of layer {i} wrote")
        values = _written_by(run, i, weights, heads, reading)
        found += [Part(str(Head(i, h)), "head", v, Head(i, h)) for h, v in zip(heads, values, strict=True)]
    if weights.b_O is not None:
        found.append(Part(f"b_O {i}", "bias", reading.scale * (weights.b_O @ reading.W)))
    return found


def _written_by(run: Run, i: int, weights: Layer, heads: tuple[int, ...], reading: Reading) -> Tensor:
    """[head, pos, width]: z (W_O W), and the longer way where an intervention acts on what heads write."""
    if run.editor.touches(i, "result"):
        return reading.of(run.get("result", i, heads))
    whole = len(heads) == run.weights.config.n_heads
    z = z_of(run, i, slice(None)) if whole else run.get("z", i, heads)
    return reading.scale * (z @ (weights.W_O[heads[0] : heads[-1] + 1] @ reading.W))


def _tiles(c: ModelConfig, n: int) -> Iterator[tuple[int, ...]]:
    """Heads whose patterns are made together."""
    step = max(1, int(TILE_FLOPS / (4 * c.d_head * n * n)))
    for start in range(0, c.n_heads, step):
        yield tuple(range(start, min(start + step, c.n_heads)))


def merged(parts: list[Part]) -> list[Part]:
    """Parts of the same name added up, in the order in which the names first stand."""
    found: dict[str, Part] = {}
    for part in parts:
        first = found.get(part.name)
        found[part.name] = part if first is None else Part(part.name, part.kind, first.value + part.value, part.head)
    return list(found.values())
