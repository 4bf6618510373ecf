"""Export of a panel's numbers: every answer it draws, now and reference, as tables, as Python and as files.

With a reference there is, for each role, one more table or file with both sides and their difference, row by row.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from circuitlab.disk.formats import PICTURES
from circuitlab.errors import UsageError

if TYPE_CHECKING:
    from circuitlab.engine.engine import Engine
    from circuitlab.engine.request import Answer, TableOf
    from circuitlab.engine.store import ModelStore
    from circuitlab.state.state import State
    from circuitlab.story.zoom import Parts

Drawn = Mapping[str, Mapping[str, "Answer"]]  # by side and role: `Feed.drawn_answers`
LONGEST_COMMAND = 100_000  # bytes; Linux takes 131 072 in one argument
NOTHING = "Nothing has been computed here yet."


def at_hand(engine: Engine, drawn: Drawn) -> bool:
    """Whether these answers can be exported without reading a file: their models are open, the weights' hashes known."""
    models = {a.request.subject.model: a.provenance.weights for roles in drawn.values() for a in roles.values()}
    open_models = {ref: engine.store.peek(ref) for ref in models}
    return all(model is not None and (models[ref] or model.sha256) for ref, model in open_models.items())


def table_text_of(engine: Engine, drawn: Drawn, table: TableOf | None = None) -> tuple[str, int]:
    """(tab-separated tables, each under its name where there are several; how many). `table`: that of what is drawn of an answer,
    None for its own. Raises `BadModel`."""
    from circuitlab.engine.export_data import AnswerExport, table_text
    from circuitlab.engine.export_difference import exports_of

    exports = exports_of(engine, drawn, identified=False, drawn=table)
    tables = {n: table_text(e.table() if isinstance(e, AnswerExport) else e.table, "\t") for n, e in exports.items()}
    parts = [f"{name}\n{text}" for name, text in tables.items()] if len(tables) > 1 else list(tables.values())
    return "\n".join(parts), len(parts)


def python_of(engine: Engine, drawn: Drawn) -> tuple[str, int]:
    """(Python that computes the same numbers, and with a reference their difference; for how many answers). Raises `BadModel`."""
    from circuitlab.api import snippet, snippet_of
    from circuitlab.engine.export_difference import by_file_name, exports_of

    requests = {name: answer.request for name, answer in by_file_name(drawn).items()}
    if len(requests) < 2:
        return "".join(map(snippet, requests.values())), len(requests)
    both = [role for role in drawn.get("now", {}) if role in drawn.get("ref", {})]
    exports = exports_of(engine, drawn, identified=False)
    return snippet_of(requests, {(r, f"reference-{r}"): f"difference-{r}" in exports for r in both}), len(requests)


def command_of(store: ModelStore, panel: str, state: State, zoom: Parts) -> str:
    """The command that draws a panel's figure of a State, and of it what `zoom` says. On any thread.

    Raises `UsageError` if it is too long for a terminal.
    """
    from circuitlab.report.saved_session import inline_session

    command = shlex.join(
        ["circuitlab", "figure", panel, "--at", inline_session(state, store, zoom), "-o", f"{panel}.{PICTURES[0].name}"]
    )
    if len(command.encode()) > LONGEST_COMMAND:
        remedy = f"Save the session, and run: circuitlab figure {panel} --at FILE -o {panel}.{PICTURES[0].name}"
        expected = f"at most {LONGEST_COMMAND} bytes"
        raise UsageError("This is too much for one command.", expected=expected, got=f"{len(command.encode())}", remedy=remedy)
    return command


def write(engine: Engine, drawn: Drawn, path: Path, table: TableOf | None = None, folders: bool = False) -> Path | None:
    """Write the drawn answers: one as a file, several as a zip. Returns the path; None where there is none. On any thread.
    `table`: as of `table_text_of`; `folders`: with the folders of models and files.

    Raises `UsageError`, `BadModel`, `BadMachine`.
    """
    from circuitlab.engine.export_data import write_answers
    from circuitlab.engine.export_difference import exports_of

    exports = exports_of(engine, drawn, identified=True, drawn=table, folders=folders)
    return write_answers(exports, path) if exports else None
