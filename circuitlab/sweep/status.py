"""How far a sweep is, from its folder alone: nothing is opened, and whoever works on it is not disturbed."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from circuitlab.disk.file_lock import holder_of
from circuitlab.disk.regular_file import NO_FILE, stamp_at
from circuitlab.errors import BadInput, cause
from circuitlab.sweep.journal import NAME, lines_in, parsed
from circuitlab.sweep.record import LOCK, PLAN
from circuitlab.sweep.table import LEFT
from circuitlab.sweep.work import DONE

AT_ONCE = 2 << 20  # bytes of a journal that are read at a look, in some tens of ms


@dataclass(frozen=True)
class Status:
    """`title` as declared; `questions`: cells that can be asked, those alike once; `counts`: of them, by status, "not yet" among
    them; `unasked`: cells that cannot be asked; `seconds`: of computing so far; `holder`: who works on it, "" for nobody."""

    title: str
    questions: int
    counts: dict[str, int]
    unasked: int
    seconds: float
    holder: str


def finished(folder: Path | None, retry: bool) -> frozenset[str]:
    """The cells in a folder that are not asked again; none without a folder."""
    if folder is None or not (folder / NAME).exists():
        return frozenset()
    last = {line["cell"]: line["status"] for line in lines_in(folder)}
    return frozenset(cell for cell, status in last.items() if status == DONE or not retry)


def status_of(folder: Path) -> Status:
    """The status of the sweep in a folder. Raises `BadInput` where there is none."""
    watch = Watch(folder, whole=True)
    counts = watch.look()
    holder = holder_of(folder / LOCK)
    plan = watch.plan
    return Status(plan.title, len(plan.asked), counts, plan.unasked, watch.seconds, "" if holder is None else holder.words())


@dataclass(frozen=True)
class _Plan:
    """What the plan of a folder says. `asked`: the cells that can be asked, those alike once."""

    title: str
    asked: frozenset[str]
    unasked: int


def _plan_of(folder: Path) -> _Plan:
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        return _Plan(str(plan["title"]), frozenset(map(str, plan["asked"])), int(plan["refused"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "Name the folder that a sweep was given with -o."
        raise BadInput("The folder holds no sweep.", expected=PLAN, got=cause(error), remedy=remedy) from error


class Watch:
    """How far a sweep is, again and again: of its journal only what is new is read, `AT_ONCE` bytes a look unless the `whole`."""

    def __init__(self, folder: Path, whole: bool = False) -> None:
        self._folder, self._whole = folder, whole
        self._read, self._stamp = 0, NO_FILE
        self.behind = False  # whether there was more to read
        self._last: dict[str, tuple[str, float]] = {}  # status and seconds of each cell
        self.plan = _Plan("", frozenset(), 0)

    def look(self) -> dict[str, int]:
        """How many of the cells that can be asked have each status, "not yet" among them. Raises `BadInput` without a plan."""
        if (stamp := stamp_at(self._folder / PLAN)) != self._stamp or stamp == NO_FILE:
            self.plan, self._stamp = _plan_of(self._folder), stamp
        if (self._folder / NAME).exists():
            self._read_on()
        counts = Counter(status for cell, (status, _) in self._last.items() if cell in self.plan.asked)
        left = len(self.plan.asked) - counts.total()
        return dict(counts) | ({LEFT: left} if left else {})

    @property
    def seconds(self) -> float:
        """Of computing so far."""
        return sum(seconds for cell, (_, seconds) in self._last.items() if cell in self.plan.asked)

    def _read_on(self) -> None:
        with (self._folder / NAME).open("rb") as file:
            if file.seek(0, os.SEEK_END) < self._read:  # another sweep has this folder now
                self._read, self._last = 0, {}
            file.seek(self._read)
            until, self.behind = self._read + AT_ONCE, False
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                if (line := parsed(raw)) is not None:
                    self._last[line["cell"]] = line["status"], line.get("seconds", 0.0)
                self._read += len(raw)
                if self._read >= until and not self._whole:
                    self.behind = True
                    break
