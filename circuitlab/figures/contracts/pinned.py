"""What a comparison knows of the reference: its name, and which of its positions and tokens belong to ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SAME, OF_NOW = "the same in", "of now"  # why a mark is drawn as it is


@dataclass(frozen=True, eq=False)
class Pinned:
    """What a comparison knows of the reference: its name, and `align` [pos], its position for each of ours (−1: none).

    `same_ids`: whether token ids mean the same texts there. `rounding`: the share of a mark's size up to which a change is
    rounding: what it would draw is then drawn as it is, and said to be the same. `ours`, `theirs`: the token here, or there, that
    is written as one of the other vocabulary, None for none.
    """

    label: str
    align: np.ndarray
    n_there: int
    rounding: float = 0.0
    same_ids: bool = True
    ours: Callable[[int], int | None] = int
    theirs: Callable[[int], int | None] = int

    @property
    def in_place(self) -> bool:
        """Whether each of our positions belongs to the same position there."""
        return pin_is_identity(self.align, self.n_there)


def pin_is_identity(align: np.ndarray, n_there: int) -> bool:
    """Whether an alignment moves nothing."""
    return len(align) == n_there and bool(np.array_equal(align, np.arange(n_there)))
