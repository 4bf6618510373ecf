"""How much of what an earlier head writes a later head reads (Elhage et al. 2021, "Composition"), for all pairs.

    Q: ‖W_OV^{h1} W_QK^{h2}‖     K: ‖W_OV^{h1} W_QK^{h2}ᵀ‖     V: ‖W_OV^{h1} W_OV^{h2}‖

each over the product of the two norms, all of them Frobenius. Reduced first: with C Cᵀ = W_Vᵀ W_V, ‖W_V W_O X‖ = ‖Cᵀ W_O X‖, and
likewise on the right W_Q R, R Rᵀ = W_Kᵀ W_K [Q]; W_K R, R Rᵀ = W_Qᵀ W_Q [K]; W_V R, R Rᵀ = W_O W_Oᵀ [V]. Then one product of
stacked heads for a pair of layers, and sums of squares of its d_head × d_head blocks.

Baseline: one side turned at random with both spectra kept, in d dimensions (P and R: A Aᵀ and Bᵀ B of the reduced factors A, B)

    E[score²] = 1/d,     Var[score²] = 2 nP nR / ((d−1)(d+2)(tr P tr R)²),     nP = ‖P‖² − (tr P)²/d,     z = (score² − 1/d)/sd

The distribution is skewed: z orders edges, it is no p-value.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis
from circuitlab.analysis.spectra import factors_of, gram, reading_words, reads_centred, root
from circuitlab.analysis.weight_view import Heads, refuse_inexact, words
from circuitlab.errors import UsageError
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head

Kind = Literal["Q", "K", "V"]
TILE_FLOPS = 4e9  # of one product, so that cancelling is answered in time
KEPT_SHARE = 4  # of the memory budget, one part may hold what earlier layers write


@dataclass(frozen=True)
class CompositionParams:
    """`kinds`: through the query, the key or the value of the later head."""

    kinds: tuple[Kind, ...] = ("Q", "K", "V")


@dataclass(frozen=True, kw_only=True, eq=False)
class CompositionResult(Result):
    """`scores`, `z` [kind, dest_layer, dest_head, src_layer, src_head] float32; `baseline` √(1/d).

    NaN where the source is not in an earlier layer or one of the two matrices is 0; z also where chance leaves no spread.
    """

    scores: np.ndarray
    z: np.ndarray
    baseline: float
    kinds: tuple[str, ...]

    def table(self) -> Table:
        """One row a pair and kind, strongest first, those without a score last."""
        n_layers, n_heads = self.scores.shape[1:3]
        layers = np.arange(n_layers)
        earlier = np.broadcast_to((layers[None, :] < layers[:, None])[None, :, None, :, None], self.scores.shape)
        places = np.flatnonzero(earlier)
        places = places[np.argsort(-self.scores.ravel()[places], kind="stable")]
        kind, dest_layer, dest, src_layer, src = np.unravel_index(places, self.scores.shape)
        names = np.array([str(Head(i, h)) for i in range(n_layers) for h in range(n_heads)] or [""])
        score = self.scores.ravel()[places]
        return Table(
            (
                Column("kind", np.array(self.kinds)[kind]),
                Column("destination", names[dest_layer * n_heads + dest]),
                Column("source", names[src_layer * n_heads + src]),
                Column("score", score),
                Column("minus_baseline", score - np.float32(self.baseline)),
                Column("z", self.z.ravel()[places]),
            )
        )


@dataclass(frozen=True)
class _Side:
    """Reduced factors of the heads of a layer. `squared` [head]: ‖W_OV‖² or ‖W_QK‖²; `spread` [head]: nP/(tr P)², NaN for 0."""

    squared: Tensor
    spread: Tensor

    @classmethod
    def of(cls, reduced: Tensor, inner: Tensor, d: int) -> _Side:
        """From the d_head × d_head root R and the Gram of the factor that it multiplies: Rᵀ inner R is the Gram of both."""
        both = reduced.mT @ inner @ reduced
        trace = both.diagonal(dim1=-2, dim2=-1).sum(-1)
        spread = both.square().sum((-2, -1)) / trace**2 - 1 / d
        return cls(trace, torch.where(spread > 1e-12, spread, torch.zeros_like(spread)))


class _Sources:
    """What earlier layers write: Cᵀ W_O, kept where those of all layers fit in `budget` bytes; else C is, and W_O read again."""

    def __init__(self, inputs: Inputs, budget: int) -> None:
        c = inputs.weights.config
        self._inputs, self._kept = inputs, {}
        size = 8 if inputs.subject.conventions.dtype == "float64" else 4
        self._whole = size * (c.n_layers - 1) * c.n_heads * c.d_head * c.d_model <= budget
        self.sides: list[_Side] = []

    def add(self, heads: Heads, grams: Mapping[str, Tensor], d: int) -> None:
        """The next layer."""
        C = root(grams["V"])
        self.sides.append(_Side.of(C, grams["O"], d))
        C = C.to(heads.W_O.dtype)
        self._kept[heads.layer] = _stacked(C, heads.W_O) if self._whole else C

    def left(self, layer: int) -> Tensor:
        """[head · d_head, d_model]."""
        kept = self._kept[layer]
        return kept if self._whole else _stacked(kept, factors_of(self._inputs, layer).W_O)


def _stacked(C: Tensor, W_O: Tensor) -> Tensor:
    return (C.mT @ W_O).flatten(0, 1)


def _grams(heads: Heads, kinds: tuple[str, ...]) -> dict[str, Tensor]:
    """[head, d_head, d_head] float64 of what is needed: WᵀW of W_Q, W_K, W_V, and W_O W_Oᵀ."""
    needed = {"V": heads.W_V.mT, "O": heads.W_O}
    needed |= {"Q": heads.W_Q.mT, "K": heads.W_K.mT} if {"Q", "K"} & set(kinds) else {}
    return {name: gram(W) for name, W in needed.items()}


def _reader(heads: Heads, grams: Mapping[str, Tensor], kind: str, d: int) -> tuple[Tensor, _Side]:
    """[head, d_model, d_head] reduced right factor of one kind, and its norms."""
    R = root(grams[{"Q": "K", "K": "Q", "V": "O"}[kind]])
    W = {"Q": heads.W_Q, "K": heads.W_K, "V": heads.W_V}[kind]
    return W @ R.to(W.dtype), _Side.of(R, grams[kind], d)


def _block_squares(left: Tensor, right: Tensor, d_head: int, tick: Callable[[], None]) -> Tensor:
    """[source head, reader]: sums of squares of the blocks of `left` [source head · d_head, d_model] times `right`."""
    n_heads, n_readers = len(left) // d_head, right.shape[1] // d_head
    step = max(1, int(TILE_FLOPS / (2 * d_head * right.numel())))
    found = torch.empty(n_heads, n_readers, dtype=torch.float64)
    product = torch.empty(min(step, n_heads) * d_head, right.shape[1], dtype=right.dtype)
    for start in range(0, n_heads, step):
        tick()
        rows = left[start * d_head : (start + step) * d_head]
        block = torch.mm(rows, right, out=product[: len(rows)])
        block.mul_(block)
        found[start : start + step] = block.view(-1, d_head, n_readers, d_head).sum(-1).sum(1)
    return found


def _layer_memory(c: ModelConfig) -> int:
    """Bytes for one destination and one source layer in float64: weights, centred copies, factors, a tile of the product."""
    factor = 8 * c.n_heads * c.d_head * c.d_model
    rows = min(c.n_heads, max(1, int(TILE_FLOPS / (6 * c.d_head**2 * c.n_heads * c.d_model)))) * c.d_head
    small = 8 * c.n_heads * c.d_head**2 * (c.n_layers + 16)
    return 16 * factor + small + 3 * 8 * 3 * rows * c.n_heads * c.d_head


def _memory(c: ModelConfig, n: int, p: CompositionParams) -> int:
    """The result (twice, for partial ones), a layer, and up to a quarter of the budget for what earlier layers write."""
    return (4 * (_layer_memory(c) + 8 * 6 * len(p.kinds) * (c.n_layers * c.n_heads) ** 2)) // 3


@analysis(version=1, needs="weights", lane="slow", memory=_memory, refuse=refuse_inexact)
def composition(inputs: Inputs, p: CompositionParams, ctx: Ctx) -> CompositionResult:
    """Q-, K- and V-composition of every head with every head of an earlier layer, against what chance gives."""
    kinds = tuple(dict.fromkeys(p.kinds))
    if not kinds:
        raise UsageError("No kind of composition was named.", expected="one or more of Q K V", got="none")
    c = inputs.weights.config
    d = c.d_model - 1 if reads_centred(inputs) else c.d_model
    shape = (len(kinds), c.n_layers, c.n_heads, c.n_layers, c.n_heads)
    scores, z = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    said = words(
        inputs,
        reading_words(inputs),
        f"baseline √(1/{d}): one side turned at random, both spectra kept",
        "rotary: at distance 0" if c.positions == "rotary" else "",
        "one layer: there are no pairs" if c.n_layers < 2 else "",
    )
    made = lambda done: CompositionResult(
        scores=scores if done == 1 else scores.copy(),
        z=z if done == 1 else z.copy(),
        baseline=math.sqrt(1 / d) if d else math.nan,
        kinds=kinds,
        conventions=said,
        done=done,
    )
    sources, shown = _Sources(inputs, inputs.memory // KEPT_SHARE), time.monotonic()
    for layer in range(c.n_layers if c.n_layers > 1 else 0):
        at, total = layer * (layer - 1) // 2, c.n_layers * (c.n_layers - 1) // 2
        ctx.tick(at, total, f"composition with layer {layer}")
        heads = factors_of(inputs, layer)
        grams = _grams(heads, kinds)
        if layer:
            scores[:, layer, :, :layer], z[:, layer, :, :layer] = _into(heads, grams, kinds, sources, d, ctx, (at, total))
            if time.monotonic() - shown > 0.5 and layer < c.n_layers - 1:
                ctx.partial(made((at + layer) / total))
                shown = time.monotonic()
        if layer < c.n_layers - 1:
            sources.add(heads, grams, d)
    return made(1.0)


def _into(
    heads: Heads,
    grams: Mapping[str, Tensor],
    kinds: tuple[str, ...],
    sources: _Sources,
    d: int,
    ctx: Ctx,
    done: tuple[int, int],
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and z [kind, dest_head, src_layer, src_head] of one layer's heads with all earlier ones."""
    n_heads, d_model, d_head = heads.W_Q.shape
    factors, sides = zip(*(_reader(heads, grams, kind, d) for kind in kinds), strict=True)
    right = torch.stack(factors).permute(2, 0, 1, 3).reshape(d_model, -1)
    squares = torch.empty(len(kinds), n_heads, heads.layer, n_heads, dtype=torch.float64)
    for source in range(heads.layer):
        tick = lambda at=source: ctx.tick(done[0] + at, done[1], f"composition with layer {heads.layer}")
        found = _block_squares(sources.left(source), right, d_head, tick)
        squares[:, :, source] = found.view(n_heads, len(kinds), n_heads).permute(1, 2, 0)
    norms = _outer([s.squared for s in sides], [s.squared for s in sources.sides])
    spread = _outer([s.spread for s in sides], [s.spread for s in sources.sides])
    score2 = squares / torch.where(norms > 0, norms, torch.nan)
    variance = 2 * spread / ((d - 1) * (d + 2)) if d > 1 else torch.zeros_like(spread)
    z = (score2 - 1 / d) / torch.where(variance > 0, variance, torch.nan).sqrt() if d else torch.full_like(score2, torch.nan)
    return score2.sqrt().float().numpy(), z.float().numpy()


def _outer(readers: list[Tensor], sources: list[Tensor]) -> Tensor:
    """[kind, dest_head, src_layer, src_head] products."""
    return torch.stack(readers)[:, :, None, None] * torch.stack(sources)
