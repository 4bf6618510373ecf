"""A panel's numbers on their way out: every answer that it draws, now and reference, as table, as Python, as files.

Beside a reference each table and file comes once more with both sides and their difference in it, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from circuitlab.engine.export_data import Told
    from circuitlab.engine.export_difference import Difference
    from circuitlab.engine.request import Answer
    from circuitlab.gui.panel_dock import PanelDock

NOTHING = "Nothing has been computed here yet."
T = TypeVar("T")


def drawn(dock: PanelDock) -> dict[str, Answer]:
    """Every answer that the panel draws, by its name in files."""
    return _named(dock.drawn())


def _named(sides: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """What a panel has on both sides under one name each: its role, and whether it is the reference's."""
    name = lambda side, role: f"reference-{role}" if side == "ref" else role
    return {name(side, role): value for side, roles in sides.items() for role, value in roles.items()}


def _told(dock: PanelDock, identified: bool) -> dict[str, Told | Difference]:
    """Every answer with what files say of it, by its name in files; behind them the differences, `difference-ROLE`."""
    from circuitlab.engine.export_data import told
    from circuitlab.engine.export_difference import differences

    sides = {s: {r: told(dock.bench.engine, a, identified) for r, a in roles.items()} for s, roles in dock.drawn().items()}
    changes = differences(sides.get("now", {}), sides.get("ref", {}))
    return {**_named(sides), **{f"difference-{role}": change for role, change in changes.items()}}


def table_text_of(dock: PanelDock) -> tuple[str, int]:
    """The tables with tabs between their columns, each under its name where they are several; and how many. Raises `BadModel`."""
    from circuitlab.engine.export_data import Told, table_text

    told = _told(dock, identified=False)
    tables = {n: table_text(a.table() if isinstance(a, Told) else a.table, "\t") for n, a in told.items()}
    parts = [f"{name}\n{text}" for name, text in tables.items()] if len(tables) > 1 else list(tables.values())
    return "\n".join(parts), len(parts)


def python_of(dock: PanelDock) -> tuple[str, int]:
    """Python that computes the same numbers, and of how many answers. Raises `BadModel`."""
    from circuitlab.api import snippet, snippet_of

    requests = {name: answer.request for name, answer in drawn(dock).items()}
    if not requests:
        return "", 0
    return (snippet(next(iter(requests.values()))) if len(requests) == 1 else snippet_of(requests)), len(requests)


def write(dock: PanelDock, path: Path) -> Path | None:
    """Write what is drawn, and say where: one answer as a file, several as a zip; None where there is nothing.

    Raises `UsageError`, `BadModel`, `BadMachine`.
    """
    from circuitlab.engine.export_data import write_answers

    answers = _told(dock, identified=True)
    return write_answers(answers, path) if answers else None
