"""Ctrl-C and SIGTERM: while a run trains they ask it to stop after the step it is in, so that nothing is lost."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """A context in which those signals are ours. `asked`: whether one came while `held`.

    Before and after, and for the second one, they raise KeyboardInterrupt where they come. Outside of the main thread, where
    Python allows no handlers, nothing is done.
    """

    def __init__(self) -> None:
        self.asked, self.held = False, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {n: signal.signal(n, self._came) for n in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self.held and not self.asked:
            self.asked = True
        else:
            raise KeyboardInterrupt
