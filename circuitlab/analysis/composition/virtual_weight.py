"""Virtual weights between any component that writes to the residual stream and any that reads it, direct or across layers.

    direct   A · B            A one of W_E, W_pos, W_OV^{h}, W_out;   B one of W_QK^{h}, W_QK^{h}ᵀ, W_OV^{h}, W_in, W_U
    across   A · (I + M_l) Π_{k=l+1}^{m−1} (I + Σ_h W_OV^{k,h}) (I + M_k) · B

(Elhage et al. 2021, "Virtual weights and the residual stream as a communication channel"), every attention pattern set to the
identity: a head then copies within a position. l is the writer's layer, m the reader's; if the reader is layer m's MLP there is
another factor (I + Σ_h W_OV^{m,h}); parallel blocks are I + Σ_h W_OV^{k,h} + M_k, without (I + M_l). M is 0, `W_in W_out`, or the
MLP's Jacobian at a position of the prompt or averaged over all, then with norms at recorded scales (`_mlp_jacobian`).

Only the direct product follows from the weights exactly. Across layers the patterns are assumed to be the identity, and
`W_in W_out` leaves out the nonlinearity: the caption says so instead of "exact".

Chance is the rms of ‖A P B‖ / (‖A‖‖B‖) with both ends rotated at random against P: ‖P‖_F / d, which is 1/√d for a direct product,
P = I. d is d_model, or d_model − 1 where writers and readers are centred over d_model, as for `composition`.

Heads enter by their gauge-invariant products W_OV and W_QK, never by W_O or W_Q alone. With F the shorter side's factor
(FᵀF = AᵀA, see `virtual_weight_path`), the squared singular values of A P B are the eigenvalues of `F P (B Bᵀ) Pᵀ Fᵀ`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, over
from circuitlab.analysis.circuits.factor_products import reading_words, reads_centred
from circuitlab.analysis.circuits.factors import BEFORE_SMEARING, exactness, refuse_inexact
from circuitlab.analysis.composition._mlp_jacobian import At, refuse_jacobian
from circuitlab.analysis.composition.virtual_weight_path import (
    Pairs,
    Place,
    Side,
    as_read,
    eigh,
    linear_pairs,
    mlp_of,
    of_embedding,
    of_head,
    of_positions,
    of_rows,
    of_unembedding,
    path_between,
    recorded_pairs,
    refuse_order,
    short_factor,
    through_path,
)
from circuitlab.analysis.cost import ASSUMED, SPECTRUM, of_layers
from circuitlab.analysis.target import position_of
from circuitlab.counting import number_of
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head
from circuitlab.model.weights import NO_NEURONS

DIRECTIONS = 4
RECORDED = ("Jacobian at the position", "mean Jacobian")


@dataclass(frozen=True)
class VirtualWeightParams:
    """Writer and reader; `writer_head`, `writer_layer`, `reader_head`, `reader_layer` apply if it is a head or an MLP.

    `across`: through the layers between; `mlp`: the matrix for their MLPs: none, W_in W_out, or the Jacobian, at `position` or
    averaged over the prompt. `k` tokens per direction.
    """

    writer: Literal["embedding", "position", "head", "mlp"] = "embedding"
    writer_head: Head = Head(0, 0)
    writer_layer: int = at_least(0, 0)
    reader: Literal["QK query", "QK key", "OV", "mlp", "unembedding"] = "unembedding"
    reader_head: Head = Head(1, 0)
    reader_layer: int = at_least(0, 1)
    across: bool = False
    mlp: Literal["none", "linear", "Jacobian at the position", "mean Jacobian"] = "none"
    position: int = -1
    k: int = at_least(1, 10)

    @property
    def recorded(self) -> bool:
        """Whether activations of a run enter."""
        return self.across and self.mlp in RECORDED

    @property
    def needs(self) -> Literal["weights", "tokens"]:
        """Jacobians need a prompt; everything else stays cached while the prompt changes."""
        return "tokens" if self.recorded else "weights"

    @property
    def written_at(self) -> Place | None:
        """The writer's place in the model; None for embeddings."""
        if self.writer == "head":
            return Place("heads", self.writer_head.layer)
        return Place("mlp", self.writer_layer) if self.writer == "mlp" else None

    @property
    def read_at(self) -> Place | None:
        """The reader's place in the model; None for the unembedding."""
        if self.reader == "unembedding":
            return None
        return Place("mlp", self.reader_layer) if self.reader == "mlp" else Place("heads", self.reader_head.layer)


@dataclass(frozen=True, kw_only=True, eq=False)
class VirtualWeightResult(Result):
    """`norm`: the Frobenius norm of the product; `relative`: divided by `writer_norm · reader_norm`, 0 if one of them is 0.

    `baseline`: the rms of `relative` with both sides rotated at random, ‖P‖_F / d (1/√d for a direct product).
    `direct_norm`, `across_norm`: NaN if not computed. `singular_values` [r], largest first. `left_ids`, `left` [direction, k]:
    the largest entries, by magnitude, of the left singular vectors (the writer's tokens); `right_ids`, `right`: of the right
    ones (the reader's tokens); [direction, 0] if a side is not over tokens. The common sign of a pair of vectors is arbitrary.
    """

    norm: float
    relative: float
    baseline: float
    direct_norm: float
    across_norm: float
    writer_norm: float
    reader_norm: float
    product: str
    singular_values: np.ndarray = over("index", unit="weight units")
    left_ids: np.ndarray = over("direction", "left token", unit="token id")
    left: np.ndarray = over("direction", "left token", unit="dimensionless")
    right_ids: np.ndarray = over("direction", "right token", unit="token id")
    right: np.ndarray = over("direction", "right token", unit="dimensionless")

    def table(self) -> Table:
        """One row per singular value, with its share of the squared norm."""
        squares = self.singular_values.astype(np.float64) ** 2
        share = squares / squares.sum() if squares.sum() > 0 else np.zeros_like(squares)
        index = np.arange(len(squares))
        return Table(
            (Column("index", index), Column("singular_value", self.singular_values, "weight units"), Column("share", share))
        )


def _refuse(config: ModelConfig, p: VirtualWeightParams) -> str | None:
    return refuse_inexact(config) or _missing(config, p) or refuse_order(config, p.written_at, p.read_at) or _unlinear(config, p)


def _missing(c: ModelConfig, p: VirtualWeightParams) -> str | None:
    """Why the model lacks the writer or the reader, or None if it has both."""
    heads = [p.writer_head] if p.writer == "head" else []
    heads += [p.reader_head] if p.reader in ("QK query", "QK key", "OV") else []
    for head in heads:
        if not (0 <= head.layer < c.n_layers and 0 <= head.head < c.n_heads):
            return f"the model has no {head}; it has {number_of(c.n_layers, 'layer')} of {number_of(c.n_heads, 'head')}."
    for which, layer in ((p.writer, p.writer_layer), (p.reader, p.reader_layer)):
        if which == "mlp" and c.attention_only:
            return "the model has no MLP."
        if which == "mlp" and c.experts is not None:
            return NO_NEURONS
        if which == "mlp" and not 0 <= layer < c.n_layers:
            return f"the model has no layer {layer}; it has {c.n_layers}."
    if p.writer != "position":
        return None
    if c.positions in ("none", "rotary", "alibi"):
        return f"positions are not written to the residual stream (positions: {c.positions})."
    if c.positions == "shortformer" and (p.reader not in ("QK query", "QK key") or p.across):
        return "positions are added to the inputs of queries and keys, never to the stream: only QK reads them, and directly."
    if c.positions == "shortformer" and not c.positional(p.reader_head.layer):
        return f"layer {p.reader_head.layer} reads no positions."
    return None


def _unlinear(c: ModelConfig, p: VirtualWeightParams) -> str | None:
    if p.recorded and (reason := refuse_jacobian(c)):
        return reason
    if p.mlp == "linear" and c.experts is not None:
        return NO_NEURONS
    return "W_in W_out says nothing of a gated MLP; leave MLPs out." if p.mlp == "linear" and c.gated else None


def _memory(c: ModelConfig, n: int, p: VirtualWeightParams) -> int:
    heads = 3 * 4 * c.n_heads * c.d_head * c.d_model
    mlp = 3 * 2 * c.d_model * c.d_mlp if "mlp" in (p.writer, p.reader) or p.mlp == "linear" else 0
    ends = c.d_vocab * (p.writer == "embedding") + c.d_vocab_out * (p.reader == "unembedding")
    tiles = 4 * max(2**28 // c.d_model, 64 * c.d_model)
    return 8 * (heads + mlp + ends * (c.d_model + 2 * DIRECTIONS) + 8 * c.d_model**2) + tiles


def _sides(inputs: Inputs, p: VirtualWeightParams) -> tuple[Side, Side]:
    """The two sides, A and Bᵀ."""
    if p.writer == "head":
        left = of_head(inputs, p.writer_head, "writes")
    elif p.writer == "mlp":
        left = of_rows(mlp_of(inputs, p.writer_layer)[1], f"W_out of layer {p.writer_layer}")
    else:
        left = of_embedding(inputs) if p.writer == "embedding" else of_positions(inputs)
    if p.reader == "unembedding":
        return left, of_unembedding(inputs)
    if p.reader == "mlp":
        return left, of_rows(mlp_of(inputs, p.reader_layer)[0].T, f"W_in of layer {p.reader_layer}")
    behind_norm = p.writer == "position" and inputs.weights.config.positions == "shortformer"
    return left, of_head(inputs, p.reader_head, p.reader, behind_norm)


def _cost(c: ModelConfig, n: int, p: VirtualWeightParams) -> float:
    """A side of more than d_model rows is first made into a factor; the other side is multiplied with it."""
    d = c.d_model
    writer = {"embedding": c.d_vocab, "position": c.n_ctx, "mlp": c.d_mlp}.get(p.writer, c.d_head)
    reader = {"unembedding": c.d_vocab_out, "mlp": c.d_mlp}.get(p.reader, c.d_head)
    (short, tall), rank = sorted((writer, reader)), min(writer, reader, d)
    factored = 4.0 * short * d**2 + SPECTRUM * d**3 if short > d else 0.0
    product = 2.0 * tall * rank * (d + rank) + SPECTRUM * rank**3
    steps = path_between(c, p.written_at, p.read_at, p.mlp != "none") if p.across else []
    widths = {"heads": c.n_heads * c.d_head, "mlp": c.d_mlp}
    width = sum(widths.get(step.kind, sum(widths.values())) for step in steps)
    return factored + product + 4.0 * (rank + d) * d * width + (of_layers(c, n or ASSUMED) if p.recorded else 0.0)


@analysis(version=3, needs="weights", lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def virtual_weight(inputs: Inputs, p: VirtualWeightParams, ctx: Ctx) -> VirtualWeightResult:
    """Virtual weight of a writer and a reader: norm, singular values and top tokens of writer · (layers between) · reader."""
    if p.k < 1:
        raise BadInput("No token is requested.", expected="k ≥ 1", got=str(p.k), remedy="Ask for one token or more.")
    with torch.inference_mode():
        return _computed(inputs, p, ctx)


def _computed(inputs: Inputs, p: VirtualWeightParams, ctx: Ctx) -> VirtualWeightResult:
    c = inputs.weights.config
    left, right = _sides(inputs, p)
    norms = left.norm(ctx), right.norm(ctx)
    path = path_between(c, p.written_at, p.read_at, p.mlp != "none")
    at = _recorded(inputs, p) if p.recorded else None
    way = PathSteps(inputs, path if p.across else [], recorded_pairs(at) if at is not None else linear_pairs)
    forwards = _height(left, c.d_model) <= _height(right, c.d_model)
    short, tall = (left, right) if forwards else (right, left)
    factor = short_factor(short, c.d_model, ctx, inputs.weights.embed().W_E.dtype)
    thin = inputs.weights.resident and len(factor) <= c.d_head
    beside = path if p.across or p.mlp not in RECORDED else []  # no run is made for a norm that is only shown beside
    moved = through_path(factor, inputs, beside, not forwards, ctx, way.pairs) if p.across or thin else None
    direct = tall.through(factor, ctx)
    across = tall.through(moved, ctx) if moved is not None and beside else direct if not path else None
    chosen, F = (across, moved) if p.across else (direct, factor)
    assert chosen is not None and F is not None
    squares, U = eigh(chosen, ctx)
    r = min(left.rows, right.rows, len(F))
    sigma = squares.clamp(min=0).sqrt()[:r]
    ends = _directions(way, (short, tall), F, U[:, : min(DIRECTIONS, r)], sigma, forwards, ctx)
    vectors = ends if forwards else (ends[1], ends[0])
    (left_ids, left_values), (right_ids, right_values) = _top(vectors, min(DIRECTIONS, r), p.k)
    norm = _root(chosen)
    return VirtualWeightResult(
        norm=norm,
        relative=norm / (norms[0] * norms[1]) if norms[0] * norms[1] > 0 else 0.0,
        baseline=way.norm(ctx) / max(1, way.dimensions),
        direct_norm=_root(direct),
        across_norm=math.nan if across is None else _root(across),
        writer_norm=norms[0],
        reader_norm=norms[1],
        product=_product(p, way.path, c),
        singular_values=sigma.cpu().numpy(),
        left_ids=left_ids,
        left=left_values,
        right_ids=right_ids,
        right=right_values,
        conventions=_words(inputs, p, way.path, at, sigma),
    )


@dataclass(frozen=True)
class PathSteps:
    """The path between the two sides: its steps, and the matrices of each."""

    inputs: Inputs
    path: list[Place]
    pairs: Callable[[Inputs, Place], Pairs]

    @property
    def dimensions(self) -> int:
        """Of the stream, without that of its mean over d_model where nobody reads it."""
        return self.inputs.weights.config.d_model - reads_centred(self.inputs)

    def norm(self, ctx: Ctx) -> float:
        """‖P‖_F; of the identity for a direct product."""
        if not self.path:
            return self.dimensions**0.5
        weights = self.inputs.weights
        eye = torch.eye(weights.config.d_model, dtype=weights.embed().W_E.dtype)
        return float(through_path(as_read(eye, self.inputs), self.inputs, self.path, False, ctx, self.pairs).double().norm())


def _recorded(inputs: Inputs, p: VirtualWeightParams) -> At:
    run = inputs.run()
    if p.mlp == "mean Jacobian":
        return At(run, slice(None))
    position = position_of(run.n, p.position)
    return At(run, slice(position, position + 1))


def _height(side: Side, d_model: int) -> int:
    return d_model + 1 if side.factor is None else len(side.factor)


def _root(gram: Tensor) -> float:
    return math.sqrt(max(float(gram.trace()), 0.0))


def _directions(
    way: PathSteps,
    sides: tuple[Side, Side],
    F: Tensor,
    U: Tensor,
    sigma: Tensor,
    forwards: bool,
    ctx: Ctx,
) -> tuple[Tensor | None, Tensor | None]:
    """Singular vectors [direction, rows] of the short and of the tall side; None for a side whose rows are not tokens.

    With `v = B uᵀF P / σ` on the tall side, the short side's is `A P Bᵀv / σ`; 0 where σ is 0.
    """
    short, tall = sides
    n = U.shape[1]
    inverse = torch.where(sigma[:n] > sigma[:1] * 1e-7, 1 / sigma[:n], torch.zeros(n, dtype=sigma.dtype))[:, None]
    reading = (inverse * (U.T @ F.double())).to(F.dtype)
    on_tall = tall.on_rows(reading, ctx) if tall.tokens else None
    if not short.tokens:
        return None, on_tall
    writing = through_path(tall.back(reading, ctx), way.inputs, way.path, forwards, ctx, way.pairs)
    return short.on_rows((inverse * writing.double()).to(F.dtype), ctx), on_tall


def _top(vectors: tuple[Tensor | None, Tensor | None], n: int, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(ids, values) of the k largest entries of each side by magnitude; signs make the last side's first entry positive."""
    judge = vectors[1] if vectors[1] is not None else vectors[0]
    no_ids = np.zeros((n, 0), dtype=np.int64)
    if judge is None:
        return [(no_ids, np.zeros((n, 0), np.float32))] * 2
    sign = torch.where(judge.gather(1, judge.abs().argmax(1, keepdim=True)) < 0, -1.0, 1.0)
    ends = []
    for side in vectors:
        if side is None:
            ends.append((no_ids, judge.new_zeros(n, 0).cpu().numpy()))
            continue
        ids = side.abs().topk(min(k, side.shape[1]), dim=1).indices
        ends.append((ids.cpu().numpy(), (side * sign).gather(1, ids).cpu().numpy()))
    return ends


def _product(p: VirtualWeightParams, path: list[Place], c: ModelConfig) -> str:
    """The product in symbols."""
    writer = {"embedding": "W_E", "position": "W_pos", "head": f"W_OV^{p.writer_head}"}
    reader = {"QK query": f"W_QK^{p.reader_head}", "QK key": f"(W_QK^{p.reader_head})ᵀ", "OV": f"W_OV^{p.reader_head}"}
    reader |= {"mlp": f"W_in^{p.reader_layer}", "unembedding": "W_U"}
    step = {"heads": "(I + Σ_h W_OV^{{{0},h}})", "mlp": "(I + M_{0})", "block": "(I + Σ_h W_OV^{{{0},h}} + M_{0})"}
    parts = [step[place.kind].format(place.layer) for place in path]
    if len(parts) > 4:
        parts = [*parts[:2], "…", *parts[-2:]]
    return " · ".join([writer.get(p.writer, f"W_out^{p.writer_layer}"), *parts, reader[p.reader]])


def _words(inputs: Inputs, p: VirtualWeightParams, path: list[Place], at: At | None, sigma: Tensor) -> tuple[str, ...]:
    """The caption: first how exact the statement is, then what it leaves out."""
    scores = (p.reader_head.layer,) if p.reader.startswith("QK") else ()
    assumed = []
    if path:
        assumed.append("patterns are assumed")
        if at is not None:
            assumed.append("Jacobians hold for small changes")
        elif p.mlp == "linear" and any(place.kind != "heads" for place in path):
            assumed.append("MLPs are taken as linear")
    exact = exactness(inputs.weights.config, inputs.subject.conventions, scores, ends=p.reader == "unembedding", assumed=assumed)
    return (*inputs.convention_words(), exact, *(word for word in _caption_parts(inputs, p, path, at, sigma) if word))


def _caption_parts(inputs: Inputs, p: VirtualWeightParams, path: list[Place], at: At | None, sigma: Tensor) -> list[str]:
    c = inputs.weights.config
    parts = [reading_words(inputs), "biases left out", "no score scale" if p.reader.startswith("QK") else ""]
    if p.across:
        scales = "norms between at recorded scales" if at is not None else "norms between at scale 1"
        parts += ["every pattern set to the identity", "" if c.norm == "none" else scales]
        where = ""
        if at is not None:
            where = number_of(at.run.n, "position") if p.mlp == "mean Jacobian" else f"position {at.positions.start}"
        mlps = {"none": "MLPs left out", "linear": "MLPs as W_in W_out, without their nonlinearity"}
        parts += (
            [] if c.attention_only else [mlps.get(p.mlp, f"MLPs by their Jacobian, {'mean of ' * (p.mlp == RECORDED[1])}{where}")]
        )
    how = "both ends rotated at random against what stands between" if path else "one side rotated at random, both spectra kept"
    parts += [f"baseline: {how}"]
    if p.reader.startswith("QK"):
        rotates = c.rotation(p.reader_head.layer) is not None
        parts += ["offset 0" if rotates else "", BEFORE_SMEARING if c.smeared_keys else ""]
    if p.reader == "mlp" and c.gated:
        parts += ["W_in of the gated MLP, not its gate"]
    top = sigma[: DIRECTIONS + 1]
    tied = bool(((top[:-1] - top[1:]) <= 1e-5 * top[:1]).any())
    return [*parts, "singular values tie: their vectors span a subspace" if tied else ""]
