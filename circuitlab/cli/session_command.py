"""`circuitlab session FILE`: what is in a session, and whether its models and files are on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from circuitlab.counting import number_of
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import UsageError
from circuitlab.formats import SESSION
from circuitlab.lessons.lesson import SUFFIX
from circuitlab.report.saved_session import SavedSession, opened_session
from circuitlab.session_files.session import Note
from circuitlab.story.words import table_of

LONGEST = 60  # characters of a prompt or a note on one line


def run(file: str, as_json: bool) -> int:
    """Print it. Raises `BadInput` where the file cannot be read; what is missing is listed, and no error."""
    if file.lower().endswith(SUFFIX):
        remedy = f"Make it a session: circuitlab session {Path(file).name} -o {Path(file).stem}{SESSION}"
        raise UsageError("That is a lesson.", expected=f"a {SESSION} file", got=Path(file).name, remedy=remedy)
    session = opened_session(Path(file), Engine(ModelStore()))
    table = contents(session)
    print(json.dumps(table, ensure_ascii=False, indent=1) if as_json else "\n".join(_lines(table)))
    return 0


def contents(session: SavedSession) -> dict[str, Any]:
    """What is in a session, as plain values: models and files with what was found of them, now, steps, notes."""
    found, content = session.found, session.session
    models = {}
    for name, entry in content.models.items():
        status = "missing" if name in found.missing else "changed" if name in found.changed else "found"
        models[name] = {"source": entry.ref.source, "sha256": entry.sha256, "status": status}
        if name in found.changed:
            models[name]["other"] = found.changed[name].source
    files = {}
    for name, entry in content.files.items():
        status = "missing" if name in found.missing_files else "changed" if name in found.changed_files else "found"
        files[name] = {"path": entry.path, "sha256": entry.sha256, "status": status}
    steps = [{"title": step.title, "set": table_of(step.setup) if step.setup else {}} for step in content.story.steps]
    return {
        "file": session.name,
        "title": session.title,
        "models": models,
        "files": files,
        "now": table_of(content.now),
        "steps": steps,
        "notes": [{"about": _about(note), "text": note.text} for note in session.notes],
    }


def _about(note: Note) -> str:
    """What a note is about: a head, two heads, a token or a panel; "" for the session."""
    token = "" if note.token is None else f"token {note.token!r}"
    about = note.head or " → ".join(note.edge or ()) or token or note.panel
    return f"{about} of {note.model}" if about and note.model else about


def _lines(table: Mapping[str, Any]) -> list[str]:
    counted = f"{number_of(len(table['steps']), 'step')}, {number_of(len(table['notes']), 'note')}"
    lines = [f"{table['file']}: {table['title'] or 'no title'} ({counted})"]
    words = {"found": "found", "missing": "not found", "changed": "has changed"}
    for name, model in table["models"].items():
        other = f": other weights at {model['other']}" if "other" in model else ""
        sha256 = model["sha256"][:12] or "not stated"
        lines.append(f"  model {name}: {words[model['status']]}{other or ' at ' + model['source']}, sha256 {sha256}")
    for name, file in table["files"].items():
        lines.append(f"  file {name}: {words[file['status']]} at {file['path']}")
    lines.append(f"  now: {_summary(table['now'])}")
    lines += [f"  {i}  {step['title'] or 'no title'}: {_summary(step['set'])}" for i, step in enumerate(table["steps"], 1)]
    lines += [f"  note on {note['about'] or 'the session'}: {_short(note['text'])}" for note in table["notes"]]
    return lines


def _summary(words: Mapping[str, Any]) -> str:
    """The words of a step on one line, those that are long by their name alone."""
    parts = []
    for name, value in words.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(f"{name} {_short(text)}")
    return ", ".join(parts) or "text only"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
