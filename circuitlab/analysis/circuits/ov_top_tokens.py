"""The k largest entries of each row of a head's full OV circuit: what it raises most for every source token.

    row of source s:   x_s W_V W_O W_U,   minus its mean over the out vocabulary

(Elhage et al. 2021, "OV circuit"), x_s what the head reads of the token (`token_readings`), as (X W_V) (W_O W_U) with d_head in
the middle, a tile of rows at a time. Subtracting the mean of the columns of `W_O W_U` subtracts each row's mean. Exact: the k
largest entries of a row lie in the k blocks of columns with the largest maxima, so only those blocks are sorted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, over
from circuitlab.analysis.circuits.effective_embedding import cost_of_readings
from circuitlab.analysis.circuits.factors import words
from circuitlab.analysis.circuits.ov_table import ov_bias_words
from circuitlab.analysis.circuits.token_readings import Embedding, refuse_table
from circuitlab.analysis.circuits.vocabulary_rows import (
    BLOCK,
    check_count,
    check_token,
    one_head,
    out_factor,
    refuse_pair,
    side_of,
    tile_rows,
    top_of_rows,
)
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head


@dataclass(frozen=True)
class OvTopTokensParams:
    """`k` out tokens of every source token. `through`: an earlier head, for the virtual head of both.

    `first`, `count`: only `count` sources from id `first` on, as a screen shows them; 0 means all that follow.
    """

    head: Head = Head(0, 0)
    k: int = at_least(1, 10)
    through: Head | None = None
    embed: Embedding = "normalised tokens"
    first: int = at_least(0, 0)
    count: int = at_least(0, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class OvTopTokensResult(Result):
    """`ids` int32, `values` [source, k], the largest first, of the sources from `first` on; k is at most d_vocab_out."""

    ids: np.ndarray = over("source", "top", unit="token id")
    values: np.ndarray = over("source", "top", unit="logit")
    first: int = 0

    def entries_along(self, axis: str) -> np.ndarray | None:
        return self.first + np.arange(len(self.ids)) if axis == "source" else None

    def table(self) -> Table:
        """One row per source token."""
        columns = [Column("source", self.first + np.arange(len(self.ids)), of="token")]
        for i in range(self.ids.shape[1]):
            columns += [Column(f"out_{i + 1}", self.ids[:, i], of="token"), Column(f"value_{i + 1}", self.values[:, i], "logit")]
        return Table(tuple(columns))


def _refuse(c: ModelConfig, p: OvTopTokensParams) -> str | None:
    return refuse_table(c, p.embed, (p.through or p.head,)) or refuse_pair(p.head, p.through)


def _memory(c: ModelConfig, n: int, p: OvTopTokensParams) -> int:
    whole = c.d_vocab * c.d_model if p.embed == "after the first MLP" else 0
    factors = 2 * c.d_head * (c.d_vocab + c.d_vocab_out + BLOCK) + 8 * c.d_model * c.d_head
    tile = 2 * tile_rows(c.d_vocab_out, 8) * (c.d_vocab_out + BLOCK)
    return 8 * (whole + factors + tile + 3 * c.d_model) + 8 * c.d_vocab * max(p.k, 1)


def _cost(c: ModelConfig, n: int, p: OvTopTokensParams) -> float:
    rows = p.count or c.d_vocab - p.first
    factors = 2.0 * c.d_head * c.d_model * ((p.count or c.d_vocab) + c.d_vocab_out)
    return factors + 2.0 * c.d_head * rows * c.d_vocab_out + (0.0 if p.count else cost_of_readings(c, p.embed))


@analysis(version=2, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def ov_top_tokens(inputs: Inputs, p: OvTopTokensParams, ctx: Ctx) -> OvTopTokensResult:
    """OV circuit, all rows: the out tokens that a head raises most for every source token."""
    check_count(p.k)
    with torch.inference_mode():
        head = one_head(inputs, p.head)
        n_in = inputs.weights.config.d_vocab
        check_token(p.first, n_in)
        stop = min(n_in, p.first + p.count) if p.count > 0 else n_in
        side = side_of(inputs, p.head, p.embed, p.through, every=p.count == 0)
        if p.count > 0:
            sources = side.rows(tuple(range(p.first, stop))) @ head.W_V
        else:
            sources = side.times(head.W_V, ctx, "sources")[p.first :]
        outs, n = out_factor(inputs, head.W_O, ctx)
        k, rows = min(p.k, n), tile_rows(n, outs.element_size())
        ids, values = np.empty((len(sources), k), np.int32), np.empty((len(sources), k), inputs.subject.conventions.dtype)
        tile = torch.empty(rows, outs.shape[1], dtype=outs.dtype)
        for start in range(0, len(sources), rows):
            ctx.tick(start, len(sources), "out tokens of every source")
            part = sources[start : start + rows]
            logits = torch.mm(part, outs, out=tile[: len(part)])
            top, at = top_of_rows(logits, n, k)
            ids[start : start + rows], values[start : start + rows] = at.cpu().numpy(), top.cpu().numpy()
    conventions = (side.words, "rows minus their means over the out vocabulary", ov_bias_words(head))
    captions = words(inputs, *conventions, scores=(), unscaled=side.unscaled)
    return OvTopTokensResult(ids=ids, values=values, first=p.first, conventions=captions)
