"""One run of pytest for each break, forked from a process that has imported what is slow to import and is never broken.

Two thirds of the time of a short run go into importing torch and Qt; a fork has them. Nothing of `circuitlab` or of the tests is
imported before the fork, so that a break is in place when they are.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.patience import SECONDS

PRELOADED = "numpy torch PySide6.QtWidgets PySide6.QtTest PySide6.QtSvg pyqtgraph tokenizers safetensors.torch".split()
PATIENCE = SECONDS + 300.0  # for a run in which one wait is in vain


class Outcome(NamedTuple):
    """The exit status of a run of pytest, and what it printed."""

    status: int
    text: str


class Forks:
    """Runs of pytest in forks of one process. Use as a context."""

    def __enter__(self) -> Forks:
        command = [sys.executable, "-m", "tests.mutants.forks"]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()

    def run(self, arguments: list[str], environment: dict[str, str]) -> Outcome:
        """Run pytest with these arguments, and with these variables beside those of this process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with tempfile.NamedTemporaryFile("r+", suffix=".txt") as printed:
            self._process.stdin.write(json.dumps([arguments, dict(os.environ) | environment, printed.name]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            assert answer, "the process that forks has ended"
            return Outcome(int(answer), Path(printed.name).read_text("utf-8", "replace"))


def _in_fork(arguments: list[str], environment: dict[str, str], printed: str) -> None:
    """Run pytest and end the process."""
    file = os.open(printed, os.O_WRONLY | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.clear()
    os.environ.update(environment)
    import pytest

    status = pytest.main(arguments)
    sys.stdout.flush()
    os._exit(int(status))


def _status_of(child: int) -> int:
    """Its exit status, or minus the number of the signal that ended it; it is ended when it takes too long."""
    end = time.monotonic() + PATIENCE
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            end = float("inf")
        time.sleep(0.02)


def main() -> None:
    """Answer every line of arguments, variables and a file with the exit status of their run."""
    for name in PRELOADED:
        importlib.import_module(name)
    assert not [name for name in sys.modules if name.partition(".")[0] == "circuitlab"]
    for line in sys.stdin:
        arguments, environment, printed = json.loads(line)
        child = os.fork()
        if not child:
            _in_fork(arguments, environment, printed)
        print(_status_of(child), flush=True)


if __name__ == "__main__":
    main()
