"""A panel's numbers on their way out: every answer that it draws, now and reference, as table, as Python, as files.

Beside a reference each table and file comes once more with both sides and their difference in it, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from circuitlab.engine.engine import Engine
    from circuitlab.engine.export_data import AnswerExport
    from circuitlab.engine.export_difference import Difference
    from circuitlab.engine.request import Answer
    from circuitlab.gui.panel.panel_dock import PanelDock

Drawn = Mapping[str, Mapping[str, "Answer"]]  # by side and role: `PanelDock.drawn`
NOTHING = "Nothing has been computed here yet."
T = TypeVar("T")


def drawn(dock: PanelDock) -> dict[str, Answer]:
    """Every answer that the panel draws, by its name in files."""
    return _named(dock.drawn())


def _named(sides: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """What a panel has on both sides under one name each: its role, and whether it is the reference's."""
    name = lambda side, role: f"reference-{role}" if side == "ref" else role
    return {name(side, role): value for side, roles in sides.items() for role, value in roles.items()}


def at_hand(engine: Engine, drawn: Drawn) -> bool:
    """Whether files can be written of these answers without a file being read: models open, hashes known."""
    models = {a.request.subject.model: a.provenance.weights for roles in drawn.values() for a in roles.values()}
    open_models = {ref: engine.store.peek(ref) for ref in models}
    return all(model is not None and (models[ref] or model.sha256) for ref, model in open_models.items())


def _told(engine: Engine, drawn: Drawn, identified: bool) -> dict[str, AnswerExport | Difference]:
    """Every answer with what files say of it, by its name in files; behind them the differences, `difference-ROLE`."""
    from circuitlab.engine.export_data import export_of
    from circuitlab.engine.export_difference import differences

    sides = {s: {r: export_of(engine, a, identified) for r, a in roles.items()} for s, roles in drawn.items()}
    changes = differences(sides.get("now", {}), sides.get("ref", {}))
    return {**_named(sides), **{f"difference-{role}": change for role, change in changes.items()}}


def table_text_of(dock: PanelDock) -> tuple[str, int]:
    """The tables with tabs between their columns, each under its name where they are several; and how many. Raises `BadModel`."""
    from circuitlab.engine.export_data import AnswerExport, table_text

    told = _told(dock.context.engine, dock.drawn(), identified=False)
    tables = {n: table_text(a.table() if isinstance(a, AnswerExport) else a.table, "\t") for n, a in told.items()}
    parts = [f"{name}\n{text}" for name, text in tables.items()] if len(tables) > 1 else list(tables.values())
    return "\n".join(parts), len(parts)


def python_of(dock: PanelDock) -> tuple[str, int]:
    """Python that computes the same numbers, and beside a reference their difference; of how many answers. Raises `BadModel`."""
    from circuitlab.api import snippet, snippet_of

    sides = dock.drawn()
    requests = {name: answer.request for name, answer in _named(sides).items()}
    if len(requests) < 2:
        return "".join(map(snippet, requests.values())), len(requests)
    both = [role for role in sides.get("now", {}) if role in sides.get("ref", {})]
    known = _told(dock.context.engine, sides, identified=False)
    return snippet_of(requests, {(r, f"reference-{r}"): f"difference-{r}" in known for r in both}), len(requests)


def write(engine: Engine, drawn: Drawn, path: Path) -> Path | None:
    """Write what is drawn, and say where: one answer as a file, several as a zip; None where there is nothing. On any thread.

    Raises `UsageError`, `BadModel`, `BadMachine`.
    """
    from circuitlab.engine.export_data import write_answers

    answers = _told(engine, drawn, identified=True)
    return write_answers(answers, path) if answers else None
