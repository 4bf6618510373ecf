"""A family of models is trained in turn on one tokenizer, which is taken over bit for bit; what is done is not done again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circuitlab.errors import BadInput
from circuitlab.training import family
from circuitlab.training.family import FAMILY, is_done, main, shared_tokenizer
from tests.training_runs import train, written

RECIPES = {"first": "tiny", "second": "second"}


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    recipe = tmp_path / "second.toml"
    recipe.write_text('base = "tiny"\n[model]\nn_layers = 1\n', encoding="utf-8")
    monkeypatch.setattr(family, "FAMILY", {"first": "tiny", "second": str(recipe)})
    return written(tmp_path / "text.txt")


def _tokenizers(out: Path) -> set[bytes]:
    return {
        p.read_bytes() for p in (*out.glob("*/state/tokenizer.json"), *out.glob("*/model/tokenizer.json"), out / "tokenizer.json")
    }


def test_all_models_are_trained_on_one_tokenizer(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs"
    assert main([str(out), "--text", str(text), "--only", "first"]) == 0 and is_done(out / "first")
    assert main([str(out), "--text", str(text), "--only", *RECIPES]) == 0
    said = capsys.readouterr().out
    assert "first: done" in said and is_done(out / "second") and len(_tokenizers(out)) == 1
    layers = {name: json.loads((out / name / "model" / "config.json").read_text())["n_layers"] for name in RECIPES}
    assert layers == {"first": 2, "second": 1}
    card = (out / "second" / "model" / "card.md").read_text(encoding="utf-8")
    assert "--tokenizer" in card and str(tmp_path / "runs" / "second") not in card


def test_a_run_that_stands_there_gives_its_tokenizer(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    assert train(text, out / "first", "--stop-at", "3") == 0
    theirs = (out / "first" / "state" / "tokenizer.json").read_bytes()
    assert not is_done(out / "first"), "it was stopped"
    assert shared_tokenizer(out, [str(text)], ("second",), None).read_bytes() == theirs
    other = tmp_path / "other.json"
    other.write_bytes(theirs + b"\n")
    with pytest.raises(BadInput, match="two tokenizers"):
        shared_tokenizer(out, [str(text)], ("second",), other)


def test_a_model_that_is_not_of_the_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "runs"), "--text", "stdlib", "--only", "gpt-9"]) == 2
    assert "attn-only-2l" in capsys.readouterr().err and "attn-only-2l" in FAMILY
