"""Sheets on the command line: one step, every step, what cannot be drawn, and what a sheet draws again of itself."""

from __future__ import annotations

import argparse
import json
import shutil
import zipfile
from pathlib import Path

import pytest
import torch

import circuitlab.api as lab
from circuitlab.cli import machine_arguments
from circuitlab.cli.parser import main
from circuitlab.draw.look.paper import Paper
from tests.models import directory

STEPS = (
    ("Two of them", {"model": "mine", "text": "ab cab ab", "heads": ["L1H1"], "show": ["predictions", "attention"]}),
    ("A part that is not there", {"show": ["attention", "neurons"]}),
    ("A difference", {"cut": ["L0H1"], "pin": "before", "show": ["attention", "composition", "predictions"]}),
)
BESIDE = (".pdf", ".tex", ".txt", ".zip")


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """A session of three steps, the second of which has no sheet, beside its model."""
    directory(tmp_path / "mine", d_mlp=0)
    path = tmp_path / "talk.circuitlab"
    steps = [{"title": title, "text": "", "set": words} for title, words in STEPS]
    models = {"mine": {"path": "mine"}}
    table = {"circuitlab": "session", "version": 1, "models": models, "now": STEPS[0][1], "story": {"title": "T", "steps": steps}}
    path.write_text(json.dumps(table))
    return path


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_every_step_at_once_and_the_one_that_cannot_be_drawn_by_name(
    talk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "figures"
    assert main(["sheet", str(talk), "-o", f"{folder}/", "--data", "--width", "150"]) == 3
    told = capsys.readouterr()
    assert "Step 2" in told.err and "Neurons" in told.err and "(part B)" in told.err
    assert told.out.count("150 ×") == 2
    assert names(folder) == sorted(f"fig{i}{suffix}" for i in (1, 3) for suffix in BESIDE)
    lab.session(talk).steps[2].sheet(Paper(width_mm=150)).save(tmp_path / "fig3.pdf")
    for suffix in BESIDE[:3]:
        assert (folder / f"fig3{suffix}").read_bytes() == (tmp_path / f"fig3{suffix}").read_bytes()
    with zipfile.ZipFile(folder / "fig3.zip") as archive:
        assert {name.partition("/")[0] for name in archive.namelist() if "/" in name} == {
            "A-attention",
            "B-composition",
            "C-predictions",
        }


def test_a_title_cannot_add_a_line_to_what_is_said(talk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = json.loads(talk.read_text())
    table["story"]["steps"][1]["title"] = "A\nStep 9, forged: no"
    talk.write_text(json.dumps(table))
    assert main(["sheet", str(talk), "-o", f"{tmp_path}/figures/"]) == 3
    told = capsys.readouterr().err
    assert "forged" in told and not any(line.startswith("Step 9") for line in told.splitlines())


def test_a_sheet_draws_itself_again(talk: Path, tmp_path: Path) -> None:
    first, again, by_figure = tmp_path / "a.svg", tmp_path / "b.svg", tmp_path / "c.svg"
    assert main(["sheet", f"{talk}#1", "-o", str(first)]) == 0
    assert main(["figure", "--at", f"{talk}#1", "-o", str(by_figure)]) == 0
    assert first.read_bytes() == by_figure.read_bytes()
    assert main(["sheet", str(first), "-o", str(again)]) == 0
    title = b"<title>Two of them</title>"  # of the story, which a picture does not tell
    assert title in first.read_bytes() and title not in again.read_bytes()
    assert first.read_bytes().partition(b"</metadata>")[2] == again.read_bytes().partition(b"</metadata>")[2]


def test_what_is_stored_is_enough(talk: Path, tmp_path: Path) -> None:
    """The model is gone: the same numbers, and the caption says where they are from."""
    stored, folder = tmp_path / "with.circuitlab", tmp_path / "figures"
    assert main(["session", str(talk), "--results", "-o", str(stored)]) == 0
    assert main(["sheet", f"{stored}#1", "-o", str(tmp_path / "a.pdf"), "--data"]) == 0
    shutil.rmtree(tmp_path / "mine")
    folder.mkdir()
    assert main(["sheet", f"{stored}#1", "-o", str(folder / "a.pdf"), "--data"]) == 0
    assert "stored with the session" in (folder / "a.txt").read_text()
    assert "stored with the session" not in (tmp_path / "a.txt").read_text()
    with zipfile.ZipFile(tmp_path / "a.zip") as before, zipfile.ZipFile(folder / "a.zip") as now:
        tables = [name for name in before.namelist() if name.endswith(".csv")]
        numbers = lambda archive, name: [line for line in archive.read(name).splitlines() if not line.startswith(b"#")]
        assert tables and all(numbers(before, name) == numbers(now, name) for name in tables)


@pytest.mark.parametrize(
    "words",
    [
        ["sheet", "{}#9", "-o", "a.pdf"],
        ["sheet", "{}#1", "-o", "a.txt"],
        ["sheet", "{}#1", "-o", "a.pdf", "--format", "png"],
        ["sheet", "{}#1", "-o", "a.pdf", "--columns", "0"],
        ["sheet", "{}#1", "-o", "a.pdf", "--width", "60", "--columns", "2"],
        ["sheet", "{}#1", "-o", "a.pdf", "--height", "30"],
        ["sheet", "{}#1", "-o", "a.pdf", "--panels", "attention,nothing"],
        ["sheet", "{}#1", "-o", "nowhere/a.pdf"],
        ["figure", "--at", "{}#1", "-o", "a.pdf", "--whole"],
        ["figure", "-o", "a.pdf"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_said_and_nothing_is_written(
    words: list[str], talk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = names(tmp_path)
    assert main([word.format(talk) for word in words]) in (2, 3)
    assert "expected:" in capsys.readouterr().err
    assert names(tmp_path) == before


@pytest.mark.parametrize(
    "command",
    [
        ["compute", "attention", "--at", "{}#1"],
        ["figure", "attention", "--at", "{}#1", "-o", "a.pdf"],
        ["film", "{}#1", "-o", "a.webp", "--over", "checkpoint=0:final"],
        ["report", "{}", "-o", "a.html"],
        ["session", "{}", "--results", "-o", "a.circuitlab"],
        ["sheet", "{}#1", "-o", "a.pdf"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_that_computes_says_on_what(
    command: list[str],
    talk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word.format(talk) for word in command]
    before = names(tmp_path)
    assert main([*words, "--device", "abacus"]) == 3
    assert "abacus" in capsys.readouterr().err
    assert main([*words, "--budget", "0"]) == 2 and main([*words, "--threads", "0"]) == 2
    assert names(tmp_path) == before


def test_the_memory_and_the_threads_that_are_asked_for_are_taken() -> None:
    parser, threads = argparse.ArgumentParser(), torch.get_num_threads()
    machine_arguments.add_arguments(parser)
    try:
        engine = machine_arguments.engine_of(parser.parse_args(["--budget", "0.5", "--threads", "2"]))
        assert engine.memory == 2**29 and engine.device == "cpu" and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("command", [["figure", "attention", "--at"], ["figure", "--at"], ["sheet"]], ids="-".join)
def test_a_picture_higher_than_a_page_says_so(
    command: list[str], talk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for height, remarks in ((241, 1), (239, 0)):
        out = tmp_path / f"{height}.svg"
        assert main([*command, f"{talk}#1", "-o", str(out), "--height", str(height)]) == 0
        told = capsys.readouterr()
        assert (told.out + told.err).count("higher than the 240 mm of a page") == remarks
        assert f'height="{height}mm"' in out.read_text()


def test_a_sheet_that_becomes_too_high_names_what_makes_it_lower(
    talk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "fig.svg")
    for more, named in ((["--columns", "1"], True), (["--columns", "1", "--panels", "attention"], False)):
        assert main(["sheet", f"{talk}#3", "-o", out, "--width", "140", *more]) == 0
        assert ("of a page (--panels attention draws fewer parts)" in capsys.readouterr().out) == named
