"""Every break of the list is noticed by the tests that are named beside it; and each of them still is a line of the code."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.mutants.listed import ROOT, Mutant, mutants
from tests.mutants.plugin import CHOSEN

PASSED, FAILED = 0, 1  # of pytest; 2 and above: interrupted, misused, nothing collected


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_the_line_stands_once_and_the_tests_exist(mutant: Mutant) -> None:
    assert mutant.applied_to(mutant.path.read_text(encoding="utf-8"))
    for test in mutant.tests:
        file, _, function = test.partition("::")
        assert not function or f"\ndef {function}(" in (ROOT / file).read_text(encoding="utf-8"), test
        assert (ROOT / file).is_file(), test


def test_every_room_has_lines_that_are_guarded() -> None:
    rooms = {mutant.module.split(".")[1] for mutant in mutants()}
    assert rooms >= {"model", "analysis", "training", "engine", "session", "story", "figures", "draw", "report", "gui", "cli"}
    assert len(mutants()) >= 50


@pytest.mark.slow
@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_break_is_noticed(mutant: Mutant) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider", *mutant.tests],
        cwd=ROOT,
        env=os.environ | {CHOSEN: mutant.name, "QT_QPA_PLATFORM": "offscreen"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == FAILED, f"{mutant.why}: not noticed by {' '.join(mutant.tests)}\n{run.stdout[-2000:]}"
    assert "AssertionError" in run.stdout or "Failed" in run.stdout or "Error" in run.stdout
