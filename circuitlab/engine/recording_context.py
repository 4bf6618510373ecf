"""The engine's own `Ctx`: forwards ticks, records the last partial result, and reports when its thread is paused."""

from __future__ import annotations

from circuitlab.analysis.base import Ctx, Result
from circuitlab.engine.in_flight import InFlight


class RecordingContext:
    """Stands between an analysis and its caller. `previous`: the partial result of a cancelled attempt at the same question.

    An analysis requested by another one (`inner` is then itself a `RecordingContext`) ticks to the same caller, but its partial
    results are not the outer analysis's: they are recorded and not shown.
    """

    def __init__(self, inner: Ctx, in_flight: InFlight, previous: Result | None = None) -> None:
        self._inner, self._in_flight = inner, in_flight
        self._nested = isinstance(inner, RecordingContext)
        self.last: Result | None = None
        self.previous: Result | None = previous if previous is not None or self._nested else inner.previous

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Forwarded; the caller may make this thread wait there."""
        with self._in_flight.paused():
            self._inner.tick(done, total, text)

    def partial(self, result: Result) -> None:
        """Recorded, and forwarded."""
        self.last = result
        if not self._nested:
            self._inner.partial(result)
