"""What `circuitlab train` leaves and says: a model with its checkpoints, a card, a command that can be typed, the help."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from circuitlab.cli.parser import main
from circuitlab.disk import files
from circuitlab.disk.paths import shipped_recipes
from circuitlab.errors import BadInput
from circuitlab.model.forward import logits
from circuitlab.model.loading import open_model
from circuitlab.training.corpus import find_sources
from circuitlab.training.identity import _content
from circuitlab.training.recipe import Checkpoints, Data, Optimiser, Recipe, Stage
from circuitlab.training.recipe_file import read_recipe

WORDS = "the grey heron stood in the shallow water and the small boat went by; def f(x): return x + 1\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "my text.txt"
    path.write_text(WORDS * 60 + "".join(chr(i) for i in range(0xC0, 0x180)) * 9, encoding="utf-8")
    return path


@pytest.mark.parametrize("links", [True, False])
def test_the_model_has_its_checkpoints_beside_it(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refused(*names: Any) -> None:
        raise OSError(1, "no links here")

    if not links:
        monkeypatch.setattr(files.os, "link", refused)
    out = tmp_path / "run"
    assert main(["train", "tiny", "--text", str(text), "--out", str(out), "--no-measure", "--stop-at", "6"]) == 0
    assert open_model(out / "model").steps == (0, 4)
    assert main(["train", "tiny", "--text", str(text), "--out", str(out), "--no-measure"]) == 0
    opened = open_model(out / "model")
    assert opened.steps == (0, 4, 8, 14, 16, 18, 20)
    for one in (out / "checkpoints").iterdir():
        other = out / "model" / "checkpoints" / one.name
        assert other.read_bytes() == one.read_bytes()
        assert other.samefile(one) == links
    ids = torch.tensor([[0, 5, 9, 7]])
    with torch.inference_mode():
        last = logits(open_model(out / "model", checkpoint=-1).weights, ids)
        torch.testing.assert_close(last, logits(opened.weights, ids), atol=1e-3, rtol=0)


def test_the_card_has_the_command_as_it_can_be_typed_beside_the_text(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["train", "tiny", "--text", str(text), "--seed", "8", "--device", "cpu", "--no-measure"]
    assert main([*given, "--out", str(tmp_path / "run")]) == 0
    heard = capsys.readouterr().out
    assert "tokens/s, measuring apart" in heard and "trained on 1,664 tokens in" in heard and "on CPU" in heard
    card = open_model(tmp_path / "run" / "model").card
    command = card.split("command: `")[1].split("`")[0]
    words = shlex.split(command)
    assert words == ["circuitlab", "train", "tiny", "--text", text.name, "--seed", "8", "--out", "DIR"]
    assert str(text.parent) not in card and f"share 1.00, sha256 {_content(*find_sources([str(text)]))[:12]}" in card
    monkeypatch.chdir(text.parent)
    assert main([*words[1:-1], str(tmp_path / "again"), "--no-measure"]) == 0
    for name in ("metrics.json", "model/model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    for said in ("seed 8", "1,664 tokens", "tokens/s", "CPU", "4 to 11 uniformly random tokens", "copied to a later place"):
        assert said in card


def test_the_checkpoints_are_measured_at_the_end(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from circuitlab.training import series_measuring

    asked: list[Any] = []

    def measured(folder: Path, streams: Any, tokenizer: Any, *, context: int, say: Any) -> None:
        asked.append((folder, [s.label for s in streams], tokenizer.n_tokens, context, open_model(folder).steps))
        say("step 4 (2/7): loss 5.7")

    call = ["train", "tiny", "--text", str(text), "--out", str(tmp_path / "run")]
    assert main(call) == 0  # of so short a text what there is is measured
    assert "measured step 20 (7/7): loss" in capsys.readouterr().out
    monkeypatch.setattr(series_measuring, "measure_series", measured)
    assert main(call) == 0
    assert asked == [(tmp_path / "run" / "model", ["my text.txt"], 300, 24, (0, 4, 8, 14, 16, 18, 20))]
    assert "measured step 4 (2/7)" in capsys.readouterr().out
    assert main([*call, "--no-measure"]) == 0
    assert len(asked) == 1

    def too_short(*args: Any, **words: Any) -> None:
        raise BadInput("my text.txt is too short to measure on.", expected="more tokens", got="4")

    monkeypatch.setattr(series_measuring, "measure_series", too_short)
    capsys.readouterr()
    assert main(call) == 0  # the model is there, and that is what was asked for
    assert "not measured: my text.txt is too short to measure on. expected more tokens, got 4" in capsys.readouterr().out


def test_the_help_lists_the_shipped_recipes_and_loads_no_torch() -> None:
    code = "import sys; from circuitlab.cli.parser import main; main(['train', '--help']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, title in shipped_recipes().items():
        assert f"  {name} " in done.stdout and title in done.stdout
        assert title and read_recipe(name).title == title
    assert "circuitlab/training/recipe.py" in done.stdout and "130" in done.stdout


def test_every_key_of_a_recipe_is_explained() -> None:
    import dataclasses

    from circuitlab.training import recipe
    from circuitlab.training.recipe_checks import DRAWN

    said = recipe.__doc__ or ""
    keys = [f.name for kind in (Recipe, Stage, Data, Optimiser, Checkpoints, recipe.Export) for f in dataclasses.fields(kind)]
    assert not [k for k in (*keys, *DRAWN) if k not in said and k != "name"]


@pytest.mark.parametrize(("option", "value"), [("--threads", "0"), ("--seed", "-1"), ("--stop-at", "x")])
def test_options_that_are_no_numbers_are_usage(
    text: Path, tmp_path: Path, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "tiny", "--text", str(text), "--out", str(tmp_path / "o"), option, value]) == 2
    assert not (tmp_path / "o").exists()
    said = capsys.readouterr().err
    assert option in said and "shipped recipes" not in said, "an error says what is wrong and not the whole help"
