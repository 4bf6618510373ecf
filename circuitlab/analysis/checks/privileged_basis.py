"""Privileged basis: the kurtosis of the residual stream and of writing weights, against a randomly rotated basis.

    kurtosis(v) = mean((v − mean v)⁴) / mean((v − mean v)²)²        3 for a normal distribution, more for few large entries

- per dimension: v = x_l[:, j] over the positions of the prompt, streams l = 0 … n_layers;
- per stream: over the dimensions j of one position's vector, then the mean over positions (Elhage et al. 2023, "Privileged
  Bases in the Transformer Residual Stream");
- of the weights that write dimension j: v = column j of W_E, of W_pos, of each head's W_OV, of each W_out, each matrix alone,
  then the mean over matrices. W_OV and not W_O, whose rows are a choice of gauge.

The control is the same quantity of x Q, W Q with Q a random orthogonal matrix: norms and angles are the same, so an excess over
it is due to the basis. Whatever treats all directions alike (attention, a linear map) makes no difference between the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, over
from circuitlab.analysis.checks.rotation_invariance import FLOPS, random_orthogonal, rotated_rows
from circuitlab.analysis.circuits.factors import embedding, heads_of
from circuitlab.analysis.composition.virtual_weight_path import mlp_of
from circuitlab.analysis.cost import ASSUMED, of_layers
from circuitlab.counting import number_of
from circuitlab.errors import NOT_FINITE, BadModel
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import positions_in_stream
from circuitlab.model.subject import Head


@dataclass(frozen=True)
class PrivilegedBasisParams:
    """`seed` of the random basis."""

    seed: int = at_least(0, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivilegedBasisResult(Result):
    """`kurtosis`, `control` [n_layers + 1, d_model] of each dimension, over positions.

    `token_kurtosis`, `token_control` [n_layers + 1]: over dimensions, mean over positions. `weights`, `weights_control`
    [d_model]: of the weights that write each dimension. NaN without variance (one position, a dimension that nothing writes).
    `n_positions`: positions included, without BOS.
    """

    kurtosis: np.ndarray = over("stage", "dimension", unit="dimensionless")
    control: np.ndarray = over("stage", "dimension", unit="dimensionless")
    weights: np.ndarray = over("dimension", unit="dimensionless")
    weights_control: np.ndarray = over("dimension", unit="dimensionless")
    token_kurtosis: np.ndarray = over("stage", unit="dimensionless")
    token_control: np.ndarray = over("stage", unit="dimensionless")
    n_positions: int

    def entries_along(self, axis: str) -> list[str] | None:
        """The stream before each block, and at the end."""
        return [*(f"before L{i}" for i in range(len(self.kurtosis) - 1)), "final"] if axis == "stage" else None

    def table(self) -> Table:
        """One row per dimension: the final stream, and the weights."""
        return Table(
            (
                Column("dimension", np.arange(len(self.weights))),
                Column("kurtosis", self.kurtosis[-1]),
                Column("control", self.control[-1]),
                Column("weights", self.weights),
                Column("weights_control", self.weights_control),
            )
        )


class Moments:
    """Sums of the first four powers of rows, column by column, from which the columns' kurtosis follows.

    Powers of the difference to `shift` [n], which is near the mean, to avoid cancellation.
    """

    def __init__(self, shift: Tensor) -> None:
        self._shift, self._rows = shift, 0
        self._sums = torch.zeros(4, len(shift), dtype=torch.float64)

    def add(self, rows: Tensor) -> None:
        """Add rows [row, n]."""
        v = rows.double() - self._shift
        square = v * v
        for i, power in enumerate((v, square, square * v, square * square)):
            self._sums[i] += power.sum(0)
        self._rows += len(rows)

    @property
    def finite(self) -> bool:
        """Whether all rows are finite."""
        return bool(torch.isfinite(self._sums).all())

    def kurtosis(self) -> Tensor:
        """[n] float64: the kurtosis of each column; NaN for a constant column."""
        m1, m2, m3, m4 = self._sums / max(self._rows, 1)
        variance = m2 - m1**2
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        varies = variance > 1e-12 * (m2 + self._shift**2)  # less is rounding
        return torch.where(varies, fourth / torch.where(varies, variance, 1.0) ** 2, torch.nan)


def kurtosis(x: Tensor, dim: int) -> Tensor:
    """Kurtosis over one axis, as float64; NaN without variance."""
    x = x.double()
    squares = (x - x.mean(dim, keepdim=True)).square()
    variance = squares.mean(dim)
    varies = variance > 1e-12 * x.square().mean(dim)
    return torch.where(varies, squares.square().mean(dim) / torch.where(varies, variance, 1.0) ** 2, torch.nan)


def _memory(c: ModelConfig, n: int, p: PrivilegedBasisParams) -> int:
    factors = 4 * c.n_heads * c.d_head * c.d_model + 3 * c.d_mlp * c.d_model
    rows = n + min(_tile(c.d_model), max(c.d_vocab, c.n_ctx, c.d_mlp, c.d_model))  # no matrix has more
    return 8 * (3 * factors + 6 * c.d_model**2 + 20 * rows * c.d_model + 2 * (c.n_layers + 1) * c.d_model)


def _tile(d: int) -> int:
    """The number of rows rotated at a time."""
    return max(16, int(FLOPS / (4 * d * d)))


def _cost(c: ModelConfig, n: int, p: PrivilegedBasisParams) -> float:
    """A run, and what writes and the streams in the random basis; of a head's product the outer factor is, and both are made."""
    n = n or ASSUMED
    rows = c.d_vocab + c.n_ctx + c.n_layers * (c.d_mlp + 3 * c.n_heads * c.d_head) + n * (c.n_layers + 1)
    return of_layers(c, n) + 2.0 * rows * c.d_model**2 + 4.0 * c.d_model**3


@analysis(version=2, needs="tokens", lane="slow", memory=_memory, cost=_cost)
def privileged_basis(inputs: Inputs, p: PrivilegedBasisParams, ctx: Ctx) -> PrivilegedBasisResult:
    """Privileged basis: kurtosis of each residual dimension and of the weights that write it, against a random basis."""
    c = inputs.weights.config
    with torch.inference_mode():
        Q = random_orthogonal(c.d_model, p.seed, lambda: ctx.tick(0, 1, "a random rotation"))
        first = _without_bos(inputs)
        over_positions, over_dimensions = _of_stream(inputs, Q, first, ctx)
        weights, control = _of_weights(inputs, Q, ctx)
    n = len(inputs.subject.tokens) - first
    return PrivilegedBasisResult(
        kurtosis=over_positions[0],
        control=over_positions[1],
        token_kurtosis=over_dimensions[0],
        token_control=over_dimensions[1],
        weights=weights,
        weights_control=control,
        n_positions=n,
        conventions=(
            *inputs.convention_words(),
            number_of(n, "position") + (", BOS left out: it alone would be most of every kurtosis" if first else ""),
            f"at most {n - 2 + 1 / (n - 1):.3g} over {number_of(n, 'position')}" if n > 1 else "one position varies over nothing",
            f"control: a random basis, seed {p.seed}",
            "weights: mean over all matrices that write to the stream, each alone" + (", but no expert's" if c.experts else ""),
        ),
    )


def _without_bos(inputs: Inputs) -> int:
    """The first position included: 1 after a BOS, unless the prompt is BOS alone."""
    tokenizer, tokens = inputs.weights.tokenizer, inputs.subject.tokens
    return int(tokenizer is not None and len(tokens) > 1 and tokens[0] == tokenizer.bos)


def _of_stream(inputs: Inputs, Q: Tensor, first: int, ctx: Ctx) -> tuple[np.ndarray, np.ndarray]:
    """Kurtosis [2, stream, d_model] and [2, stream] of the stream before each block and at the end, as it is and in basis Q."""
    c, run = inputs.weights.config, inputs.run()
    over_positions = np.full((2, c.n_layers + 1, c.d_model), np.nan)
    over_dimensions = np.full((2, c.n_layers + 1), np.nan)
    for layer in range(c.n_layers + 1):
        x = run.get("resid_pre", layer) if layer < c.n_layers else run.final
        assert x is not None
        tick = lambda at=layer: ctx.tick(at, c.n_layers + 1, f"stream {at}")
        x = x[first:].double()
        for i, values in enumerate((x, rotated_rows(x, Q, tick))):
            tick()
            over_positions[i, layer] = kurtosis(values, 0).cpu().numpy()
            over_dimensions[i, layer] = float(kurtosis(values, 1).nanmean())
    return over_positions, over_dimensions


def _of_weights(inputs: Inputs, Q: Tensor, ctx: Ctx) -> tuple[np.ndarray, np.ndarray]:
    """(mean kurtosis [d_model] of the weights that write each dimension, the same in basis Q)."""
    d = inputs.weights.config.d_model
    sums, counts = torch.zeros(2, d, dtype=torch.float64), torch.zeros(2, d, dtype=torch.float64)
    for writer in _writers(inputs):
        kurtoses = torch.stack([m.kurtosis() for m in _moments(writer, Q, ctx)])
        defined = ~kurtoses.isnan()
        sums += torch.where(defined, kurtoses, 0.0)
        counts += defined
    weights, control = torch.where(counts > 0, sums / counts.clamp(min=1), torch.nan).cpu().numpy()
    return weights, control


class _Writer(NamedTuple):
    """A matrix that writes to the stream, [rows, d_model]: `outer`, or `inner` times `outer`."""

    name: str
    outer: Tensor
    inner: Tensor | None = None

    def rows(self, start: int, stop: int) -> Tensor:
        return self.outer[start:stop] if self.inner is None else self.inner[start:stop] @ self.outer


def _moments(writer: _Writer, Q: Tensor, ctx: Ctx) -> tuple[Moments, Moments]:
    """Moments of the columns of W and of W Q. Raises `BadModel` if a weight is not finite."""
    tick = lambda: ctx.tick(0, 1, writer.name)
    Q, n, d = Q.to(writer.outer.dtype), len(writer.outer if writer.inner is None else writer.inner), len(Q)
    # for a product only the outer factor is rotated: d_head rows instead of d_model
    rotated = writer if writer.inner is None else writer._replace(outer=rotated_rows(writer.outer, Q, tick))
    mean = writer.rows(0, _tile(d)).double().mean(0)
    plain, other = Moments(mean), Moments(mean @ Q.double())
    for start in range(0, n, _tile(d)):
        tick()
        rows = writer.rows(start, start + _tile(d))
        plain.add(rows)
        other.add(rows @ Q if rotated is writer else rotated.rows(start, start + _tile(d)))
    if not plain.finite:
        raise BadModel(
            f"The weights of {writer.name} are not finite.", expected="finite weights", got="NaN or infinity", remedy=NOT_FINITE
        )
    return plain, other


def _writers(inputs: Inputs) -> Iterator[_Writer]:
    """Each matrix that writes to the stream, layer by layer."""
    c, weights = inputs.weights.config, inputs.weights
    yield _Writer("W_E", embedding(weights))
    if (W_pos := positions_in_stream(c, weights.embed(), 0, c.n_ctx)) is not None:
        yield _Writer("W_pos", W_pos)
    for layer in range(c.n_layers):
        heads = heads_of(inputs, layer)
        for h in range(c.n_heads):
            yield _Writer(f"W_OV of {Head(layer, h)}", heads.W_O[h], heads.W_V[h])
        if not c.attention_only and c.experts is None:
            yield _Writer(f"W_out of layer {layer}", mlp_of(inputs, layer)[1])
