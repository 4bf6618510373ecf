"""The command line, called as a person calls it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PySide6.QtGui import QImage

from circuitlab import api
from circuitlab.analysis.attention.pattern import AttentionParams
from circuitlab.analysis.base import analyses
from circuitlab.cli.parser import main
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, UsageError
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head, Subject
from tests.models import directory
from tests.reference.make_hooked import FOLDER


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(directory(tmp_path / "m"))


def test_the_three_forms_hold_the_same_numbers(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = {form: tmp_path / f"a.{form}" for form in ("json", "csv", "npz")}
    words = ["compute", "attention", model, "--text", "abab", "--set", "heads=L1H2", "show=scores"]
    assert main([*words, *(x for f, p in out.items() for x in (f"--{f}", str(p)))]) == 0
    assert capsys.readouterr().out == ""
    result = json.loads(out["json"].read_text())
    npz = np.load(out["npz"])
    wanted = api.open(model).compute("attention", text="abab", heads="L1H2", show="scores").result.values
    np.testing.assert_array_equal(npz["values"], wanted)
    np.testing.assert_array_equal(np.array(result["result"]["values"], dtype=np.float32), wanted)
    rows = [r for r in csv.reader(out["csv"].read_text().splitlines()) if not r[0].startswith("#")]
    assert rows[0] == ["head", "destination", "destination token", "source", "source token", "value (score)"]
    assert len(rows) == 1 + 15
    assert float(rows[1][5]) == pytest.approx(float(wanted[0, 0, 0]))
    for about in (result, json.loads(str(npz["about"]))):
        assert about["params"] == {"heads": ["L1H2"], "show": "scores"}
        assert len(about["provenance"]["weights"]) == 64
        assert about["remainder"] is None
        assert about["conventions"]


def test_printing_shows_a_table_and_says_what_is_left_out(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compute", "attention", model, "--tokens", "1,2,3,4"]) == 0
    text = capsys.readouterr().out
    assert "40 of 80" in text
    assert main(["compute", "token_loss", model, "--tokens", "1,2"]) == 0
    assert "not computed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["compute", "nope", "MODEL", "--text", "a"], 2, "attention_overview"),
        (["compute", "attention", "MODEL", "--text", "a", "--set", "colour=red"], 2, "heads show"),
        (["compute", "attention", "MODEL", "--text", "a", "--set", "heads"], 2, "KEY=VALUE"),
        (["compute", "attention", "MODEL", "--text", "a", "--set", "heads=L9H9"], 3, "L1H3"),
        (["compute", "attention", "MODEL", "--tokens", "1,x"], 2, "--tokens"),
        (["compute", "attention", "MODEL", "--tokens", "1,9999"], 3, "vocabulary"),
        (["compute", "attention", "MODEL"], 3, "empty"),
        (["compute", "attention", "MODEL", "--text", "a" * 60], 3, "longer"),
        (["compute", "attention", "MODEL", "--text-file", "/no/such/file"], 3, "UTF-8"),
        (["compute", "attention", "no/such/model", "--text", "a"], 3, "config.json"),
        (["compute", "attention", "MODEL", "--text", "a", "--budget", "0.00000001"], 4, "at most 10 bytes"),
        (["compute", "attention", "MODEL", "--text", "a", "--threads", "100000"], 2, "number of threads"),
        (["compute", "attention", "MODEL", "--text", "a", "--json", "/no/such/folder/a.json"], 3, "written"),
        (["figure", "nope", "MODEL", "--text", "a", "-o", "a.png"], 2, "attention"),
        (["figure", "attention", "MODEL", "--text", "a", "-o", "a.gif"], 2, ".png"),
        (["figure", "attention", "MODEL", "--text", "a", "--destination", "7", "-o", "a.png"], 3, "position"),
        (["figure", "attention", "MODEL", "--text", "a", "-o", "a.png", "--width", "-5"], 2, "20 to 1200 mm"),
        (["figure", "attention", "MODEL", "--text", "a", "-o", "a.png", "--width", "100000"], 2, "20 to 1200 mm"),
        (["figure", "attention", "MODEL", "--text", "a", "-o", "a.png", "--width", "nan"], 2, "width"),
        (["figure", "attention", "MODEL", "--text", "a", "-o", "a.png", "--font", "0"], 2, "pt"),
        (["figure", "attention", "MODEL", "--text", "a", "-o", "a.png", "--height", "0"], 2, "mm"),
        (["figure", "attention", "MODEL", "--text", "a", "-o", "a.png", "--ink", "blue"], 2, "grey"),
        (["figure", "attention", "MODEL", "--text", "a", "-o", "a.png", "--dpi", "2400", "--width", "1200"], 2, "dots"),
        (["info", "no/such/model"], 3, "config.json"),
        (["compute"], 2, "usage"),
        (["--bogus"], 2, "usage"),
    ],
)
def test_every_fault_has_its_exit_status_and_its_words(
    model: str, capsys: pytest.CaptureFixture[str], words: list[str], status: int, said: str
) -> None:
    assert main([model if w == "MODEL" else w for w in words]) == status
    assert said in capsys.readouterr().err


def test_a_fault_of_ours_is_1_and_an_interrupt_130(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from circuitlab.cli import commands

    def stop(args: object) -> int:
        raise KeyboardInterrupt

    def fail(args: object) -> int:
        raise RuntimeError("x")

    monkeypatch.setitem(commands.RUN, "info", stop)
    assert main(["info", model]) == 130
    monkeypatch.setitem(commands.RUN, "info", fail)
    assert main(["info", model]) == 1


def test_lists_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["--help"]) == 0
    assert main(["analyses"]) == 0
    assert main(["panels"]) == 0
    text = capsys.readouterr().out
    listed = {line.split("  (")[0] for line in text.splitlines()}
    assert {name for name, entry in analyses().items() if not entry.derived} <= listed
    assert not listed & {"embedding_gram", "unembedding_gram", "embedding_products", "effective_embedding"}
    for word in ("attention_overview", "--set heads=all", "predictions", "leave_out_bos", "exit status"):
        assert word in text


def test_info_says_what_a_model_is(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", model, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["config"]["n_layers"] == 2
    assert found["exactness"] == "exact"
    assert len(found["sha256"]) == 64
    assert main(["info", model]) == 0
    assert "d_model" in capsys.readouterr().out


def test_info_fits_a_terminal_and_says_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(torch.load(FOLDER / "shortformer.pt", weights_only=True)["model"], tmp_path / "inferred.pt")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["info", str(tmp_path / "inferred.pt")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("shape") for line in lines) == 1
    assert "TransformerLens" in lines[0]
    said = " ".join(" ".join(lines).split())
    assert "positions learned" in said and "--assume positions=shortformer" in said
    notes = [line for line in lines if line[12:16] == "note"]
    assert len(notes) == len(set(notes)) >= 3


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_figure_without_a_window(model: str, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    assert main(["figure", "attention", model, "--text", "abab", "--heads", "L1H2", "-o", str(path)]) == 0
    head = path.read_bytes()[:200]
    assert {"png": b"PNG", "svg": b"<svg", "pdf": b"%PDF"}[suffix] in head + path.read_bytes()[:600]


@pytest.mark.parametrize("edits", [(), (Intervention("zero", Site("result", 0, (1,))),)])
def test_copied_python_gives_the_same_numbers(model: str, edits: tuple[Intervention, ...]) -> None:
    opened = api.open(model)
    subject = Subject(opened.ref, (0, 4, 5, 4), edits)
    request = Request.named("attention", AttentionParams((Head(1, 2),), "contribution"), subject)
    space: dict[str, object] = {}
    exec(api.snippet(request).replace("print(", "str("), space)
    wanted = Engine(ModelStore()).answer(request).result.arrays()["values"]
    np.testing.assert_allclose(space["answer"].result.values, wanted, rtol=1e-5)  # type: ignore[attr-defined]


def test_the_api_refuses_what_it_cannot_read(tmp_path: Path, model: str) -> None:
    with pytest.raises(BadInput, match="tokenizer"):
        api.open(str(directory(tmp_path / "n", tokenizer=False))).compute("attention", text="a")
    with pytest.raises(UsageError):
        api.open(model).compute("attention", text="a", colour=3)


def test_heads_are_cut_from_the_command_line(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = lambda *more: main(["compute", "token_loss", model, "--text", "a b c a b", "--csv", "-", *more])
    assert ask() == 0
    whole = capsys.readouterr().out
    assert ask("--cut", "L0H1,L1H0") == 0
    cut = capsys.readouterr().out
    assert cut != whole
    edits = tuple(Intervention("zero", Site("z", layer, (head,))) for layer, head in ((0, 1), (1, 0)))
    wanted = api.open(model).compute("token_loss", text="a b c a b", edits=edits).result
    lines = [line for line in cut.splitlines() if not line.startswith("#")]
    losses = [float(row["loss (nats)"] or "nan") for row in csv.DictReader(lines)]
    np.testing.assert_allclose(losses, wanted.loss, rtol=1e-5)  # type: ignore[attr-defined]
    assert ask("--cut", "L0H99") == 3
    about = []
    for more in (["--cut", "L0H0", "--target", "3-4"], []):
        out = tmp_path / "f.png"
        assert main(["figure", "predictions", model, "--text", "a b", *more, "-o", str(out)]) == 0
        about.append(QImage(str(out)).text("Description"))
    assert ["L0H0" in words for words in about] == [True, False]


def test_a_text_without_end_is_refused(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compute", "token_loss", model, "--text-file", "/dev/zero"]) == 3
    assert "/dev/zero" in capsys.readouterr().err
