"""What marks share: axes, colour maps, arrays that cannot be written to, ids."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sized
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from circuitlab.errors import BadFigure

Colour = tuple[int, int, int]  # red, green, blue, 0..255
ColourMap = Literal["magnitude", "signed", "loss"]
KINDS = {"f": "numbers", "i": "whole numbers", "u": "whole numbers", "b": "truth values", "O": "text", "U": "text"}  # of a dtype
NUMBERS, WHOLE, FLAGS, TEXT = "fiub", "iu", "b", "OU"


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis: what it counts, and a label for each step (tokens, head names), `()` for plain numbers.

    `tokens` marks labels as token text, set in the mono face with visible spaces. `spans`: (first step, one past the last, name)
    of ranges that have a name in common; these are then written, ruled off, in place of the labels of single steps. `thin`:
    labels that do not fit side by side are left out, not turned; `bare`: nothing is written, the plot below has the same axis.
    `whole`: it counts, and has no numbers between whole ones. `brackets`: (first step, one past the last) of steps that belong
    together, held by a bracket between the labels and the plot.
    """

    label: str = ""
    ticks: tuple[str, ...] = ()
    tokens: bool = False
    log: bool = False
    spans: tuple[tuple[int, int, str], ...] = ()
    thin: bool = False
    bare: bool = False
    whole: bool = False
    brackets: tuple[tuple[int, int], ...] = ()


class Frozen:
    """Arrays of a mark cannot be written to: they are compared by identity. Its parts agree, or it is not made.

    What is drawn with parts that disagree ends in an index error while Qt paints, and with it the process.
    """

    name: str

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
        self.check()

    def check(self) -> None:
        """Raise `BadFigure` where parts disagree."""

    def refuse(self, part: str, expected: str, got: object) -> BadFigure:
        """The error to raise."""
        kind = type(self).__name__
        return BadFigure(f"{kind} “{self.name}” cannot be drawn: its {part} disagree.", expected=expected, got=str(got))

    def shaped(self, part: str, kinds: str, *shape: int | None) -> None:
        """An array of this shape, None: any length, and with a dtype of these kinds (`KINDS`); or no array at all."""
        value: Any = getattr(self, part)
        if value is None:
            return
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
            expected = "an array of " + " or ".join(dict.fromkeys(KINDS[kind] for kind in kinds))
            raise self.refuse(part, expected, value.dtype if isinstance(value, np.ndarray) else type(value).__name__)
        got = value.shape
        if len(got) != len(shape) or any(want is not None and want != n for want, n in zip(shape, got, strict=True)):
            expected = " × ".join("k" if n is None else str(n) for n in shape)
            raise self.refuse(part, expected, " × ".join(map(str, got)) or "one number")

    def counted(self, part: str, n: int, values: Sized | None = None) -> None:
        """`n` of them, or none: labels, tips, names."""
        got = getattr(self, part) if values is None else values
        if got is not None and len(got) not in (0, n):
            raise self.refuse(part, f"{n}, or none", len(got))

    def within(self, part: str, n: int, values: Iterable[int] | None = None) -> None:
        """Indices below `n`."""
        got = getattr(self, part) if values is None else values
        if out := [int(i) for i in got if not 0 <= i < n]:
            raise self.refuse(part, f"indices from 0 to {n - 1}" if n else "no indices", out[:5])

    def indexed(self, part: str, n: int) -> None:
        """One index below `n`, or None."""
        if (index := getattr(self, part)) is not None:
            self.within(part, n, (index,))

    def worded(self, part: str, texts: Iterable[object]) -> None:
        """Each is a text."""
        if other := [type(text).__name__ for text in texts if not isinstance(text, str)]:
            raise self.refuse(part, "text", other[0])

    def levelled(self) -> None:
        """Two ends of a colour map."""
        low, high = self.levels  # type: ignore[attr-defined]
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise self.refuse("levels", "two numbers, the lower one first", (low, high))


def ids(*columns: np.ndarray) -> np.ndarray:
    """Columns of whole numbers as an `ids` array [n, k]."""
    table = np.stack([np.asarray(c, dtype=np.int64) for c in columns], axis=1)
    table.setflags(write=False)
    return table
