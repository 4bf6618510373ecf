"""The clock of a talk: how long it has run and what is left of its time. It can be paused."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal, Slot

SOON = 60.0  # s before the end from which on the end is near


def clock_words(seconds: float) -> str:
    """Seconds as `m:ss`, or `h:mm:ss` from an hour on; with a minus where they are negative."""
    whole = int(abs(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    words = f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
    return f"−{words}" if seconds < 0 and whole else words


class TalkClock(QObject):
    """`ticked()`: a second has passed, or it was paused, resumed or set anew. `now`: a clock in s that only runs forwards.

    `minutes` of the talk, 0 for one without an end.
    """

    ticked = Signal()

    def __init__(self, minutes: float, parent: QObject | None = None, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(parent)
        self.minutes, self._now = minutes, now
        self._before, self._since = 0.0, None  # s until the last pause; when it was resumed
        self._since: float | None
        self._timer = QTimer(self)
        self._timer.setInterval(1000)
        self._timer.timeout.connect(self.ticked)

    @property
    def running(self) -> bool:
        """Whether it is neither paused nor before its beginning."""
        return self._since is not None

    @property
    def elapsed(self) -> float:
        """Seconds that the talk has run, without pauses."""
        return self._before + (0.0 if self._since is None else self._now() - self._since)

    @property
    def left(self) -> float:
        """Seconds that are left, negative beyond the end."""
        return 60 * self.minutes - self.elapsed

    @property
    def near_end(self) -> bool:
        """Whether the end is near or past."""
        return bool(self.minutes) and self.left < SOON

    @Slot()
    def start(self) -> None:
        """Begin at 0."""
        self._before, self._since = 0.0, self._now()
        self._timer.start()
        self.ticked.emit()

    @Slot()
    def pause_or_resume(self) -> None:
        """Stop it, or let it go on."""
        if self._since is None:
            self._since = self._now()
            self._timer.start()
        else:
            self._before, self._since = self.elapsed, None
            self._timer.stop()
        self.ticked.emit()

    @Slot()
    def stop(self) -> None:
        """Stop it at the end of the talk."""
        if self._since is not None:
            self.pause_or_resume()
