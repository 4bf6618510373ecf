"""Texts of strangers that are no models: lessons, recipes, import maps, prompt sets, vocabularies, what is printed of a session.

    python -m tests.fuzz.texts [--count 200] [--seed 0] [--kind lessons]

Each file is read in a child of its own, with a limit on its memory and one on its steps: the calls of functions, counted and
never timed, so that a slow machine says the same as a fast one. What is not Python's (a regular expression) has no steps; a child
that never comes back is ended by the system after minutes of processor time, and counts as failed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import resource
import sys
import tempfile
import traceback
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from circuitlab.disk.paths import resource as shipped
from circuitlab.errors import CircuitLabError
from tests.fuzz.byte_mutators import BYTES
from tests.fuzz.place_mutators import PLACES
from tests.fuzz.vocabularies import VOCABULARIES
from tests.fuzz.worker import _forget_peak, _status

ROOM = 2**29  # bytes more than the child has when it begins
STEPS = 20_000_000  # calls
MINUTES = 10  # of processor time, after which nobody waits: no measure, the end of what has none
HOSTILE = "a\x1b[2J\x1b]52;c;cm0=\x07\x1b]0;mine\x07\u202e\u2066\x9b31m\x7f\r\U000e0041z\n  do:       rm -rf"
NUMBER = re.compile(r"(?<![\w.+-])\d++(?:\.\d++)?+(?![\w.+-])")
_RUNS = ("[", "]", "(", " ", "\t", "\n", "a.", "a", "1", "{", "{x}", "`", "*", "#", "\\", '"', ",", "$x ", "<", "\u0300")
_WORDS = (
    "9" * 5000,
    "L" + "9" * 5000 + "H0",
    "~nosuchuser/x",
    "\udce9\udcff",
    "\ud800",
    "//host/share/x",
    "\\\\host\\share\\x",
    "/dev/zero",
    "../" * 50,
    "1e999",
    "nan",
    HOSTILE,
    "[a](b:" * 3000,
    "[" * 3000 + "]" * 3000,
    ".".join("k" * 4000) + " = 1",
    "\0",
    "🦋" * 3000,
)


def _spliced(file: Path, rng: random.Random) -> str:
    """Something put in at a place, or in place of a line."""
    text = file.read_text("utf-8", "surrogateescape")
    what = rng.choice(_RUNS) * rng.choice([10, 1000, 30_000]) if rng.random() < 0.5 else rng.choice(_WORDS)
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    where = rng.choice(["line", "end", "value", "inside"])
    if where == "line":
        lines[at] = what
    elif where == "end":
        lines[at] += what
    elif where == "value":
        lines[at] = f"{lines[at].partition('=')[0]}= {json.dumps(what, ensure_ascii=False)}"
    else:
        cut = rng.randrange(len(lines[at]) + 1)
        lines[at] = lines[at][:cut] + what + lines[at][cut:]
    file.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    return f"{where} {at + 1}: {what[:12]!r} × {len(what)}"


def _repeated(file: Path, rng: random.Random) -> str:
    """A line, or all of it, many times."""
    lines = file.read_bytes().split(b"\n")
    line, times = rng.choice(lines), rng.choice([2, 300, 20_000])
    file.write_bytes(b"\n".join(lines * min(times, 40) if rng.random() < 0.3 else [*lines, *[line] * times]))
    return f"a line {times} times"


def _other_number(file: Path, rng: random.Random) -> str:
    """A number that is near the one that stood there, as a hand that tries something else would write."""
    lines = file.read_text("utf-8", "surrogateescape").split("\n")
    places = [(i, result) for i, line in enumerate(lines) for result in NUMBER.finditer(line)]
    i, result = rng.choice(places)
    whole = result[0].isdigit()
    value = (int if whole else float)(result[0])
    near = rng.choice([value + 1, max(0, value - 1), value * 2, value // 2 if whole else value / 2, 0, value * 1000])
    lines[i] = f"{lines[i][: result.start()]}{near}{lines[i][result.end() :]}"
    file.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    return f"{result[0]} is {near} in line {i + 1}"


def _line_gone(file: Path, rng: random.Random) -> str:
    """One line less: what it said has its default, or is missing."""
    lines = file.read_bytes().split(b"\n")
    at = rng.randrange(len(lines))
    gone = lines.pop(at)
    file.write_bytes(b"\n".join(lines))
    return f"without line {at + 1}, {gone[:20]!r}"


def _remark(file: Path, rng: random.Random) -> str:
    """Something behind the sign of a remark, in a line of its own or at the end of one."""
    lines, what = file.read_text("utf-8", "surrogateescape").split("\n"), rng.choice(_WORDS)
    at = rng.randrange(len(lines))
    lines[at] += rng.choice([" # ", "\n# "]) + what.replace("\n", " ")
    file.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    return f"a remark at {at + 1}: {what[:12]!r}"


MUTATORS = (*(_spliced,) * 12, *(_repeated,) * 2, *BYTES, *PLACES)
# of a file in which nearly every character counts: half of what is done to it leaves it one of its kind
GENTLE = (*(_other_number,) * 16, *(_line_gone,) * 8, *(_remark,) * 8, *MUTATORS)


# -- kinds --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """One kind of file. `sources()`: valid ones; `read(file)`: as the program does it, raises what comes."""

    name: str
    sources: Callable[[], list[tuple[str, bytes]]]
    read: Callable[[Path], object]
    mutators: tuple[Any, ...] = MUTATORS


def _files(folder: str, suffix: str) -> Callable[[], list[tuple[str, bytes]]]:
    return lambda: [(path.name, path.read_bytes()) for path in sorted(shipped(folder).glob(f"*{suffix}"))]


def _lesson(file: Path) -> None:
    from circuitlab.lessons.lesson import read
    from circuitlab.story.text import fill_text, links

    lesson = read(file)
    for step in lesson.story.steps:
        links(step.text)
        fill_text(step.text, {"head": "L0H0"}, {value.name: "1" for value in step.values})


def _recipe(file: Path) -> None:
    from circuitlab.training.recipe_file import read_recipe

    read_recipe(str(file))


MAP = """
under = "model_state"
prefix = "model."
ignore = [".mask"]
[config]
n_layers = 2
n_heads = 2
d_model = 8
d_head = 4
d_vocab = 11
n_ctx = 12
[tensors]
"embed.W_E" = "wte.weight"
W_Q = { from = "h.{i}.qkv.weight", transpose = true, split = "q", heads = true }
W_K = { from = "h.{i}.heads.{h}.key.weight", transpose = true }
W_O = { identity = true }
"""


def _map(file: Path) -> None:
    from circuitlab.model.importing.by_map import read_map

    read_map(file)


def _prompts(file: Path) -> None:
    from circuitlab.analysis.base import TextRef
    from circuitlab.engine.texts import checked_text
    from circuitlab.model.prompts import lines_of

    lines_of(checked_text(TextRef(str(file))))


def _talks() -> list[tuple[str, bytes]]:
    from tests.unit.test_old_sessions import TEXTS

    return [("talk.circuitlab", path.read_bytes()) for path in TEXTS if path.read_bytes().lstrip()[:1] == b"{"]


def _texts_replaced(file: Path, rng: random.Random) -> str:
    """Some texts of a session, keys among them, with what a terminal obeys."""
    share, n = rng.choice([0.05, 0.3, 0.9]), 0

    def changed(value: Any) -> Any:
        nonlocal n
        if isinstance(value, dict):
            hostile = rng.random() < share / 20
            return {(f"{name}{HOSTILE}" if hostile else name): changed(one) for name, one in value.items()}
        if isinstance(value, list):
            return [changed(one) for one in value]
        if isinstance(value, str) and rng.random() < share:
            n += 1
            return value + HOSTILE if rng.random() < 0.5 else HOSTILE
        return value

    file.write_text(json.dumps(changed(json.loads(file.read_text()))))
    return f"{n} texts that a terminal obeys"


class _OnlyShown(Exception):
    """A control character reached the terminal."""


def _printed(file: Path) -> None:
    """What four commands print of a session, judged character by character."""
    from circuitlab.cli.parser import main

    refused = 0
    for words in (["session", "F"], ["info", "F"], ["compute", "token_loss", "--at", "F#1"], ["lessons", "--check", "F"]):
        out = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
        with contextlib.redirect_stdout(out[0]), contextlib.redirect_stderr(out[1]):
            refused += main([str(file) + word[1:] if word[:1] == "F" else word for word in words]) != 0
        for text in (one.buffer.getvalue().decode() for one in out):  # type: ignore[attr-defined]
            wrong = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in "\n\t"}
            if wrong or "This is a bug" in text or [line for line in text.splitlines() if line.startswith("  do:       rm")]:
                raise _OnlyShown(f"{words[0]}: {sorted(wrong)} {text[-800:]!r}")
    if refused == 4:
        raise CircuitLabError("Four commands refuse it.", expected="a session", got="another", remedy="-")


KINDS = {
    kind.name: kind
    for kind in (
        *(Kind(name, *how) for name, how in VOCABULARIES.items()),
        Kind("lessons", _files("lessons", ".md"), _lesson),
        Kind("recipes", _files("recipes", ".toml"), _recipe, GENTLE),
        Kind("import maps", lambda: [("map.toml", MAP.encode())], _map),
        Kind("prompt sets", _files("prompts", ".tsv"), _prompts),
        Kind("terminal output", _talks, _printed, ((_texts_replaced,) * 8 + (_spliced,) * 2)),
    )
}


# -- running ------------------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What came of the files of one kind. `bytes`: the most memory of a child beyond its start; `steps`: its most calls."""

    kind: str
    files: int = 0
    refused: int = 0
    opened: int = 0
    bytes: int = 0
    steps: int = 0
    failures: list[str] = field(default_factory=list)


def _case(kind: Kind, folder: Path, seed: str) -> tuple[Path, str]:
    rng = random.Random(seed)
    name, data = rng.choice(kind.sources())
    place = folder / "f"
    place.mkdir(exist_ok=True)
    file, done = place / name, [name]
    file.write_bytes(data)
    for _ in range(rng.choice([1, 1, 1, 2])):
        try:
            done.append(rng.choice(kind.mutators)(file, rng))
        except Exception as error:  # what came before has left no file that can be read
            done.append(type(error).__name__)
            break
    return file, ", ".join(done)


def _faults(error: CircuitLabError) -> str:
    text = str(error)
    faults = [] if error.expected and error.got else ["says not what was expected or what came"]
    faults += ["is no text"] if any(0xD800 <= ord(c) < 0xE000 or (c < " " and c != "\n") for c in text) else []
    faults += ["is endless"] if len(text) > 4000 else []
    return ", ".join(faults)


def _outcome(kind: Kind, file: Path) -> dict[str, Any]:
    """In the child: what reading comes to, with its steps and its memory."""
    limit = _status("VmSize") + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (60 * MINUTES, 60 * MINUTES))
    _forget_peak()
    before, steps = _status("VmRSS"), 0

    def counted(frame: Any, event: str, what: Any) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")
        if steps == STEPS:
            raise RuntimeError(f"more than {STEPS} steps")

    sys.setprofile(counted)
    try:
        kind.read(file)
        result: dict[str, Any] = {"outcome": "opened"}
    except CircuitLabError as error:
        fault = _faults(error)
        result = {"outcome": "refused", **({"failed": f"the error {fault}: {error}"} if fault else {})}
    except BaseException:
        result = {"outcome": "failed", "failed": traceback.format_exc()[-2500:]}
    finally:
        sys.setprofile(None)
    return result | {"steps": steps, "bytes": max(0, _status("VmHWM") - before)}


def _in_child(kind: Kind, file: Path) -> dict[str, Any]:
    """The outcome of a file in a process of its own, which ends with it."""
    ours, theirs = os.pipe()
    if not (child := os.fork()):
        try:
            os.close(ours)
            os.setsid()  # no terminal that could be read from
            data = json.dumps(_outcome(kind, file)).encode()
            with os.fdopen(theirs, "wb") as pipe:
                pipe.write(data)
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(data) if data else {"outcome": "failed", "failed": f"the child ended with {status}", "steps": 0, "bytes": 0}


def _warm() -> None:
    """Import what the kinds need, once, before the children are made."""
    import torch

    import circuitlab.analysis.base
    import circuitlab.cli.commands
    import circuitlab.cli.lesson_files
    import circuitlab.cli.session_command
    import circuitlab.figures.contracts.panel
    import circuitlab.lessons.lesson
    import circuitlab.model.importing.by_map
    import circuitlab.model.loading.gguf.vocabulary
    import circuitlab.model.loading.tokenizer_files
    import circuitlab.training.recipe_file  # noqa: F401

    torch.set_num_threads(1)


def walk(kind: Kind, count: int, seed: int) -> Tally:
    """Read `count` files of a kind."""
    tally = Tally(kind.name)
    for i in range(count):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            file, done = _case(kind, Path(folder), f"{kind.name}:{seed}:{i}")
            result = _in_child(kind, file)
        tally.files += 1
        tally.opened += result["outcome"] == "opened"
        tally.refused += result["outcome"] == "refused"
        tally.bytes, tally.steps = max(tally.bytes, result["bytes"]), max(tally.steps, result["steps"])
        if "failed" in result:
            tally.failures.append(f"{kind.name} {seed}:{i} ({done}): {result['failed']}")
    return tally


def table(tallies: list[Tally]) -> str:
    """A row a kind, and the failures."""
    lines = [f"{'kind':<20}{'files':>7}{'refused':>9}{'opened':>8}{'failed':>8}{'peak memory':>13}{'most steps':>12}"]
    for one in tallies:
        peak = f"{one.bytes / 2**20:.0f} MiB"
        lines.append(
            f"{one.kind:<20}{one.files:>7}{one.refused:>9}{one.opened:>8}{len(one.failures):>8}{peak:>13}{one.steps:>12,}"
        )
    return "\n".join([*lines, *(f"\nFAILED {failure}" for one in tallies for failure in one.failures)])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.texts")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS)
    wanted = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as home:
        os.environ |= dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"), home)
        _warm()
        kinds = [KINDS[wanted.kind]] if wanted.kind else list(KINDS.values())
        tallies = [walk(kind, wanted.count, wanted.seed) for kind in kinds]
    print(table(tallies))
    return 1 if any(one.failures for one in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
