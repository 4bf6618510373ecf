"""What the README shows is what the program takes: every command parses, every file it names is there, the script runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from circuitlab.analysis.base import analyses, find_analysis
from circuitlab.cli.parser import _parser, _with_command
from circuitlab.disk import paths
from circuitlab.engine.codec import parse_params
from circuitlab.story.text_in_parameters import with_numbers

README = Path(paths.__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
COMMANDS = [
    shlex.split(line, comments=True)[1:] for _, block in BLOCKS for line in block.splitlines() if line.startswith("circuitlab ")
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_parses_and_its_parameters_are_there(words: list[str]) -> None:
    args = _parser().parse_args(_with_command(words))
    if args.command == "compute":
        assert args.analysis in analyses()
        params = find_analysis(args.analysis).params
        parse_params(params, with_numbers(params, dict(item.split("=", 1) for item in args.set), None))
    for word in words:
        shipped = word.partition("=")[2] or word
        if shipped.startswith(("models/", "resources/")):
            assert (README.parent / shipped).exists(), shipped


def test_there_are_commands_and_pictures() -> None:
    assert len(COMMANDS) > 20 and {words[0] for words in COMMANDS} >= {"train", "measure", "compute", "figure"}
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / picture).is_file(), picture


def test_the_script_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (script,) = (block for language, block in BLOCKS if language == "python")
    exec(compile(script, str(README), "exec"), {})
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines() if not line.startswith(" ")] == ["0", "4000", "None"]
    assert (tmp_path / "attention.svg").read_text(encoding="utf-8").startswith("<?xml")
