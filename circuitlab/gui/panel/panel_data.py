"""Export of a panel's numbers: every answer it draws, now and reference, as tables, as Python and as files.

With a reference there is, for each role, one more table or file with both sides and their difference, row by row.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from circuitlab.errors import UsageError
from circuitlab.formats import PICTURES

if TYPE_CHECKING:
    from circuitlab.engine.engine import Engine
    from circuitlab.engine.export_data import AnswerExport
    from circuitlab.engine.export_difference import Difference
    from circuitlab.engine.request import Answer
    from circuitlab.engine.store import ModelStore
    from circuitlab.session.state import State

Drawn = Mapping[str, Mapping[str, "Answer"]]  # by side and role: `PanelDock.drawn_answers`
LONGEST_COMMAND = 100_000  # bytes; Linux takes 131 072 in one argument
NOTHING = "Nothing has been computed here yet."
T = TypeVar("T")


def by_file_name(sides: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """The values of both sides by their name in files: the role, with `reference-` before it on the reference's side."""
    name = lambda side, role: f"reference-{role}" if side == "ref" else role
    return {name(side, role): value for side, roles in sides.items() for role, value in roles.items()}


def at_hand(engine: Engine, drawn: Drawn) -> bool:
    """Whether these answers can be exported without reading a file: their models are open, the weights' hashes known."""
    models = {a.request.subject.model: a.provenance.weights for roles in drawn.values() for a in roles.values()}
    open_models = {ref: engine.store.peek(ref) for ref in models}
    return all(model is not None and (models[ref] or model.sha256) for ref, model in open_models.items())


def _exports(engine: Engine, drawn: Drawn, identified: bool) -> dict[str, AnswerExport | Difference]:
    """Every answer ready for export, by its name in files; after them the differences, `difference-ROLE`."""
    from circuitlab.engine.export_data import export_of
    from circuitlab.engine.export_difference import differences

    sides = {s: {r: export_of(engine, a, identified) for r, a in roles.items()} for s, roles in drawn.items()}
    changes = differences(sides.get("now", {}), sides.get("ref", {}))
    return {**by_file_name(sides), **{f"difference-{role}": change for role, change in changes.items()}}


def table_text_of(engine: Engine, drawn: Drawn) -> tuple[str, int]:
    """(tab-separated tables, each under its name where there are several; how many). Raises `BadModel`."""
    from circuitlab.engine.export_data import AnswerExport, table_text

    exports = _exports(engine, drawn, identified=False)
    tables = {n: table_text(e.table() if isinstance(e, AnswerExport) else e.table, "\t") for n, e in exports.items()}
    parts = [f"{name}\n{text}" for name, text in tables.items()] if len(tables) > 1 else list(tables.values())
    return "\n".join(parts), len(parts)


def python_of(engine: Engine, drawn: Drawn) -> tuple[str, int]:
    """(Python that computes the same numbers, and with a reference their difference; for how many answers). Raises `BadModel`."""
    from circuitlab.api import snippet, snippet_of

    requests = {name: answer.request for name, answer in by_file_name(drawn).items()}
    if len(requests) < 2:
        return "".join(map(snippet, requests.values())), len(requests)
    both = [role for role in drawn.get("now", {}) if role in drawn.get("ref", {})]
    exports = _exports(engine, drawn, identified=False)
    return snippet_of(requests, {(r, f"reference-{r}"): f"difference-{r}" in exports for r in both}), len(requests)


def command_of(store: ModelStore, panel: str, state: State) -> str:
    """The command that draws a panel's figure of a State. Raises `UsageError` if it is too long for a terminal. On any thread."""
    from circuitlab.report.saved_session import inline_session

    command = shlex.join(
        ["circuitlab", "figure", panel, "--at", inline_session(state, store), "-o", f"{panel}.{PICTURES[0].name}"]
    )
    if len(command.encode()) > LONGEST_COMMAND:
        remedy = f"Save the session, and run: circuitlab figure {panel} --at FILE -o {panel}.{PICTURES[0].name}"
        expected = f"at most {LONGEST_COMMAND} bytes"
        raise UsageError("This is too much for one command.", expected=expected, got=f"{len(command.encode())}", remedy=remedy)
    return command


def write(engine: Engine, drawn: Drawn, path: Path) -> Path | None:
    """Write the drawn answers: one as a file, several as a zip. Returns the path; None where there is none. On any thread.

    Raises `UsageError`, `BadModel`, `BadMachine`.
    """
    from circuitlab.engine.export_data import write_answers

    exports = _exports(engine, drawn, identified=True)
    return write_answers(exports, path) if exports else None
