"""Progress of a download: bytes, speed, and cancelling."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from circuitlab.errors import Cancelled


@dataclass(frozen=True)
class Progress:
    """Progress of a download: bytes done and in total, bytes per second over the last seconds (0: not known yet)."""

    file: str
    done: int
    total: int
    speed: float

    @property
    def left(self) -> float | None:
        """Seconds left at this speed, None while the speed is unknown."""
        return (self.total - self.done) / self.speed if self.speed > 0 else None

    def __str__(self) -> str:
        mib = 2**20
        text = f"{self.done / mib:,.1f} of {self.total / mib:,.1f} MiB"
        if self.left is None:
            return text
        left = self.left
        clock = f"{left:.0f} s" if left < 90 else f"{left / 60:.0f} min"
        return f"{text} · {self.speed / mib:,.1f} MiB/s · {clock} left"


OnProgress = Callable[[Progress], None]


@dataclass(eq=False)
class Meter:
    """Counts bytes, and stops the transfer once it is cancelled."""

    total: int
    on_progress: OnProgress
    cancelled: Callable[[], bool]
    file: str = ""
    done: int = 0
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, n: int, moved: bool = True) -> None:
        """Count `n` more bytes; `moved`: they came over the network just now."""
        if self.cancelled():
            raise Cancelled
        self.done += n
        now = time.monotonic()
        if moved:
            self._recent.append((now, self.done))
            while len(self._recent) > 2 and now - self._recent[0][0] > 3:
                self._recent.popleft()
        self.on_progress(Progress(self.file, self.done, self.total, self._speed()))

    def wait(self, seconds: float) -> None:
        """Wait before another attempt, unless the download is cancelled."""
        until = time.monotonic() + min(seconds, 5)
        while time.monotonic() < until:
            self.add(0, moved=False)
            time.sleep(0.05)

    def _speed(self) -> float:
        if len(self._recent) < 2:
            return 0.0
        (t0, n0), (t1, n1) = self._recent[0], self._recent[-1]
        return (n1 - n0) / (t1 - t0) if t1 > t0 else 0.0
