"""A line of progress of a download on a terminal."""

from __future__ import annotations

import sys
import time

from circuitlab.model.sources.transfer_meter import Progress
from circuitlab.terminal import overwrite


class ProgressLine:
    """A line on a terminal that has one; overwritten, and gone at the end."""

    def __init__(self) -> None:
        self._at, self._open = 0.0, False

    def __call__(self, progress: Progress) -> None:
        if not sys.stderr.isatty():
            return
        end = progress.done >= progress.total
        if end:
            self.close()
        elif time.monotonic() - self._at > 0.2:
            self._at, self._open = time.monotonic(), True
            overwrite(f"{progress.file}: {progress}")

    def close(self) -> None:
        """Remove the line."""
        if self._open:
            overwrite()
            self._open = False
