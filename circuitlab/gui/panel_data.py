"""A panel's numbers on their way out: every answer that it draws, now and reference, as table, as Python, as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
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


def table_text_of(dock: PanelDock) -> tuple[str, int]:
    """The tables with tabs between their columns, each under its name where they are several; and how many. Raises `BadModel`."""
    from circuitlab.engine.export_data import table_text, told

    answers = drawn(dock)
    tables = {n: table_text(told(dock.bench.engine, a, identified=False).table(), "\t") for n, a in answers.items()}
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
    from circuitlab.engine.export_data import told, write_answers

    answers = {name: told(dock.bench.engine, answer) for name, answer in drawn(dock).items()}
    return write_answers(answers, path) if answers else None
