"""FILE#STEP in every command that takes one, or refuses one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circuitlab.cli.parser import main
from circuitlab.disk.files import need_writable, write_whole
from circuitlab.errors import BadMachine
from circuitlab.step_names import file_and_step

STILL = {"model": "construct:rope-induction", "text": "A B C A B", "show": ["attention", "predictions"]}
STEPS = [{"title": "It stands", "set": STILL}, {"title": "It moves", "set": {**STILL, "play": {"offset": [1, 3]}}}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    session = {"circuitlab": "session", "version": 1, "now": {"model": "construct:rope-induction"}}
    session["story"] = {"title": "A story", "steps": [{"text": "", **step} for step in STEPS]}
    (path := tmp_path / "talk.circuitlab").write_text(json.dumps(session), encoding="utf-8")
    return path


@pytest.mark.parametrize("step", ["abc", "0", "3", "-1", "1.5", "", "9" * 30])
@pytest.mark.parametrize("command", ["sheet {} -o a.pdf", "film {} -o a.webp", "figure attention --at {} -o a.pdf"])
def test_a_step_that_is_not_there_is_named_with_those_that_are(
    path: Path, step: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(path.parent)
    assert main(command.format(f"talk.circuitlab#{step}").split()) == 3
    said = capsys.readouterr().err
    words = f"has no step {step[:40]}" if step else "No step is named"
    assert words in said and "1 to 2: #1 It stands, #2 It moves" in said
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("command", ["report {} -o a.html", "session {}", "present {}", "open {}", "{}", "sheet {} -o figures/"])
def test_what_is_about_a_whole_session_says_so(
    path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(path.parent)
    assert main(command.format("talk.circuitlab#2").split()) == 2
    said = capsys.readouterr().err
    assert "talk.circuitlab#2" in said and "Drop the step" in said and "No such file" not in said


def test_a_step_that_stands_still_says_which_play(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (f"{path}#1", str(path)):
        assert main(["film", place, "-o", str(path.with_suffix(".webp"))]) == 3
        said = capsys.readouterr().err
        assert "#2 It moves" in said and "It stands" not in said.split("expected")[1] and "--over offset=1:8" in said
    assert not path.with_suffix(".webp").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--panels attention,attention", "attention once"),
        ("--columns 5", "1 to 2"),
        ("--columns 0", "1 to 26"),
        ("--columns 500", "1 to 26"),
    ],
)
def test_impossible_sheets_are_refused(path: Path, options: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sheet", f"{path}#1", "-o", str(path.with_suffix(".pdf")), *options.split()]) == 2
    assert expected in capsys.readouterr().err and not path.with_suffix(".pdf").exists()


def test_a_file_with_such_a_name_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a.circuitlab#2").touch()
    divided = {
        str(tmp_path / "a.circuitlab#2"): (str(tmp_path / "a.circuitlab#2"), None),
        "b.circuitlab#2": ("b.circuitlab", "2"),
        "b.PDF#x": ("b.PDF", "x"),
        "b#2": ("b#2", None),
        "b#2/c.circuitlab": ("b#2/c.circuitlab", None),
        "b#2/c.circuitlab#": ("b#2/c.circuitlab", ""),
        '{"title": "a.circuitlab#2"}': ('{"title": "a.circuitlab#2"}', None),
        "": ("", None),
    }
    assert {place: file_and_step(place) for place in divided} == divided


def test_why_nothing_can_be_written_is_said_of_the_folder_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, word in (
        (tmp_path / "none" / "a", "does not exist"),
        (tmp_path / "file" / "a", "in the way"),
        (tmp_path, "in the way"),
    ):
        with pytest.raises(BadMachine, match=word):
            need_writable(path)
    if Path("/proc/self").is_dir():  # a folder in which nobody can make a file, and which says that there is none
        with pytest.raises(BadMachine, match="cannot be written to"):
            write_whole(Path("/proc/a.webp"), b"")
