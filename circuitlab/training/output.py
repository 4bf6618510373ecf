"""What a run says, line by line, and where it says it once nobody listens: a window that was killed takes the other end of the
pipe with it, and a closed terminal its own. The run goes on, and says the rest in the log of its folder.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from circuitlab.disk.own_files import open_own

LOG = "train.log"
_GONE = (errno.EPIPE, errno.EIO, *((errno.EINVAL,) if sys.platform == "win32" else ()))  # a pipe, a terminal


class Output:
    """Says lines of progress: on standard output, or in `LOG` in the folder `out` once that has no reader."""

    def __init__(self, out: Path) -> None:
        self._log = out / LOG

    def __call__(self, line: str) -> None:
        """Print one line. Raises `OSError` where a file that output goes to has no room."""
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except OSError as error:
            if error.errno not in _GONE:
                raise
            self._go_on_in_the_log()

    def _go_on_in_the_log(self) -> None:
        """What Python still holds of the line goes there, too."""
        try:
            with open_own(self._log) as file:
                os.dup2(file.fileno(), sys.stdout.fileno())
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        sys.stdout.flush()
