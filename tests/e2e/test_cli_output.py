"""What leaves the command line: forms, streams, tokens' text, faults in the log; and the same from Python."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from circuitlab import api
from circuitlab.analysis.attention.pattern import AttentionParams
from circuitlab.analysis.base import TextRef, analyses
from circuitlab.analysis.behaviour.predictions import PredictionsParams
from circuitlab.cli import commands
from circuitlab.cli.parser import _parser, main
from circuitlab.disk.files import read_at_most
from circuitlab.disk.paths import log_file
from circuitlab.engine.codec import describe, parse_params
from circuitlab.engine.engine import Engine
from circuitlab.engine.export_data import csv_text, export_of, several_bytes, write_answers
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadInput, UsageError
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, Head, Subject
from tests.axes import check_axes
from tests.models import TINY, directory
from tests.patience import SECONDS


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(directory(tmp_path / "m"))


def test_the_option_says_the_form_whatever_the_file_is_called(model: str, tmp_path: Path) -> None:
    words = ["compute", "token_loss", model, "--tokens", "1,2,3"]
    assert main([*words, "--csv", str(tmp_path / "a.json"), "--json", str(tmp_path / "b"), "--npz", str(tmp_path / "c.csv")]) == 0
    assert (tmp_path / "a.json").read_text().startswith("# analysis")
    assert json.loads((tmp_path / "b").read_text())["analysis"] == "token_loss"
    assert "loss" in np.load(io.BytesIO((tmp_path / "c.csv").read_bytes())).files


@pytest.mark.parametrize("form", ["json", "csv", "npz"])
def test_every_form_can_be_printed(model: str, form: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["compute", "token_loss", model, "--tokens", "1,2,3", f"--{form}", "-"]) == 0
    data = capfdbinary.readouterr().out
    assert data.startswith({"json": b"{", "csv": b"# analysis", "npz": b"PK"}[form])


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--json", "-", "--csv", "-"], 2, "one"),
        (["--json", "no/such/folder/a"], 3, "folder"),
        (["--budget", "nan"], 2, "memory in GiB"),
        (["--budget", "-1"], 2, "memory in GiB"),
        (["--threads", "0"], 2, "threads"),
        (["--threads", "100000"], 2, "1 to 256"),
        (["--tokens", "1", "--tokens", "2"], 2, "given twice"),
        (["--json", "a", "--json", "b"], 2, "given twice"),
        (["--text", "a", "--tokens", "1"], 2, "not allowed"),
        (["--tokens", "1", "--no-bos"], 2, "taken as they are"),
        (["--tokens", "1", "--no-special"], 2, "ids are not spelled"),
        (["--csv", "same", "--json", "same"], 2, "one file"),
        (["--assume", "a=1", "a=2"], 2, "given twice"),
        (["--budget", "1e308"], 2, "memory in GiB"),
        (["--json", ""], 2, "name of a file"),
        (["--text-file", ""], 2, "No file is named"),
        (["--set", "=1"], 2, "no name"),
    ],
)
def test_what_cannot_be_done_is_said_before_any_work(
    model: str, words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "answer", lambda *a, **k: pytest.fail("computed"))
    assert main(["compute", "token_loss", model, *words]) == status
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", [["train", "r", "--out", "o"], ["measure", "m"]])
def test_texts_that_are_named_one_by_one_are_all_taken(words: list[str]) -> None:
    assert _parser().parse_args([*words, "--text", "a", "b", "--text", "c"]).text == ["a", "b", "c"]


def test_a_parameter_is_said_once(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compute", "predictions", model, "--tokens", "1,2", "--set", "k=3", "--set", "k=4"]) == 2
    assert "given twice" in capsys.readouterr().err


@pytest.mark.parametrize("data", [b"a b", b"\xef\xbb\xbfa b\n", b"a b\r\n"])
def test_a_text_file_is_its_text_without_marks_and_its_last_newline(
    model: str, data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "a.txt").write_bytes(data)
    ids = {}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    for words in (["--text", "a b"], ["--text-file", str(file)], ["--text-file", "-"]):
        assert main(["compute", "token_loss", model, *words, "--json", "-"]) == 0
        ids[words[1]] = json.loads(capsys.readouterr().out)["subject"]["tokens"]
    assert ids["a b"] == ids[str(file)] == ids["-"]
    opened = api.open(model)
    corpus = opened.engine.read_text(opened.engine.store.open(opened.ref), TextRef(str(file)))
    assert tuple(corpus) == opened.tokens("a b", bos=False)


@pytest.mark.parametrize("name", sorted(analyses()))
def test_a_count_below_its_least_is_refused_wherever_it_comes_from(name: str, model: str) -> None:
    """By the command line's words and for a request that Python makes, before anything is computed."""
    subject = api.open(model).subject("ab")
    for field in describe(analyses()[name].params):
        if field.kind is not int or field.name in ("position", "destination", "token"):
            continue
        assert field.low is not None, f"{name}.{field.name} says no least value"
        with pytest.raises(UsageError, match=field.name):
            parse_params(analyses()[name].params, {field.name: str(int(field.low) - 1)})
        params = analyses()[name].params(**{field.name: int(field.low) - 1})
        with pytest.raises(BadInput, match=field.name):
            api.engine().answer(Request.named(name, params, subject))


@pytest.mark.parametrize("words", [["compute", "attention"], ["figure", "attention"], ["figure", "predictions"]])
def test_a_text_beyond_the_context_is_refused_for_that(
    model: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "a.png")] if words[0] == "figure" else []
    assert main([*words, model, "--text", "ab" * 5000, "--budget", "0.00001", *out]) == 3
    said = capsys.readouterr().err
    assert "context" in said and "48 tokens" in said and "10001" in said and not list(tmp_path.glob("*.png"))


@pytest.mark.parametrize("name", ["", " ", "file:", "a\0b"])
@pytest.mark.parametrize("words", [["info"], ["compute", "model_facts"], []])
def test_no_name_is_no_model_and_not_the_folder_that_one_stands_in(
    words: list[str], name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("circuitlab.launch.open_or_render", lambda source, *a, **k: str(reference(source)))
    assert main([*words, name]) == 2
    assert capsys.readouterr().err


def test_a_name_too_long_for_the_disk_is_said(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compute", "token_loss", model, "--tokens", "1,2", "--json", "x" * 300]) == 3
    assert "x" * 20 in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--heads", "L9H9"], "no such head"),
        (["--destination", "9"], "no such position"),
        (["--source", "9"], "no such position"),
        (["--source", "-1"], "no such position"),
        (["--target", "260"], "not in the vocabulary"),
        (["--target", "1-99999"], "not in the vocabulary"),
    ],
)
@pytest.mark.parametrize("panel", ["predictions", "heads"])
def test_a_figure_of_what_is_not_there_is_refused_by_every_panel(
    model: str, panel: str, words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by one that reads nothing of it: a figure is never of something else than was asked for."""
    assert main(["figure", panel, model, "--tokens", "1,2", *words, "-o", str(tmp_path / "a.png")]) == 3
    assert said in capsys.readouterr().err and not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["figure", "attention", "MODEL", "--destination", "2"],
        ["figure", "composition", "MODEL", "--source", "0"],
        ["compute", "token_loss", "MODEL", "--edit", "zero z L1H1 @3"],
        ["compute", "token_loss", "MODEL", "--edit", 'zero z L1H1 @"a"'],
    ],
    ids=" ".join,
)
def test_a_place_without_a_prompt_is_said_to_want_one(
    model: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = ["-o", str(tmp_path / "a.png")] if words[0] == "figure" else []
    assert main([model if word == "MODEL" else word for word in words] + written) == 3
    said = capsys.readouterr().err
    assert "there is no prompt" in said and "--text" in said and "0 to -1" not in said


def test_a_map_without_end_is_refused(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "large.toml").write_bytes(b"#" * (2**20 + 1))
    assert main(["import", model, "--map", str(tmp_path / "large.toml")]) == 2
    assert "too large" in capsys.readouterr().err
    with pytest.MonkeyPatch.context() as patched:  # a device says that it has no size, and goes on
        patched.setattr(Path, "open", lambda self, mode: io.BytesIO(b"#" * 2**21))
        assert read_at_most(Path("anything"), 2**20) is None
    (tmp_path / "none.toml").write_text("")
    assert main(["import", model, "--map", str(tmp_path / "none.toml")]) == 3
    said = capsys.readouterr().err
    assert "[config]" in said and "config.json" not in said


def test_memory_of_what_reads_no_prompt_is_not_blamed_on_one(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compute", "head_scores", model, "--set", "samples=100000000000"]) == 4
    said = capsys.readouterr().err
    assert "tokens" not in said and "prompt" not in said


def test_bytes_that_are_no_text_are_an_input_error(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compute", "token_loss", model, "--text", "a\udcff"]) == 3
    assert "Unicode" in capsys.readouterr().err


def test_a_mistyped_command_is_not_taken_for_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["comput", "attention", "x"]) == 2
    assert "compute" in capsys.readouterr().err


def test_tokens_stand_beside_their_ids(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compute", "token_loss", model, "--text", "a b"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1][:3] == ["position", "id", "token"]
    assert [line[2] for line in lines[2:6]] == ["<|bos|>", "a", "·", "b"]
    assert main(["compute", "attention", model, "--text", "a b", "--set", "heads=L0H0", "--csv", "-"]) == 0
    rows = list(csv.DictReader(line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")))
    texts = ["<|bos|>", "a", "·", "b"]
    assert len(rows) == 10
    for row in rows:
        assert row["destination token"] == texts[int(row["destination"])]
        assert row["source token"] == texts[int(row["source"])]


def test_a_fault_of_ours_is_one_line_and_a_traceback_in_the_log(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: object) -> int:
        raise RuntimeError("the reason")

    monkeypatch.setitem(commands.RUN, "info", fail)
    assert main(["info", model]) == 1
    said = capsys.readouterr().err
    assert "the reason" in said
    assert "Traceback" not in said
    assert str(log_file()) in said
    assert "Traceback" in log_file().read_text(encoding="utf-8")


def test_a_reader_that_goes_away_is_no_fault(model: str) -> None:
    words = [sys.executable, "-m", "circuitlab", "compute", "attention", model, "--text", "ab" * 20, "--csv", "-"]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": "."})
    assert started.stdout is not None
    started.stdout.close()
    assert started.stderr is not None
    said = started.stderr.read().decode()
    assert (started.wait(SECONDS), said) == (0, "")
    started.stderr.close()


# -- from Python -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(analyses()))
def test_every_analysis_runs_from_the_command_line_and_its_snippet_agrees(name: str, tmp_path: Path) -> None:
    model, out = str(directory(tmp_path / "m", n_ctx=128)), tmp_path / "a.npz"
    given = {"source": "0,98,98,98,98,98,98"} if name in ("patching", "path_patching") else {}  # another run to take from
    params = parse_params(analyses()[name].params, given)
    refused = analyses()[name].refuse(replace(TINY, n_ctx=128), params)
    words = ["--set", *(f"{k}={v}" for k, v in given.items())] if given else []
    assert main(["compute", name, model, "--text", "abcabc", *words, "--npz", str(out)]) == (3 if refused else 0)
    if refused:
        return
    result = np.load(out)
    request = Request.named(name, params, api.open(model).subject("abcabc"))
    space: dict[str, object] = {}
    exec(api.snippet(request).replace("print(", "str("), space)
    check_axes(space["answer"].result)  # type: ignore[attr-defined]
    arrays = space["answer"].result.arrays()  # type: ignore[attr-defined]
    about = json.loads(str(result["about"]))
    assert about["prompt"] == "abcabc" and about["tokens"] == ["<|bos|>", *"abcabc"] and about["axes"].keys() == arrays.keys()
    commands.print_answer(export_of(api.engine(), space["answer"]))  # type: ignore[arg-type]
    assert sorted([*arrays, *about["missing"].values(), "about"]) == sorted(result.files)
    for field, array in arrays.items():
        if array.dtype.kind == "U":
            np.testing.assert_array_equal(array, result[field])
        else:
            np.testing.assert_allclose(array, result[field], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(analyses()))
def test_what_is_computed_in_double_precision_is_kept_so(name: str, model: str) -> None:
    opened, params = api.open(model), analyses()[name].params()
    try:
        subject = opened.subject("abcabc", conventions=Conventions(dtype="float64"))
        arrays = opened.engine.answer(Request.named(name, params, subject)).result.arrays()
    except BadInput:
        return  # it asks for parameters, or for another model
    assert not [field for field, array in arrays.items() if array.dtype in (np.float32, np.complex64)]


def test_a_snippet_says_all_that_differs_and_nothing_private(model: str) -> None:
    edits = (Intervention("patch", Site("q", 1, (0,), (2,)), source=(4, 5, 6)), Intervention("scale", Site("z", 0), (0.5,)))
    subject = Subject(api.open(model).ref, (0, 4, 5), edits, Conventions(centre=False, dtype="float64"))
    for params in (AttentionParams((Head(1, 2), Head(0, 3)), "scores"), AttentionParams((Head(0, 1),))):
        request = Request.named("attention", params, subject)
        text = api.snippet(request)
        assert "._" not in text
        space: dict[str, object] = {}
        exec(text.replace("print(", "str("), space)
        assert space["answer"].request == request  # type: ignore[attr-defined]
    assert "{'k': 3}" in api.snippet(Request.named("predictions", PredictionsParams(k=3), subject))


def test_a_figure_from_python_is_the_one_of_the_command_line(model: str, tmp_path: Path) -> None:
    made = api.open(model).figure("attention", text="abab", heads="L1H2", destination=2, show="scores", out=tmp_path / "a.svg")
    assert made.figure.marks()
    words = ["figure", "attention", model, "--text", "abab", "--heads", "L1H2", "--destination", "2", "--set", "show=scores"]
    assert main([*words, "-o", str(tmp_path / "b.svg")]) == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    paper = api.Paper(width_mm=120, height_mm=90, font_pt=8, caption="full", ink="grey", text="fonts")
    plain = api.open(model).figure("overview", text="abab", out=tmp_path / "c.svg", paper=paper)
    assert not plain.figure.marks()[0].tiles.chosen  # type: ignore[union-attr]  # nobody has chosen a head
    words = ["--width", "120", "--height", "90", "--font", "8", "--caption", "full", "--ink", "grey", "--lettering", "fonts"]
    assert main(["figure", "overview", model, "--text", "abab", *words, "-o", str(tmp_path / "d.svg")]) == 0
    assert (tmp_path / "c.svg").read_bytes() == (tmp_path / "d.svg").read_bytes()
    with pytest.raises(UsageError):
        api.open(model).figure("attention", text="a", colour="red")
    with pytest.raises(BadInput):
        api.open(model).figure("attention", text="a", destination=9)


def test_several_answers_lie_in_a_zip_that_takes_nobodys_place(model: str, tmp_path: Path) -> None:
    opened = api.open(model)
    answers = {
        n: export_of(opened.engine, opened.compute("predictions", text="ab", set={"k": k})) for n, k in (("a", 2), ("b", 3))
    }
    assert write_answers(answers, tmp_path / "x.csv") == tmp_path / "x.csv.zip"
    with zipfile.ZipFile(tmp_path / "x.csv.zip") as made:
        assert {n: made.read(f"{n}.csv").decode() for n in answers} == {n: csv_text(a) for n, a in answers.items()}
    with pytest.raises(UsageError, match="already"):  # whoever asked for x.csv was not asked about the zip
        write_answers(answers, tmp_path / "x.csv")
    write_answers(answers, tmp_path / "x.csv.zip")
    assert write_answers({"a": answers["a"]}, tmp_path / "y.csv") == tmp_path / "y.csv"
    assert several_bytes(answers, "npz") == several_bytes(answers, "npz")


def test_saved_answers_carry_the_hash_of_the_weights(model: str, tmp_path: Path) -> None:
    opened = api.open(model, use=Engine(ModelStore()))
    answer = opened.compute("predictions", text="ab", k=2)
    api.save(answer, tmp_path / "a.json")
    assert len(json.loads((tmp_path / "a.json").read_text())["provenance"]["weights"]) == 64
    assert api.table(answer).splitlines()[0].startswith("rank\tid\ttoken\tprobability")


# -- the way to the other rooms --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ([], (None, None)),  # where one stopped
        (["open"], (None, None)),
        (["a/folder/here"], ("a/folder/here", None)),
        (["attn-only-2l", "--text", "a b"], ("attn-only-2l", "a b")),
        (["open", "a/folder/here", "--text", ""], ("a/folder/here", "")),
    ],
)
def test_without_a_command_the_window_opens(
    words: list[str], wanted: tuple[str | None, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str | None, str | None]] = []

    def opened(source: str | None, text: str | None, assume: tuple[tuple[str, str], ...], lesson: str) -> int:
        assert not assume and not lesson
        asked.append((source, text))
        return 0

    monkeypatch.setattr("circuitlab.launch.open_or_render", opened)
    assert main(words) == 0
    assert asked == [wanted]


def test_a_lesson_is_named_for_the_window_and_one_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("circuitlab.launch.open_or_render", lambda *_, lesson, **__: asked.append(lesson) or 0)
    assert main(["open", "attn-only-2l", "--lesson", "05-induction"]) == 0 and asked == ["05-induction"]
    assert main(["open", "--lesson", "nothing-of-the-kind"]) == 2 and len(asked) == 1
    assert "05-induction" in capsys.readouterr().err


def test_weights_alone_need_no_prompt(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compute", "model_facts", model]) == 0
    assert "d_model" in capsys.readouterr().out


@pytest.mark.parametrize(("analysis", "read"), [("theory_and_measurement", False), ("composition", False), ("token_loss", True)])
def test_interventions_that_are_not_read_are_neither_stated_nor_passed_over(
    tmp_path: Path, analysis: str, read: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    path = directory(tmp_path / "two", n_ctx=64)
    assert main(["compute", analysis, str(path), "--tokens", "0,5,6,5", "--cut", "L1H1", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert bool(json.loads(out)["subject"]["edits"]) == read == ("reads no interventions" not in err)


@pytest.mark.parametrize("analysis", sorted(analyses()))
def test_the_line_over_a_table_names_what_is_cut_exactly_where_it_is_read(
    tmp_path: Path, analysis: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compute", analysis, str(directory(tmp_path / "two", n_ctx=64)), "--tokens", "0,5,6,5", "--cut", "L1H1"]
    if main(words):
        assert capsys.readouterr().err  # refused, in words
        return
    out, err = capsys.readouterr()
    assert ("L1H1 zeroed" in out.splitlines()[0]) == ("reads no interventions" not in err)
