"""The tests that compare numbers hold on processors that round otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.processors.numeric import AT_ONCE, LEFT_OUT, OF_MEMORY, PROCESSORS, ROOT, WITH_PROCESSES, numeric_files

PASSED = 0  # of pytest
PARTS = 4  # of the files, each for a process of minutes


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in AT_ONCE else pytest.mark.thorough) for n in PROCESSORS]
)
def test_the_numbers_hold_on_another_processor(name: str, part: int) -> None:
    arguments = ["-q", "--tb=short", "-p", "no:cacheprovider", *PROCESSORS[name].arguments, "-m", "not slow and not thorough"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, *numeric_files()[part::PARTS]],
        cwd=ROOT,
        env=os.environ | dict(PROCESSORS[name].environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == PASSED, f"on {name}\n{result.stdout[-20_000:]}\n{result.stderr[-2_000:]}"


def test_what_is_left_out_is_there() -> None:
    assert all((ROOT / file).is_file() for file in LEFT_OUT)
    for test in (*WITH_PROCESSES, *OF_MEMORY):
        file, _, function = test.partition("::")
        assert file in numeric_files() and f"\ndef {function}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_all_rooms_of_numbers_are_run() -> None:
    files = numeric_files()
    assert len(files) > 80
    rooms = "unit/test_forward unit/test_spectra unit/test_old_sessions unit/families/test_phi figures/test_why_here"
    assert {f"tests/{room}.py" for room in rooms.split()} <= set(files)
