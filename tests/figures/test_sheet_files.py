"""What a sheet is written with: its caption as text and LaTeX, its numbers to the bit, its view, and nothing half written."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from circuitlab import api
from circuitlab.analysis.base import TextRef
from circuitlab.analysis.behaviour.in_context import InContextParams
from circuitlab.caption_parts import Intervened
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.view.sheet_view import lettered_parts
from circuitlab.engine.request import Request
from circuitlab.errors import BadInput, UsageError
from circuitlab.model.subject import ModelRef, Subject
from circuitlab.report.sheet import sheet_of
from circuitlab.report.sheet_caption import request_words
from tests.figures.test_sheets import TEXT, sheet
from tests.unit.test_latex import strict

pytestmark = pytest.mark.usefixtures("qapp")  # pictures need one


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
def test_every_format_says_what_it_shows(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    made = sheet(("attention", "composition"))
    made.save(path, data=False)
    seen = api.session(path).now
    assert seen.setup.show == ("attention", "composition") and seen.state.selection == made.view.state.selection
    made.save(path, data=False, with_view=False)
    with pytest.raises(BadInput):
        api.session(path)


def test_a_notebook_shows_it_as_one_picture():
    made = sheet(("attention", "composition"))
    data, _ = made._repr_mimebundle_()
    assert data["image/svg+xml"].startswith("<svg ") and "<text" not in data["image/svg+xml"]
    assert all(cell.title in data["text/plain"] for cell in made.cells) and "A attention" in repr(made)
    assert set(made._repr_mimebundle_(include={"image/png"})[0]) == {"image/png"}


def test_parts_of_captions_stand_behind_their_letters():
    said = {"A": ("all", "mine", "x"), "B": ("all", "x"), "C": ("all", "yours", "ours")}
    assert lettered_parts(said) == ((), ("all", "A: mine", "A, B: x", "C: yours", "ours"))
    assert lettered_parts(said, {"all", "x", "yours"}) == (("all", "A, B: x", "C: yours"), ("A: mine", "C: ours"))
    said = {"A": ("all", Intervened("cut")), "B": ("all", "x"), "C": ("all", Intervened("cut"), "y")}
    assert lettered_parts(said, {"all"}) == (("A, C: cut", "all"), ("B: x", "C: y"))


def test_the_caption_says_all_that_the_figures_say():
    made = sheet(("attention", "composition"), pinned=True)
    picture = made.drawn(".svg")
    plain, latex = made.caption(picture).plain(), made.caption(picture).latex("fig1.pdf", 174)
    (model,) = {answer.provenance.weights for cell in made.cells for role in cell.answers.values() for answer in role.values()}
    assert model and model in plain and model in latex
    for cell in made.cells:
        for part in (cell.title, *cell.figure.about, *cell.figure.caption_parts):
            assert " ".join(part.split()) in plain, part  # lines may break anywhere there
        for side in ("now", "ref"):
            for answer in cell.answers[side].values():
                name = answer.request.analysis.name.replace("_", " ")
                assert name in plain and name in latex
    assert re.search(r"^A  ", plain, re.M) and re.search(r"^B  ", plain, re.M) and "reference" in plain
    body = "\n".join(line for line in latex.splitlines() if not line.startswith("%"))
    command = re.fullmatch(r"\\caption\[(.*?)\]\{%\n(.*)\}", body, re.S)
    assert command is not None and strict(command[1])
    for line in command[2].splitlines():
        strict(re.sub(r"\\textbf\{((?:[^{}]|\{\}|\\[{}])*)\}", r"\1", line.strip()))
    assert r"\textbf{A}" in latex and r"100\% of L1\_H1" in latex


@pytest.mark.parametrize("pinned", [False, True])
def test_the_zip_has_every_number_to_the_bit(pinned):
    made = sheet(("attention", "composition", "predictions"), pinned)
    output = made.output(Path("fig1.pdf"), made.numbers(), "")
    archive = zipfile.ZipFile(io.BytesIO(output.files[Path("fig1.zip")]))
    assert archive.testzip() is None
    listed = json.loads(archive.read("sheet.json"))
    named = {file for part in listed["parts"] for answer in part["answers"] for file in answer["files"]}
    assert named | {"README.txt", "sheet.json", "fig1.txt", "fig1.tex"} == set(archive.namelist())
    assert archive.read("fig1.txt") == output.files[Path("fig1.txt")]
    sides = {"now": "", "ref": "reference-"}
    assert all(cell.answers["ref"] for cell in made.cells) == pinned
    for cell in made.cells:
        for side, begin in sides.items():
            for role, answer in cell.answers[side].items():
                held = np.load(io.BytesIO(archive.read(f"{cell.letter}-{cell.panel}/{begin}{role}.npz")))
                assert answer.result.arrays()
                for name, array in answer.result.arrays().items():
                    assert held[name].dtype == array.dtype and held[name].tobytes() == array.tobytes(), (role, name)
                assert json.loads(str(held["about"]))["provenance"]["weights"] == answer.provenance.weights != ""
    if pinned:
        assert any("/difference-" in file for file in named)
    assert listed["versions"]["circuitlab"] and len(listed["models"]) == 1


def test_all_files_of_a_sheet_are_written_or_none(tmp_path, monkeypatch):
    made = sheet(("attention", "composition"))
    made.save(tmp_path / "a.svg")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert set(before) == {"a.svg", "a.txt", "a.tex", "a.zip"}
    write: Callable[..., int] = Path.write_bytes

    def full_disk(self: Path, data: bytes) -> int:
        if data.startswith(b"%"):  # the third of four
            raise OSError(28, "No space left on device")
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(Exception, match="disk is full"):
        made.on(Paper(width_mm=100)).save(tmp_path / "a.svg")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("suffix", [".txt", ".tex", ".zip"])
def test_a_file_that_is_none_of_a_sheet_is_not_overwritten(suffix, tmp_path):
    made, other = sheet(("attention", "composition")), tmp_path / f"a{suffix}"
    other.write_bytes(b"somebody's own")
    with pytest.raises(UsageError, match="exists already"):
        made.save(tmp_path / "a.svg")
    assert [file.name for file in tmp_path.iterdir()] == [other.name] and other.read_bytes() == b"somebody's own"
    other.unlink()
    made.save(tmp_path / "a.svg")
    made.save(tmp_path / "a.svg")  # its own it may


@pytest.mark.parametrize("path", ["/home/somebody/corpus.txt", "C:\\Users\\somebody\\corpus.txt", "corpus.txt"])
def test_a_file_that_was_read_is_named_without_its_folder(path):
    request = Request.named("in_context", InContextParams("file", TextRef(path)), Subject(ModelRef("builtin:attn-only-2l")))
    assert request_words(request) == "in context (on file, text corpus.txt)"


def test_a_caption_says_in_words_what_was_computed(tmp_path):
    sheet(("attention", "predictions")).save(tmp_path / "a.svg")
    lines = (tmp_path / "a.txt").read_text().splitlines()
    computed = [line for line in lines if line.startswith("Computed for ")]
    assert len(computed) >= 2 and computed[0].startswith("Computed for A: attention")
    assert all(f"% {line}" in (tmp_path / "a.tex").read_text().splitlines() for line in computed)
    assert not any(sign in line for line in computed for sign in "=_"), "no name of a parameter"


def test_a_panel_that_shows_nothing_is_named_with_its_letter():
    model = api.open("attn-only-2l")
    with pytest.raises(BadInput, match=r"\(part B\)|Nothing is shown in"):
        sheet_of(model.engine, model.state(TEXT), ("attention", "neurons"))
    with pytest.raises(UsageError, match="sheet"):
        sheet_of(model.engine, model.state(TEXT), ())
