"""One predicted and one measured quantity of all heads: their axes, their correlation in words, and where they part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from circuitlab.analysis.checks.theory_and_measurement import MEASURED, PREDICTED, UNITS, TheoryAndMeasurementResult
from circuitlab.analysis.ordering import descending
from circuitlab.analysis.rank_correlation import TELLING
from circuitlab.caption_parts import sense_of
from circuitlab.counting import number, number_of
from circuitlab.figures.marks import Axis
from circuitlab.model.subject import Head

Predicted = Literal["own token in top 10", "OV copying", "QK positivity", "positivity through earlier heads", "K-composition"]
Measured = Literal["prefix matching", "copying (repeated)", "copying (unrepeated)", "ablation"]
SIGNED = ("OV copying", "QK positivity", "positivity through earlier heads", "copying (repeated)", "copying (unrepeated)")
UPPER = {"K-composition": 0.5, "ablation": 1.0}  # in view whatever the values are, so that noise is not drawn large
SHORT = {
    "own token in top 10": "own top 10",
    "positivity through earlier heads": "via earlier",
    "K-composition": "K-comp.",
    "prefix matching": "prefix",
    "copying (repeated)": "copying rep.",
    "copying (unrepeated)": "copying once",
}
PARTED = 3  # heads that are named


def axis_of(quantity: str) -> Axis:
    """The axis of a quantity, with its unit where it has one."""
    return Axis(f"{quantity}, {UNITS[quantity]}" if UNITS[quantity] != "dimensionless" else quantity)


def short(quantity: str) -> str:
    """Its name in a narrow column."""
    return SHORT.get(quantity, quantity)


def ends_of(quantity: str) -> tuple[float, float]:
    """The range of its axis that is always in view."""
    return (-1.0, 1.0) if quantity in SIGNED else (0.0, UPPER.get(quantity, 1.0))


def digits_below_one(*values: float | np.ndarray) -> int:
    """The digits, 2 to 6, with which no correlation below 1 is written as 1."""
    size = np.abs(np.concatenate([np.ravel(value) for value in values]))
    largest = float(size[size < 1].max(initial=0.0))
    return next((digits for digits in range(2, 6) if round(largest, digits) < 1), 6)


def correlation_words(rho: float, low: float, high: float, n: int) -> str:
    """`ρ 0.83 (95 %: 0.18 to 0.98), 8 heads`, or why there is none."""
    heads = number_of(n, "head")
    if not np.isfinite(rho):
        return f"no correlation: {heads} with both" if n < 2 else f"no correlation: one of them is equal for all {heads}"
    written = lambda value: number(value, f".{digits_below_one(rho, low, high)}f")
    interval = f"(95\N{NO-BREAK SPACE}%: {written(low)} to {written(high)})" if np.isfinite(low) else "(too few for an interval)"
    few = f", fewer than the {TELLING} that can exclude 0" if np.isfinite(low) and n < TELLING else ""
    return f"ρ\N{NO-BREAK SPACE}{written(rho)} {interval}, {heads}{few}"


def concerning(parts: tuple[str, ...], *quantities: str) -> tuple[str, ...]:
    """Parts of a caption without those that are about other quantities: how they were measured, or why not."""
    concerns = lambda about: not about or not set(about).isdisjoint(quantities)
    return tuple(part for part in parts if concerns(sense_of(part).quantities))


@dataclass(frozen=True, eq=False)
class Pair:
    """A predicted and a measured quantity of one result."""

    result: TheoryAndMeasurementResult
    predicted: str
    measured: str

    @property
    def quantities(self) -> tuple[str, str]:
        """Their names."""
        return self.predicted, self.measured

    @property
    def words(self) -> str:
        """The correlation, in words."""
        at = PREDICTED.index(self.predicted), MEASURED.index(self.measured)
        r = self.result
        return correlation_words(float(r.rho[at]), float(r.low[at]), float(r.high[at]), int(r.n[at]))

    @property
    def differences(self) -> np.ndarray:
        """[layer, head] rank measured minus rank predicted, 1 the largest; NaN without both."""
        return self.result.differences(self.predicted, self.measured)

    def places(self, quantity: str) -> np.ndarray:
        """[layer, head] rank from 1 of the largest among the heads that have both; equal values share the mean of theirs."""
        return self.result.ranks(*self.quantities)[self.quantities.index(quantity)]

    def parting(self, most: int = PARTED) -> tuple[tuple[tuple[Head, float], ...], str]:
        """The heads where the two part most, with the difference of ranks, the largest first, at most `most`; and how many more
        part as far as the last of these, in words, "" for none: which of a tie are named is an accident.
        """
        differences = self.differences
        size = np.abs(np.nan_to_num(differences)).ravel()
        order = [int(i) for i in descending(size)[:most] if size[i] > 0]
        heads = tuple((Head(*map(int, divmod(i, differences.shape[1]))), float(differences.ravel()[i])) for i in order)
        more = int((size == size[order[-1]]).sum() - (size[order] == size[order[-1]]).sum()) if order else 0
        return heads, f" and {more} more" if more else ""

    def parting_words(self) -> str:
        """For captions: those heads, with both ranks; "" where all ranks agree."""
        heads, more = self.parting()
        if not heads:
            return "" if not np.isfinite(self.differences).any() else "both put the heads in the same order"
        first, second = self.places(self.predicted), self.places(self.measured)
        each = (f"{head} (predicted {first[head]:g}, measured {second[head]:g})" for head, _ in heads)
        more = f"{more} by as many ranks" if more else ""
        return f"part most: {', '.join(each)}{more}, of {number_of(int(np.isfinite(first).sum()), 'rank')}, 1 the largest"
