"""Paper on which something cannot be read, and the paper on which it can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, floor

from circuitlab.draw.look.paper import LIMITS, Paper
from circuitlab.errors import UsageError

TRIALS = 4  # papers tried until one is found on which all can be read
STEP_PT = 0.1  # of sizes of type that are advised


class Unreadable(UsageError):
    """Part of a page is wider than its paper.

    `narrowest`: mm of width that it would have room on, in this type; `largest`: pt of type that it would have room in, at this
    width, None where that is no type. Both are what the ratio of `least`, the px that it needs, to `width`, those that there
    are, says: lines and gaps do not shrink with the type, and `confirmed` lays it out to see.
    """

    def __init__(self, what: str, paper: Paper, least: float, width: float, beside: int = 1) -> None:
        """`beside`: how many stand side by side."""
        super().__init__(what, remedy="Make it wider or its type smaller.")
        self.paper, self._beside = paper, beside
        self.advise(ceil(least / width * paper.width_mm), floor(10 * paper.font_pt * width / least) / 10)

    def advise(self, narrowest: float, largest: float | None) -> None:
        """Say that it can be read at this width, in mm, or in this type, in pt."""
        paper, least = self.paper, LIMITS["font_pt"][0]
        self.narrowest, self.largest = narrowest, None if largest is None or largest < least else round(largest, 1)
        smaller = f", or type of at most {self.largest:g} pt at {paper.width_mm:g} mm" if self.largest is not None else ""
        fewer = ", or fewer columns" if self._beside > 1 else ""
        self.expected = f"at least {narrowest:g} mm in type of {paper.font_pt:g} pt{smaller}{fewer}"
        side_by_side = f", {self._beside} side by side" if self._beside > 1 else ""
        self.got = f"{paper.width_mm:g} mm, {paper.font_pt:g} pt{side_by_side}"


def confirmed(refusal: Unreadable, attempt: Callable[[Paper], object]) -> Unreadable:
    """The refusal with the sizes in which all can be read. `attempt` raises `Unreadable` for the paper on which it cannot."""
    paper, width, font_pt = refusal.paper, refusal.narrowest, refusal.largest
    for _ in range(TRIALS):
        again = _refusal(attempt, replace(paper, width_mm=min(width, LIMITS["width_mm"][1])))
        if again is None:
            break
        width = max(again.narrowest, width + 1)
    for _ in range(TRIALS):
        again = None if font_pt is None else _refusal(attempt, replace(paper, font_pt=font_pt))
        if again is None or font_pt is None:
            break
        font_pt = None if again.largest is None else min(again.largest, font_pt - STEP_PT)
    refusal.advise(width, font_pt)
    return refusal


def _refusal(attempt: Callable[[Paper], object], paper: Paper) -> Unreadable | None:
    try:
        attempt(paper)
    except Unreadable as refusal:
        return refusal
    except UsageError:  # of its height
        pass
    return None
