"""Rows and columns of a head's full OV circuit: what attending to a token adds to the logits, from weights alone.

    row of a source token s:   x_s W_V W_O W_U,          minus its mean over the vocabulary (to which softmax is invariant)
    column of an out token o:  X W_V W_O (W_U)_{:,o},    each row still minus its own mean

(Elhage et al. 2021, "OV circuit"). x_s is what the head reads of the token (`token_readings`): its row of W_E as the norm before
attention scales it, unless another reading is asked; with `through` it passes an earlier head h1,
x_s W_OV^{h1} W_OV^{h2} W_U: a virtual head. A row costs one vector times W_U.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from circuitlab.analysis.base import Ctx, Inputs, analysis, at_least
from circuitlab.analysis.circuits._table_row import TableRowResult, row_fields
from circuitlab.analysis.circuits.factors import is_token_map, words
from circuitlab.analysis.circuits.token_readings import Embedding, refuse_table
from circuitlab.analysis.circuits.vocabulary_rows import (
    OneHead,
    Side,
    check_token,
    one_head,
    refuse_pair,
    side_of,
    unembed_mean,
)
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head


@dataclass(frozen=True)
class OvTableParams:
    """`given` "source": `token` is a source, and out tokens are listed; "out": the reverse. `through`: an earlier head."""

    head: Head = Head(0, 0)
    token: int = 0
    given: Literal["source", "out"] = "source"
    k: int = at_least(1, 12)
    through: Head | None = None
    embed: Embedding = "normalised tokens"


@dataclass(frozen=True, kw_only=True, eq=False)
class OvTableResult(TableRowResult):
    """As `TableRowResult`; no entry is the given token's own if the output vocabulary is another one."""

    unit: ClassVar[str] = "logit"


def _refuse(c: ModelConfig, p: OvTableParams) -> str | None:
    return refuse_table(c, p.embed, (p.through or p.head,)) or refuse_pair(p.head, p.through)


def _memory(c: ModelConfig, n: int, p: OvTableParams) -> int:
    whole = p.given == "out" and p.embed == "after the first MLP"
    return 8 * (6 * (c.d_vocab + c.d_vocab_out) + 8 * c.d_model * c.d_head + (c.d_vocab * c.d_model if whole else 0))


@analysis(version=3, needs="weights", of_heads=True, lane="live", memory=_memory, refuse=_refuse)
def ov_table(inputs: Inputs, p: OvTableParams, ctx: Ctx) -> OvTableResult:
    """OV circuit, one row or column: what attending to a token adds to the logits, or which tokens add most to one."""
    c, head = inputs.weights.config, one_head(inputs, p.head)
    check_token(p.token, c.d_vocab if p.given == "source" else c.d_vocab_out)
    with torch.inference_mode():
        row, mean, side, centred = (_row if p.given == "source" else _column)(inputs, p, head, ctx)
        return OvTableResult(
            **row_fields(row, p.k, mean, p.token if is_token_map(c) else None),
            conventions=words(inputs, side.words, centred, ov_bias_words(head), scores=(), unscaled=side.unscaled),
        )


def _row(inputs: Inputs, p: OvTableParams, head: OneHead, ctx: Ctx) -> tuple[Tensor, float, Side, str]:
    side = side_of(inputs, p.head, p.embed, p.through, every=False)
    row = ((side.row(p.token) @ head.W_V) @ head.W_O) @ inputs.weights.unembed().W_U
    mean = row.mean()
    return row - mean, float(mean), side, "row minus its mean over the out vocabulary"


def _column(inputs: Inputs, p: OvTableParams, head: OneHead, ctx: Ctx) -> tuple[Tensor, float, Side, str]:
    side, mean = side_of(inputs, p.head, p.embed, p.through), unembed_mean(inputs)
    out = inputs.weights.unembed().W_U[:, p.token]
    out = out if mean is None else out - mean
    column = side.times((head.W_V @ (head.W_O @ out))[:, None], ctx)[:, 0]
    return column, float(column.mean()), side, "column of rows that are minus their means over the out vocabulary"


def ov_bias_words(head: OneHead) -> str:
    """Words for the caption if the head has a value bias, else ""."""
    return "" if head.b_V is None else "value bias left out: it is the same row for every source"
