"""Session files of every version open for ever, stand where they stood and draw what they drew.

`tests/data/sessions` gets a file with each version; none is ever edited. Beside each lies what it says and the numbers of the
figures that it shows, which `python -m tests.unit.test_old_sessions` writes for new files alone. The model of
`v1-results.circuitlab` is nowhere: its figures are drawn from the results inside.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circuitlab.api as lab
from circuitlab.analysis.attention.pattern import AttentionParams
from circuitlab.analysis.base import analyses
from circuitlab.errors import BadModel
from circuitlab.figures.contracts.panel import view_types
from circuitlab.model.config import ModelConfig
from circuitlab.session_files.assembly import work_of
from circuitlab.session_files.migrations import VERSION
from circuitlab.session_files.results import file_bytes, read_file
from circuitlab.state.state import State
from circuitlab.story.capture import StoreNames, setup_of
from circuitlab.story.setup import Setup
from circuitlab.story.words import table_of
from tests.models import CONFIGS

FOLDER = Path(__file__).parents[1] / "data" / "sessions"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffixes in ([".json"], [".circuitlab"]))
WITH_RESULTS = FOLDER / "v1-results.circuitlab"
TEXTS = [path for path in FILES if path != WITH_RESULTS]
PANELS = ("attention", "predictions", "composition")
# Files with results, and those of the panels one of whose analyses has another version since that would answer otherwise.
OUTDATED = dict[str, set[str]]()
NOT_STORED = "not stored"
VIEWS = view_types()


@pytest.fixture(autouse=True)
def own_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model that another test has left open: one with the same weights would be taken for the session's."""
    monkeypatch.setattr("circuitlab.api.engines._ENGINE", None)


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
        "models": {name: [placeless(entry.ref.source), entry.sha256] for name, entry in content.models.items()},
        "figures": {f"{place}: {name}": figure_numbers(step, name) for place, step in places.items() for name in PANELS},
    }


def figure_numbers(step: Any, panel: str) -> list[dict[str, Any]] | str:
    """The numbers of a panel's figure; `NOT_STORED` where they need weights that are not on this machine."""
    try:
        return [numbers(mark) for mark in step.figure(panel).figure.marks()]
    except BadModel as error:
        assert "weights" in error.what, error
        return NOT_STORED


def placeless(source: str) -> str:
    """A model's source, relative to the folder of the files where it is a path."""
    kind, _, path = source.partition(":")
    return f"file:{os.path.relpath(path, FOLDER)}" if kind == "file" else source


def resolved(state: State) -> dict[str, Any]:
    """Everything that a State says, in the words of files, which do not change with the fields of a State.

    Paths are relative to the folder of the files, as this one may lie anywhere.
    """
    table = table_of(setup_of(state, Setup(), StoreNames(lab.engine().store), VIEWS, ids=True))
    for controls in table.get("view", {}).values():
        controls |= {name: os.path.relpath(str(v), FOLDER) for name, v in controls.items() if os.path.isabs(str(v))}
    return table


def numbers(mark: Any) -> dict[str, Any]:
    """The arrays of a mark that hold numbers."""
    arrays = {field.name: getattr(mark, field.name) for field in dataclasses.fields(mark)}
    return {"mark": type(mark).__name__} | {
        name: array
        for name, array in arrays.items()
        if isinstance(array, np.ndarray) and array.dtype.kind in "fiu" and array.size
    }


def sums(array: np.ndarray) -> list[Any]:
    """What is written of an array: shape, how many are finite, and three sums that a change of value or of order changes."""
    flat = np.asarray(array, np.float64).ravel()
    there = np.isfinite(flat)
    values, ramp = np.where(there, flat, 0), np.linspace(0, 1, flat.size)
    return [list(array.shape), int(there.sum()), float(values.sum()), float(np.abs(values).sum()), float(values @ ramp)]


def beside(path: Path) -> Path:
    """Where the fingerprint of a file lies."""
    return path.with_name(f"{path.name}.fingerprint.json")


def close(now: Any, written: Any) -> bool:
    """Equal, numbers nearly so: another processor rounds otherwise, and of two that are nearly equal lists the other first."""
    if isinstance(now, np.ndarray):
        *same, order = sums(now)
        swapped = of_neighbours(now) if now.dtype.kind != "f" else 0
        return close(same, written[:-1]) and (close(order, written[-1]) or abs(order - written[-1]) <= swapped)
    if isinstance(now, dict) and isinstance(written, dict):
        return list(now) == list(written) and all(close(now[name], written[name]) for name in now)
    if isinstance(now, (list, tuple)) and isinstance(written, list):
        return len(now) == len(written) and all(map(close, now, written))
    if isinstance(now, (int, float)) and isinstance(written, (int, float)) and float in (type(now), type(written)):
        return bool(np.isclose(now, written, rtol=1e-4, atol=1e-3))
    return now == written


def of_neighbours(ids: np.ndarray) -> float:
    """By how much the last of the sums of `ids` [row, …] changes at most where two rows beside each other change places."""
    step = ids[0].size / max(ids.size - 1, 1)
    return float(np.abs(np.diff(ids, axis=0)).reshape(len(ids) - 1, -1).sum(1).max(initial=0) * step)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_old_session_opens_and_draws_what_it_drew(path: Path) -> None:
    written, now = json.loads(beside(path).read_text("utf-8")), fingerprint(path)
    drawn = {name: value for name, value in now["figures"].items() if value != NOT_STORED}
    assert {name.split(": ")[1] for name in now["figures"] if name not in drawn} == OUTDATED.get(path.name, set())
    written["figures"] = {name: value for name, value in written["figures"].items() if name in drawn}
    for name, value in written.items():
        assert close(drawn if name == "figures" else now[name], value), name


def test_a_fingerprint_forgives_two_near_equals_that_change_places_and_nothing_more() -> None:
    values, ids = np.array([0.9, 0.5, 0.4999999, 0.1]), np.array([[900, 1], [11, 0], [300, 2], [7, 1]])
    assert close([values, ids], [sums(values), sums(ids)])
    swapped = [0, 2, 1, 3]
    assert close([values[swapped], ids[swapped]], [sums(values), sums(ids)])
    for other in (values[::-1], values * 1.01, -values, values[:3]):
        assert not close(other, sums(values))
    for other in (ids[::-1], ids + 1, ids.T, ids[:3]):
        assert not close(other, sums(ids))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_old_session_loses_nothing_when_it_is_saved(path: Path, tmp_path: Path) -> None:
    file = read_file(path)
    saved = tmp_path / "saved.circuitlab"
    saved.write_bytes(file_bytes(file.session, tmp_path, file.results))
    again = read_file(saved)
    assert again.session == file.session
    if file.results is None:
        assert work_of(again.session, lab.engine(), VIEWS) == work_of(file.session, lab.engine(), VIEWS)
    else:
        assert again.results is not None and again.results.places == file.results.places
        assert {key: again.results.data(key) for key in again.results.entries} == {
            key: file.results.data(key) for key in file.results.entries
        }


def test_the_results_of_an_old_session_are_taken_where_an_analysis_would_still_answer_the_same() -> None:
    session = lab.session(WITH_RESULTS)
    assert session.located.missing == ("mine",) and session.results is not None
    index = json.loads(zipfile.ZipFile(WITH_RESULTS).read("results/index.json"))["answers"].values()
    assert len(session.stored.answers) == len(session.results.entries) == len(index) and not session.stored.damaged
    earlier = {(one["analysis"], one["version"]) for one in index if one["version"] != analyses()[one["analysis"]].version}
    assert earlier >= {("attention", 1), ("head_scores", 3), ("predictions", 2), ("token_loss", 2)}


def test_what_an_analysis_would_answer_otherwise_today_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    holds = analyses()["attention"].holds
    config = ModelConfig.from_json(json.loads(zipfile.ZipFile(WITH_RESULTS).read("models/mine/config.json")))
    assert holds(1, config, AttentionParams()) and holds(1, config, AttentionParams(show="contribution"))
    assert holds(1, CONFIGS["post-sublayer"], AttentionParams())
    assert not holds(1, CONFIGS["post-sublayer"], AttentionParams(show="contribution")) and not holds(
        0, config, AttentionParams()
    )
    monkeypatch.setattr(ModelConfig, "from_json", classmethod(lambda cls, data: replace(config, windows=(4, 4))))
    stored = lab.session(WITH_RESULTS).stored
    assert not stored.damaged and {one.request.analysis.name for one in stored.answers} == {
        "attention",
        "predictions",
        "token_loss",
        "composition",
    }


def test_there_is_a_file_of_every_version() -> None:
    tables = [json.loads(path.read_text("utf-8")) for path in TEXTS]
    assert {table["version"] if table["circuitlab"] == "session" else 0 for table in tables} == set(range(VERSION + 1))


if __name__ == "__main__":
    for new in FILES:
        if not beside(new).exists():
            beside(new).write_text(json.dumps(fingerprint(new), indent=1, ensure_ascii=False, default=sums) + "\n", "utf-8")
