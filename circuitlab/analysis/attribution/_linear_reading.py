"""A linear function of the residual stream as the sum of its components' parts.

    R(x) = s ∘ (x W),        W [d_model, width] the same at every position, s [pos, 1] the recorded norm scales

After a norm at its recorded scale s′ (y = s′ ∘ centre(x) ∘ gain + bias; RMSNorm does not centre), R(y) is again such a function
of the norm's input:

    W′ = centre(gain ∘ W),  scale s ∘ s′,        plus the constant s ∘ (bias W)

Reading from a layer back to the embedding gives one part per component, and the parts add up to R(x) (the terms of a path
expansion, Elhage et al. 2021, with norms and MLPs as recorded). An MLP's part is what the recorded stream gains in its layer
beyond attention: the MLP is not recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from circuitlab.analysis.attribution._contributions import attention_output, initial_stream, stream_intervention, z_of
from circuitlab.model import block
from circuitlab.model.config import ModelConfig, NormKind
from circuitlab.model.recorded_norm import before_norm, linear_part
from circuitlab.model.run import Run
from circuitlab.model.subject import Head
from circuitlab.model.weights import Layer, Norm

Kind = Literal["embedding", "position", "bias", "mlp", "head", "intervention"]
TILE_FLOPS = 2e9  # per batch of heads whose patterns are computed together, so that cancelling is noticed in time
NORM_BIASES, INTERVENTIONS = "norm biases", "interventions"


@dataclass(frozen=True, eq=False)
class Part:
    """One component's part of a reading: `value` [pos, width]. Parts of the same name are added (`merged`)."""

    name: str
    kind: Kind
    value: Tensor
    head: Head | None = None


@dataclass(frozen=True, eq=False)
class Reading:
    """The linear function `scale` ∘ (x `W`) of the stream: W [d_model, width], scale [pos, 1]."""

    W: Tensor
    scale: Tensor

    def of(self, x: Tensor) -> Tensor:
        """[..., pos, width]: its value for x [..., pos, d_model]."""
        return self.scale * (x @ self.W)

    def before_norm(self, norm: Norm, kind: NormKind, scale: Tensor) -> tuple[Reading, list[Part]]:
        """This reading as a function of a norm's input, at the recorded `scale` [pos, 1], and the part of the norm's bias."""
        if kind == "none":
            return self, []
        constant = [] if norm.bias is None else [Part(NORM_BIASES, "bias", self.scale * (norm.bias @ self.W))]
        return Reading(before_norm(self.W, norm, kind, axis=0), self.scale * scale), constant


class Passage:
    """All norms between the output of a head in layer `first` and the input of attention in layer `last`.

    `last` = n_layers stands for the unembedding. At their recorded scales, and without their biases, the norms map x to
    `scale` ∘ (x N): `scale` [dest, 1], N by `apply`.
    """

    def __init__(self, run: Run, first: int, last: int, dest: slice = slice(None)) -> None:
        self.c, self._norms = run.weights.config, list[Norm]()
        self.scale = torch.ones_like(run.get("resid_pre", first, (), dest)[:, :1])
        c = self.c
        if c.norm_placement in ("post_sublayer", "both"):
            weights = run.weights.layer(first, mlp=False)
            output = attention_output(run, first, weights, run.get("z", first, (), dest), dest)
            self._add(weights.attn_post_norm, output)
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
        """x N for x [..., d_model]: each norm's centring and gain, without scale and bias."""
        for norm in self._norms:
            x = linear_part(x, norm, self.c.norm)
        return x


def parts_before(run: Run, layer: int, reading: Reading, tick: Callable[[int, int, str], None]) -> list[Part]:
    """The parts of a reading of the stream before `layer`: one per component, from the embedding on."""
    parts_by_layer: list[list[Part]] = []
    for i in reversed(range(layer)):
        parts_by_layer.append(_replaced(run, i + 1, reading))
        reading, output = _block(run, i, reading, lambda text, i=i: tick(layer - 1 - i, layer, text))
        parts_by_layer.append(output)
    parts_by_layer.append(_replaced(run, 0, reading))
    initial = initial_stream(run, slice(None)).items()
    parts_by_layer.append([Part(name, "embedding" if name == "embedding" else "position", reading.of(x)) for name, x in initial])
    return [part for parts in reversed(parts_by_layer) for part in parts]


def _replaced(run: Run, layer: int, reading: Reading) -> list[Part]:
    """The part of an intervention on the stream before `layer`."""
    change = stream_intervention(run, layer, slice(None))
    return [] if change is None else [Part(INTERVENTIONS, "intervention", reading.of(change))]


def _block(run: Run, i: int, reading: Reading, tick: Callable[[str], None]) -> tuple[Reading, list[Part]]:
    """The reading as a function of the stream before block i, and the parts of the block's components."""
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
    """As `_block` with norms on the stream itself, which lie between every earlier component and the reading."""
    c, weights, parts = run.weights.config, run.weights.layer(i), list[Part]()
    if weights.mlp is not None:
        output = run.get("mlp_out", i)
        scale = block.norm_scale(run.get("resid_mid", i) + output, c.norm, c.norm_eps)
        reading, parts = reading.before_norm(weights.mlp_post_norm, c.norm, scale)
        parts.append(Part(f"MLP {i}", "mlp", reading.of(output)))
    scale = block.norm_scale(run.get("resid_pre", i) + run.get("attn_out", i), c.norm, c.norm_eps)
    reading, constant = reading.before_norm(weights.attn_post_norm, c.norm, scale)
    return reading, [*_attention(run, i, reading, tick), *constant, *parts]


def _attention(run: Run, i: int, reading: Reading, tick: Callable[[str], None]) -> list[Part]:
    """One part per head of layer i and one for b_O, through a norm after attention if there is one."""
    c, weights, parts = run.weights.config, run.weights.layer(i, mlp=False), list[Part]()
    if c.norm_placement in ("post_sublayer", "both"):
        output = attention_output(run, i, weights, run.get("z", i), slice(None))
        reading, parts = reading.before_norm(weights.attn_post_norm, c.norm, block.norm_scale(output, c.norm, c.norm_eps))
    for heads in _tiles(c, run.n):
        tick(f"outputs of the heads of layer {i}")
        values = _head_parts(run, i, weights, heads, reading)
        parts += [Part(str(Head(i, h)), "head", v, Head(i, h)) for h, v in zip(heads, values, strict=True)]
    if weights.b_O is not None:
        parts.append(Part(f"b_O {i}", "bias", reading.scale * (weights.b_O @ reading.W)))
    return parts


def _head_parts(run: Run, i: int, weights: Layer, heads: tuple[int, ...], reading: Reading) -> Tensor:
    """[head, pos, width]: z (W_O W), or the reading of the recorded outputs if an intervention acts on them."""
    if run.editor.touches(i, "result"):
        return reading.of(run.get("result", i, heads))
    whole = len(heads) == run.weights.config.n_heads
    z = z_of(run, i, slice(None)) if whole else run.get("z", i, heads)
    return reading.scale * (z @ (weights.W_O[heads[0] : heads[-1] + 1] @ reading.W))


def _tiles(c: ModelConfig, n: int) -> Iterator[tuple[int, ...]]:
    """Batches of heads whose patterns are computed together."""
    step = max(1, int(TILE_FLOPS / (4 * c.d_head * n * n)))
    for start in range(0, c.n_heads, step):
        yield tuple(range(start, min(start + step, c.n_heads)))


def merged(parts: list[Part]) -> list[Part]:
    """Parts with the same name added up, in the order of first occurrence."""
    by_name: dict[str, Part] = {}
    for part in parts:
        first = by_name.get(part.name)
        by_name[part.name] = part if first is None else Part(part.name, part.kind, first.value + part.value, part.head)
    return list(by_name.values())
