"""Arrangements of the docks, declared: columns from the left, stacks from the top, tabs of which the first is in front."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stack:
    """Docks as tabs of one place; `share` of the column's height."""

    share: int
    tabs: tuple[str, ...]


@dataclass(frozen=True)
class Arrangement:
    """`columns`: (width at 1280 px, its stacks). `homes`: where a panel goes that no stack names, by its area."""

    name: str
    columns: tuple[tuple[int, tuple[Stack, ...]], ...]
    homes: dict[str, str]

    def stacks(self) -> tuple[Stack, ...]:
        """All stacks."""
        return tuple(stack for _, stacks in self.columns for stack in stacks)

    def placed(self, areas: dict[str, str]) -> Arrangement:
        """With every panel of `areas` (name -> area) in a stack: those not named behind their home's tabs."""
        known = {name for stack in self.stacks() for name in stack.tabs}
        homeless = {n: self.homes.get(area, self.homes["centre"]) for n, area in areas.items() if n not in known}
        fill = lambda s: Stack(s.share, (*s.tabs, *(n for n, home in homeless.items() if home in s.tabs)))
        return Arrangement(self.name, tuple((w, tuple(map(fill, stacks))) for w, stacks in self.columns), self.homes)


BENCH = ("interventions", "model", "jobs", "log")
HOMES = {"left": "heads", "centre": "attention", "right": "predictions", "bottom": "heads"}

ARRANGEMENTS: dict[str, Arrangement] = {
    a.name: a
    for a in (
        Arrangement(
            "Explore",
            (
                (416, (Stack(300, ("overview",)), Stack(270, ("heads", *BENCH)))),
                (524, (Stack(570, ("attention", "composition", "spectra", "virtual", "residual")),)),
                (330, (Stack(570, ("predictions", "circuits", "bigram")),)),
            ),
            HOMES,
        ),
        Arrangement(
            "Weights",
            (
                (450, (Stack(570, ("composition", "attention")),)),
                (480, (Stack(340, ("spectra", "virtual", "residual")), Stack(230, ("heads", "overview", *BENCH)))),
                (350, (Stack(570, ("circuits", "bigram", "predictions")),)),
            ),
            HOMES | {"centre": "spectra", "right": "circuits"},
        ),
    )
}
