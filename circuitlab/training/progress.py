"""How far a training run is, for another program to read: `OUT/progress.json`, replaced whole, at most once a second; and the
line that it says of a step, which a person and the window read.

    {"step", "steps", "loss", "tokens_per_second", "tokens", "seconds", "state", "error"}

`state` is a `State`; `error` is the whole message of one that "failed" (also of a run that was stopped), else "". `loss` is the
running mean of the training loss in nats, null before the first step; `tokens` and `seconds` count the whole run, with earlier
processes and without measuring; `tokens_per_second` is that of this process. A run that ended at `--stop-at` is "done" with
`step` below `steps`. A killed process leaves the file as it last was.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import CircuitLabError
from circuitlab.training.files import write_whole

FILE = "progress.json"
State = Literal["tokenising", "training", "measuring", "done", "failed"]
EVERY = 1.0  # seconds
_LINE = re.compile(r"^step (\d+)/(\d+) +loss ([0-9.]+) +([0-9,]+) tokens/s +(\d+) min left$")


@dataclass(frozen=True)
class StepLine:
    """What a run says of a step. `loss` in nats; `speed` in tokens a second; `minutes` that are left."""

    step: int
    steps: int
    loss: float
    speed: float
    minutes: float

    def __str__(self) -> str:
        return f"step {self.step}/{self.steps}  loss {self.loss:.3f}  {self.speed:,.0f} tokens/s  {self.minutes:.0f} min left"

    @classmethod
    def parse(cls, line: str) -> StepLine | None:
        """What a line of the command's output says, None for any other line."""
        if (match := _LINE.match(line)) is None:
            return None
        step, steps, loss, speed, minutes = match.groups()
        return cls(int(step), int(steps), float(loss), float(speed.replace(",", "")), float(minutes))


class Progress:
    """The file's writer. A change of state is written at once, anything else at most once in `EVERY` seconds."""

    def __init__(self, out: Path, steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock, self._written = out / FILE, clock, -math.inf
        self.values: JsonDict = {
            "step": 0,
            "steps": steps,
            "loss": None,
            "tokens_per_second": 0.0,
            "tokens": 0,
            "seconds": 0.0,
            "state": "",
            "error": "",
        }

    def update(self, state: State, **values: object) -> None:
        """Take over new values, and write them if it is time. Raises `BadMachine` where they cannot be written."""
        changed = state != self.values["state"]
        self.values |= values | {"state": state}
        if changed or self._clock() - self._written >= EVERY:
            self._write()

    def failed(self, error: str) -> None:
        """Write why the run ended. A failure to write even that is ignored: the error itself is raised anyway."""
        self.values |= {"state": "failed", "error": error}
        try:
            self._write()
        except CircuitLabError:
            return

    def _write(self) -> None:
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in self.values.items()}
        write_whole(self._file, (json.dumps(plain) + "\n").encode(), durable=False)
        self._written = self._clock()
