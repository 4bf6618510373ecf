"""How many lines of Python a call runs: what a keystroke costs, whatever the machine is doing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(work: Callable[[], object]) -> int:
    """Lines that run in this thread while `work` does, those of comprehensions and of what is called included."""
    n = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal n
        n += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return n
