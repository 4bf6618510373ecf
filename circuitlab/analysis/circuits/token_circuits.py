"""One token in a head's OV and QK circuits: its row and column of each.

The four tables of `ov_table` and `qk_table` (equations there), computed together: three of them are a vector times the embedding,
which is read once for all three. Reading it is most of the cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, naming, over
from circuitlab.analysis.circuits.factors import is_token_map, rotated, words
from circuitlab.analysis.circuits.ov_table import ov_bias_words
from circuitlab.analysis.circuits.qk_table import check_distance, score_words
from circuitlab.analysis.circuits.token_readings import Embedding, refuse_table
from circuitlab.analysis.circuits.vocabulary_rows import (
    Side,
    check_token,
    ends_of,
    one_head,
    refuse_pair,
    side_of,
    unembed_mean,
)
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head

TABLES = ("raises", "attends to", "raised by", "attended to by")


@dataclass(frozen=True)
class TokenCircuitsParams:
    """`behind`: an earlier head, through which the OV circuit and `side` of the QK circuit read.

    `distance` from source to destination (rotary models; 0 is position-free). `whole`: return the whole rows too.
    """

    head: Head = Head(0, 0)
    token: int = 0
    k: int = at_least(1, 12)
    distance: int = at_least(0, 0)
    behind: Head | None = None
    side: Literal["key", "query"] = "key"
    embed: Embedding = "normalised tokens"
    whole: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenCircuitsResult(Result):
    """`top_ids`, `bottom_ids` int64, `top`, `bottom` [table, k]; `mean`, `sd` float64 [table] of the whole rows.

    `tables`: the token raises (OV row), attends to (QK row), is raised by (OV column), is attended to by (QK column). Rows are
    minus their means. If the output vocabulary is another one, the third is empty: −1 and NaN. `bias_top_ids`, `bias_top` [≤ k]:
    the largest of the bias row, empty without query biases. `rows` [table, d_vocab] by id with `whole`, else [table, 0].
    """

    top_ids: np.ndarray = over("table", "top", unit="token id", none=True)
    top: np.ndarray = over("table", "top", unit="{units}")
    bottom_ids: np.ndarray = over("table", "bottom", unit="token id", none=True)
    bottom: np.ndarray = over("table", "bottom", unit="{units}")
    mean: np.ndarray = over("table", unit="{units}")
    sd: np.ndarray = over("table", unit="{units}")
    bias_top_ids: np.ndarray = over("top of the bias", unit="token id")
    bias_top: np.ndarray = over("top of the bias", unit="score")
    rows: np.ndarray = over("table", "token", unit="{units}")
    tables: tuple[str, ...] = naming("table", TABLES)

    @property
    def units(self) -> dict[str, str]:
        """The unit of each table, by its name."""
        return {table: "logit" if "raise" in table else "score" for table in self.tables}

    def table(self) -> Table:
        """Table by table: the largest entries, then the smallest; the smallest last."""
        k = self.top.shape[1]
        ids = np.concatenate([self.top_ids, self.bottom_ids[:, ::-1]], axis=1)
        values = np.concatenate([self.top, self.bottom[:, ::-1]], axis=1)
        return Table(
            (
                Column("table", np.repeat(self.tables, 2 * k)),
                Column("end", np.tile(np.repeat(["top", "bottom"], k), len(self.tables))),
                Column("id", ids.ravel(), of="token"),
                Column("value", values.ravel()),
            )
        )

    def table_beside(self, other: Result) -> Table:
        """`table`, then the tokens that the other lists, where the whole rows are known."""
        own = self.table()
        if not isinstance(other, TokenCircuitsResult) or other.tables != self.tables or not self.rows.shape[1]:
            return own
        ends = (("top", self.top_ids, other.top_ids), ("bottom", self.bottom_ids, other.bottom_ids))
        more = [
            (table, end, i, self.rows[t, i])
            for t, table in enumerate(self.tables)
            for end, ids, others in ends
            for i in others[t].tolist()
            if 0 <= i < self.rows.shape[1] and i not in ids[t]
        ]
        return own.with_rows(tuple(zip(*more, strict=True))) if more else own


def _refuse(c: ModelConfig, p: TokenCircuitsParams) -> str | None:
    return refuse_table(c, p.embed, (p.head, p.behind or p.head)) or refuse_pair(p.head, p.behind)


def _memory(c: ModelConfig, n: int, p: TokenCircuitsParams) -> int:
    whole = c.d_vocab * c.d_model if p.embed == "after the first MLP" else 0
    return 8 * (16 * (c.d_vocab + c.d_vocab_out) + 16 * c.d_model * c.d_head + whole)


@analysis(version=3, needs="weights", of_heads=True, lane="live", memory=_memory, refuse=_refuse)
def token_circuits(inputs: Inputs, p: TokenCircuitsParams, ctx: Ctx) -> TokenCircuitsResult:
    """OV and QK circuits of one token: what it raises and attends to through a head, what raises it and attends to it."""
    c, head = inputs.weights.config, one_head(inputs, p.head)
    check_token(p.token, c.d_vocab)
    check_distance(c, p.distance)
    with torch.inference_mode():
        through = side_of(inputs, p.head, p.embed, p.behind)
        keys = side_of(inputs, p.head, p.embed, p.behind if p.side == "key" else None)
        queries = side_of(inputs, p.head, p.embed, p.behind if p.side == "query" else None)
        q = rotated(queries.row(p.token) @ head.W_Q, c, p.head.layer, p.distance)
        k = rotated(keys.row(p.token) @ head.W_K, c, p.head.layer, -p.distance)
        readers = [(keys, head.W_K @ q), (queries, head.W_Q @ k)]
        if head.b_Q is not None:
            readers.append((keys, head.W_K @ rotated(head.b_Q, c, p.head.layer, p.distance)))
        if is_token_map(c):
            out, mean = inputs.weights.unembed().W_U[:, p.token], unembed_mean(inputs)
            readers.append((through, head.W_V @ (head.W_O @ (out if mean is None else out - mean))))
        columns = _at_once(readers, ctx)
        raises = ((through.row(p.token) @ head.W_V) @ head.W_O) @ inputs.weights.unembed().W_U
        attends, attended = (c.score_scale * column for column in columns[:2])
        bias = c.score_scale * columns[2] if head.b_Q is not None else None
        raised = columns[-1] if is_token_map(c) else None
        moved_words = "" if p.behind is None else f"QK: only the {p.side} is composed with {p.behind}"
        conventions = (through.words, moved_words, *score_words(c, head, p.distance), ov_bias_words(head))
        words_of_rows = "rows minus their means, QK columns as they are: each row has a mean of its own"
        unscaled = (*through.unscaled, *keys.unscaled, *queries.unscaled)
        captions = words(inputs, *conventions, words_of_rows, scores=(p.head.layer,), unscaled=unscaled, beside_ov=True)
        return _result(raises, attends, raised, attended, bias, p.k, p.whole, captions)


def _at_once(readers: list[tuple[Side, Tensor]], ctx: Ctx) -> list[Tensor]:
    """[d_vocab] each: every token's row of a side times a vector, in one pass over each embedding."""
    by_place: dict[int, Tensor] = {}
    for base in {id(side.W): side for side, _ in readers}.values():
        places = [i for i, (side, _) in enumerate(readers) if side.W is base.W]
        stacked = torch.stack([readers[i][0].pulled_back(readers[i][1][:, None])[:, 0] for i in places], dim=1)
        columns = base.over_all(stacked, ctx, "the vocabulary")
        by_place |= {place: columns[:, i] for i, place in enumerate(places)}
    return [by_place[i] for i in range(len(readers))]


def _result(
    raises: Tensor,
    attends: Tensor,
    raised: Tensor | None,
    attended: Tensor,
    bias: Tensor | None,
    k: int,
    whole: bool,
    conventions: tuple[str, ...],
) -> TokenCircuitsResult:
    k = min(max(1, k), len(raises), len(attends))
    nothing = torch.full((len(raises),), torch.nan)
    rows = [raises - raises.mean(), attends - attends.mean(), nothing if raised is None else raised, attended]
    ends = [ends_of(row.contiguous(), k) for row in rows]
    column = lambda get: np.stack([get(e) for e in ends])
    ids: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda indices, values: np.where(np.isnan(values), -1, indices)
    top, bottom = column(lambda e: e.top), column(lambda e: e.bottom)
    biased = None if bias is None else ends_of(bias - bias.mean(), k)
    return TokenCircuitsResult(
        top_ids=ids(column(lambda e: e.top_ids), top),
        top=top,
        bottom_ids=ids(column(lambda e: e.bottom_ids), bottom),
        bottom=bottom,
        mean=np.array([float(r.mean()) for r in (raises, attends, rows[2], attended)]),
        sd=np.array([float(r.std(unbiased=False)) for r in rows]),
        bias_top_ids=np.zeros(0, np.int64) if biased is None else biased.top_ids,
        rows=np.stack([_padded(row, len(raises), len(attends)) for row in rows]) if whole else top[:, :0],
        bias_top=top[:0, 0] if biased is None else biased.top,
        conventions=conventions,
    )


def _padded(row: Tensor, *lengths: int) -> np.ndarray:
    """A row padded with NaN to the longest, if input and output vocabulary differ."""
    return np.pad(row.cpu().numpy(), (0, max(lengths) - len(row)), constant_values=np.nan)
