"""A mean with its standard error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from circuitlab.counting import number


class Mean(NamedTuple):
    """The mean over `n` samples and its standard error, NaN for fewer than two."""

    mean: float
    error: float
    n: int

    def words(self, spec: str = ".2f", sign: bool = False) -> str:
        """The number with its error, as a table has it; "–" where nothing was measured."""
        if not self.n:
            return "–"
        error = "" if np.isnan(self.error) else f" ± {self.error:{spec}}"
        return number(self.mean, f"{'+' if sign else ''}{spec}") + error


def mean_of(values: Sequence[float] | np.ndarray) -> Mean:
    """Mean and standard error, sd / √n, of values; NaN is not counted."""
    x = np.asarray(values, dtype=float)
    x = x[~np.isnan(x)]
    error = float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")
    return Mean(float(x.mean()) if len(x) else float("nan"), error, len(x))


def plain(value: object) -> Any:
    """NaN as None and a mean by its fields, in any depth, for JSON."""
    if isinstance(value, Mean):
        return plain(value._asdict())
    if isinstance(value, float):
        return None if np.isnan(value) else value
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value
