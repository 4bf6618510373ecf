"""One row or column of a circuit's table over the vocabulary: its two ends, mean and spread, and the given token's own entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from circuitlab.analysis.base import Column, Result, Table, over, scalar
from circuitlab.analysis.circuits.vocabulary_rows import ends_of
from circuitlab.analysis.ordering import Ranks, rank_in


@dataclass(frozen=True, kw_only=True, eq=False)
class TableRowResult(Result):
    """`top_ids`, `bottom_ids` int64, `top`, `bottom` [k] of one row or column, in `unit`.

    `mean`, `sd` of all its entries (for a row, the mean that was subtracted); `own` and `own_rank` (from 1): the entry of the
    given token itself, NaN and −1 if it has none. `own_equal`: how many entries have that value, itself included.
    """

    unit: ClassVar[str]
    top_ids: np.ndarray = over("top", unit="token id")
    top: np.ndarray = over("top", unit="{unit}")
    bottom_ids: np.ndarray = over("bottom", unit="token id")
    bottom: np.ndarray = over("bottom", unit="{unit}")
    mean: float = scalar("{unit}")
    sd: float = scalar("{unit}")
    own: float = scalar("{unit}")
    own_rank: int = scalar("rank", none=True)
    own_equal: int = scalar("tokens", -1, none=True, since=3)

    def ends(self) -> tuple[tuple[str, np.ndarray, np.ndarray], ...]:
        """(name, ids, values) of the parts that the table lists, each in the order of its rows."""
        return ("top", self.top_ids, self.top), ("bottom", self.bottom_ids[::-1], self.bottom[::-1])

    def table(self) -> Table:
        """The largest entries, then the smallest, the smallest of all last."""
        names, ids, values = zip(*self.ends(), strict=True)
        end = np.repeat(names, [len(part) for part in ids])
        columns = Column("id", np.concatenate(ids), of="token"), Column("value", np.concatenate(values), self.unit)
        return Table((Column("end", end), *columns))


def row_fields(row: Tensor, k: int, mean: float, token: int | None) -> dict[str, Any]:
    """The fields of `TableRowResult` from a row or column; `token` None: none of its entries is the given token's own."""
    rank, equal = Ranks(-1, -1) if token is None else rank_in(row, row[token])
    return {
        **ends_of(row, k)._asdict(),
        "mean": mean,
        "sd": float(row.std(unbiased=False)),
        "own": float("nan") if token is None else float(row[token]),
        "own_rank": int(rank),
        "own_equal": int(equal),
    }
