"""What is read: tokens, tables, paragraphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from circuitlab.counting import number_of
from circuitlab.figures.marks.common import NUMBERS, TEXT, WHOLE, ColourMap, Frozen

SHARES, NEARLY = (0.0, 1.0), 1e-6  # levels that need not be named, and how far beyond them rounding goes
ALONE = -2  # the first number of the id of a row that belongs to no other table's


@dataclass(frozen=True, eq=False)
class Tokens(Frozen):
    """Running text, one box a token, coloured by value. `texts` [n] display text; `values` [n], NaN uncoloured.

    `ids_text` [n]: what stands in the tooltip (raw text, id, index). Hits are (position,). `row` is the locked or hovered
    token; `rgb` [n, 3] uint8 in place of the colour map; `heading`: a line above. `named`: (position, word) above a token;
    `arrows`: (from, to) positions, arcs above the text. `special`: positions of tokens that stand for no text, each in a frame.
    """

    name: str
    texts: tuple[str, ...]
    values: np.ndarray
    levels: tuple[float, float] = (0.0, 1.0)
    map: ColourMap = "magnitude"
    unit: str = ""
    tips: tuple[str, ...] = ()
    row: int | None = None
    locked: bool = False
    rgb: np.ndarray | None = None
    heading: str = ""
    named: tuple[tuple[int, str], ...] = ()
    arrows: tuple[tuple[int, int], ...] = ()
    special: tuple[int, ...] = ()

    def check(self) -> None:
        """One of everything for each token."""
        n = len(self.texts)
        self.within("named", n, (at for at, _ in self.named))
        self.within("arrows", n, (at for pair in self.arrows for at in pair))
        self.within("special", n, self.special)
        self.worded("texts", self.texts)
        self.indexed("row", n)
        self.shaped("values", NUMBERS, n)
        self.shaped("rgb", "u", n, 3)
        self.counted("tips", n)
        self.levelled()


@dataclass(frozen=True, eq=False)
class RowColumn(Frozen):
    """One column of `Rows`: `values` numbers or str [n]; `digits` after the point; `bar` draws the value as a bar behind it.

    `tokens` says that the text is token text (mono, plain, visible spaces); `map` tints the cell. `levels`: the values at the two
    ends of the bars or colours; only shares of 1 need not name them. `spare`: it is
    there only while the columns before it need not be squeezed for it. `reads`: a change has its sign, and neither a small change
    nor a small probability is written as zero, nor numbers alike by which rows are ranked; see `small`. `alone`: its name in a
    copy, where no caption stands below it, "" the same one. `from_end`: its texts are read from their end, so that what has no
    room is left out of their beginning, and it takes the room that other columns leave.
    """

    name: str
    values: np.ndarray
    digits: int = 3
    unit: str = ""
    tokens: bool = False
    bar: bool = False
    map: ColourMap | None = None
    levels: tuple[float, float] = SHARES
    tip: str = ""
    spare: bool = False
    reads: Literal["number", "change", "probability", "ranked"] = "number"
    alone: str = ""
    from_end: bool = False

    @property
    def copied_name(self) -> str:
        """What it is called in a copy."""
        return self.alone or self.name

    @cached_property
    def small(self) -> float:
        """The size below which changes, probabilities and ranked numbers are written with an exponent, 0 where none asks for it.

        One value that `digits` would write as zeros asks for it in its whole column, of ranked numbers two that differ: for all
        of which `digits` leave fewer than two figures, so that 6e−07 never stands below 0.0001.
        """
        if self.reads == "number" or self.values.dtype.kind not in NUMBERS:
            return 0.0
        values = self.values.astype(np.float64)
        zeros = np.unique(values[np.abs(values) < 0.5 * 10.0**-self.digits])  # as they would be written
        asks = len(zeros) > 1 if self.reads == "ranked" else bool(zeros.any())
        return 10.0 ** (1 - self.digits) if asks else 0.0

    def check(self) -> None:
        """A cell for each row."""
        coloured = self.map is not None or self.bar
        self.shaped("values", NUMBERS if coloured else NUMBERS + TEXT, None)
        if coloured:
            self.levelled()
        if coloured and self.levels == SHARES and bool(np.any((self.values < -NEARLY) | (self.values > 1 + NEARLY))):
            raise self.refuse("levels", "the values at the two ends of its bars", "none, for other values than shares")


@dataclass(frozen=True, eq=False)
class Rows(Frozen):
    """A table that sorts, filters and copies. `ids` [n, k] int; hits are a row's id. `chosen` are row indices.

    `chosen` is what is selected in the window, the leading one first, and nothing else has its colour. `strong` rows are set in
    bold: a sum over the others, or the token that really follows.

    `heading`: a line above. `ranked`: rows stand in the order of what is measured, so that a difference puts them in its own.

    Of two tables rows belong together whose ids are equal, or begin with the same `keyed` numbers; a row whose id begins with
    `ALONE` (a sum of what is not listed) belongs to none. `including(ids)` is this table with rows for those ids as well, for one
    that lists a few of many; `absent` is what a row counts as that is in no such table: 0 for the terms of a sum.

    `total`: how many rows there are with those that are not listed, 0 if all are. `gap`: before that row others are left out.
    `key`: below the table stands what the colours of its first coloured column mean. `own`: no answer's table has its cells, so
    that it is exported itself.
    """

    name: str
    columns: tuple[RowColumn, ...]
    ids: np.ndarray
    chosen: tuple[int, ...] = ()
    strong: tuple[int, ...] = ()
    sort: tuple[int, Literal["up", "down"]] | None = None
    searchable: bool = False
    heading: str = ""
    ranked: bool = False
    keyed: int = 0
    including: Callable[[np.ndarray], Rows] | None = None
    absent: float = float("nan")
    total: int = 0
    gap: int | None = None
    key: bool = False
    own: bool = False

    def check(self) -> None:
        """Columns as long as there are rows."""
        self.shaped("ids", WHOLE, None, None)
        if self.gap is not None:
            self.within("gap", len(self.ids), (self.gap,))
        self.within("strong", len(self.ids))
        self.within("chosen", len(self.ids))
        for column in self.columns:
            if len(column.values) != len(self.ids):
                raise self.refuse(
                    f"columns (“{column.name}”)", f"{number_of(len(self.ids), 'cell')}, one for each row", len(column.values)
                )
        if self.sort is not None:
            self.within("sort", len(self.columns), self.sort[:1])


@dataclass(frozen=True, eq=False)
class Prose(Frozen):
    """Paragraphs, each with a word or two that lead it (in bold), "" for none; `formula`: a line above them. Nothing to pick.

    `on_paper`: what stands there in their place, where nobody can choose which is shown; () for the same.
    """

    name: str
    paragraphs: tuple[tuple[str, str], ...]
    formula: str = ""
    on_paper: tuple[tuple[str, str], ...] = ()

    def check(self) -> None:
        """Each paragraph has a lead and its text."""
        if other := [part for part in (*self.paragraphs, *self.on_paper) if len(part) != 2]:
            raise self.refuse("paragraphs", "a lead and a text each", other[0])
        self.worded("paragraphs", (text for part in (*self.paragraphs, *self.on_paper) for text in part))
