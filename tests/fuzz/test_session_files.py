"""Damaged and hostile session files: each is read and written alike, or refused with a typed error that can be shown."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import view_types
from circuitlab.session_files.assembly import work_of
from circuitlab.session_files.model_search import located
from circuitlab.session_files.session import Session
from circuitlab.session_files.session_text import bytes_of, read_session
from tests.fuzz.byte_mutators import BYTES
from tests.fuzz.json_mutators import JSON, _value, _written
from tests.fuzz.worker import _forget_peak, _status
from tests.unit.test_old_sessions import TEXTS

SECONDS = 2.0  # of processor time
BYTES_MORE = 256 * 2**20
VIEWS = view_types()


def anywhere(file: Path, rng: random.Random) -> str:
    """One value of the file, however deep, is another, is gone, or stands where one from elsewhere stood."""
    data = json.loads(file.read_text("utf-8"))
    places, inner = [], [data]
    while inner:
        one = inner.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        places += [(one, key) for key in keys]
        inner += [one[key] for key in keys if isinstance(one[key], dict | list)]
    (one, key), (other, other_key) = rng.choice(places), rng.choice(places)
    kind = rng.choice(["other", "other", "gone", "moved"])
    if kind == "gone":
        del one[key]
    else:
        one[key] = _value(rng) if kind == "other" else json.loads(json.dumps(other[other_key]))
    file.write_text(_written(data), "utf-8")
    return f"{kind} {str(key)[:40]}"


Mutate = Callable[[Path, str], tuple[Path, str]]
MUTATORS = (*(anywhere,) * 40, *JSON, *BYTES)


def mutated(folder: Path, seed: str) -> tuple[Path, str]:
    """A session file to which one to three things have been done, and what."""
    rng = random.Random(seed)
    source = rng.choice(TEXTS)
    file = folder / "talk.circuitlab"
    file.write_bytes(source.read_bytes())
    done = [source.name]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        try:
            done.append(rng.choice(MUTATORS)(file, rng))
        except Exception:  # what came before has left no JSON object
            break
    return file, ", ".join(done)


def opened(file: Path, engine: Engine) -> Session:
    """The session of a file; it is written and read again alike, and resolved as the window does it."""
    session = read_session(file)
    data = bytes_of(session, file.parent)
    file.write_bytes(data)
    again = read_session(file)
    assert again == session and bytes_of(again, file.parent) == data
    result = located(session, file.parent, engine.store)
    if not result.missing and not result.changed:
        work_of(result.session, engine, VIEWS)
    return session


def faults(error: CircuitLabError) -> Iterator[str]:
    """What keeps an error from being shown."""
    text = str(error)
    if not error.expected or not error.got:
        yield "says not what was expected or what came"
    if any(0xD800 <= ord(c) < 0xE000 or (c < " " and c != "\n") for c in text):
        yield "is no text"
    if len(text) > 4000:
        yield "is endless"


def walk(
    folder: Path, count: int, seed: int, mutate: Mutate = mutated, read: Callable[[Path, Engine], object] = opened
) -> tuple[Counter[str], list[str]]:
    """(how many came out how, what is wrong)."""
    engine, outcomes, wrong = Engine(ModelStore()), Counter[str](), list[str]()
    for i in range(count):
        file, done = mutate(folder, f"{seed}:{i}")
        _forget_peak()
        before, began = _status("VmRSS"), time.process_time()
        try:
            read(file, engine)
            outcome = "opened"
        except CircuitLabError as error:
            outcome = error.what.split(":")[0][:60]
            wrong += [f"{seed}:{i} {done}: the error {fault}: {error!r}" for fault in faults(error)]
        except Exception as error:
            outcome = type(error).__name__
            wrong.append(f"{seed}:{i} {done}: {error!r}")
        if (seconds := time.process_time() - began) > SECONDS:
            wrong.append(f"{seed}:{i} {done}: took {seconds:.1f} s")
        if (more := _status("VmHWM") - before) > BYTES_MORE:
            wrong.append(f"{seed}:{i} {done}: took {more >> 20} MiB")
        outcomes[outcome] += 1
    return outcomes, wrong


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: memory is read from /proc")
@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.slow), pytest.param(2000, marks=pytest.mark.thorough)])
def test_mutated_sessions_open_or_say_why_not(tmp_path: Path, count: int) -> None:
    outcomes, wrong = walk(tmp_path, count, count)
    assert not wrong, "\n".join(wrong)
    assert outcomes["opened"] and len(outcomes) > 10, outcomes
