"""No error shows Python's own words for a value: parameters, API, command line and session files are walked with bad values."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import circuitlab.api as lab
from circuitlab.analysis.base import analyses
from circuitlab.cli.parser import main
from circuitlab.engine.codec import describe, params_of, parse_params
from circuitlab.errors import CircuitLabError, cause, quoted, stated
from circuitlab.figures.contracts.panel import panels
from circuitlab.model.subject import Head
from circuitlab.report.saved_session import inline_session, opened_session
from circuitlab.story.words_reading import KEYS
from tests.models import directory

HALF = "\ud800"  # of a pair of surrogates: a text that no file and no screen takes
OF_PYTHON = re.compile(
    r"<(class|function|built-in|bound)|object at 0x|\b[A-Z]\w+\(\w+=|\b(Posix|Windows)Path|\b(array|tensor|Head)\(|dtype="
    r"|typing\.|NoneType|\b(None|True|False|Ellipsis)\b|codec can|surrogates not|invalid literal|Error\b|Errno|set_int_max"
    r"|\bone of 0\b|expected: *\n|got: *\n"
)


class Odd:
    """Something that no parameter takes."""


@dataclass
class Part:
    size: int
    name: str


TEXTS = ["", " ", HALF, "nan", "1e999", "9" * 5000, "L99H99", "a,b", ",", "[]", "\0", "x" * 5000, "no/such/file", "1.5", "0-0"]
VALUES: list[Any] = [
    *(None, True, [], [[]], {}, {"a": 1}, set(), object(), Odd, Odd(), print, lambda: 1, b"\xff", 1 + 2j, ..., slice(1, 2)),
    *(HALF, [HALF], float("nan"), [float("inf")], 2**70, 10**5000, -(10**5000), Path("x"), Part(1, "x"), range(10**6)),
    *(np.array([1.5]), np.array(["a"]), np.float32(1.5), torch.tensor([1.5]), torch.tensor(3.0), [torch.tensor(3.0)]),
]


def _wrong_words(error: CircuitLabError) -> str:
    """The whole error where it shows what it should not, or lacks something."""
    text = str(error)
    return text if OF_PYTHON.search(f"{text}\n") or not (error.expected and error.got and error.remedy) else ""


@pytest.mark.parametrize("name", [*analyses(), *panels()])
def test_every_parameter_says_in_words_what_came(name: str) -> None:
    kind = analyses()[name].params if name in analyses() else panels()[name].view
    wrong = dict[str, str]()
    for field in describe(kind):
        for read, values in ((parse_params, TEXTS), (params_of, [*TEXTS, *VALUES])):
            for i, value in enumerate(values):
                try:
                    read(kind, {field.name: value})
                except CircuitLabError as error:
                    if words := _wrong_words(error):
                        wrong[f"{field.name} {read.__name__} {i}"] = words
    assert not wrong


WORDS: list[Any] = [
    *(None, "", HALF, " ", 0, -1, 10**30, 1.5, True, [], [[]], [None], [HALF], {}, {"a": 1}, {"text": HALF}, [1, 2, 3], ["L0H0"]),
    *(
        {"text": " x", "occurrence": 3},
        {"text": "", "occurrence": 0},
        {"index": 10**9},
        {"block": 10**9, "repeats": 1, "seed": 0},
    ),
    *("L99H99", "best nothing", "x" * 10**5, ["final", 0], {"offset": [1]}, {"alpha": ["a", "b"]}, [{}], {"attention": None}),
    *(
        [{"op": "zero", "site": "z", "layer": 99}],
        [{"op": HALF, "site": "z", "layer": 0}],
        {"whole": True, "pin": {"whole": True}},
    ),
    *({"direction": ["x"]}, {"dtype": "float99"}, {HALF: {}}, [["L0H0"], "L0H0"], {"tokens": [1, 2], "label": HALF}),
]


def test_every_word_of_a_session_says_in_words_what_came(tmp_path: Path) -> None:
    model = lab.open(str(directory(tmp_path / "m")))
    session = json.loads(inline_session(model.state(tokens=[1, 2, 3, 1]), model.engine.store))
    wrong = dict[str, str]()
    for place in [*((key,) for key in session), *(("now", key) for key in KEYS), ("models", "m"), ("models", "m", "path")]:
        for i, value in enumerate(WORDS):
            table: Any = copy.deepcopy(session)
            inner = table
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            for prompt in {"text", "random"} & set(place):
                inner.pop("tokens")
                assert prompt
            try:
                _ = opened_session(json.dumps(table), model.engine).now.state
            except CircuitLabError as error:
                if words := _wrong_words(error):
                    wrong[f"{' '.join(place)} {i}"] = words
    assert not wrong


@pytest.mark.parametrize(
    "words",
    [
        ["compute", HALF, "M"],
        ["compute", "token_loss", HALF, "--tokens", "1"],
        ["compute", "token_loss", "M", "--text", HALF],
        ["compute", "token_loss", "M", "--tokens", HALF],
        ["compute", "token_loss", "M", "--tokens", "1", "--set", f"{HALF}=1"],
        ["compute", "token_loss", "M", "--tokens", "1", "--cut", HALF],
        ["compute", "token_loss", "M", "--tokens", "1", "--checkpoint", HALF],
        ["compute", "token_loss", "M", "--tokens", "1", "--csv", HALF],
        ["compute", "token_loss", "M", "--text-file", HALF],
        ["compute", "token_loss", "M", "--tokens", "1", "--assume", f"{HALF}=1"],
        ["compute", "token_loss", "--at", HALF],
        ["compute", "token_loss", "--at", "{" + HALF],
        ["figure", HALF, "M", "-o", "a.svg"],
        ["figure", "attention", "M", "-o", f"{HALF}.svg"],
        ["figure", "attention", "M", "--tokens", "1,2", "--target", HALF, "-o", "a.svg"],
        ["film", f"{HALF}.circuitlab#1", "-o", "a.gif"],
        ["film", "a.circuitlab", "-o", f"{HALF}.gif"],
        ["report", f"{HALF}.circuitlab", "-o", "a.html"],
        ["sheet", f"a.circuitlab#{HALF}", "-o", "a.pdf"],
        ["sheet", f"{HALF}", "-o", f"{HALF}/"],
        ["session", f"{HALF}.circuitlab"],
        ["session", f"{HALF}.md", "-o", "a.circuitlab"],
        ["session", "a.md", "-o", f"{HALF}.circuitlab"],
        ["info", HALF],
        ["get", HALF],
        ["get", "tiny", "--from", HALF],
        ["import", HALF, "--map", HALF],
        ["train", HALF, "--text", HALF, "--out", HALF],
        ["train", "tiny", "--text", HALF, "--out", "out"],
        ["measure", HALF, "--text", HALF],
        ["lessons", HALF],
        ["present", f"{HALF}.circuitlab"],
        ["open", f"{HALF}.circuitlab"],
        [HALF],
    ],
)
def test_bytes_of_the_command_line_that_are_no_text(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(directory(tmp_path / "m"))
    monkeypatch.chdir(tmp_path)
    assert main([model if word == "M" else word for word in words]) in (2, 3)
    output = capsys.readouterr()
    assert not OF_PYTHON.search(output.err) and "do:" in output.err and not output.out
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "none"),
        (True, "true"),
        ("a\n", "'a\\n'"),
        (Path("a"), "'a'"),
        (float("nan"), "nan"),
        ([1, None, "x"], "[1, none, 'x']"),
        ({"a": True}, "{'a': true}"),
        (Odd, "the class Odd"),
        (Odd(), "an object of the class Odd"),
        (print, "a function"),
        (np.zeros((2, 3)), "an array of 2 × 3"),
        (np.float32(1.5), "1.5"),
        (b"\0\1", "2 bytes"),
        (Head(1, 2), "L1H2"),
        (Part(1, "x"), "size 1, name 'x'"),
        (Odd.__str__, "a function"),
    ],
)
def test_a_value_in_words(value: object, words: str) -> None:
    assert quoted(value) == words


def test_a_number_that_python_does_not_write_out() -> None:
    assert quoted(-(10**5000)) == "a whole number of more digits than fit here"


def test_no_value_is_too_large_or_too_deep_to_be_said() -> None:
    deep: list[Any] = []
    deep.append(deep)
    for value in (deep, ["x" * 1000] * 1000, {str(i): i for i in range(10**5)}, "x" * 10**7):
        assert 0 < len(quoted(value)) <= 80
    assert stated(" ") == "' '" and stated("two heads") == "two heads" and stated([None]) == "[none]"


def test_failures_of_the_system_in_its_words_alone() -> None:
    with pytest.raises(OSError, match="No such") as missing:
        open("/no/such/file")  # noqa: SIM115
    assert cause(missing.value) == "No such file or directory"
    assert "UTF-8" in cause(UnicodeEncodeError("utf-8", HALF, 0, 1, "surrogates not allowed"))
    assert "place 1" in cause(UnicodeDecodeError("utf-8", b"a\xff", 1, 2, "invalid"))
    assert cause(ValueError("one\ntwo")) == "one" and cause(KeyError()) == "KeyError"
