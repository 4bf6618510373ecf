"""Bounds of what may be asked of a machine, for the command line and for Python. Imports nothing heavy."""

from __future__ import annotations

import os

# more are of no use on any machine, and asking a library for a hundred thousand kills the process
MOST_THREADS = max(256, 4 * (os.cpu_count() or 1))
MOST_GIB = 2**20  # no machine has more memory than that
