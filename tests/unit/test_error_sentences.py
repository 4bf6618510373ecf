"""What errors say, read at the places that raise them: sentences of English, none of which begins with a name of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import circuitlab
from circuitlab import errors
from circuitlab.analysis.base import TextRef, analyses, find_analysis
from circuitlab.analysis.behaviour.over_prompts import OverPromptsParams
from circuitlab.errors import CircuitLabError, Refused
from tests.models import TINY

SOURCE = Path(circuitlab.__file__).parent
KINDS = {n for n, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, CircuitLabError)}
KINDS -= {"Refused"}  # puts the capital letter there itself
FILES = re.compile(
    r"[\w.]*\.(json|txt|safetensors)\b|\{(FILE|ORIGIN|ABOUT|\w*\.?\w*\.name|what\.name|name\.repo|name|shown\(.*\)|file|meter\.file)\}"
)
OTHERS = re.compile(
    r"\{(ModelRef\(source\)\.name|model\.ref\.name|ref\.name|stream\.label|source\.label|kind|source|what|where|p\.earlier|reason\(.*\))\}"
)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else f"{{{ast.unparse(v.value)}}}" for v in node.values)  # type: ignore[attr-defined]
    return str(node.value) if isinstance(node, ast.Constant) else ""


@cache
def _sentences() -> tuple[tuple[str, str], ...]:
    """(place, what happened) of every error that is raised with words of its own."""

    def found() -> Iterator[tuple[str, str]]:
        for path in sorted(SOURCE.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS
                if named and node.args and (text := _text(node.args[0])):  # type: ignore[attr-defined]
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}", text  # type: ignore[attr-defined]

    return tuple(found())


def test_sentences_begin_as_sentences() -> None:
    wrong = [
        f"{place} {text}"
        for place, text in _sentences()
        if not (text[0].isupper() or text[0] in "“‘" or FILES.match(text) or OTHERS.match(text))
    ]
    assert len(_sentences()) > 300
    assert not wrong, wrong


def test_what_something_is_not_is_said_with_not() -> None:
    """“is no checkpoint” is another language's English; “there is no such head” is not meant."""
    assert not [
        f"{place} {text}" for place, text in _sentences() if re.search(r"(?<![Tt]here )\bis no (?!longer|such)[a-z]", text)
    ]


# what is raised in these has its remedy from a door that everything of theirs passes: `advising`, or errors of a story's words
DOORS = {
    "model/config.py": "model.loading.family.open_model",
    "model/files/": "model.loading.family.open_model",
    "model/lazy_weights.py": "model.loading.family.open_model",
    "model/loading/": "model.loading.family.open_model",
    "model/importing/by_map.py": "model.importing.by_map.read_map",
    "training/recipe_checks.py": "training.recipe_file.read_recipe",
    "training/recipe_file.py": "training.recipe_file.read_recipe",
    "engine/codec.py": "engine.codec.parse_params",
    "model/plain.py": "engine.codec.parse_params",
    "model/whole_numbers.py": "engine.codec.parse_params",
    "session_files/session_text.py": "session_files.session_text.parse_session",
    "story/words_reading.py": "lessons.lesson.parse",
    "sweep/spec.py": "sweep.spec.spec_of",
}


@cache
def _without_remedy() -> tuple[str, ...]:
    return tuple(_places_without_remedy())


def _places_without_remedy() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS - {"Cancelled"}
            if not named or not node.args or {None, "remedy"} & {k.arg for k in node.keywords}:  # type: ignore[attr-defined]
                continue
            if node.func.id not in ("BadFigure", "TooLong"):  # type: ignore[attr-defined]  # a fault of ours; says itself
                yield f"{place}:{node.lineno}"  # type: ignore[attr-defined]


def test_every_error_says_what_to_do() -> None:
    """At the place that raises it, or at a door that all errors of that room pass."""
    missing = [place for place in _without_remedy() if not place.startswith(tuple(DOORS))]
    assert not missing, missing
    unused = [room for room in DOORS if not any(place.startswith(room) for place in _without_remedy())]
    assert not unused, "a door for nothing"


def test_what_came_is_never_written_by_python() -> None:
    """`errors.quoted` shows a value, `errors.cause` a failure."""
    wrong = re.compile(r"got=(repr\(|str\(error\)|f?\"?\{?type\(error\))")
    files = {path: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    assert not [path.name for path, text in files.items() if wrong.search(text)]


@pytest.mark.parametrize("name", sorted(analyses()))
def test_refusals_capitalise_no_identifier(name: str) -> None:
    """The name of an analysis is written as it is typed."""
    asked = OverPromptsParams(file=TextRef("prompts.tsv", "0" * 64), analysis=name)
    reason = find_analysis("over_prompts").refuse(TINY, asked)
    assert reason is None or not Refused(reason).what.startswith(name.capitalize())
