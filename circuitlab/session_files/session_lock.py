"""Who has a session file open: a lock beside it that ends with its process. The second window is told by whom, and since when."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from circuitlab.file_lock import FileLock


def session_lock(path: Path) -> FileLock:
    """The lock of a session file: a hidden file beside it, or beside the file that a link leads to."""
    real = Path(os.path.realpath(path))
    return FileLock(real.with_name(f".{real.name}.lock"), platform.node())
