"""Arrangements of the docks, declared: columns from the left, stacks from the top, tabs of which the first is in front."""

from __future__ import annotations

from collections.abc import Collection
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

    def of(self, there: Collection[str]) -> Arrangement:
        """Without the docks that are not there to be placed."""
        kept = lambda stacks: tuple(Stack(s.share, t) for s in stacks if (t := tuple(n for n in s.tabs if n in there)))
        columns = tuple((width, stacks) for width, stacks in ((w, kept(s)) for w, s in self.columns) if stacks)
        return Arrangement(self.name, columns, self.homes)


BENCH = ("interventions", "model", "jobs", "log")
HOMES = {"left": "heads", "centre": "attention", "right": "predictions", "bottom": "heads"}

ARRANGEMENTS: dict[str, Arrangement] = {
    a.name: a
    for a in (
        Arrangement(
            "Explore",
            (
                (416, (Stack(300, ("overview",)), Stack(270, ("heads", *BENCH)))),
                (524, (Stack(570, ("attention", "logit_lens", "composition", "spectra", "side_by_side")),)),
                (330, (Stack(570, ("predictions", "circuits", "bigram", "lessons")),)),
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
        Arrangement(
            "Why this token",
            (
                (390, (Stack(570, ("attention", "overview", "heads", "interventions")),)),
                (450, (Stack(570, ("paths", "attribution", "neurons", "term_importance")),)),
                (430, (Stack(570, ("why_here", "step_by_step", "logit_lens", "predictions")),)),
            ),
            HOMES | {"centre": "paths", "bottom": "paths", "right": "why_here"},
        ),
        Arrangement(
            "Cut",
            (
                (420, (Stack(350, ("ablation", "attention")), Stack(220, BENCH))),
                (470, (Stack(570, ("patching", "keep_only", "prompt_sets", "head_finder")),)),
                (380, (Stack(570, ("predictions", "induction", "circuits")),)),
            ),
            HOMES | {"centre": "patching", "bottom": "patching"},
        ),
        Arrangement(
            "Induction",
            (
                (410, (Stack(570, ("head_finder", "heads", "overview")),)),
                (470, (Stack(570, ("induction", "attention")),)),
                (390, (Stack(570, ("term_importance", "why_here", "predictions", "logit_lens")),)),
            ),
            HOMES | {"centre": "induction", "bottom": "induction", "right": "term_importance"},
        ),
        Arrangement(
            "Training",
            (
                (712, (Stack(570, ("training", "side_by_side")),)),
                (
                    558,
                    (
                        Stack(340, ("attention", "composition", "spectra", "induction")),
                        Stack(230, ("heads", "predictions", "overview", "head_finder")),
                    ),
                ),
            ),
            HOMES | {"centre": "attention", "bottom": "training", "left": "heads"},
        ),
        Arrangement(
            "Laboratory",
            (
                (760, (Stack(570, ("laboratory",)),)),
                (510, (Stack(300, ("attention", "composition")), Stack(270, ("predictions", "circuits", "model")))),
            ),
            HOMES | {"centre": "laboratory", "bottom": "attention", "left": "attention"},
        ),
    )
}
