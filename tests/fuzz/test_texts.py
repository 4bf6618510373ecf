"""Damaged and hostile texts of each kind: read, or refused with a typed error, within bounds of memory and of steps."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.fuzz.texts import KINDS, Tally, table

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: memory is read from /proc")


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow), pytest.param(1000, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", KINDS)
def test_mutated_texts_are_read_or_say_why_not(kind: str, count: int) -> None:
    """In a process of its own: its children are forks, which one that has a window cannot have."""
    command = [sys.executable, "-m", "tests.fuzz.texts", "--kind", kind, "--count", str(count), "--seed", str(count)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    row = next(line for line in done.stdout.splitlines() if line.startswith(kind))
    files, refused, opened, failed, *_ = map(int, row.removeprefix(kind).split()[:4])
    assert files == count == refused + opened and not failed


def test_the_table_names_what_failed() -> None:
    shown = table([Tally("lessons", 3, 1, 1, 2**20, 7, ["lessons 0:2 (a line): RecursionError"])])
    assert "FAILED lessons 0:2" in shown and "1 MiB" in shown
