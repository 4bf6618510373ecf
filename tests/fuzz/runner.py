"""Runs cases through a warm worker, one at a time, and starts another when one crashes or hangs."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Case, build_corpus, make_case
from tests.fuzz.pickle_mutators import CANARY
from tests.fuzz.worker import GIB
from tests.patience import SECONDS

MOST = 10.0  # s of processor time
ROOT = Path(__file__).resolve().parents[2]


class Worker:
    """The process, started when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self._noise = folder / "console.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self.started = 0

    def ask(self, case: Case) -> dict[str, Any]:
        """The outcome of a case; one with "failed" where the process is gone or does not answer in time."""
        if self._process is None:
            self._start()
        request = {"path": os.fsencode(case.path).hex(), "mapped": case.mapped, "cut": case.cut}
        os.write(self._to, json.dumps(request).encode() + b"\n")
        return self._answer(SECONDS)

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            os.close(self._to)
            os.close(self._from)
            self._process = None

    def _start(self) -> None:
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        command = [sys.executable, "-m", "tests.fuzz.worker", str(theirs_in), str(theirs_out), str(self._noise)]
        self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=(theirs_in, theirs_out))
        os.close(theirs_in)
        os.close(theirs_out)
        self.started += 1
        if "ready" not in self._answer(SECONDS):
            raise RuntimeError(f"the worker does not start:\n{self._noise.read_text()[-2000:]}")

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process is not None
        line, until = b"", time.monotonic() + seconds
        while not line.endswith(b"\n"):
            if not select.select([self._from], [], [], max(0.0, until - time.monotonic()))[0]:
                self.stop()
                return {"kind": "crash: hangs", "failed": f"no answer in {seconds:g} s"}
            piece = os.read(self._from, 65536)
            if not piece:
                code = self._process.wait()
                said = self._noise.read_bytes()[-1500:].decode("utf-8", "replace") if self._noise.exists() else ""
                self.stop()
                return {"kind": f"crash: process ended with {code}", "failed": said or "the process ended"}
            line += piece
        return json.loads(line)


@dataclass
class Report:
    """What came of all cases."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    count: int = 0
    slowest: float = 0.0
    largest: int = 0
    workers: int = 0
    seconds: float = 0.0

    def table(self) -> str:
        """Counts by outcome, and the failures."""
        opened = sum(n for kind, n in self.outcomes.items() if kind.startswith("opened"))
        typed = self.count - opened - len(self.failures)
        lines = [f"{n:6}  {kind}" for kind, n in sorted(self.outcomes.items(), key=lambda kn: (-kn[1], kn[0]))]
        lines += [
            "",
            f"{self.count} files: {opened} opened, {typed} typed errors, {len(self.failures)} FAILED",
            f"slowest {self.slowest:.2f} s, most memory {self.largest / 2**20:.0f} MiB; "
            f"{self.workers} worker(s), {self.seconds:.0f} s in all",
        ]
        return "\n".join([*lines, *(f"\nFAILED {f}" for f in self.failures)])


def _cleared(folder: Path) -> Path:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _size(path: Path) -> int:
    """Bytes that are really on disk below a folder (a file with holes has few)."""
    return sum(f.lstat().st_blocks * 512 for f in path.rglob("*"))


def _fault(outcome: dict[str, Any], case: Case, size: int) -> str:
    """Why an outcome is a failure, "" where it is none."""
    if "failed" in outcome:
        return str(outcome["failed"])
    if (case.path.parent / CANARY).exists() or (case.path / CANARY).exists():
        return "code in the file ran"
    if outcome["seconds"] > MOST:
        return f"took {outcome['seconds']:.1f} s"
    if outcome["bytes"] > GIB + size:
        return f"took {outcome['bytes']} bytes for a file of {size}"
    return ""


def seeds(count: int, seed: int) -> Iterator[str]:
    """The seeds of a run."""
    return (f"{seed}:{i}" for i in range(count))


def run(of: Iterator[str], say: Callable[[str], None] | None = None) -> Report:
    """Make, open and judge every case."""
    report, began = Report(), time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch about its own sparse tensors, zipfile about equal names, in making the cases
        folder = Path(place)
        (folder / "corpus").mkdir()
        corpus, worker = build_corpus(folder / "corpus"), Worker(folder)
        (folder / "case").mkdir()
        try:
            for seed in of:
                case = make_case(corpus, _cleared(folder / "case"), seed)
                size = _size(folder / "case")
                outcome = worker.ask(case)
                report.count += 1
                report.outcomes[outcome["kind"]] += 1
                report.slowest = max(report.slowest, outcome.get("seconds", 0.0))
                report.largest = max(report.largest, outcome.get("bytes", 0))
                if fault := _fault(outcome, case, size):
                    how = "mapped" if case.mapped else "resident"
                    report.failures.append(f"{seed} {case.model} ({how}; {case.said}): {outcome['kind']}\n{fault}")
                if say is not None:
                    say(f"{seed} {case.model}: {case.said}: {outcome['kind']}")
        finally:
            worker.stop()
    report.workers, report.seconds = worker.started, time.monotonic() - began
    return report
