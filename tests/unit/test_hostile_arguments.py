"""What the command line is given that is none of what it takes: each ends with a typed error, and writes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import circuitlab.api as lab
from circuitlab.cli.parser import main
from circuitlab.errors import BadInput, CircuitLabError
from tests.conftest import ROOT
from tests.models import directory
from tests.patience import SECONDS

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: links, pipes")
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def _error(words: list[str], capsys: pytest.CaptureFixture[str], status: int) -> str:
    assert main(words) == status
    error = capsys.readouterr().err
    assert "do:" in error and "got:      \n" not in error and "Traceback" not in error
    return error


@POSIX
@pytest.mark.parametrize("words", ["info P", "compute token_loss P --tokens 1", "measure P --text x", "open P --text a"])
def test_a_link_that_leads_back_to_itself_is_not_a_model(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (loop := tmp_path / "loop").symlink_to("loop")
    (tmp_path / "attn-only-2l").symlink_to("attn-only-2l")
    assert "symbolic links" in _error([str(loop) if word == "P" else word for word in words.split()], capsys, 2)
    with pytest.raises(CircuitLabError):
        lab.open(str(tmp_path / "attn-only-2l"))


@POSIX
def test_a_pipe_and_a_device_are_not_lessons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(pipe := tmp_path / "pipe.md")
    out = str(tmp_path / "a.circuitlab")
    assert "pipe" in _error(["session", str(pipe), "-o", out], capsys, 3)
    assert "too large" in _error(["session", "/dev/zero", "-o", out], capsys, 3)
    assert not Path(out).exists()


@POSIX
def test_a_pipe_beside_a_sheet_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "fig.txt")
    words = ["sheet", str(tmp_path / "none.circuitlab"), "-o", str(tmp_path / "fig.pdf")]
    assert "exists already" in _error(words, capsys, 2)


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [("x" * 5000, None, "no such recipe"), ("a.toml", "", "lacks something"), ("a.toml", "[data]", "lacks")],
)
def test_what_is_not_a_recipe(
    name: str, text: str | None, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path(name).write_text(text)
    error = _error(["train", name, "--text", "none", "--out", "out"], capsys, 3)
    assert word in error and "__init__" not in error and not Path("out").exists()


@pytest.mark.parametrize("words", [["--assume", ""], ["--assume", "x"], ["--assume", "a=1", "a=2"], ["--set", " "]])
def test_pairs_that_are_none_say_what_to_do(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _error(["compute", "token_loss", str(directory(tmp_path / "m")), "--tokens", "1", *words], capsys, 2)


@pytest.mark.parametrize(
    ("analysis", "name"), [("copying_head_score", "samples"), ("theory_and_measurement", "samples"), ("head_scores", "samples")]
)
def test_a_count_beyond_any_sample_is_refused(analysis: str, name: str, tmp_path: Path) -> None:
    model = lab.open(str(directory(tmp_path / "m")))
    with pytest.raises(CircuitLabError):
        model.compute(analysis, set={name: 2**63})


def test_an_order_beyond_the_layers_is_that_of_the_layers(tmp_path: Path) -> None:
    model = lab.open(str(directory(tmp_path / "m")))
    many, all_ = (model.compute("path_expansion", tokens=[1, 2, 3], set={"order": order}).result for order in (10**12, 9))
    assert len(many.value) == len(all_.value) and (many.value == all_.value).all()


def _started(words: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(["bash", "-c", words], env=environment, capture_output=True, text=True, timeout=SECONDS, **options)  # type: ignore[call-overload]


@POSIX
def test_closed_standard_input_is_not_a_text(tmp_path: Path) -> None:
    model = directory(tmp_path / "m")
    done = _started(f"{sys.executable} -m circuitlab compute token_loss {model} --text-file - <&-")
    assert done.returncode == 3 and "Standard input is closed" in done.stderr


@POSIX
def test_a_current_folder_that_is_gone(tmp_path: Path) -> None:
    """torch's libraries end the process there."""
    (gone := tmp_path / "gone").mkdir()
    done = _started(f"cd {gone}; rmdir {gone}; {sys.executable} -m circuitlab compute token_loss attn-only-1l --tokens 1")
    assert done.returncode == 3 and "current folder is gone" in done.stderr and "do:" in done.stderr


@FULL
def test_a_full_disk_under_the_errors_leaves_the_status() -> None:
    assert _started(f"{sys.executable} -m circuitlab compute nothing m 2>/dev/full").returncode == 2


def test_a_blank_answer_is_shown_in_quotation_marks() -> None:
    assert "got:      ' '" in str(BadInput("It cannot be read.", expected="a name", got=" "))
