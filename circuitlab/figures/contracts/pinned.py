"""What a comparison knows about the reference: its name, and which of its positions and tokens correspond to ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SAME, OF_NOW = "the same in", "of now"  # why a mark is drawn unchanged


class TheSame(str):
    """Words on a mark that is drawn unchanged, as the reference has the same."""

    __slots__ = ()


class OfNow(str):
    """Words on a mark that is drawn unchanged, as it is about now alone."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Pinned:
    """What a comparison knows about the reference: its name, and `align` [pos], its position for each of ours (−1: none).

    `ref_length`: positions of its prompt. `same_ids`: whether token ids mean the same texts in both vocabularies. `rounding`: a
    change up to this share of a mark's size is rounding, and the mark is drawn unchanged. `to_ours`, `to_theirs`: from a token id
    of the reference's vocabulary to ours with the same text, and back; None where no token has it.
    """

    label: str
    align: np.ndarray
    ref_length: int
    rounding: float = 0.0
    same_ids: bool = True
    to_ours: Callable[[int], int | None] = int
    to_theirs: Callable[[int], int | None] = int

    @property
    def in_place(self) -> bool:
        """Whether each of our positions corresponds to the same position of the reference."""
        return pin_is_identity(self.align, self.ref_length)


def pin_is_identity(align: np.ndarray, ref_length: int) -> bool:
    """Whether an alignment maps every position to itself."""
    return len(align) == ref_length and bool(np.array_equal(align, np.arange(ref_length)))
