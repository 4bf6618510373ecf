"""Arrangements of the docks, declared: columns from the left, stacks from the top, tabs of which the first is in front."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

NARROWEST, LOWEST = 250, 200  # px at text size 1: a column, and a stack with its tabs; less is a sliver


@dataclass(frozen=True)
class Stack:
    """Docks as tabs of one place; `share` of the column's height."""

    share: int
    tabs: tuple[str, ...]


@dataclass(frozen=True)
class Arrangement:
    """`columns`: (width at 1280 px, its stacks). `homes`: where a panel goes that no stack names, by its area.

    `firm`: it stays as it is declared, whatever the room.
    """

    name: str
    columns: tuple[tuple[int, tuple[Stack, ...]], ...]
    homes: dict[str, str]
    firm: bool = False

    def stacks(self) -> tuple[Stack, ...]:
        """All stacks."""
        return tuple(stack for _, stacks in self.columns for stack in stacks)

    def placed(self, areas: dict[str, str]) -> Arrangement:
        """With every panel of `areas` (name -> area) in a stack: those not named behind the tabs of their home."""
        known = {name for stack in self.stacks() for name in stack.tabs}
        behind: dict[Stack, list[str]] = {}
        for name, area in areas.items():
            if name not in known:
                behind.setdefault(self._home(area), []).append(name)
        fill = lambda s: Stack(s.share, (*s.tabs, *behind.get(s, ())))
        return replace(self, columns=tuple((w, tuple(map(fill, stacks))) for w, stacks in self.columns))

    def _home(self, area: str) -> Stack:
        """The stack that the arrangement names for an area; where that panel is in none, the last one at that side."""
        home = self.homes.get(area, self.homes["centre"])
        found = next((stack for stack in self.stacks() if home in stack.tabs), None)
        return found or self.columns[-1 if area == "right" else 0][1][-1]

    def of(self, there: Collection[str]) -> Arrangement:
        """Without the docks that are not there to be placed."""
        kept = lambda stacks: tuple(Stack(s.share, t) for s in stacks if (t := tuple(n for n in s.tabs if n in there)))
        columns = tuple((width, stacks) for width, stacks in ((w, kept(s)) for w, s in self.columns) if stacks)
        return replace(self, columns=columns)

    def fitted(self, width: int, height: int) -> Arrangement:
        """In a room of so many px at text size 1: docks become tabs before they become slivers.

        The narrowest column goes under, or behind, the next narrow one; of stacks too low the last goes behind the one above.
        """
        if self.firm:
            return self
        columns = [[wide, list(stacks)] for wide, stacks in self.columns]
        while len(columns) > 1 and min(wide for wide, _ in columns) * width // sum(wide for wide, _ in columns) < NARROWEST:
            gone = columns.pop(min(range(len(columns)), key=lambda i: columns[i][0]))
            host = min(columns, key=lambda column: column[0])
            host[1] += gone[1]
        stacked = tuple((wide, _high_enough(stacks, height)) for wide, stacks in columns)
        return replace(self, columns=stacked)


def _high_enough(stacks: list[Stack], height: int) -> tuple[Stack, ...]:
    """The last ones behind those above, until none is too low."""
    kept = list(stacks)
    while len(kept) > 1 and min(s.share for s in kept) * height // sum(s.share for s in kept) < LOWEST:
        last = kept.pop()
        kept[-1] = Stack(kept[-1].share + last.share, (*kept[-1].tabs, *last.tabs))
    return tuple(kept)


BENCH = ("interventions", "model", "jobs", "log")
HOMES = {"left": "heads", "centre": "attention", "right": "predictions", "bottom": "heads"}

ARRANGEMENTS: dict[str, Arrangement] = {
    a.name: a
    for a in (
        Arrangement(
            "Explore",
            (
                (380, (Stack(290, ("overview",)), Stack(280, ("heads", *BENCH)))),
                (560, (Stack(570, ("attention", "logit_lens", "composition", "spectra", "side_by_side")),)),
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
