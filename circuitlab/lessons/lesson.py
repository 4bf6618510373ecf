"""Lessons: Markdown files that set the bench, step by step, and say what to look at. One file is one lesson.

    +++
    title = "Zero layers: bigrams"
    about = "one line for the list"
    minutes = 6
    tiny = "attention-only"        # optional: the configuration that stands in for its models in the fast test
    +++

    An opening paragraph; it belongs to the first step.

    ## Title of a step

    ```circuitlab
    …TOML: what the step sets, see `lesson_step`…
    ```

    Paragraphs. `{name}` stands for a value that the block declares under [values.name] (see `lesson_values`), or for one of
    {model} {step} {head} {heads} {destination} {source} {token} {n_tokens} {pin}. Links may point into the window:
    [attention](panel:attention), [L1H1](head:L1H1), [step 4000](checkpoint:4000), [the next lesson](lesson:02-one-layer).

The block comes right behind its heading; without one a step only talks, and leaves the bench as it is. `lessons()` lists what is
shipped in `resources/lessons` and what a person has put into `lessons` of the settings' folder, in the order of their names.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from circuitlab.errors import BadInput
from circuitlab.lessons.step import Setup, read_setup
from circuitlab.lessons.values import Value, read_value
from circuitlab.paths import config_home, resource

LARGEST = 2**20  # bytes: a file that is larger is no lesson
_FRONT = {"title": str, "about": str, "minutes": int, "tiny": str}
_TOML_LINE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")

Wrong = Callable[[int, str, str, str], BadInput]  # (line of the file, what, expected, got)


@dataclass(frozen=True)
class Step:
    """One step: its title, its Markdown, what it sets (None: it only talks), its values by name, its line in the file."""

    title: str
    text: str
    setup: Setup | None
    values: tuple[Value, ...]
    line: int


@dataclass(frozen=True)
class Lesson:
    """A lesson. `name` is its file's name without `.md`; `tiny` names a configuration for tests."""

    name: str
    title: str
    about: str
    minutes: int
    steps: tuple[Step, ...]
    path: Path
    tiny: str = ""

    def setup(self, step: int) -> Setup:
        """All that holds at a step: what it says, over what the steps before it have said."""
        made = Setup()
        for one in self.steps[: step + 1]:
            made = made if one.setup is None else one.setup.over(made)
        return made


def parse(text: str, path: Path) -> Lesson:
    """The lesson of a file's text. Raises `BadInput` with file, line, what was expected and what came."""

    def wrong(line: int, what: str, expected: str, got: str) -> BadInput:
        return BadInput(f"{path.name}, line {line}: {what}", expected=expected, got=got[:120])

    lines = text.removeprefix("\ufeff").split("\n")
    front, at = _front(lines, wrong)
    steps = tuple(_steps(lines, at, wrong))
    if not steps:
        raise wrong(len(lines), "The lesson has no step.", "a heading: ## Title of a step", "none")
    return Lesson(path.stem, front["title"], front["about"], front["minutes"], steps, path, front.get("tiny", ""))


def read(path: Path) -> Lesson:
    """The lesson of a file, parsed once for as long as the file stays as it is. Raises `BadInput` where it cannot be read."""
    try:
        found = path.stat()
        if found.st_size > LARGEST:
            raise BadInput(f"{path.name} is too large.", expected=f"at most {LARGEST} bytes", got=str(found.st_size))
        return _parsed(path, found.st_mtime_ns, found.st_size)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path.name} cannot be read.", expected="a UTF-8 file", got=str(error)[:200]) from error


@lru_cache(maxsize=256)
def _parsed(path: Path, changed: int, size: int) -> Lesson:
    return parse(path.read_text(encoding="utf-8-sig").replace("\r\n", "\n"), path)


def titles() -> tuple[tuple[str, str], ...]:
    """(name, title) of every file with front matter. Its steps are not read: twelve lessons are 50 ms of TOML, this is 2."""
    return tuple((path.stem, title) for path in files() if (title := _title(path)))


def _title(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            front = file.read(2**12).removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        return str(_front(front, lambda line, what, expected, got: BadInput(what, expected=expected, got=got))[0]["title"])
    except (OSError, UnicodeDecodeError, BadInput):
        return ""  # the list of lessons says what is wrong with it


def files() -> tuple[Path, ...]:
    """The files of all lessons: the shipped ones in the order of their names, then the person's own."""
    places = (resource("lessons"), config_home() / "lessons")
    return tuple(path for place in places if place.is_dir() for path in sorted(place.glob("*.md")) if path.name != "README.md")


def lessons() -> tuple[tuple[Lesson, ...], tuple[BadInput, ...]]:
    """All lessons that can be read, and why the others cannot."""
    found: list[Lesson] = []
    failed: list[BadInput] = []
    for path in files():
        try:
            found.append(read(path))
        except BadInput as error:
            failed.append(error)
    return tuple(found), tuple(failed)


def _front(lines: list[str], wrong: Wrong) -> tuple[dict[str, Any], int]:
    """What stands between the two `+++`, and the line behind them."""
    if lines[0].strip() != "+++":
        raise wrong(1, "The front matter is missing.", "+++ in the first line, then title, about, minutes", lines[0])
    end = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == "+++"), None)
    if end is None:
        raise wrong(1, "The front matter does not end.", "a second +++", "none")
    front = _toml(lines[1:end], 2, wrong)
    for name, kind in _FRONT.items():
        if name in front and type(front[name]) is not kind:
            raise wrong(1, f"{name} cannot be read.", kind.__name__, repr(front[name]))
    if missing := [n for n in ("title", "about", "minutes") if not front.get(n)]:
        raise wrong(1, "The front matter lacks something.", "title, about and minutes", f"no {' '.join(missing)}")
    if unknown := sorted(set(front) - set(_FRONT)):
        raise wrong(1, "The front matter says something that is not known.", " ".join(_FRONT), " ".join(unknown))
    return front, end + 1


def _toml(lines: list[str], first: int, wrong: Wrong) -> dict[str, Any]:
    """TOML whose errors name lines of the whole file; `first` is the number of its first line."""
    try:
        return tomllib.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        match = _TOML_LINE.search(str(error))
        inside = int(match[1]) if match and match[1] else len(lines) if match else 1
        line = first + inside - 1
        raise wrong(line, "This is no TOML.", "key = value", str(error)) from error


def _steps(lines: list[str], start: int, wrong: Wrong) -> list[Step]:
    """Steps in their order; what stands before the first heading is put before the first step's text."""
    headings = [i for i in _outside_fences(lines, start) if lines[i].startswith("## ")]
    if not headings:
        return []
    opening = "\n".join(lines[start : headings[0]]).strip()
    if "```circuitlab" in opening:
        raise wrong(start + 1, "A block stands before the first step.", "a block behind a ## heading", "a block")
    steps = []
    for at, end in zip(headings, [*headings[1:], len(lines)], strict=True):
        step = _step(lines, at, end, wrong)
        if opening:
            step = Step(step.title, f"{opening}\n\n{step.text}", step.setup, step.values, step.line)
            opening = ""
        steps.append(step)
    return steps


def _outside_fences(lines: list[str], start: int) -> list[int]:
    """The lines that are not inside a fenced block."""
    found, inside = [], False
    for i in range(start, len(lines)):
        if lines[i].startswith("```"):
            inside = not inside
        elif not inside:
            found.append(i)
    return found


def _step(lines: list[str], at: int, end: int, wrong: Wrong) -> Step:
    fences = [i for i in range(at + 1, end) if lines[i].strip() == "```circuitlab"]
    title = lines[at].removeprefix("## ").strip()
    if not fences:
        return Step(title, "\n".join(lines[at + 1 : end]).strip(), None, (), at + 1)
    if len(fences) > 1 or "\n".join(lines[at + 1 : fences[0]]).strip():
        raise wrong(fences[-1] + 1, "A step has one block, right behind its heading.", "## heading, block, text", title)
    close = next((i for i in range(fences[0] + 1, end) if lines[i].strip() == "```"), None)
    if close is None:
        raise wrong(fences[0] + 1, "The block does not end.", "``` on a line of its own", "none")
    block = lines[fences[0] + 1 : close]
    said = _toml(block, fences[0] + 2, wrong)

    def refuse(key: str, what: str, expected: str, got: object) -> BadInput:
        line = next((i for i, line in enumerate(block) if re.match(rf"\s*\[?[\w.]*\b{re.escape(key)}\b", line)), -1)
        return wrong(fences[0] + 2 + line, what, expected, str(got))

    values = said.pop("values", {})
    if not isinstance(values, dict):
        raise refuse("values", "values cannot be read.", "[values.name] tables", values)
    made = tuple(read_value(name, table, refuse) for name, table in values.items())
    return Step(title, "\n".join(lines[close + 1 : end]).strip(), read_setup(said, refuse), made, at + 1)
