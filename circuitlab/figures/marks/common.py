"""What marks share: axes, colour maps, arrays that cannot be written to, ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

ColourMap = Literal["magnitude", "signed", "loss"]


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis: what it counts, and a label for each step (tokens, head names), `()` for plain numbers.

    `tokens` marks labels as token text, set in the mono face with visible spaces. `spans`: (first step, one past the last, name)
    of ranges that have a name in common; these are then written, ruled off, in place of the labels of single steps. `thin`:
    labels that do not fit side by side are left out, not turned; `bare`: nothing is written, the plot below has the same axis.
    """

    label: str = ""
    ticks: tuple[str, ...] = ()
    tokens: bool = False
    log: bool = False
    spans: tuple[tuple[int, int, str], ...] = ()
    thin: bool = False
    bare: bool = False


class Frozen:
    """Arrays of a mark cannot be written to: they are compared by identity."""

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)


def ids(*columns: np.ndarray) -> np.ndarray:
    """Columns of whole numbers as an `ids` array [n, k]."""
    made = np.stack([np.asarray(c, dtype=np.int64) for c in columns], axis=1)
    made.setflags(write=False)
    return made
