"""Sessions on the command line and in Python: what is in them, their figures and numbers, and on another machine the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circuitlab.api as lab
from circuitlab.cli.parser import main
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, BadModel
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.saved_session import SavedSession
from circuitlab.session_files.session import ModelEntry, Note, Session
from circuitlab.session_files.session_lock import session_lock
from circuitlab.session_files.session_text import bytes_of
from circuitlab.story.setup import Other, Setup
from circuitlab.story.story import Step, Story
from tests.models import directory
from tests.patience import SECONDS

TEXT = "ab cab ab"


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """A session with a model beside its folder: `here/talks/talk.circuitlab`, `here/runs/mine`."""
    model, folder = directory(tmp_path / "here" / "runs" / "mine"), tmp_path / "here" / "talks"
    folder.mkdir()
    ref = ModelRef(f"file:{model}")
    steps = (
        Step("It looks back", "L1H1 looks back.", Setup(model="mine", prompt=TEXT, heads=("L1H1",), destination=5)),
        Step("Without it", setup=Setup(cut=("L1H1",), pin=(Other(Setup(cut=()), "before"),))),
        Step("Only words", "That is all."),
        Step("Of another", setup=Setup(model="lost", prompt=TEXT)),
    )
    models = {"mine": ModelEntry(ref, ModelStore().sha256(ref)), "lost": ModelEntry(ModelRef("file:/nowhere/m"), "77ab")}
    now = Setup(model="mine", prompt="ab", heads=("L0H2",))
    session = Session(models, now, Story("A talk", steps), (Note("looks back", "mine", head="L1H1"),))
    (folder / "talk.circuitlab").write_bytes(bytes_of(session, folder))
    return folder / "talk.circuitlab"


def test_what_is_in_a_session(talk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["session", str(talk), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert {name: model["status"] for name, model in table["models"].items()} == {"mine": "found", "lost": "missing"}
    assert table["now"] == {"model": "mine", "text": "ab", "heads": ["L0H2"]}
    assert [step["title"] for step in table["steps"]] == ["It looks back", "Without it", "Only words", "Of another"]
    assert table["notes"] == [{"about": "L1H1 of mine", "text": "looks back"}]
    assert main(["session", str(talk)]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("A talk", "mine", "not found", "Without it", "looks back"))
    assert main(["session", str(talk.parent / "nobody.circuitlab")]) == 3


def test_results_do_not_replace_a_file_that_a_window_has_open(talk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, lock = talk.read_bytes(), session_lock(talk)
    assert lock.take() is None
    try:
        assert main(["session", str(talk), "--results", "-o", str(talk)]) == 3
        assert str(os.getpid()) in capsys.readouterr().err and talk.read_bytes() == before
    finally:
        lock.release(remove=True)
    assert main(["session", str(talk), "--results", "-o", str(talk)]) == 3, "its last step is of a model that is not here"
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in told if line.startswith("Step")] == ["Step 4"]
    assert talk.read_bytes() != before and not lock.path.exists()


def test_a_lesson_does_not_replace_a_session_that_a_window_has_open(talk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lesson, before, lock = talk.with_name("a.lesson.md"), talk.read_bytes(), session_lock(talk)
    assert main(["session", str(talk), "--markdown", str(lesson)]) == 0
    assert lock.take() is None
    try:
        assert main(["session", str(lesson), "-o", str(talk)]) == 3
        assert str(os.getpid()) in capsys.readouterr().err and talk.read_bytes() == before
    finally:
        lock.release(remove=True)
    assert main(["session", str(lesson), "-o", str(talk)]) == 0


def test_results_for_a_folder_that_there_is_not_are_not_computed(talk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SavedSession, "with_results", lambda *_: pytest.fail("it is computed first"))
    assert main(["session", str(talk), "--results", "-o", str(talk.parent / "none" / "x.circuitlab")]) == 3


def test_steps_in_python(talk: Path) -> None:
    session = lab.session(talk)
    assert (session.title, [step.title for step in session.steps][:2]) == ("A talk", ["It looks back", "Without it"])
    first, second = session.steps[0].state, session.steps[1].state
    assert (first.text, first.selection.head, first.selection.destination, first.edits) == (TEXT, Head(1, 1), 5, ())
    assert (second.text, second.compare, second.pins[0].label, len(second.edits)) == (TEXT, "difference", "before", 1)
    assert session.steps[2].state == second, "a step without words leaves what was there"
    model = lab.open(str(talk.parent.parent / "runs" / "mine"))
    alone = model.compute("attention", text=TEXT, set={"heads": "L1H1"})
    inside = session.steps[0].compute("attention", set={"heads": "L1H1"})
    np.testing.assert_array_equal(inside.result.arrays()["values"], alone.result.arrays()["values"])
    assert session.steps[0].figure("attention", set={"show": "scores"}).title != session.steps[0].figure("attention").title
    with pytest.raises(BadModel, match="lost"):
        _ = session.steps[3].state


def test_a_model_of_other_weights_is_never_drawn(talk: Path, tmp_path: Path) -> None:
    shutil.rmtree(talk.parent.parent / "runs" / "mine")
    directory(talk.parent.parent / "runs" / "mine", d_model=32)
    session = lab.session(talk, Engine(ModelStore()))  # in which no other model is open
    assert set(session.located.changed) == {"mine"}
    with pytest.raises(BadModel, match="mine"):
        session.now.figure("attention")


def test_figures_and_numbers_of_a_step(talk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(talk.parent.parent / "runs" / "mine")
    here = ["figure", "attention", "--at", f"{talk}#1", "-o", str(tmp_path / "a.svg")]
    typed = ["figure", "attention", model, "--text", TEXT, "--heads", "L1H1", "--destination", "5", "-o", str(tmp_path / "b.svg")]
    assert main(here) == 0 and main(typed) == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with_set = [*here[:-1], str(tmp_path / "c.svg"), "--set", "show=scores"]
    assert main(with_set) == 0 and (tmp_path / "c.svg").read_bytes() != (tmp_path / "a.svg").read_bytes()
    assert main(["compute", "token_loss", "--at", f"{talk}#2", "--json", str(tmp_path / "a.json")]) == 0
    assert main(["compute", "token_loss", model, "--text", TEXT, "--cut", "L1H1", "--json", str(tmp_path / "b.json")]) == 0
    numbers, typed_numbers = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    assert numbers["result"] == typed_numbers["result"]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--at", "FILE#9"], 3),
        (["--at", "FILE#0"], 3),
        (["--at", "FILE#4"], 3),
        (["--at", "FILE", "attn-only-2l"], 2),
        (["--at", "FILE", "--text", ""], 2),
        (["--at", "FILE", "--heads", "L0H0"], 2),
        (["--at", "FILE", "--checkpoint", "9"], 2),
        (["--at", "FILE", "--set", "nobody=1"], 2),
        (["--at", "{}"], 3),
        ([], 2),
    ],
)
def test_what_is_said_twice_or_not_at_all_is_refused(talk: Path, tmp_path: Path, words: list[str], status: int) -> None:
    out = tmp_path / "a.png"
    words = [word.replace("FILE", str(talk)) for word in words]
    model = [word for word in words if word == "attn-only-2l"]
    rest = [word for word in words if word not in model]
    assert main(["figure", "attention", *model, *rest, "-o", str(out)]) == status
    assert not out.exists()


def test_a_file_with_a_number_sign_in_its_name_is_itself(talk: Path, tmp_path: Path) -> None:
    shutil.copytree(talk.parent.parent, tmp_path / "there")
    odd = tmp_path / "there" / "talks" / "talk#2"
    (tmp_path / "there" / "talks" / talk.name).rename(odd)
    assert main(["compute", "token_loss", "--at", str(odd), "--json", str(tmp_path / "a.json")]) == 0
    assert len(json.loads((tmp_path / "a.json").read_text())["subject"]["tokens"]) == 3


def test_on_another_machine_it_opens_without_a_question(talk: Path, tmp_path: Path) -> None:
    """Other HOME, folder, locale and working directory; the model once beside it as before, once somewhere below it."""
    root = Path(__file__).resolve().parents[2]
    assert main(["figure", "attention", "--at", f"{talk}#1", "-o", str(tmp_path / "here.png")]) == 0
    shutil.move(tmp_path / "here", tmp_path / "ein anderer Ort")
    environment: dict[str, Any] = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "LC_ALL": "C", "LANG": "C"}
    environment |= {"PYTHONPATH": str(root), "QT_QPA_PLATFORM": "offscreen", "OMP_NUM_THREADS": "1", "TZ": "Asia/Tokyo"}
    (tmp_path / "home").mkdir()
    moved = tmp_path / "ein anderer Ort" / "talks" / talk.name
    for beside in (False, True):
        if beside:
            shutil.move(tmp_path / "ein anderer Ort" / "runs" / "mine", moved.parent / "mine")
        words = ["figure", "attention", "--at", f"{os.path.relpath(moved, tmp_path / 'home')}#1", "-o", "there.png"]
        command = [sys.executable, "-m", "circuitlab", *words]
        run = subprocess.run(command, cwd=tmp_path / "home", env=environment, capture_output=True, timeout=SECONDS, check=False)
        assert run.returncode == 0, run.stderr.decode()
        assert (tmp_path / "home" / "there.png").read_bytes() == (tmp_path / "here.png").read_bytes()


def test_a_text_that_is_no_session_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.circuitlab").write_text("[]")
    with pytest.raises(BadInput):
        lab.session(tmp_path / "a.circuitlab")
