"""The second hash of a model: what of its configuration and tokenizer decides numbers, beside the hash of its weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from circuitlab.cli.parser import main
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel
from circuitlab.model.subject import ModelRef
from circuitlab.report.saved_session import opened_session
from circuitlab.session_files.assembly import hashed
from circuitlab.session_files.model_search import located
from circuitlab.session_files.session import ModelEntry, Session
from circuitlab.session_files.session_text import bytes_of, parse_session
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from tests.models import directory


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return directory(tmp_path / "mine")


def _entry(folder: Path) -> ModelEntry:
    store, ref = ModelStore(), ModelRef(f"file:{folder}")
    store.open(ref)
    return hashed(ModelEntry(ref), store)


def _changed(file: Path, **values: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def _saved(folder: Path, entry: ModelEntry) -> Path:
    now = Setup(model="mine", prompt="ab")
    path = folder.parent / "talk.circuitlab"
    path.write_bytes(bytes_of(Session({"mine": entry}, now, Story("a talk", (Step("one", setup=now),))), folder.parent))
    return path


def test_another_configuration_of_the_same_weights_is_not_the_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = _entry(folder)
    path = _saved(folder, entry)
    session = parse_session(path.read_bytes(), folder.parent)
    assert session.models["mine"].settings == entry.settings and len(entry.settings) == 64
    assert not located(session, folder.parent, ModelStore()).changed
    _changed(folder / "config.json", score_scale=0.5)
    assert ModelStore().sha256_unopened(entry.ref) == entry.sha256, "the weights are the same"
    result = located(session, folder.parent, ModelStore())
    assert dict(result.changed) == {"mine": entry.ref} and result.resettled == {"mine"}
    assert main(["session", str(path)]) == 0
    assert "another configuration or tokenizer of the same weights" in capsys.readouterr().out
    opened = opened_session(path, Engine(ModelStore()))
    with pytest.raises(BadModel) as caught:
        opened.state_of(opened.session.now)
    assert "another configuration" in caught.value.got


def test_another_tokenizer_of_the_same_weights_is_not_the_model(folder: Path) -> None:
    entry = _entry(folder)
    file = folder / "tokenizer.json"
    spec = json.loads(file.read_text())
    vocab = spec["model"]["vocab"]
    one, other = list(vocab)[5:7]
    vocab[one], vocab[other] = vocab[other], vocab[one]
    file.write_text(json.dumps(spec))
    assert located(Session({"mine": entry}, Setup()), folder.parent, ModelStore()).resettled == {"mine"}


def test_how_the_files_are_written_does_not_matter(folder: Path) -> None:
    entry = _entry(folder)
    for name in ("config.json", "tokenizer.json"):
        data = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(dict(reversed(data.items())), indent=3))
    assert _entry(folder).settings == entry.settings
    assert not located(Session({"mine": entry}, Setup()), folder.parent, ModelStore()).changed


def test_a_session_that_says_no_settings_opens_as_before(folder: Path) -> None:
    entry = replace(_entry(folder), settings="")
    assert b"settings" not in _saved(folder, entry).read_bytes()
    _changed(folder / "config.json", score_scale=0.5)
    assert not located(Session({"mine": entry}, Setup()), folder.parent, ModelStore()).changed


def test_the_right_one_of_two_with_the_same_weights_is_found(folder: Path) -> None:
    """The session's own place has other settings now; a copy beside it has those of the session."""
    entry = _entry(folder)
    copy = directory(folder.parent / "below" / "mine")
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    _changed(folder / "config.json", score_scale=0.5)
    result = located(Session({"mine": entry}, Setup()), folder.parent, ModelStore())
    assert not result.changed and result.session.models["mine"].ref.source == f"file:{copy}"


def test_info_says_both_hashes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = _entry(folder)
    assert main(["info", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["sha256"], said["settings"]) == (entry.sha256, entry.settings)
