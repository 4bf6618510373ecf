"""The largest entries of a whole OV or QK circuit `d_vocab × d_vocab`, exact, without building the matrix.

    OV   x_s W_V W_O W_U                              rows: sources, minus their means over out tokens
    QK   scale · (x_d W_Q R_δ) · (x_s W_K)            rows: destinations, minus their means over sources

(Elhage et al. 2021), x_t what the head reads of a token (`token_readings`). The circuit is A B with d_head in the middle. With
rows of A and columns of B sorted by length, no entry exceeds |a_i| |b_j| (Cauchy-Schwarz), so a tile is computed only if that
bound exceeds the k-th largest entry so far; `skipped` is the share of the product that is not computed. Lengths depend on how
A B is split: the bounds use the split with AᵀA = BBᵀ = Σ, the singular values, and the products use the model's own A and B.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, over
from circuitlab.analysis.circuits.factor_products import root
from circuitlab.analysis.circuits.factors import rotated, words
from circuitlab.analysis.circuits.ov_table import ov_bias_words
from circuitlab.analysis.circuits.qk_table import check_distance, score_words, sided_words
from circuitlab.analysis.circuits.token_readings import Embedding, refuse_table
from circuitlab.analysis.circuits.vocabulary_rows import (
    BLOCK,
    check_count,
    one_head,
    out_factor,
    refuse_pair,
    side_of,
)
from circuitlab.caption_parts import Part, Sense
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head

ROWS, COLUMNS = 128, 2048  # of one tile, the unit that is skipped or computed
STEP = 8192  # rows between two ticks while lengths are computed
SHOWN = 128  # tiles of rows between two partial results
PRODUCT = 0.1  # about the share of the product that is not skipped


@dataclass(frozen=True)
class LargestEntriesParams:
    """`distance`: from source to destination (QK of rotary models). `through`: an earlier head that the sources pass."""

    head: Head = Head(0, 0)
    circuit: Literal["OV", "QK"] = "OV"
    k: int = at_least(1, 100)
    distance: int = at_least(0, 0)
    through: Head | None = None
    embed: Embedding = "normalised tokens"


@dataclass(frozen=True, kw_only=True, eq=False)
class LargestEntriesResult(Result):
    """`rows_ids`, `cols_ids` int64, `values` [k], the largest first: source and out (OV), destination and source (QK).

    `skipped`: share of the product that the bounds spared; `n_vocab` (rows, columns) of the circuit; `unit` of the values.
    """

    rows_ids: np.ndarray = over("entry", unit="token id")
    cols_ids: np.ndarray = over("entry", unit="token id")
    values: np.ndarray = over("entry", unit="{unit}")
    skipped: float
    n_vocab: tuple[int, int]
    unit: str = "logit"

    def table(self) -> Table:
        """One row per entry."""
        ids = (Column("row", self.rows_ids, of="token"), Column("column", self.cols_ids, of="token"))
        return Table((*ids, Column("value", self.values, self.unit)))


def _refuse(c: ModelConfig, p: LargestEntriesParams) -> str | None:
    readers = (p.through or p.head,) if p.circuit == "OV" else (p.head, p.through or p.head)
    return refuse_table(c, p.embed, readers) or refuse_pair(p.head, p.through)


def _memory(c: ModelConfig, n: int, p: LargestEntriesParams) -> int:
    whole = c.d_vocab * c.d_model if p.embed == "after the first MLP" else 0
    ends = c.d_vocab + max(c.d_vocab, c.d_vocab_out) + BLOCK
    numbers = (
        whole + (4 * c.d_head + 8) * ends + 3 * STEP * c.d_head + 8 * c.d_model * c.d_head + 3 * ROWS * COLUMNS + 12 * c.d_head**2
    )
    return 8 * (numbers + 8 * max(p.k, 1))


def _cost(c: ModelConfig, n: int, p: LargestEntriesParams) -> float:
    """The two factors and the lengths of their rows; how much of their product is skipped is seen as it is computed."""
    ends = c.d_vocab + (c.d_vocab_out if p.circuit == "OV" else c.d_vocab)
    return 2.0 * ends * c.d_head * (c.d_model + 2 * c.d_head) + PRODUCT * 2.0 * c.d_vocab * c.d_head * (ends - c.d_vocab)


@analysis(version=2, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def largest_entries(inputs: Inputs, p: LargestEntriesParams, ctx: Ctx) -> LargestEntriesResult:
    """Largest entries of a head's whole OV or QK circuit, exact, without building the d_vocab × d_vocab matrix."""
    check_count(p.k)
    check_distance(inputs.weights.config, p.distance)
    with torch.inference_mode():
        A, B, conventions, unscaled = (_ov if p.circuit == "OV" else _qk)(inputs, p, ctx)
        search, unit = _Search(A, B, p.k, ctx), "logit" if p.circuit == "OV" else "score"
        scores = () if p.circuit == "OV" else (p.head.layer,)
        captions = words(inputs, *conventions, scores=scores, ends=p.circuit == "OV", unscaled=unscaled)
        snapshot = lambda done: replace(search.result(captions, done), unit=unit)
        for done in search.tiles(ctx):
            if done < 1 and p.k <= len(search.values):
                ctx.partial(snapshot(done))
        return snapshot(1.0)


_Factors = tuple[Tensor, Tensor, tuple[str, ...], tuple[str, ...]]  # conventions, and of what a norm's scale is left out


def _ov(inputs: Inputs, p: LargestEntriesParams, ctx: Ctx) -> _Factors:
    """A [source, d_head], B [out, d_head]."""
    head, side = one_head(inputs, p.head), side_of(inputs, p.head, p.embed, p.through)
    outs, n = out_factor(inputs, head.W_O, ctx)
    conventions = (
        side.words,
        Part("OV: rows minus their means over the out vocabulary", Sense(quantities=("OV",))),
        ov_bias_words(head),
    )
    return side.times(head.W_V, ctx, "sources"), outs[:, :n].T, conventions, side.unscaled


def _qk(inputs: Inputs, p: LargestEntriesParams, ctx: Ctx) -> _Factors:
    """A [destination, d_head], B [source, d_head]."""
    c, head = inputs.weights.config, one_head(inputs, p.head)
    queries, keys = side_of(inputs, p.head, p.embed), side_of(inputs, p.head, p.embed, p.through)
    A = c.score_scale * rotated(queries.times(head.W_Q, ctx, "queries"), c, p.head.layer, p.distance)
    B = keys.times(head.W_K, ctx, "keys")
    conventions = (*sided_words(queries, keys), Part("QK: rows minus their means over sources", Sense(quantities=("QK",))))
    conventions = (*conventions, *score_words(c, head, p.distance, "query bias left out"))
    return A, B - B.mean(0), conventions, (*queries.unscaled, *keys.unscaled)


def lengths(A: Tensor, B: Tensor, ctx: Ctx) -> tuple[Tensor, Tensor, float]:
    """(|a_i| [row], |b_j| [column], slack) of A Bᵀ split evenly: an entry is at most |a_i| |b_j| + slack.

    With RᵀR = AᵀA, SᵀS = BᵀB and R Sᵀ = X Σ Yᵀ: A Sᵀ Y Σ^−½ and B Rᵀ X Σ^−½. The slack bounds what the singular values near 0,
    which are left out, can add.
    """
    R, S = (root(_gram(W, ctx)).T for W in (A, B))
    X, sigma, Yt = torch.linalg.svd(R @ S.T)
    largest = float(sigma[0])
    not_tiny = sigma > 1e-6 * largest
    half = torch.where(not_tiny, sigma.clamp(min=1e-300).rsqrt(), torch.zeros_like(sigma))
    return _norms(A, S.T @ Yt.T * half, ctx), _norms(B, R.T @ X * half, ctx), 2e-6 * largest


def _gram(W: Tensor, ctx: Ctx) -> Tensor:
    """[d_head, d_head] float64 WᵀW."""
    gram = torch.zeros(W.shape[1], W.shape[1], dtype=torch.float64)
    for part in W.split(STEP):
        ctx.tick(0, 1, "lengths")
        gram += part.double().T @ part.double()
    return gram


def _norms(W: Tensor, M: Tensor, ctx: Ctx) -> Tensor:
    """[row] float64 lengths of the rows of W M."""
    out = torch.empty(len(W), dtype=torch.float64)
    for start in range(0, len(W), STEP):
        ctx.tick(0, 1, "lengths")
        out[start : start + STEP] = (W[start : start + STEP].double() @ M).norm(dim=1)
    return out


class _Search:
    """The k largest entries of A Bᵀ so far, with rows and columns sorted by length."""

    def __init__(self, A: Tensor, B: Tensor, k: int, ctx: Ctx) -> None:
        a, b, self.slack = lengths(A, B, ctx)
        a, self.row_order = a.sort(descending=True)
        b, self.col_order = b.sort(descending=True)
        self.a, self.minus_b = a.tolist(), (-b).cpu().numpy()
        ctx.tick(0, 1, "in the order of their lengths")
        self.A, self.B = A[self.row_order], B[self.col_order]
        self.k = min(k, len(A) * len(B))
        self.rows, self.cols = torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
        self.values, self.n_computed = torch.zeros(0, dtype=A.dtype), 0

    @property
    def least(self) -> float:
        """The k-th largest entry so far."""
        return float(self.values[-1]) if len(self.values) == self.k else float("-inf")

    def reach(self, row: int) -> int:
        """How many leading columns may hold a larger entry in this row or a later one."""
        most, needed = self.a[row] * (1 + 1e-5), self.least - self.slack
        if most == 0 or needed < 0:  # needed < 0: any length suffices
            return len(self.B) if needed < 0 else 0
        return int(np.searchsorted(self.minus_b, -needed / most))  # lengths above needed / most

    def tiles(self, ctx: Ctx) -> Iterator[float]:
        """Go through the tiles; yields the share of finished rows from time to time."""
        buffer = torch.empty(ROWS * COLUMNS, dtype=self.A.dtype)
        for i, row in enumerate(range(0, len(self.A), ROWS)):
            part = self.A[row : row + ROWS]
            for col in range(0, len(self.B), COLUMNS):
                reach = self.reach(row)
                if col >= reach:
                    break
                ctx.tick(
                    row,
                    len(self.A),
                    f"largest entries; {self.n_computed / (len(self.A) * len(self.B)):.0%} of the product computed",
                )
                some = self.B[col : min(col + COLUMNS, reach)]
                tile = torch.mm(part, some.T, out=buffer[: len(part) * len(some)].view(len(part), len(some)))
                self.n_computed += tile.numel()
                self.keep(tile, row, col)
            if i % SHOWN == SHOWN - 1:
                yield min((row + ROWS) / len(self.A), 0.999)

    def keep(self, tile: Tensor, row: int, col: int) -> None:
        """Keep the entries of a tile that belong to the k largest."""
        flat, width = tile.flatten(), tile.shape[1]
        if float(flat.max()) <= self.least:
            return
        if len(self.values) < self.k:
            at = torch.topk(flat, min(self.k, len(flat))).indices
        else:
            at = (flat > self.least).nonzero()[:, 0]
        values = torch.cat([self.values, flat[at]])
        best = torch.topk(values, min(self.k, len(values)))
        self.rows = torch.cat([self.rows, row + at // width])[best.indices]
        self.cols = torch.cat([self.cols, col + at % width])[best.indices]
        self.values = best.values

    def result(self, conventions: tuple[str, ...], done: float) -> LargestEntriesResult:
        """The entries found so far, their products recomputed in double precision."""
        values = (self.A[self.rows].double() * self.B[self.cols].double()).sum(1)
        order = torch.argsort(values, descending=True, stable=True)
        return LargestEntriesResult(
            rows_ids=self.row_order[self.rows[order]].cpu().numpy(),
            cols_ids=self.col_order[self.cols[order]].cpu().numpy(),
            values=values[order].to(self.A.dtype).cpu().numpy(),
            skipped=1 - self.n_computed / (len(self.A) * len(self.B)) if done == 1 else float("nan"),
            n_vocab=(len(self.A), len(self.B)),
            conventions=conventions,
            done=done,
        )
