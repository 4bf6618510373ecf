"""The order of a ranking, and the names of heads given by their indices: what tables of heads are made with."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circuitlab.model.subject import Head


def descending(values: np.ndarray, by_size: bool = False) -> np.ndarray:
    """[values.size] flat indices of `values`, the largest first, or with `by_size` the largest magnitude.

    Equal values stay in their order; NaN (no value) comes last.
    """
    values = np.ravel(values)
    return np.argsort(-np.abs(values) if by_size else -values, kind="stable")


def head_names(layers: Iterable[int], heads: Iterable[int]) -> np.ndarray:
    """[n] str, `L1H4`, for n layer indices and as many head indices; also of no heads."""
    return np.array([str(Head(int(a), int(b))) for a, b in zip(layers, heads, strict=True)], dtype=str)
