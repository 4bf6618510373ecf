"""Every break of the list is noticed by the tests that are named beside it; and each of them still is a line of the code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mutants.forks import Forks
from tests.mutants.listed import ROOT, Mutant, mutants, sample
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
    assert rooms >= {"model", "analysis", "training", "engine", "state", "story", "figures", "draw", "report", "gui", "cli"}
    assert len(mutants()) >= 50
    assert {mutant.module.split(".")[1] for mutant in sample()} == rooms


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(m, marks=pytest.mark.slow if m in sample() else pytest.mark.thorough) for m in mutants()],
    ids=lambda mutant: mutant.name,
)
def test_a_break_is_noticed(forks: Forks, mutant: Mutant) -> None:
    arguments = ["-x", "-q", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider", *mutant.tests]
    status, text = forks.run(arguments, {CHOSEN: mutant.name, "QT_QPA_PLATFORM": "offscreen"})
    if status < 0:  # a broken line may end the process by a signal before the test has its say
        status, text = forks.run(arguments, {CHOSEN: mutant.name, "QT_QPA_PLATFORM": "offscreen"})
    assert status == FAILED, f"{mutant.why}: not noticed by {' '.join(mutant.tests)} (status {status})\n{text[-2000:]}"
    assert "1 failed" in text, "what the tests notice is an assertion or an error of the code, not one of their fixtures"


@pytest.mark.slow
def test_without_a_break_the_same_run_passes(forks: Forks) -> None:
    mutant = mutants()[0]
    status, text = forks.run(["-x", "-q", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider", *mutant.tests], {CHOSEN: ""})
    assert status == PASSED, text[-2000:]
