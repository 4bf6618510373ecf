"""The gate: the fast tests and the slow ones that are marked `gate`, on all cores; what fails there is tried once more, alone.

    python -m tests.gate [pytest's arguments]

A test that fails among thousands on a busy machine and passes alone rests on order, time or load. It is named, as `UNSTABLE`,
to be mended, and does not close the gate; where more than three fail, or one fails twice, the gate is closed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

SELECTION = "gate or not (slow or thorough)"
TRIED_AGAIN = 3  # more failures than this are no chance


class Failures:
    """The tests that failed, in the order of their reports; `whole` is False where something failed that is no test."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.whole = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.names:  # a worker that died is reported as a failure of its test
            self.names.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.whole = False

    def pytest_internalerror(self) -> None:
        self.whole = False


def passes_alone(name: str) -> bool:
    """Whether one test passes in a process of its own with nothing beside it."""
    print(f"\n== once more, alone: {name}", flush=True)
    alone = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", name]
    return subprocess.run(alone, check=False).returncode == 0


def judged(status: int, failures: Failures, passes: Callable[[str], bool] = passes_alone) -> int:
    """The exit status of the gate; the failed tests are tried once more where they are few, and the unstable ones printed."""
    if status != pytest.ExitCode.TESTS_FAILED or not failures.whole or not 0 < len(failures.names) <= TRIED_AGAIN:
        return status
    again = {name: passes(name) for name in failures.names}
    for name in (name for name, passed in again.items() if passed):
        print(f"UNSTABLE {name}", flush=True)
    for name in (name for name, passed in again.items() if not passed):
        print(f"FAILED {name} (twice)", flush=True)
    return 0 if all(again.values()) else status


def main(arguments: Sequence[str]) -> int:
    failures = Failures()
    status = pytest.main(["-p", "no:cacheprovider", "-m", SELECTION, *arguments], plugins=[failures])
    return judged(int(status), failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
