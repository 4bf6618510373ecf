"""The engine's own `Ctx`: passes ticks on, remembers the last partial result, and says when its thread stands still."""

from __future__ import annotations

from circuitlab.analysis.base import Ctx, Result
from circuitlab.engine.flights import Flights


class Listening:
    """Between an analysis and whoever asked. `found`: what a cancelled attempt at the same question left.

    An analysis that another one asks for (`inner` is then a `Listening` itself) ticks to the same listener, but its partial
    results are not the outer one's: they are kept and not shown.
    """

    def __init__(self, inner: Ctx, flights: Flights, found: Result | None = None) -> None:
        self._inner, self._flights = inner, flights
        self._nested = isinstance(inner, Listening)
        self.last: Result | None = None
        self.previous: Result | None = found if found is not None or self._nested else inner.previous

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Passed on; whoever listens may make this thread wait there."""
        with self._flights.standing_still():
            self._inner.tick(done, total, text)

    def partial(self, result: Result) -> None:
        """Kept, and passed on."""
        self.last = result
        if not self._nested:
            self._inner.partial(result)
