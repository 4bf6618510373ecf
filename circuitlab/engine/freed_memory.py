"""What was freed, given back to the system.

glibc keeps freed blocks of up to 32 MiB for what comes next, each thread's its own: after a text of 663 tokens on a model of 134
million weights 170 MiB that nothing uses.
"""

from __future__ import annotations

import ctypes
import sys
import time

EVERY = 10.0  # seconds; what is given back costs page faults when it is used again


class FreedMemory:
    """Gives freed memory back, at most once in `EVERY` seconds; on Linux with glibc alone. For one thread."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None) if sys.platform == "linux" else None
        self._trim = getattr(library, "malloc_trim", None)
        self._last = -EVERY

    def give_back(self) -> bool:
        """Takes milliseconds, and lets other Python threads run. Whether anything was given back."""
        now = time.monotonic()
        if self._trim is None or now - self._last < EVERY:
            return False
        self._last = now
        return bool(self._trim(0))
