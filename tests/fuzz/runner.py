"""Runs cases through a warm worker, one at a time, and starts another when one crashes or is ended by its limits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Case, build_corpus, make_case
from tests.fuzz.pickle_mutators import CANARY
from tests.fuzz.worker import GIB

ROOT = Path(__file__).resolve().parents[2]


class Worker:
    """The process, started when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self._noise = folder / "console.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self.started = 0

    def ask(self, case: Case) -> dict[str, Any]:
        """The outcome of a case; one with "failed" where the process is gone."""
        if self._process is None:
            self._start()
        request = {"path": os.fsencode(case.path).hex(), "mapped": case.mapped, "cut": case.cut}
        os.write(self._to, json.dumps(request).encode() + b"\n")
        return self._answer()

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
        if "ready" not in self._answer():
            raise RuntimeError(f"the worker does not start:\n{self._noise.read_text()[-2000:]}")

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        line = b""
        while not line.endswith(b"\n"):
            piece = os.read(self._from, 65536)
            if not piece:
                code = self._process.wait()
                said = self._noise.read_bytes()[-1500:].decode("utf-8", "replace") if self._noise.exists() else ""
                self.stop()
                return {"kind": f"crash: process ended with {code}", "failed": said or "the process ended"}
            line += piece
        return json.loads(line)


@dataclass
class Row:
    """What came of the files of one kind. `peak`: bytes; `longest`: seconds of the processor, or steps."""

    files: int = 0
    refused: int = 0
    opened: int = 0
    peak: int = 0
    longest: float = 0.0

    def add(self, opened: bool, refused: bool, peak: int, longest: float) -> None:
        """One file more."""
        self.files, self.opened, self.refused = self.files + 1, self.opened + opened, self.refused + refused
        self.peak, self.longest = max(self.peak, peak), max(self.longest, longest)


def rows(kinds: dict[str, Row], unit: str) -> list[str]:
    """A table; `unit`: of what is longest."""
    head = f"{'kind':24} {'files':>6} {'refused':>8} {'opened':>7} {'peak MiB':>9} {'longest ' + unit:>14}"
    line = lambda name, r: f"{name:24} {r.files:6} {r.refused:8} {r.opened:7} {r.peak / 2**20:9.0f} {r.longest:14,.2f}"
    return [head, *(line(name, row) for name, row in sorted(kinds.items()))]


@dataclass
class Report:
    """What came of all cases."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    count: int = 0
    slowest: float = 0.0
    largest: int = 0
    workers: int = 0
    kinds: dict[str, Row] = field(default_factory=dict)

    def table(self) -> str:
        """What came of each kind of file, counts by outcome, and the failures."""
        opened = sum(n for kind, n in self.outcomes.items() if kind.startswith("opened"))
        typed = self.count - opened - len(self.failures)
        lines = [f"{n:6}  {kind}" for kind, n in sorted(self.outcomes.items(), key=lambda kn: (-kn[1], kn[0]))]
        lines += [
            "",
            f"{self.count} files: {opened} opened, {typed} typed errors, {len(self.failures)} FAILED",
            f"longest {self.slowest:.2f} s of the processor, most memory {self.largest / 2**20:.0f} MiB; "
            f"{self.workers} worker(s)",
            "",
            *rows(self.kinds, "s"),
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
    if outcome["bytes"] > GIB + size:
        return f"took {outcome['bytes']} bytes for a file of {size}"
    return ""


def seeds(count: int, seed: int) -> Iterator[str]:
    """The seeds of a run."""
    return (f"{seed}:{i}" for i in range(count))


def run(of: Iterator[str], say: Callable[[str], None] | None = None) -> Report:
    """Make, open and judge every case."""
    report = Report()
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
                fault, opened = _fault(outcome, case, size), outcome["kind"].startswith("opened")
                row = report.kinds.setdefault(case.model, Row())
                row.add(opened, not opened and not fault, outcome.get("bytes", 0), outcome.get("seconds", 0.0))
                if fault:
                    how = "mapped" if case.mapped else "resident"
                    report.failures.append(f"{seed} {case.model} ({how}; {case.said}): {outcome['kind']}\n{fault}")
                if say is not None:
                    say(f"{seed} {case.model}: {case.said}: {outcome['kind']}")
        finally:
            worker.stop()
    report.workers = worker.started
    return report
