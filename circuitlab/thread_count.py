"""How many threads may be asked for: a library that is told to make a hundred thousand ends the process."""

from __future__ import annotations

import argparse
import os

MOST = max(256, 4 * (os.cpu_count() or 1))  # of any use, on any machine that this runs on


def threads(text: str) -> int:
    """The value of `--threads`. Raises what argparse shows as a usage error."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= MOST:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number of threads from 1 to {MOST}")
    return value
