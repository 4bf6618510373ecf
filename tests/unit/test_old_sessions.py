"""Session files of every version open for ever, stand where they stood and draw what they drew.

`tests/data/sessions` gets a file with each version; none is ever edited. Beside each lies what it says and the numbers of the
figures that it shows, which `python -m tests.unit.test_old_sessions` writes for new files alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circuitlab.api as lab
from circuitlab.figures.contracts.panel import panels
from circuitlab.session.state import State
from circuitlab.session_files.assembly import work_of
from circuitlab.session_files.migrations import VERSION
from circuitlab.session_files.session_text import bytes_of, parse_session
from circuitlab.story.capture import StoreNames, setup_of
from circuitlab.story.setup import Setup
from circuitlab.story.words import table_of

FOLDER = Path(__file__).parents[1] / "data" / "sessions"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffixes in ([".json"], [".circuitlab"]))
PANELS = ("attention", "predictions", "composition")
VIEWS = {name: panel.view for name, panel in panels().items()}


def fingerprint(path: Path) -> dict[str, Any]:
    """What a file says, and the numbers of the figures where it stands and of its last step."""
    session = lab.session(path)
    places = {"now": session.now} | ({"last step": session.steps[-1]} if session.steps else {})
    content = session.session
    return {
        "now": table_of(content.now),
        "resolved": {place: resolved(step.state) for place, step in places.items()},
        "notes": [note.text for note in content.notes],
        "steps": [step.title for step in content.story.steps],
        "models": {name: [entry.ref.source, entry.sha256] for name, entry in content.models.items()},
        "figures": {
            f"{place}: {name}": [numbers(mark) for mark in step.figure(name).marks()]
            for place, step in places.items()
            for name in PANELS
        },
    }


def resolved(state: State) -> dict[str, Any]:
    """Everything that a State says, in the words of files, which do not change with the fields of a State.

    Paths are relative to the folder of the files, as this one may lie anywhere.
    """
    table = table_of(setup_of(state, Setup(), StoreNames(lab.engine().store), VIEWS, ids=True))
    for controls in table.get("view", {}).values():
        controls |= {name: os.path.relpath(str(v), FOLDER) for name, v in controls.items() if os.path.isabs(str(v))}
    return table


def numbers(mark: Any) -> dict[str, Any]:
    """The arrays of a mark: shape, how many are finite, and three sums that a change of value or of order changes."""
    arrays = {field.name: getattr(mark, field.name) for field in dataclasses.fields(mark)}
    return {"mark": type(mark).__name__} | {
        name: [list(array.shape), *sums(array)]
        for name, array in arrays.items()
        if isinstance(array, np.ndarray) and array.dtype.kind in "fiu" and array.size
    }


def sums(array: np.ndarray) -> list[float]:
    flat = np.asarray(array, np.float64).ravel()
    there = np.isfinite(flat)
    values, ramp = np.where(there, flat, 0), np.linspace(0, 1, flat.size)
    return [int(there.sum()), float(values.sum()), float(np.abs(values).sum()), float(values @ ramp)]


def beside(path: Path) -> Path:
    """Where the fingerprint of a file lies."""
    return path.with_name(f"{path.name}.fingerprint.json")


def close(one: Any, other: Any) -> bool:
    """Equal, numbers nearly so: another processor rounds otherwise."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(close(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)) and float in (type(one), type(other)):
        return bool(np.isclose(one, other, rtol=1e-4, atol=1e-3))
    return one == other


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_old_session_opens_and_draws_what_it_drew(path: Path) -> None:
    written, now = json.loads(beside(path).read_text("utf-8")), fingerprint(path)
    for name, value in written.items():
        assert close(json.loads(json.dumps(now[name])), value), name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_old_session_loses_nothing_when_it_is_saved(path: Path) -> None:
    session = parse_session(path.read_bytes(), FOLDER)
    again = parse_session(bytes_of(session, FOLDER), FOLDER)
    assert again == session
    assert work_of(again, lab.engine(), VIEWS) == work_of(session, lab.engine(), VIEWS)


def test_there_is_a_file_of_every_version() -> None:
    tables = [json.loads(path.read_text("utf-8")) for path in FILES]
    assert {table["version"] if table["circuitlab"] == "session" else 0 for table in tables} == set(range(VERSION + 1))


if __name__ == "__main__":
    for new in FILES:
        if not beside(new).exists():
            beside(new).write_text(json.dumps(fingerprint(new), indent=1, ensure_ascii=False) + "\n", "utf-8")
