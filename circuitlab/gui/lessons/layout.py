"""The arrangement of panels beside a lesson: exactly those that a step names, or a whole arrangement with them in front."""

from __future__ import annotations

from collections.abc import Collection

from circuitlab.gui.places.arrangements import ARRANGEMENTS, Arrangement, Stack
from circuitlab.gui.places.layout import ASIDE
from circuitlab.story.setup import Setup

NAME = "Lesson"
ROOM, HEIGHT = 920, 570  # px that the lesson leaves to the panels at 1280 × 800

AREAS: tuple[str, ...] = ("left", "centre", "right", "bottom")


def arrangement_for(setup: Setup, docks: Collection[str]) -> Arrangement | None:
    """The arrangement of a step of which these docks exist; None where it leaves the window as it is."""
    shown = tuple(name for name in setup.show if name in docks and name not in ("prompt", ASIDE))
    return beside(shown[-1:]) if setup.alone and shown else arrangement_of(setup.arrange, shown)


def arrangement_of(arrange: str, show: tuple[str, ...]) -> Arrangement | None:
    """The arrangement of a step; None where it names nothing."""
    shown = tuple(dict.fromkeys(name for name in show if name != "prompt"))
    if arrange in ARRANGEMENTS:
        return with_shown(ARRANGEMENTS[arrange], shown)
    return beside(shown) if shown else None


def beside(shown: tuple[str, ...]) -> Arrangement:
    """One panel fills the room; two stand side by side; more stand in columns of two, the last alone if their number is odd."""
    each = 1 if len(shown) < 3 else 2
    pairs: list[tuple[str, ...]] = [shown[i : i + each] for i in range(0, len(shown), each)]
    stacks = [tuple(Stack(HEIGHT // len(names), (name,)) for name in names) for names in pairs]
    columns = tuple((ROOM // len(pairs), column) for column in stacks)
    homes = dict.fromkeys(AREAS, next(iter(shown)))
    return Arrangement(NAME, columns, homes, firm=True)


def with_shown(arrangement: Arrangement, shown: tuple[str, ...]) -> Arrangement:
    """An arrangement with these panels in front: those that share a stack split it, those in no stack get a new one."""
    stacked = {name for stack in arrangement.stacks() for name in stack.tabs}
    columns = [(width, [part for stack in stacks for part in _split(stack, shown)]) for width, stacks in arrangement.columns]
    for name in shown:
        if name not in stacked:
            columns[-1][1].append(Stack(HEIGHT // 2, (name,)))
    placed = tuple((width, tuple(stacks)) for width, stacks in columns)
    return Arrangement(NAME, placed, arrangement.homes, firm=True, of=arrangement.name)


def _split(stack: Stack, shown: tuple[str, ...]) -> list[Stack]:
    front = [name for name in stack.tabs if name in shown]
    if not front:
        return [stack]
    rest = tuple(name for name in stack.tabs if name not in shown)
    share = stack.share // len(front)
    return [Stack(share, (name, *rest) if i == 0 else (name,)) for i, name in enumerate(front)]
