"""The arrangements of the docks: columns from the left, stacks from the top, tabs of which the first is in front."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

NARROWEST, LOWEST = 250, 200  # px at text size 1: least width of a column, least height of a stack with its tabs


@dataclass(frozen=True)
class Stack:
    """Docks as tabs in one place; `share`: its part of the column's height."""

    share: int
    tabs: tuple[str, ...]


@dataclass(frozen=True)
class Arrangement:
    """`columns`: (width in px in a window of 1280, stacks). `homes`: by area, the panel whose stack takes the panels that no
    stack names. `firm`: it is never refitted to the room available. `tip`: what it is for, the tooltip of its menu entry.
    `of`: the name of the arrangement that it is, with other panels in front.
    """

    name: str
    columns: tuple[tuple[int, tuple[Stack, ...]], ...]
    homes: dict[str, str]
    firm: bool = False
    tip: str = ""
    of: str = ""

    def stacks(self) -> tuple[Stack, ...]:
        """All stacks."""
        return tuple(stack for _, stacks in self.columns for stack in stacks)

    def front(self) -> tuple[str, ...]:
        """The docks in front, where each stack has room of its own."""
        return tuple(stack.tabs[0] for stack in self.stacks())

    def with_homes(self, areas: dict[str, str]) -> Arrangement:
        """With every panel of `areas` (name -> area) in a stack: those that no stack names go to the last tabs of their home."""
        stacked = {name for stack in self.stacks() for name in stack.tabs}
        extra: dict[Stack, list[str]] = {}
        for name, area in areas.items():
            if name not in stacked:
                extra.setdefault(self._home(area), []).append(name)
        fill = lambda s: Stack(s.share, (*s.tabs, *extra.get(s, ())))
        return replace(self, columns=tuple((w, tuple(map(fill, stacks))) for w, stacks in self.columns))

    def _home(self, area: str) -> Stack:
        """The stack of an area's home panel; where no stack has that panel, the last stack on that side."""
        home = self.homes.get(area, self.homes["centre"])
        stack = next((stack for stack in self.stacks() if home in stack.tabs), None)
        return stack or self.columns[-1 if area == "right" else 0][1][-1]

    def only(self, names: Collection[str]) -> Arrangement:
        """With these docks only; stacks and columns without any of them are dropped."""
        present = lambda stacks: tuple(Stack(s.share, t) for s in stacks if (t := tuple(n for n in s.tabs if n in names)))
        columns = tuple((width, stacks) for width, stacks in ((w, present(s)) for w, s in self.columns) if stacks)
        return replace(self, columns=columns)

    def fitted(self, width: int, height: int) -> Arrangement:
        """Fitted to a room of `width` × `height` px at text size 1: docks become tabs before they become too small to use.

        The narrowest column moves into the next narrowest; where stacks would be too low, the last joins the tabs of the one
        above.
        """
        if self.firm:
            return self
        columns = [[wide, list(stacks)] for wide, stacks in self.columns]
        while len(columns) > 1 and min(wide for wide, _ in columns) * width // sum(wide for wide, _ in columns) < NARROWEST:
            narrowest = columns.pop(min(range(len(columns)), key=lambda i: columns[i][0]))
            host = min(columns, key=lambda column: column[0])
            host[1] += narrowest[1]
        stacked = tuple((wide, _high_enough(stacks, height)) for wide, stacks in columns)
        return replace(self, columns=stacked)


def _high_enough(stacks: list[Stack], height: int) -> tuple[Stack, ...]:
    """Merge the last stack into the tabs of the one above, until none is too low."""
    rest = list(stacks)
    while len(rest) > 1 and min(s.share for s in rest) * height // sum(s.share for s in rest) < LOWEST:
        last = rest.pop()
        rest[-1] = Stack(rest[-1].share + last.share, (*rest[-1].tabs, *last.tabs))
    return tuple(rest)


TOOLS = ("interventions", "model", "jobs", "log")
HOMES = {"left": "heads", "centre": "attention", "right": "predictions", "bottom": "heads"}

ARRANGEMENTS: dict[str, Arrangement] = {
    a.name: a
    for a in (
        Arrangement(
            "Explore",
            (
                (380, (Stack(290, ("overview",)), Stack(280, ("heads", *TOOLS)))),
                (560, (Stack(570, ("attention", "logit_lens", "composition", "spectra", "side_by_side")),)),
                (330, (Stack(570, ("predictions", "circuits", "bigram", "lessons")),)),
            ),
            HOMES,
            tip="What the heads do on a text: their patterns, their scores, the predictions",
        ),
        Arrangement(
            "Weights",
            (
                (450, (Stack(570, ("composition", "attention")),)),
                (480, (Stack(340, ("spectra", "virtual", "residual")), Stack(230, ("heads", "overview", *TOOLS)))),
                (350, (Stack(570, ("circuits", "bigram", "predictions")),)),
            ),
            HOMES | {"centre": "spectra", "right": "circuits"},
            tip="What the weights do, without a text: composition scores, eigenvalues, QK and OV circuits",
        ),
        Arrangement(
            "Why this token",
            (
                (390, (Stack(570, ("attention", "overview", "heads", "interventions")),)),
                (450, (Stack(570, ("paths", "attribution", "neurons", "term_importance")),)),
                (430, (Stack(570, ("why_here", "step_by_step", "logit_lens", "predictions")),)),
            ),
            HOMES | {"centre": "paths", "bottom": "paths", "right": "why_here"},
            tip="Why the model predicts a token: paths, attribution to components, why a head attends here",
        ),
        Arrangement(
            "Cut",
            (
                (420, (Stack(350, ("ablation", "attention")), Stack(220, TOOLS))),
                (470, (Stack(570, ("patching", "keep_only", "prompt_sets", "head_finder")),)),
                (380, (Stack(570, ("predictions", "induction", "circuits")),)),
            ),
            HOMES | {"centre": "patching", "bottom": "patching"},
            tip="Ablate heads, patch from another prompt, and measure the faithfulness of a circuit",
        ),
        Arrangement(
            "Induction",
            (
                (410, (Stack(570, ("head_finder", "heads", "overview")),)),
                (470, (Stack(570, ("induction", "attention", "theory", "evidence")),)),
                (390, (Stack(570, ("term_importance", "why_here", "predictions", "logit_lens")),)),
            ),
            HOMES | {"centre": "induction", "bottom": "induction", "right": "term_importance"},
            tip="Find the induction heads, and test what they do",
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
            tip="A training from checkpoint to checkpoint: its curves, and heads and circuits at each step",
        ),
        Arrangement(
            "Laboratory",
            (
                (760, (Stack(570, ("laboratory",)),)),
                (510, (Stack(300, ("attention", "composition")), Stack(270, ("predictions", "circuits", "model")))),
            ),
            HOMES | {"centre": "laboratory", "bottom": "attention", "left": "attention"},
            tip="The constructed induction model, step by step, with its parameters",
        ),
    )
}

FRONTS = {name: arrangement.front() for name, arrangement in ARRANGEMENTS.items()}  # the panels in front, by arrangement
