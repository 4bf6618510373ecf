"""Whom a head attends to, read from the weights: rows and columns of the full QK circuit.

    row of a destination token d:   scale · (x_d W_Q R_δ) · (x_s W_K) over all sources s, minus its mean over them (softmax sees
                                    nothing of it)
    column of a source token s:     the same over all destinations d, not centred: each row has a mean of its own
    bias row:                       scale · (b_Q R_δ) · (x_s W_K) over sources, minus its mean: part of every row

(Elhage et al. 2021, "QK circuit"). scale is the model's own; δ = −distance, R_δ the rotation of rotary models. The remaining
terms of the score, with the key bias, do not depend on the source. `behind`: an earlier head h1 moves what keys (or queries)
read, x W_OV^{h1} in place of x: K- (or Q-) composition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, over, scalar
from circuitlab.analysis.circuits.factors import rotated, words
from circuitlab.analysis.circuits.vocabulary_rows import (
    Embedding,
    Ends,
    OneHead,
    check_token,
    ends_of,
    one_head,
    rank_of,
    refuse_pair,
    refuse_table,
    side_of,
)
from circuitlab.counting import number_of
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head


@dataclass(frozen=True)
class QkTableParams:
    """`given`: `token` is a destination, and sources are found; or a source, and destinations are.

    `distance`: how far the source lies behind (rotary models; 0 is position-free). `behind`: an earlier head that moves what
    `side` reads.
    """

    head: Head = Head(0, 0)
    token: int = 0
    given: Literal["destination", "source"] = "destination"
    k: int = at_least(1, 12)
    distance: int = at_least(0, 0)
    behind: Head | None = None
    side: Literal["key", "query"] = "key"
    embed: Embedding = "tokens"


@dataclass(frozen=True, kw_only=True, eq=False)
class QkTableResult(Result):
    """`top_ids`, `bottom_ids` int64, `top`, `bottom` [k] of one row or column.

    `mean`, `sd` of the whole of it (for a row the mean that was taken off); `own`, `own_rank` (from 1): the given token to
    itself. `bias_top_ids`, `bias_top` [k]: the largest of the bias row, empty without query biases. `sigma`: with smeared
    keys the share that the current token's key has, the previous token's has 1 − sigma; NaN without.
    """

    top_ids: np.ndarray = over("top", unit="token id")
    top: np.ndarray = over("top", unit="score")
    bottom_ids: np.ndarray = over("bottom", unit="token id")
    bottom: np.ndarray = over("bottom", unit="score")
    mean: float = scalar("score")
    sd: float = scalar("score")
    own: float = scalar("score")
    own_rank: int = scalar("rank", none=True)
    bias_top_ids: np.ndarray = over("top of the bias", unit="token id")
    bias_top: np.ndarray = over("top of the bias", unit="score")
    sigma: float

    def table(self) -> Table:
        """The largest first, then the smallest, the smallest last; then the largest of the bias row."""
        ids = np.concatenate([self.top_ids, self.bottom_ids[::-1], self.bias_top_ids])
        end = np.repeat(["top", "bottom", "bias"], [len(self.top_ids), len(self.bottom_ids), len(self.bias_top_ids)])
        values = np.concatenate([self.top, self.bottom[::-1], self.bias_top])
        return Table((Column("end", end), Column("id", ids, of="token"), Column("value", values, "score")))


def _readers(p: QkTableParams) -> tuple[Head, Head]:
    """The heads that read token rows for the query and for the key."""
    behind = p.behind or p.head
    return (p.head, behind) if p.side == "key" else (behind, p.head)


def _refuse(c: ModelConfig, p: QkTableParams) -> str | None:
    return refuse_table(c, p.embed, _readers(p)) or refuse_pair(p.head, p.behind)


def _memory(c: ModelConfig, n: int, p: QkTableParams) -> int:
    whole = c.d_vocab * c.d_model if p.embed != "tokens" else 0
    return 8 * (12 * c.d_vocab + 8 * c.d_model * c.d_head + whole)


@analysis(version=1, needs="weights", of_heads=True, lane="live", memory=_memory, refuse=_refuse)
def qk_table(inputs: Inputs, p: QkTableParams, ctx: Ctx) -> QkTableResult:
    """Which sources a destination token attends to most; or from which destinations a source token is attended to."""
    c, head = inputs.weights.config, one_head(inputs, p.head)
    check_token(p.token, c.d_vocab)
    check_distance(c, p.distance)
    with torch.inference_mode():
        row, mean, bias, said = (_row if p.given == "destination" else _column)(inputs, p, head, ctx)
        return QkTableResult(
            **ends_of(row, p.k)._asdict(),
            mean=mean,
            sd=float(row.std(unbiased=False)),
            own=float(row[p.token]),
            own_rank=rank_of(row, p.token),
            bias_top_ids=bias.top_ids,
            bias_top=bias.top,
            sigma=head.sigma,
            conventions=words(inputs, *said, *score_words(c, head, p.distance)),
        )


_Found = tuple[Tensor, float, Ends, tuple[str, ...]]


def _row(inputs: Inputs, p: QkTableParams, head: OneHead, ctx: Ctx) -> _Found:
    c = inputs.weights.config
    queries = side_of(inputs, p.head, p.embed, p.behind if p.side == "query" else None, every=False)
    keys = side_of(inputs, p.head, p.embed, p.behind if p.side == "key" else None)
    q = rotated(queries.row(p.token) @ head.W_Q, c, p.head.layer, p.distance)
    readers = [head.W_K @ q, *_bias_reader(c, head, p.distance)]
    rows = c.score_scale * keys.times(torch.stack(readers, dim=1), ctx, "keys")
    mean = rows.mean(0)
    rows = rows - mean
    said = (_sided("queries", queries.said), _sided("keys", keys.said), "row minus its mean over sources")
    return rows[:, 0], float(mean[0]), _bias_ends(rows[:, 1:], p.k), said


def _column(inputs: Inputs, p: QkTableParams, head: OneHead, ctx: Ctx) -> _Found:
    c = inputs.weights.config
    queries = side_of(inputs, p.head, p.embed, p.behind if p.side == "query" else None)
    bias = _bias_reader(c, head, p.distance)
    keys = side_of(inputs, p.head, p.embed, p.behind if p.side == "key" else None, every=bool(bias))
    # the rotation moves from the query to the key: (x R_δ) · k = x · (k R_−δ)
    k = rotated(keys.row(p.token) @ head.W_K, c, p.head.layer, -p.distance)
    column = c.score_scale * queries.times((head.W_Q @ k)[:, None], ctx, "queries")[:, 0]
    rows = torch.zeros(c.d_vocab, 0)
    if bias:
        rows = c.score_scale * keys.times(torch.stack(bias, dim=1), ctx, "keys")
        rows = rows - rows.mean(0)
    said = (_sided("queries", queries.said), _sided("keys", keys.said), "column not centred: each row has its own mean")
    return column, float(column.mean()), _bias_ends(rows, p.k), said


def _bias_reader(c: ModelConfig, head: OneHead, distance: int) -> list[Tensor]:
    """[d_model] that reads the bias row from keys' rows; none without a query bias."""
    return [] if head.b_Q is None else [head.W_K @ rotated(head.b_Q, c, head.head.layer, distance)]


def _bias_ends(rows: Tensor, k: int) -> Ends:
    if rows.shape[1]:
        return ends_of(rows[:, 0], k)
    ids, values = np.zeros(0, np.int64), rows.flatten()[:0].cpu().numpy()
    return Ends(ids, values, ids.copy(), values.copy())


def _sided(name: str, said: str) -> str:
    return said and f"{name}: {said}"


def check_distance(c: ModelConfig, distance: int) -> None:
    """Raise `BadInput` for a distance that no pair of positions has."""
    if not 0 <= distance < c.n_ctx:
        raise BadInput("There is no such distance.", expected=f"0..{number_of(c.n_ctx - 1, 'position')} back", got=str(distance))


def score_words(c: ModelConfig, head: OneHead, distance: int) -> tuple[str, ...]:
    """What the caption of any QK table says of the score: scale, distance, biases, smearing, caps."""
    said = [f"score scale {c.score_scale:.4g}"]
    if c.positions == "rotary" and c.positional(head.head.layer):
        said.append(f"source {number_of(distance, 'position')} behind" if distance else "position-free (distance 0)")
    elif slopes := c.slopes_in(head.head.layer):
        said.append(f"position-free: ALiBi takes {slopes[head.head.head]:.3g} · distance off, whatever the tokens")
    elif c.positions != "none":
        said.append("positions left out")
    said += ["query bias: a row of its own"] if head.b_Q is not None else []
    if head.sigma == head.sigma:  # not NaN
        said.append(f"smeared keys: σ = {head.sigma:.3f} of it is the current token's, {1 - head.sigma:.3f} the previous one's")
    said += ["before the soft cap"] if c.score_soft_cap else []
    return tuple(said)
