"""The lesson format: Markdown files that set up the window step by step and explain it. One file is one lesson.

    +++
    title = "Zero layers: bigrams"
    about = "one line for the list"    # optional, as are the next two; the shipped lessons have it and their minutes
    minutes = 6
    tiny = "attention-only"        # the configuration that stands in for its models in the fast test
    +++

    An opening paragraph; it belongs to the first step.

    ## Title of a step

    ```circuitlab
    …TOML: what the step sets, see `story/words`…
    ```

    Paragraphs. `{name}` stands for a value that the block declares under [values.name] (see `story/values`), or for one of
    {model} {step} {head} {heads} {destination} {source} {token} {n_tokens} {pin}. Links may point into the window:
    [attention](panel:attention), [L1H1](head:L1H1), [step 4000](checkpoint:4000), [the next lesson](lesson:02-one-layer).

The block comes directly after its heading; a step without one is text only and changes nothing. A fence ```` ```aside ```` holds
the speaker's own note. A person's own model, and a file in the settings of a panel, is named by its path from the lesson's file:
`./mine`, `../names.tsv`. `[exactly]` in a block has `title`, `text` or `aside` word for word where Markdown would change them,
and `words = false` in a step that has values and changes nothing; `writing` makes such text from a story.

`lessons()` lists the shipped lessons in `resources/lessons` and the user's own in `lessons` of the settings folder, sorted by
name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path

from circuitlab.counting import number_of
from circuitlab.disk.files import read_at_most
from circuitlab.disk.json_types import JsonDict
from circuitlab.disk.paths import config_home, resource
from circuitlab.disk.regular_file import Stamp, stamp_of
from circuitlab.disk.toml_reading import toml_of
from circuitlab.errors import BadInput, cause, quoted, stated
from circuitlab.story.places import real_folder, with_absolute_models
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from circuitlab.story.values import read_value
from circuitlab.story.words import Refuse, read_setup

SUFFIX = ".md"
LARGEST = 2**20  # bytes of a lesson's file
EXACTLY = "exactly"
_REMEDY = "Correct that line; `circuitlab lessons --check FILE` lists all that is wrong."
_CUT = "Cut it into several lessons."
_SAVE = "Check the path and its permissions, and save the file as UTF-8."
_FRONT = {"title": str, "about": str, "minutes": int, "tiny": str}
_TOML_LINE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")

ErrorAt = Callable[[int, str, str, str], BadInput]  # the error to raise, of (line of the file, what, expected, got)


@dataclass(frozen=True)
class Lesson(Story):
    """A story in a file. `name`: the file's name without `.md`."""

    name: str = ""
    path: Path = Path()

    @property
    def story(self) -> Story:
        """The story alone, of no file."""
        return Story(**{f.name: getattr(self, f.name) for f in fields(Story)})


def parse(text: str, path: Path) -> Lesson:
    """The lesson in a file's text. Raises `BadInput` with file, line, what is expected and what is there."""

    def error_at(line: int, what: str, expected: str, got: str) -> BadInput:
        return BadInput(f"{path.name}, line {line}: {what}", expected=expected, got=got[:120] or "an empty line", remedy=_REMEDY)

    lines = text.removeprefix("\ufeff").split("\n")
    front, at = _front(lines, error_at)
    steps = tuple(_steps(lines, at, error_at))
    if not steps:
        raise error_at(len(lines), "The lesson has no step.", "a heading: ## Title of a step", "none")
    return Lesson(front["title"], steps, **{n: v for n, v in front.items() if n != "title"}, name=path.stem, path=path)


def read(path: Path) -> Lesson:
    """The lesson in a file, its models' relative paths made absolute; parsed once as long as the file does not change.

    Raises `BadInput` if it cannot be read.
    """
    try:
        return _parsed(path, stamp_of(path.stat()))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path.name} cannot be read.", expected="a UTF-8 file", got=cause(error), remedy=_SAVE) from error


@lru_cache(maxsize=256)
def _parsed(path: Path, stamp: Stamp) -> Lesson:
    data = read_at_most(path, LARGEST)
    if data is None:
        got = number_of(stamp[0], "byte") if stamp[0] > LARGEST else "more"  # of a device, which says no size
        raise BadInput(f"{path.name} is too large.", expected=f"at most {LARGEST} bytes", got=got, remedy=_CUT)
    lesson = parse(data.decode("utf-8-sig").replace("\r\n", "\n"), path)
    return with_absolute_models(lesson, real_folder(path))


def titles() -> tuple[tuple[str, str], ...]:
    """(name, title) of every lesson with front matter. Steps are not parsed: twelve lessons take 2 ms instead of 50."""
    return tuple((path.stem, title) for path in files() if (title := _title(path)))


def _title(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            front = file.read(2**12).removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        refuse = lambda line, what, expected, got: BadInput(what, expected=expected, got=got, remedy=_REMEDY)
        return str(_front(front, refuse)[0]["title"])
    except (OSError, UnicodeDecodeError, BadInput):
        return ""  # the list of lessons shows the error


def files() -> tuple[Path, ...]:
    """The files of all lessons, sorted by name: the shipped ones, then the user's own."""
    places = (resource("lessons"), config_home() / "lessons")
    return tuple(path for place in places if place.is_dir() for path in sorted(place.glob("*.md")) if path.name != "README.md")


def lessons() -> tuple[tuple[Lesson, ...], tuple[BadInput, ...]]:
    """(lessons that can be read, errors of the others)."""
    readable: list[Lesson] = []
    failed: list[BadInput] = []
    for path in files():
        try:
            readable.append(read(path))
        except BadInput as error:
            failed.append(error)
    return tuple(readable), tuple(failed)


def _front(lines: list[str], error_at: ErrorAt) -> tuple[JsonDict, int]:
    """(the front matter between the two `+++`, the line after it)."""
    if lines[0].strip() != "+++":
        raise error_at(1, "The front matter is missing.", "+++ in the first line, then the title", lines[0])
    end = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == "+++"), None)
    if end is None:
        raise error_at(1, "The front matter does not end.", "a second +++", "none")
    front = _toml(lines[1:end], 2, error_at)
    for name, kind in _FRONT.items():
        if name in front and type(front[name]) is not kind:
            raise error_at(1, f"{name} cannot be read.", kind.__name__, quoted(front[name]))
    if "title" not in front:
        raise error_at(1, "The front matter lacks something.", "title", "no title")
    if front.get("minutes", 0) < 0:
        raise error_at(1, "minutes cannot be read.", "0 or more", str(front["minutes"]))
    if unknown := sorted(set(front) - set(_FRONT)):
        raise error_at(1, "The front matter has unknown keys.", " ".join(_FRONT), " ".join(unknown))
    return front, end + 1


def _toml(lines: list[str], first: int, error_at: ErrorAt) -> JsonDict:
    """Parsed TOML; errors name lines of the whole file, `first` being the number of its first line."""
    try:
        return toml_of("\n".join(lines))
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        match = _TOML_LINE.search(str(error))
        inside = int(match[1]) if match and match[1] else len(lines) if match else 1
        line = first + inside - 1
        raise error_at(line, "This is not TOML.", "key = value", cause(error)) from error


def _steps(lines: list[str], start: int, error_at: ErrorAt) -> list[Step]:
    """The steps in order; text before the first heading is put before the first step's text."""
    headings = [i for i in _outside_fences(lines, start) if lines[i].startswith("## ")]
    if not headings:
        return []
    opening = "\n".join(lines[start : headings[0]]).strip()
    if "```circuitlab" in opening:
        raise error_at(start + 1, "A block comes before the first step.", "a block after a ## heading", "a block")
    steps = []
    for at, end in zip(headings, [*headings[1:], len(lines)], strict=True):
        step = _step(lines, at, end, error_at)
        if opening:
            step = replace(step, text=f"{opening}\n\n{step.text}")
            opening = ""
        steps.append(step)
    return steps


def _outside_fences(lines: list[str], start: int) -> list[int]:
    """Indices of the lines that are not inside a fenced block."""
    outside, inside = [], False
    for i in range(start, len(lines)):
        if lines[i].startswith("```"):
            inside = not inside
        elif not inside:
            outside.append(i)
    return outside


def _fences(lines: list[str], start: int, end: int) -> Iterator[tuple[int, int | None]]:
    """(first line, last line) of each fenced block, None for one that does not end."""
    first: int | None = None
    for i in range(start, end):
        if lines[i].startswith("```") and first is None:
            first = i
        elif lines[i].startswith("```") and first is not None:
            yield first, i
            first = None
    if first is not None:
        yield first, None


def _step(lines: list[str], at: int, end: int, error_at: ErrorAt) -> Step:
    fences = [i for i in range(at + 1, end) if lines[i].strip() == "```circuitlab"]
    step = Step(lines[at].removeprefix("## ").strip(), line=at + 1)
    if not fences:
        return _with_text(step, lines, at + 1, end, error_at)
    if len(fences) > 1 or "\n".join(lines[at + 1 : fences[0]]).strip():
        raise error_at(fences[-1] + 1, "A step has one block, directly after its heading.", "## heading, block, text", step.title)
    close = next((i for i in range(fences[0] + 1, end) if lines[i].strip() == "```"), None)
    if close is None:
        raise error_at(fences[0] + 1, "The block does not end.", "``` on a line of its own", "none")
    block = lines[fences[0] + 1 : close]
    block_table = _toml(block, fences[0] + 2, error_at)

    def refuse(key: str, what: str, expected: str, got: object) -> BadInput:
        line = next((i for i, line in enumerate(block) if re.match(rf"\s*\[?[\w.]*\b{re.escape(key)}\b", line)), -1)
        return error_at(fences[0] + 2 + line, what, expected, stated(got))

    values, exact = block_table.pop("values", {}), block_table.pop(EXACTLY, {})
    if not isinstance(values, dict):
        raise refuse("values", "values cannot be read.", "[values.name] tables", values)
    parsed_values = tuple(read_value(name, table, refuse) for name, table in values.items())
    step = replace(step, setup=read_setup(block_table, refuse), values=parsed_values)
    return _with_exact(_with_text(step, lines, close + 1, end, error_at), exact, refuse)


def _with_text(step: Step, lines: list[str], start: int, end: int, error_at: ErrorAt) -> Step:
    """The step with the text of these lines, without the fence of its aside."""
    asides = [fence for fence in _fences(lines, start, end) if lines[fence[0]].rstrip() == "```aside"]
    if not asides:
        return replace(step, text="\n".join(lines[start:end]).strip())
    first, close = asides[0]
    if close is None or lines[close].strip() != "```":
        raise error_at(first + 1, "The aside does not end.", "``` on a line of its own", "none")
    if len(asides) > 1:
        raise error_at(asides[1][0] + 1, "A step has one aside.", "one ```aside", str(len(asides)))
    parts = ("\n".join(part).strip() for part in (lines[start:first], lines[close + 1 : end]))
    text = "\n\n".join(part for part in parts if part)
    return replace(step, text=text, aside="\n".join(lines[first + 1 : close]).strip())


def _with_exact(step: Step, words: object, refuse: Refuse) -> Step:
    """The step with the words of `[exactly]`."""
    kinds = {"title": str, "text": str, "aside": str, "words": bool}
    if not isinstance(words, dict) or any(type(value) is not kinds.get(name) for name, value in words.items()):
        raise refuse(EXACTLY, f"[{EXACTLY}] cannot be read.", "title, text or aside, as texts; words = false", words)
    if words.get("words", True):
        return replace(step, **{name: value for name, value in words.items() if name != "words"})
    if step.setup != Setup():
        raise refuse(EXACTLY, "A step without words has words.", "no words beside words = false", "words")
    return replace(step, **{name: value for name, value in words.items() if name != "words"}, setup=None)
