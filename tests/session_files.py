"""States through session files, as they are written now and as they once were copied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from circuitlab.engine.codec import to_json
from circuitlab.engine.engine import Engine
from circuitlab.figures.contracts.panel import view_types
from circuitlab.session_files.assembly import session_of, work_of
from circuitlab.session_files.session_text import bytes_of, parse_session
from circuitlab.session_files.work import Work
from circuitlab.state.state import State

VIEWS: dict[str, type[Any]] = view_types()


def version_0(state: State) -> dict[str, Any]:
    """What “Copy session as JSON” copied of a State, before there were session files."""
    return {"circuitlab": 1, "state": to_json(state)}


def opened(table: dict[str, Any], folder: Path, engine: Engine) -> State:
    """The State of a session file in a folder."""
    return work_of(parse_session(json.dumps(table).encode(), folder), engine, VIEWS).state


def saved_and_opened(state: State, folder: Path, engine: Engine) -> State:
    """The State that a session file gives back that was saved of one."""
    session = session_of(Work(state), engine.store, VIEWS)
    return work_of(parse_session(bytes_of(session, folder), folder), engine, VIEWS).state
