"""The parts of a virtual weight `A · P · B`: a writer A, a reader B, and the path P of the layers between them.

A `Side` is a writer A [rows, d_model], or a reader's transpose Bᵀ [rows, d_model]. It is given by a factor F [r, d_model] with
FᵀF = AᵀA, which has the same norms and singular values and is gauge-invariant (for a head's `W_V W_O` with W_V = Q R it is
`R W_O`, r = d_head); or, if it has more than d_model rows, by tiles of its rows.

Where LayerNorms alone read the stream, its mean over d_model reaches nobody: what reads is centred, as what writes is
(`factor_products.reads_centred`), and so is the identity that the path begins with.

A path is a list of steps `x ← x + Σ (x W_in) W_out`, summed over what acts in parallel: all heads of a layer with their patterns
set to the identity (W_V, W_O), an MLP without its nonlinearity (W_in, W_out), or both (parallel blocks). It is applied to a thin
factor, from the left or, transposed and backwards, from the right; no product is `d_model × d_model` per head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from circuitlab.analysis.base import Ctx, Inputs
from circuitlab.analysis.circuits.factor_products import factors_of, reads_centred
from circuitlab.analysis.circuits.factors import embedding, heads_of
from circuitlab.analysis.composition._mlp_jacobian import At, attention_scale, jacobian_of
from circuitlab.errors import NOT_FINITE, BadModel
from circuitlab.model.block import flat_in, flat_out, per_query_head
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import positions_in_stream
from circuitlab.model.recorded_norm import before_norm, linear_part
from circuitlab.model.subject import Head

ROWS = 128  # rows of a factor that pass a layer at a time
WORK = 2**28  # multiplications per tile of a side

Pairs = list[tuple[Tensor, Tensor]]


class Place(NamedTuple):
    """One step of a path: the "heads", the "mlp", or the whole (parallel) "block" of a layer."""

    kind: Literal["heads", "mlp", "block"]
    layer: int


def path_between(config: ModelConfig, writer: Place | None, reader: Place | None, mlp: bool) -> list[Place]:
    """The steps between a writer and a reader, in order; None: the embeddings, the unembedding. `mlp`: include MLPs.

    Sequential blocks: a head of layer l is followed by that layer's MLP, and an MLP of layer m follows that layer's heads.
    Parallel blocks: attention and MLP of a layer read the same stream.
    """
    mlp = mlp and not config.attention_only
    first = 0 if writer is None else writer.layer + 1
    last = config.n_layers if reader is None else reader.layer
    if config.parallel:
        return [Place("block" if mlp else "heads", k) for k in range(first, last)]
    if writer and reader and writer.layer == reader.layer:
        return []
    own = [Place("mlp", writer.layer)] if mlp and writer and writer.kind == "heads" else []
    kinds: tuple[Literal["heads", "mlp"], ...] = ("heads", "mlp") if mlp else ("heads",)
    whole = [Place(kind, k) for k in range(first, last) for kind in kinds]
    return own + whole + ([Place("heads", reader.layer)] if reader and reader.kind == "mlp" else [])


def refuse_order(config: ModelConfig, writer: Place | None, reader: Place | None) -> str | None:
    """Why this reader does not read this writer, or None if it does."""
    if writer is None or reader is None or writer.layer < reader.layer:
        return None
    if writer.layer > reader.layer:
        return f"layer {reader.layer} reads before layer {writer.layer} writes."
    if writer.kind == "heads" and reader.kind == "mlp" and not config.parallel:
        return None
    how = "attention and MLP of a parallel block read the same stream" if config.parallel else "it reads first"
    return f"the reader does not come after the writer: both are in layer {reader.layer}, and {how}."


def mlp_of(inputs: Inputs, layer: int) -> tuple[Tensor, Tensor]:
    """(W_in [d_model, d_mlp], W_out [d_mlp, d_model]) of one layer, W_in as it reads, W_out with the linear part of a norm after.

    Raises `BadModel` if one of them is not finite, `Refused` for a mixture of experts.
    """
    c, block = inputs.weights.config, inputs.weights.layer(layer)
    assert block.mlp is not None
    W_in, W_out = as_read(block.mlp.W_in, inputs), block.mlp.W_out
    if c.norm != "none" and c.norm_placement in ("post_sublayer", "both"):
        W_out = linear_part(W_out, block.mlp_post_norm, c.norm)
    for name, value in (("W_in", W_in), ("W_out", W_out)):
        _check(f"layers.{layer}.mlp.{name}", value.sum())
    return W_in, W_out


def as_read(W: Tensor, inputs: Inputs) -> Tensor:
    """A reading weight [d_model, n], centred over d_model where that changes nothing that is read."""
    return W - W.mean(0) if reads_centred(inputs) else W


def _check(name: str, value: Tensor) -> None:
    if not bool(torch.isfinite(value).all()):
        raise BadModel(
            f"The weights of {name} are not finite.", expected="finite weights", got="NaN or infinity", remedy=NOT_FINITE
        )


def linear_pairs(inputs: Inputs, place: Place) -> Pairs:
    """Steps from the weights alone: W_V W_O of all heads, W_in W_out of an MLP."""
    steps: Pairs = []
    if place.kind in ("heads", "block"):
        heads = factors_of(inputs, place.layer)
        steps.append((flat_in(heads.W_V), flat_out(heads.W_O)))
    if place.kind in ("mlp", "block"):
        steps.append(mlp_of(inputs, place.layer))
    return steps


def recorded_pairs(at: At) -> Callable[[Inputs, Place], Pairs]:
    """Steps for small changes at recorded activations: MLPs by their Jacobians, heads at the scale of their norm."""

    def pairs(inputs: Inputs, place: Place) -> Pairs:
        steps: Pairs = []
        if place.kind in ("heads", "block"):
            c, layer = inputs.weights.config, inputs.weights.layer(place.layer, mlp=False)
            reads = flat_in(per_query_head(c, layer.W_V))  # as stored behind the norm: the factors of `heads_of` have its gain
            reads = before_norm(reads, layer.attn_norm, c.norm, axis=0) * attention_scale(at, place.layer)
            steps.append((reads, flat_out(heads_of(inputs, place.layer).W_O)))
        if place.kind in ("mlp", "block"):
            steps.append(jacobian_of(at, place.layer))
        return steps

    return pairs


def through_path(
    x: Tensor,
    inputs: Inputs,
    path: list[Place],
    backwards: bool,
    ctx: Ctx,
    pairs_of: Callable[[Inputs, Place], Pairs] = linear_pairs,
) -> Tensor:
    """`x P` for x [r, d_model], or `x Pᵀ` if `backwards`, from the reader to the writer. Layers are read one at a time."""
    steps = list(reversed(path)) if backwards else path
    for i, place in enumerate(steps):
        ctx.tick(i, len(steps), f"layer {place.layer}")
        pairs = pairs_of(inputs, place)
        pairs = [(W_out.T, W_in.T) for W_in, W_out in pairs] if backwards else pairs
        done: list[Tensor] = []
        for tile in x.split(ROWS):
            ctx.tick(i, len(steps), f"layer {place.layer}")
            done.append(tile + sum((tile @ first @ second for first, second in pairs), torch.zeros_like(tile)))
        x = torch.cat(done)
    return x


@dataclass(frozen=True)
class Side:
    """One end of a product, `rows` × d_model, with `part(start, stop)` of its rows; `tokens`: its rows are tokens.

    `factor` [≤ d_model, d_model]: see the module; None if the side has more than d_model rows.
    """

    name: str
    rows: int
    part: Callable[[int, int], Tensor]
    factor: Tensor | None = None
    tokens: bool = False

    def tiles(self, width: int, d_model: int, ctx: Ctx) -> Iterator[Tensor]:
        """Tiles of rows [tile, d_model], small enough to cancel a product with [d_model, width] in time."""
        height = max(64, WORK // (d_model * max(width, 1)))
        for start in range(0, self.rows, height):
            ctx.tick(start, self.rows, self.name)
            yield self.part(start, min(start + height, self.rows))

    def through(self, x: Tensor, ctx: Ctx) -> Tensor:
        """[r, r] float64: `x AᵀA xᵀ` for x [r, d_model]."""
        gram = torch.zeros(len(x), len(x), dtype=torch.float64)
        for tile in self.tiles(len(x), x.shape[1], ctx):
            products = (tile @ x.T).double()
            gram += products.T @ products
        _check(self.name, gram)
        return gram

    def back(self, x: Tensor, ctx: Ctx) -> Tensor:
        """[n, d_model]: `x AᵀA`, for a few rows x."""
        tiles = self.tiles(len(x), x.shape[1], ctx)
        return sum(((tile @ x.T).T @ tile for tile in tiles), torch.zeros_like(x))

    def on_rows(self, x: Tensor, ctx: Ctx) -> Tensor:
        """[n, rows]: `x Aᵀ`, for a few vectors x of the stream."""
        return torch.cat([(tile @ x.T).T for tile in self.tiles(len(x), x.shape[1], ctx)], dim=1)

    def norm(self, ctx: Ctx) -> float:
        """The Frobenius norm. Raises `BadModel` if a weight is not finite."""
        tiles = [self.factor] if self.factor is not None else self.tiles(64, self.part(0, 1).shape[1], ctx)
        squares = sum(float(tile.double().square().sum()) for tile in tiles)
        _check(self.name, torch.tensor(squares))
        return squares**0.5


def of_rows(W: Tensor, name: str, tokens: bool = False) -> Side:
    """A side from all of its rows: an embedding, W_out, the transpose of W_in or of W_U."""
    thin = W if len(W) <= W.shape[1] else None
    return Side(name, len(W), lambda start, stop: W[start:stop], thin, tokens)


def of_product(inner: Tensor, outer: Tensor, name: str) -> Side:
    """A head's side `inner outer`, inner [d_model, d_head], outer [d_head, d_model], by the triangular factor of inner."""
    R = torch.linalg.qr(inner.double(), mode="r").R
    factor = (R @ outer.double()).to(outer.dtype)
    return Side(name, len(factor), lambda start, stop: factor[start:stop], factor)


def of_head(inputs: Inputs, head: Head, which: Literal["writes", "QK query", "QK key", "OV"], behind_norm: bool = False) -> Side:
    """A head as a writer (W_OV), or the transpose of it as a reader (W_QK, W_QKᵀ, W_OV).

    `behind_norm`: of what is added after the norm, shortformer positions.
    """
    heads = heads_of(inputs, head.layer, behind_norm=True) if behind_norm else factors_of(inputs, head.layer)
    W_Q, W_K, W_V, W_O = (W[head.head] for W in (heads.W_Q, heads.W_K, heads.W_V, heads.W_O))
    inner, outer = {
        "writes": (W_V, W_O),
        "QK query": (W_K, W_Q.T),
        "QK key": (W_Q, W_K.T),
        "OV": (W_O.T, W_V.T),
    }[which]
    return of_product(inner, outer, f"{which} {head}")


def of_embedding(inputs: Inputs) -> Side:
    """W_E as it enters the residual stream."""
    return of_rows(embedding(inputs.weights), "W_E", tokens=True)


def of_positions(inputs: Inputs) -> Side:
    """W_pos, or the sinusoidal table instead."""
    c, embed = inputs.weights.config, inputs.weights.embed()
    W_pos = embed.W_pos if c.positions == "shortformer" else positions_in_stream(c, embed, 0, c.n_ctx)
    assert W_pos is not None
    return of_rows(W_pos, "W_pos")


def of_unembedding(inputs: Inputs) -> Side:
    """W_Uᵀ."""
    return of_rows(as_read(inputs.weights.unembed().W_U, inputs).T, "W_U", tokens=True)


def short_factor(side: Side, d_model: int, ctx: Ctx, dtype: torch.dtype) -> Tensor:
    """[≤ d_model, d_model]: the side's factor; for a tall side `√Λ Qᵀ` from `AᵀA = Q Λ Qᵀ`, without null directions."""
    if side.factor is not None:
        return side.factor
    values, Q = eigh(side.through(torch.eye(d_model, dtype=dtype), ctx), ctx)
    nonzero = values > values.max().clamp(min=0) * 1e-14
    return (values[nonzero].sqrt()[:, None] * Q[:, nonzero].T).to(dtype)


def eigh(S: Tensor, ctx: Ctx) -> tuple[Tensor, Tensor]:
    """Eigenvalues, largest first, and eigenvectors of a symmetric S; a long call can be cancelled while it runs."""
    if len(S) <= 512:
        values, vectors = torch.linalg.eigh(S)
        return values.flip(0), vectors.flip(1)
    from concurrent.futures import ThreadPoolExecutor, TimeoutError

    pool = ThreadPoolExecutor(1)
    try:
        waiting = pool.submit(torch.linalg.eigh, S)
        while True:
            ctx.tick(0, 1, "eigenvalues")
            try:
                values, vectors = waiting.result(timeout=0.1)
                return values.flip(0), vectors.flip(1)
            except TimeoutError:
                continue
    finally:
        pool.shutdown(wait=False)  # a cancelled call ends by itself within seconds
