"""`circuitlab generate`: the tokens of Python's `generate`, with the prompts, interventions and refusals of other commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circuitlab import api
from circuitlab.cli.parser import main
from tests.models import directory

TEXT = "the cat sat on the cat"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(directory(tmp_path / "m"))


def new(capsys: pytest.CaptureFixture[str], *words: str) -> list[int]:
    assert main(["generate", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["new"]


def test_the_text_that_is_printed_is_that_of_the_ids(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "attn-only-2l", "--text", TEXT, "-n", "6"]) == 0
    text = capsys.readouterr().out
    ids = new(capsys, "attn-only-2l", "--text", TEXT, "-n", "6")
    assert len(ids) == 6 and text == f"{api.open('attn-only-2l').decode(ids)}\n"


@pytest.mark.parametrize("words", [[], ["--temperature", "0.8", "--seed", "3"]])
def test_tokens_are_those_of_python(model: str, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    more = {"temperature": 0.8, "seed": 3} if words else {}
    wanted = api.open(model).generate(tokens=(1, 2, 3), n=5, **more).new
    assert tuple(new(capsys, model, "--tokens", "1,2,3", "-n", "5", *words)) == wanted


def test_interventions_hold_at_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("attn-only-2l", "--text", TEXT, "-n", "8")
    plain, cut = new(capsys, *words), new(capsys, *words, "--cut", "L1H1,L1H3")
    edits = new(capsys, *words, "--edit", "zero z L1H1", "--edit", "zero z L1H3")
    assert cut == edits != plain
    step = api.open("attn-only-2l").steps[1]
    early = new(capsys, *words, "--checkpoint", str(step))
    assert early == list(api.open("attn-only-2l").at_step(step).generate(TEXT, n=8).new) != plain


def test_a_step_of_a_session_is_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.svg"
    words = ["attn-only-2l", "--text", TEXT, "--cut", "L1H1"]
    assert main(["figure", "predictions", *words, "-o", str(file)]) == 0
    capsys.readouterr()
    assert new(capsys, "--at", str(file)) == new(capsys, *words)


def test_without_a_tokenizer_there_are_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = directory(tmp_path / "bare")
    (place / "tokenizer.json").unlink(missing_ok=True)
    assert main(["generate", str(place), "--tokens", "1,2,3", "-n", "4"]) == 0
    assert [int(word) for word in capsys.readouterr().out.split()] == list(
        api.open(str(place)).generate(tokens=(1, 2, 3), n=4).new
    )


@pytest.mark.parametrize(
    ("words", "status", "fault"),
    [
        (["-n", "-1"], 2, "The argument n"),
        (["--temperature", "-1"], 2, "The argument temperature"),
        (["--checkpoint", "all"], 2, "One checkpoint"),
        (["--edit", "zero it"], 2, ""),
        (["--at", "no.circuitlab"], 2, ""),
    ],
)
def test_what_cannot_be_is_refused(
    model: str, capsys: pytest.CaptureFixture[str], words: list[str], status: int, fault: str
) -> None:
    assert main(["generate", model, "--tokens", "1,2", *words]) == status
    out, wrong = capsys.readouterr()
    assert not out and fault in wrong and "do:" in wrong


def test_without_a_prompt_there_is_nothing_to_continue(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", model]) == 3
    assert "nothing to continue" in capsys.readouterr().err
