"""How far a sweep is and how long it will take, by what its cells took so far."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from circuitlab.analysis.base import Ctx, NullContext
from circuitlab.interrupts import pass_on
from circuitlab.sweep.plan import Cell
from circuitlab.sweep.work import Outcome


def duration(seconds: float) -> str:
    """A time as one says it: "40 s", "12 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Pace(NullContext):
    """The `Ctx` of all cells: shows the whole on `ctx`, and passes an interrupt on."""

    def __init__(self, left: Sequence[Cell], total: int, size: int, ctx: Ctx) -> None:
        self._ctx, self._total, self._done, self._size = ctx, total, total - len(left), size
        self._kinds = {cell.key: cell.kind for cell in left}
        self._left = Counter(self._kinds.values())
        self._seconds, self._seen = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        self._began = time.monotonic()

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Of a cell that is being answered. Raises `KeyboardInterrupt`."""
        pass_on()
        self._show()

    def finished(self, outcome: Outcome) -> None:
        """A cell is finished."""
        kind = self._kinds[outcome.line["cell"]]
        self._done += 1
        self._left[kind] -= 1
        self._seen[kind] += 1
        self._seconds[kind] += outcome.line.get("seconds", 0.0)
        self._show()

    @property
    def left(self) -> float | None:
        """Seconds that are left: each kind by its own cells, those of which none is finished by the mean; None if none is."""
        seen, computing = sum(self._seen.values()), sum(self._seconds.values())
        if not seen or not computing:
            return None
        mean = computing / seen
        of = lambda kind: self._seconds[kind] / self._seen[kind] if self._seen[kind] else mean
        computed = sum(count * of(kind) for kind, count in self._left.items())
        return computed * (time.monotonic() - self._began) / computing  # with all that stands around them, by all workers

    def _show(self) -> None:
        left = self.left
        self._ctx.tick(self._done, self._total, "cells" if left is None else f"{duration(left)} left · cells")
