"""Bad input is said to be that, never a bug of the program: endless numbers, nobody's home, halves of characters, nesting."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest

import circuitlab.api as lab
from circuitlab.cli.parser import main
from circuitlab.errors import BadInput, CircuitLabError, UsageError
from circuitlab.gui.work.own_process import writable_folder
from circuitlab.model.files.unpickling import DAMAGE, unpickled
from circuitlab.model.sources.hub import cache_folder
from circuitlab.model.subject import Head
from circuitlab.sweep.spec import read_spec
from tests.models import directory

ENDLESS = "L" + "9" * 5000 + "H0"
NOBODY = "~nosuchuser/x"
HALF, BYTE = "a\ud800", "a\udce9"  # half of a character, and a byte of an argument that is not UTF-8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return directory(tmp_path_factory.mktemp("models") / "m")


COMMANDS = [
    "info WORD",
    "info MODEL --assume a=WORD",
    "compute token_loss MODEL --text WORD",
    "compute token_loss MODEL --text-file WORD",
    "compute token_loss MODEL --tokens WORD",
    "compute token_loss MODEL --text ab --cut WORD",
    "compute token_loss MODEL --text ab --checkpoint WORD",
    "compute attention MODEL --text ab --set heads=WORD",
    "compute head_step MODEL --text ab --set head=WORD",
    "compute direct_attribution MODEL --text ab --set target=WORD",
    "compute over_prompts MODEL --set file=WORD analysis=token_loss",
    "compute WORD MODEL",
    "compute token_loss --at WORD",
    "compute token_loss MODEL --text ab --csv WORD/x/y.csv",
    "figure attention MODEL --text ab --heads WORD -o a.svg",
    "figure attention MODEL --text ab --target WORD -o a.svg",
    "figure WORD MODEL --text ab -o a.svg",
    "session WORD",
    "lessons --check WORD",
    "train WORD --text x --out t",
    "train attn-only-1l --text WORD --out t",
    "measure WORD --text x",
    "import WORD --map x",
    "import MODEL --map WORD",
    "sweep WORD -o t",
    "get WORD",
    "generate MODEL --text WORD -n 1",
    "tokens MODEL --text WORD",
]


@pytest.mark.parametrize("word", [ENDLESS, NOBODY, HALF, BYTE], ids=["endless", "nobody", "half", "byte"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_word_is_a_bug(
    command: str, word: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status = main([one.replace("WORD", word).replace("MODEL", str(folder)) for one in command.split()])
    said = capsys.readouterr()
    assert "This is a bug" not in said.err and "Traceback" not in said.err
    assert status in (0, 2, 3)


def _session(tmp_path: Path, word: str, folder: Path) -> Path:
    step = {
        "title": word,
        "text": word,
        "aside": word,
        "set": {"model": "m", "prompt": word, "heads": [word], "view": {word: {word: word}}},
    }
    table = {
        "circuitlab": "session",
        "version": 1,
        "models": {"m": {"path": str(folder)}, "n": {"path": word}},
        "files": {"f": {"path": word, "sha256": "7"}},
        "now": {"model": "m", "prompt": "ab"},
        "notes": [{"text": word, "token": word}, {"text": word, "panel": word}],
        "story": {"title": word, "steps": [step]},
    }
    (path := tmp_path / "talk.circuitlab").write_text(json.dumps(table))
    return path


@pytest.mark.parametrize("word", [ENDLESS, NOBODY, HALF, BYTE], ids=["endless", "nobody", "half", "byte"])
def test_no_text_of_a_session_is_a_bug(word: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _session(tmp_path, word, folder)
    for words in (["session", str(path)], ["session", str(path), "--json"], ["compute", "token_loss", "--at", f"{path}#1"]):
        assert main(words) in (0, 2, 3)
        assert "This is a bug" not in capsys.readouterr().err
    table = json.loads(path.read_text())
    table["notes"] = [{"text": "", "head": word}]
    path.write_text(json.dumps(table))
    assert main(["session", str(path)]) == 3


def test_a_head_has_few_digits() -> None:
    assert Head.parse("L999999999H0") == (999_999_999, 0)
    for text in (ENDLESS, "L1H" + "1" * 10):
        with pytest.raises(UsageError):
            Head.parse(text)


def test_steps_of_a_sweep_have_few_digits(tmp_path: Path) -> None:
    (path := tmp_path / "a.toml").write_text(f'[models]\nopen = ["attn-only-1l"]\nsteps = ["1..{"9" * 5000}"]\n')
    with pytest.raises(CircuitLabError):
        read_spec(path)


def test_a_name_with_an_endless_number_is_no_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch
    from safetensors.torch import save_file

    long = "9" * 5000
    names = (
        f"blocks.{long}.attn.W_Q",
        f"transformer.h.{long}.attn.c_attn.weight",
        f"blocks.{long}.sa.heads.0.key.weight",
        f"blocks.0.sa.heads.{long}.key.weight",
        f"h.attn.c_attn.weight[{long}]",
    )
    for i, name in enumerate(names):
        save_file({name: torch.ones(2, 2), "blocks.0.attn.W_Q": torch.ones(2, 2)}, file := tmp_path / f"{i}.safetensors")
        assert main(["info", str(file)]) in (2, 3)
        assert "This is a bug" not in capsys.readouterr().err


def test_nobodys_home_is_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="not a path"):
        writable_folder(NOBODY)
    for name in ("HF_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv("HF_HUB_CACHE", raising=False)
        monkeypatch.setenv(name, NOBODY)
        assert str(cache_folder()).startswith(NOBODY)
        assert main(["info", "somebody/something"]) == 3


def test_half_of_a_character_is_no_text_of_a_model(folder: Path) -> None:
    model = lab.open(str(folder))
    for text in (HALF, BYTE):
        with pytest.raises(BadInput):
            model.compute("token_loss", text)


@pytest.mark.parametrize("depth", [2, 5000])
def test_a_subclass_made_by_a_subclass_is_damage(depth: int) -> None:
    made = b"ctorch._tensor\n_rebuild_from_type_v2\n"
    data = b"\x80\x02" + made + (b"(" + made + b"ctorch\nTensor\n") * depth + b")" + b"Nt" * depth + b"R."
    with pytest.raises(DAMAGE):
        unpickled(BytesIO(data))
