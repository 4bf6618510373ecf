"""Rows and columns of a head's full QK circuit: which tokens attend to which, from weights alone.

    row of a destination token d:   scale · (x_d W_Q R_δ) · (x_s W_K) over all sources s, minus its mean (softmax is invariant)
    column of a source token s:     the same over all destinations d, not centred, as each row has its own mean
    bias row:                       scale · (b_Q R_δ) · (x_s W_K) over sources, minus its mean: part of every row

(Elhage et al. 2021, "QK circuit"). scale is the model's own; δ = −distance, R_δ the rotation of rotary models. The other terms of
the score, those with the key bias, do not depend on the source. x_t is what the head reads of a token (`token_readings`): its row
of W_E as the norm before attention scales it, unless another reading is asked. `behind`: an earlier head h1 that
keys (or queries) read through,
x W_OV^{h1} instead of x: K- (or Q-) composition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Ctx, Inputs, analysis, at_least, over
from circuitlab.analysis.circuits._table_row import TableRowResult, row_fields
from circuitlab.analysis.circuits.factors import rotated, words
from circuitlab.analysis.circuits.token_readings import Embedding, refuse_table
from circuitlab.analysis.circuits.vocabulary_rows import (
    Ends,
    OneHead,
    Side,
    check_token,
    ends_of,
    one_head,
    refuse_pair,
    side_of,
)
from circuitlab.counting import number_of
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head


@dataclass(frozen=True)
class QkTableParams:
    """`given` "destination": `token` is a destination, and sources are listed; "source": the reverse.

    `distance` from source to destination (rotary models; 0 is position-free). `behind`: an earlier head that `side` reads
    through.
    """

    head: Head = Head(0, 0)
    token: int = 0
    given: Literal["destination", "source"] = "destination"
    k: int = at_least(1, 12)
    distance: int = at_least(0, 0)
    behind: Head | None = None
    side: Literal["key", "query"] = "key"
    embed: Embedding = "normalised tokens"


@dataclass(frozen=True, kw_only=True, eq=False)
class QkTableResult(TableRowResult):
    """As `TableRowResult`; `bias_top_ids`, `bias_top` [k]: the largest of the bias row, empty without query biases.

    `sigma`: with smeared keys, the weight of the current token's key (the previous token's is 1 − sigma); else NaN.
    """

    unit: ClassVar[str] = "score"
    bias_top_ids: np.ndarray = over("top of the bias", unit="token id")
    bias_top: np.ndarray = over("top of the bias", unit="score")
    sigma: float

    def ends(self) -> tuple[tuple[str, np.ndarray, np.ndarray], ...]:
        """Those of every row or column, then the largest of the bias row."""
        return (*super().ends(), ("bias", self.bias_top_ids, self.bias_top))


def _readers(p: QkTableParams) -> tuple[Head, Head]:
    """The heads that read token embeddings for the query and for the key."""
    behind = p.behind or p.head
    return (p.head, behind) if p.side == "key" else (behind, p.head)


def _refuse(c: ModelConfig, p: QkTableParams) -> str | None:
    return refuse_table(c, p.embed, _readers(p)) or refuse_pair(p.head, p.behind)


def _memory(c: ModelConfig, n: int, p: QkTableParams) -> int:
    whole = c.d_vocab * c.d_model if p.embed == "after the first MLP" else 0
    return 8 * (12 * c.d_vocab + 8 * c.d_model * c.d_head + whole)


@analysis(version=3, needs="weights", of_heads=True, lane="live", memory=_memory, refuse=_refuse)
def qk_table(inputs: Inputs, p: QkTableParams, ctx: Ctx) -> QkTableResult:
    """QK circuit, one row or column: which sources a destination token attends to, or which destinations attend to a source."""
    c, head = inputs.weights.config, one_head(inputs, p.head)
    check_token(p.token, c.d_vocab)
    check_distance(c, p.distance)
    with torch.inference_mode():
        row, mean, bias, (conventions, unscaled) = (_row if p.given == "destination" else _column)(inputs, p, head, ctx)
        return QkTableResult(
            **row_fields(row, p.k, mean, p.token),
            bias_top_ids=bias.top_ids,
            bias_top=bias.top,
            sigma=head.sigma,
            conventions=words(
                inputs,
                *conventions,
                *score_words(c, head, p.distance),
                scores=(p.head.layer,),
                ends=False,
                unscaled=unscaled,
            ),
        )


_Said = tuple[tuple[str, ...], tuple[str, ...]]  # conventions, and of what a norm's scale is left out
_RowOrColumn = tuple[Tensor, float, Ends, _Said]


def _row(inputs: Inputs, p: QkTableParams, head: OneHead, ctx: Ctx) -> _RowOrColumn:
    c = inputs.weights.config
    queries = side_of(inputs, p.head, p.embed, p.behind if p.side == "query" else None, every=False)
    keys = side_of(inputs, p.head, p.embed, p.behind if p.side == "key" else None)
    q = rotated(queries.row(p.token) @ head.W_Q, c, p.head.layer, p.distance)
    readers = [head.W_K @ q, *_bias_reader(c, head, p.distance)]
    rows = c.score_scale * keys.times(torch.stack(readers, dim=1), ctx, "keys")
    mean = rows.mean(0)
    rows = rows - mean
    said = _said(queries, keys, "row minus its mean over sources")
    return rows[:, 0], float(mean[0]), _bias_ends(rows[:, 1:], p.k), said


def _column(inputs: Inputs, p: QkTableParams, head: OneHead, ctx: Ctx) -> _RowOrColumn:
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
    said = _said(queries, keys, "column not centred: each row has its own mean")
    return column, float(column.mean()), _bias_ends(rows, p.k), said


def _bias_reader(c: ModelConfig, head: OneHead, distance: int) -> list[Tensor]:
    """[d_model]: the vector whose product with the keys' rows is the bias row; none without a query bias."""
    return [] if head.b_Q is None else [head.W_K @ rotated(head.b_Q, c, head.head.layer, distance)]


def _bias_ends(rows: Tensor, k: int) -> Ends:
    if rows.shape[1]:
        return ends_of(rows[:, 0], k)
    ids, values = np.zeros(0, np.int64), rows.flatten()[:0].cpu().numpy()
    return Ends(ids, values, ids.copy(), values.copy())


def _said(queries: Side, keys: Side, centred: str) -> _Said:
    return (*sided_words(queries, keys), centred), (*queries.unscaled, *keys.unscaled)


def sided_words(queries: Side, keys: Side) -> tuple[str, ...]:
    """What captions say of the two sides of a QK circuit, once where they are alike."""
    if queries.words == keys.words:
        return (keys.words,)
    return tuple(f"{name}: {side.words}" for name, side in (("queries", queries), ("keys", keys)) if side.words)


def check_distance(c: ModelConfig, distance: int) -> None:
    """Raise `BadInput` for a distance outside the context."""
    if not 0 <= distance < c.n_ctx:
        raise BadInput(
            "There is no such distance.",
            expected=f"0..{number_of(c.n_ctx - 1, 'position')} back",
            got=str(distance),
            remedy="Choose a distance within the context.",
        )


def score_words(c: ModelConfig, head: OneHead, distance: int, bias: str = "query bias: a row of its own") -> tuple[str, ...]:
    """What captions of QK circuits say of the score: scale, distance, biases, smearing, cap; `bias`: of a query bias, if any."""
    phrases, added = [f"score scale {c.score_scale:.4g}"], c.positions in ("learned", "sinusoidal")
    if c.rotation(head.head.layer) is not None:
        phrases.append(f"source {number_of(distance, 'position')} behind" if distance else "position-free (distance 0)")
    elif slopes := c.slopes_in(head.head.layer):
        phrases.append(f"position-free: ALiBi takes {slopes[head.head.head]:.3g} · distance off, whatever the tokens")
    elif c.positions != "none":
        phrases.append("positions left out" if added or c.positional(head.head.layer) else "no positions in this layer")
    phrases += [bias] if head.b_Q is not None else []
    if head.sigma == head.sigma:  # not NaN
        phrases.append(
            f"smeared keys: σ = {head.sigma:.3f} of it is the current token's, {1 - head.sigma:.3f} the previous one's"
        )
    if (window := c.window(head.head.layer)) and distance >= window:
        phrases.append(f"beyond the window of {window}: this layer's heads attend to no source so far back")
    phrases += ["before the soft cap"] if c.score_soft_cap else []
    return tuple(phrases)
