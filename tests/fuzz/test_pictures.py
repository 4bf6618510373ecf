"""Damaged and hostile pictures: each shows its view, or is refused with a typed error that can be shown."""

from __future__ import annotations

import json
import random
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from circuitlab.disk.formats import PICTURES, suffixes
from circuitlab.draw.export.pictures import picture
from circuitlab.draw.look.paper import Paper
from circuitlab.engine.engine import Engine
from circuitlab.figures.marks import Figure, Heatmap
from circuitlab.session_files.assembly import work_of
from circuitlab.session_files.model_search import located
from circuitlab.session_files.session_text import bytes_of, parse_session, read_session
from tests.fuzz import test_session_files as sessions
from tests.fuzz.byte_mutators import BYTES
from tests.unit.test_old_sessions import FILES

TEXTS = [file for file in FILES if file.read_bytes().lstrip()[:1] == b"{"]  # those without results
MARK = Heatmap("m", np.eye(4, dtype=np.float32), (0.0, 1.0))


@cache
def whole(suffix: str, view: bytes) -> bytes:
    """A picture as it is exported."""
    return picture(Figure(((MARK,),), "t"), suffix, Paper(dpi=36), view=view.decode())


def mutated(folder: Path, seed: str) -> tuple[Path, str]:
    """A picture to which one to three things have been done, or one whose view had them done before it was put inside."""
    rng = random.Random(seed)
    suffix, source = rng.choice(suffixes(PICTURES)), rng.choice(TEXTS)
    file = folder / f"a{suffix}"
    if rng.random() < 0.3:
        text, what = sessions.mutated(folder, seed)
        file.write_bytes(whole(suffix, text.read_text("latin-1").encode("ascii", "replace")))
        return file, f"{suffix} with {what}"
    file.write_bytes(whole(suffix, json.dumps(json.loads(source.read_bytes())).encode("ascii")))
    done = [suffix, source.name, *(rng.choice(BYTES)(file, rng) for _ in range(rng.choice([1, 1, 1, 2, 3])))]
    return file, ", ".join(done)


def opened(file: Path, engine: Engine) -> None:
    """Its session, resolved as the window does it."""
    session = read_session(file)
    assert parse_session(bytes_of(session, file.parent), file.parent) == session
    found = located(session, file.parent, engine.store)
    if not found.missing and not found.changed:
        work_of(found.session, engine, sessions.VIEWS)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: memory is read from /proc")
@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.slow), pytest.param(2000, marks=pytest.mark.thorough)])
def test_mutated_pictures_show_their_view_or_say_why_not(tmp_path: Path, count: int) -> None:
    outcomes, wrong = sessions.walk(tmp_path, count, count, mutated, opened)
    assert not wrong, "\n".join(wrong)
    assert outcomes["opened"] and len(outcomes) > 5, outcomes
