"""Plays events in a process of its own, says how it ended, and makes a failing list short."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.monkey.events import Event, as_text
from tests.monkey.shrink import shrunk

ROOT = Path(__file__).resolve().parent.parent.parent
LONGEST = 3600
_OFFSCREEN = "This plugin does not support"  # what Qt says of a screen that is none


@dataclass(frozen=True)
class Outcome:
    """How a play ended: `code` 0 is well; `at`: the event it ended in; `report`: the end of its error stream."""

    code: int
    at: str
    report: str

    @property
    def kind(self) -> str:
        """What tells failures apart when a list is made short: the last line of the report, numbers aside."""
        lines = [line for line in self.report.splitlines() if line.strip()]
        last = lines[-1] if lines else ""
        return f"{self.code} {''.join(c for c in last if not c.isdigit())[:120]}"


def played(events: tuple[Event, ...]) -> Outcome:
    """Play them from a fresh window in an empty home."""
    with tempfile.TemporaryDirectory(prefix="monkey-") as name:
        folder = Path(name)
        listing = folder / "events.txt"
        listing.write_text(as_text(events), "utf-8")
        quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "QT_QPA_PLATFORM": "offscreen"}
        homes = {f"XDG_{k}_HOME": str(folder / k.lower()) for k in ("CONFIG", "STATE", "CACHE", "DATA")}
        environment = {**os.environ, **quiet, **homes, "HOME": name, "PYTHONFAULTHANDLER": "1"}
        command = [sys.executable, "-m", "tests.monkey.play", str(listing), name]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False, errors="replace"
            )
            code, report = done.returncode, done.stderr
        except subprocess.TimeoutExpired:
            code, report = -1, f"not at an end after {LONGEST} s"
        report = "".join(line for line in report.splitlines(True) if not line.startswith(_OFFSCREEN))
        at = folder / "at"
        return Outcome(code, at.read_text() if at.is_file() else "before the first event", report[-6000:])


def shortest(events: tuple[Event, ...], outcome: Outcome, tries: int) -> tuple[Event, ...]:
    """The events up to the one it failed in, without those that do not matter."""
    number = outcome.at.partition(" ")[0]
    upto = events[: int(number) + 1] if number.isdecimal() else events
    return shrunk(upto, lambda some: played(some).kind == outcome.kind, tries)
