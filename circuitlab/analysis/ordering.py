"""The order of a ranking, the rank of a value, and the names of heads given by their indices.

    rank = 1 + how many are strictly greater;   equal = how many have the same value, itself included

Equal values have one rank; `counting.ranked` says it. What is counted strictly ("first choice", "in the top ten") counts those
that are equal against: `Ranks.last`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from circuitlab.model.subject import Head


def descending(values: np.ndarray, by_size: bool = False) -> np.ndarray:
    """[values.size] flat indices of `values`, the largest first, or with `by_size` the largest magnitude.

    Equal values stay in their order; NaN (no value) comes last.
    """
    values = np.ravel(values)
    return np.argsort(-np.abs(values) if by_size else -values, kind="stable")


class Ranks(NamedTuple):
    """`rank` from 1, −1 for NaN, and `equal`, 0 for NaN: whole numbers, or arrays or tensors of them."""

    rank: Any
    equal: Any

    @property
    def last(self) -> Any:
        """The rank where all equal ones come before: 1 for the largest of all alone; below 1 for NaN."""
        return self.rank + self.equal - 1


def rank_in(values: Any, own: Any) -> Ranks:
    """The rank of `own` […, 1] among `values` […, n], which has it in it: arrays or tensors […]. NaN counts for nothing."""
    equal = (values == own).sum(-1)
    return Ranks(((values > own).sum(-1) + 1) * (equal > 0) - 1 * (equal == 0), equal)


def all_ranks(values: np.ndarray) -> Ranks:
    """The rank of each entry among all of `values`, of any shape, and how many are equal to it, of the same shape."""
    ordered = np.sort(values[~np.isnan(values)])
    above = len(ordered) - np.searchsorted(ordered, values, side="right")
    equal = len(ordered) - np.searchsorted(ordered, values, side="left") - above
    return Ranks(np.where(np.isnan(values), -1, above + 1), np.where(np.isnan(values), 0, equal))


def head_names(layers: Iterable[int], heads: Iterable[int]) -> np.ndarray:
    """[n] str, `L1H4`, for n layer indices and as many head indices; also of no heads."""
    return np.array([str(Head(int(a), int(b))) for a, b in zip(layers, heads, strict=True)], dtype=str)
