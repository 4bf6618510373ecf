"""Files that are given to others name models and texts by their names and hashes, and no folder of the person's."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import circuitlab.api as lab
from circuitlab.cli.parser import main
from circuitlab.disk.paths import without_folders
from circuitlab.engine.export_data import _placeless_json, data_bytes, export_of
from circuitlab.engine.export_series import series_bytes
from tests.models import directory

PERSON = "somebody-of-that-name"  # a folder's name that must be in no export


@dataclass(frozen=True)
class Place:
    """A model and a prompt set in the home of a person."""

    model: Path
    prompts: Path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home = tmp_path / PERSON
    (home / "runs").mkdir(parents=True)
    (prompts := home / "names.tsv").write_text("a b a\tb\nc d c\td\n")
    return Place(directory(home / "runs" / "mine"), prompts)


def _texts(data: bytes, form: str) -> str:
    if form != "npz":
        return data.decode()
    with np.load(io.BytesIO(data)) as arrays:
        return "\n".join(str(arrays[name]) for name in arrays)


@pytest.mark.parametrize("form", ["csv", "json", "npz"])
@pytest.mark.parametrize("kind", ["prompt", "prompts", "series"])
def test_an_export_names_no_folder(form: str, kind: str, place: Place) -> None:
    model = lab.open(str(place.model))
    if kind == "prompts":
        answer = model.compute("over_prompts", set={"file": str(place.prompts), "analysis": "token_loss"})
    else:
        answer = model.compute("token_loss", "a b a")
    what = export_of(model.engine, answer)
    text = _texts(series_bytes([what, what], form) if kind == "series" else data_bytes(what, form), form)
    assert PERSON not in text and "file:mine" in text and model.engine.store.sha256(model.ref) in text
    if kind == "prompts":
        assert "names.tsv" in text and hashlib.sha256(place.prompts.read_bytes()).hexdigest() in text


def test_the_command_line_writes_no_folder_either(place: Place, tmp_path: Path) -> None:
    words = ["compute", "token_loss", str(place.model), "--text", "a b a"]
    targets = [word for form in ("csv", "json", "npz") for word in (f"--{form}", str(tmp_path / f"out.{form}"))]
    assert main([*words, *targets]) == 0
    for form in ("csv", "json", "npz"):
        text = _texts((tmp_path / f"out.{form}").read_bytes(), form)
        assert PERSON not in text and "file:mine" in text


@pytest.mark.parametrize("form", ["csv", "json", "npz"])
def test_the_folders_are_there_for_who_asks(form: str, place: Place, tmp_path: Path) -> None:
    target = tmp_path / f"out.{form}"
    words = ["compute", "over_prompts", str(place.model), "--set", f"file={place.prompts}", "analysis=token_loss"]
    assert main([*words, f"--{form}", str(target)]) == 0
    assert PERSON not in _texts(target.read_bytes(), form)
    assert main([*words, f"--{form}", str(target), "--full-paths"]) == 0
    text = _texts(target.read_bytes(), form)
    assert f"file:{place.model}" in text and str(place.prompts) in text


def test_files_of_parameters_inside_parameters_have_no_folders() -> None:
    inner = json.dumps({"text": {"path": f"/home/{PERSON}/a.txt", "sha256": "77"}, "n": 2, "path": "/kept"})
    result = json.loads(_placeless_json(inner))
    assert result == {"text": {"path": "a.txt", "sha256": "77"}, "n": 2, "path": "/kept"}
    assert _placeless_json('no JSON with "sha256"') == 'no JSON with "sha256"'


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (f"/home/{PERSON}/a.txt", "a.txt"),
        (f"C:\\Users\\{PERSON}\\a.txt", "a.txt"),
        (rf"\\host\{PERSON}\a.txt", "a.txt"),
        (f"~{PERSON}/a.txt", "a.txt"),
        ("data/a.txt", "data/a.txt"),
        ("session:names", "session:names"),
        ("stdlib", "stdlib"),
        ("/", "/"),
    ],
)
def test_a_path_without_its_folders(path: str, shown: str) -> None:
    assert without_folders(path) == shown
