"""Pictures on the command line and in Python: what one shows is listed, computed and drawn again, with or without a choice."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import circuitlab.api as lab
from circuitlab.cli.parser import main
from circuitlab.errors import BadInput
from circuitlab.model.subject import Head
from tests.models import directory
from tests.patience import SECONDS

ROOT = Path(__file__).resolve().parents[2]
TEXT = "ab cab ab"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return directory(tmp_path / "runs" / "mine")


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
@pytest.mark.parametrize("chosen", [[], ["--heads", "L1H1"], ["--destination", "3"], ["--heads", "L1H1", "--source", "1"]])
def test_a_picture_draws_itself_again(mine: Path, tmp_path: Path, suffix: str, chosen: list[str]) -> None:
    """Also what nobody has chosen, which it does not mark."""
    first, again = tmp_path / "runs" / f"a.{suffix}", tmp_path / f"b.{suffix}"
    assert main(["figure", "heads", str(mine), "--text", TEXT, *chosen, "-o", str(first)]) == 0
    assert main(["figure", "heads", "--at", str(first), "-o", str(again)]) == 0
    assert first.read_bytes() == again.read_bytes()


def test_what_a_picture_shows(mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs" / "a.pdf"
    lab.open(str(mine)).figure("attention", text=TEXT, heads="L1H1", set={"show": "scores"}, out=path)
    picture = lab.session(path)
    state = picture.now.state
    assert (state.text, state.selection.head, picture.now.setup.show) == (TEXT, Head(1, 1), ("attention",))
    assert (
        picture.now.figure("attention").title
        == lab.open(str(mine)).figure("attention", text=TEXT, heads="L1H1", set={"show": "scores"}).title
    )
    assert main(["session", str(path), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["now"]["view"] == {"attention": {"show": "scores"}} and table["models"]["mine"]["status"] == "found"
    assert main(["compute", "token_loss", "--at", str(path), "--json", "-"]) == 0
    assert len(json.loads(capsys.readouterr().out)["subject"]["tokens"]) == len(state.tokens)


def test_a_picture_without_its_view(mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for suffix in ("png", "svg", "pdf"):
        path = tmp_path / "runs" / f"a.{suffix}"
        assert main(["figure", "attention", str(mine), "--text", TEXT, "--no-view", "-o", str(path)]) == 0
        assert b"CircuitLab view" not in path.read_bytes() and b"urn:circuitlab" not in path.read_bytes()
        assert (
            main(["session", str(path)]) == main(["figure", "attention", "--at", str(path), "-o", str(tmp_path / "b.png")]) == 3
        )
        assert capsys.readouterr().err.count("does not say what it shows") == 2
        path.unlink()
        lab.open(str(mine)).figure("attention", text=TEXT, with_view=False, out=path)
        with pytest.raises(BadInput, match="does not say"):
            lab.session(path)


def test_on_another_machine_it_is_the_same_picture(mine: Path, tmp_path: Path) -> None:
    """A process that has drawn nothing before, with another HOME, folder, locale, time and name; the model beside the picture."""
    there = tmp_path / "ein anderer Ort"
    there.mkdir()
    for suffix in ("png", "svg", "pdf"):
        assert main(["figure", "bigram", "attn-only-2l", "--text", "a b", "-o", str(tmp_path / f"before.{suffix}")]) == 0
        assert main(["figure", "attention", str(mine), "--text", TEXT, "--heads", "L1H1", "-o", str(there / f"a.{suffix}")]) == 0
    (there / "models").mkdir()
    shutil.move(mine, there / "models" / "mine")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "LC_ALL": "C",
        "USER": "somebody",
        "TZ": "Asia/Tokyo",
    }
    environment |= {"PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen", "OMP_NUM_THREADS": "1"}
    (tmp_path / "home").mkdir()
    draw = "for file in sys.argv[1:]: lab.session(file).now.figure('attention', Path(file).name)"
    drawn = f"import sys; from pathlib import Path; import circuitlab.api as lab\n{draw}"
    files = [str(there / f"a.{suffix}") for suffix in ("png", "svg", "pdf")]
    run = [sys.executable, "-c", drawn, *files]
    done = subprocess.run(run, cwd=tmp_path / "home", env=environment, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode()
    for file in files:
        assert (tmp_path / "home" / Path(file).name).read_bytes() == Path(file).read_bytes(), file


@pytest.mark.parametrize("words", [["a.png"], ["open", "a.SVG"]])
def test_the_command_line_opens_the_window_on_a_picture(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("circuitlab.launch.open_or_render", lambda source: opened.append(source) or 0)
    assert main(words) == 0 and opened == words[-1:]
    assert main([*words, "--text", "a b"]) == 2 and len(opened) == 1


WITHOUT_CHOICE = (
    ["patching"],
    ["laboratory"],
    ["paths", "--set", "page=pair"],
    ["ablation", "--set", "page=sets"],
    ["ablation", "--set", "how=resample"],
    ["keep_only", "--set", "of=edges"],
    ["virtual", "--set", "reader=OV"],
)


@pytest.mark.parametrize("panel", WITHOUT_CHOICE, ids="-".join)
def test_a_panel_without_a_picture_writes_no_file(
    mine: Path, tmp_path: Path, panel: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It says why, and what to do where nobody can click."""
    path = tmp_path / "a.pdf"
    name, *settings = panel
    assert main(["figure", name, str(mine), "--text", TEXT, *settings, "-o", str(path)]) == BadInput.exit_code
    assert not path.exists()
    said = capsys.readouterr().err
    assert "nothing to draw" in said and ("--" in said or "rope-induction" in said)
    assert not re.search(r"[Cc]lick|Ctrl|[Hh]over|above|Pin this", said), "gestures of the window"
