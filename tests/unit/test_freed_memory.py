"""Memory that nothing uses goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import numpy as np
from circuitlab.engine.freed_memory import FreedMemory
def own():
    return int(next(line for line in open('/proc/self/status') if line.startswith('RssAnon')).split()[1]) / 1024
np.ones(3 << 20)  # 24 MiB from a map of its own, which makes blocks up to that size part of the heap
blocks = [np.ones(1 << 17) for _ in range(100)]  # a MiB each
kept, before = blocks[-1], own()
del blocks
held, memory = own(), FreedMemory()
given = memory.give_back()
print(before, held, own(), given, memory.give_back())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: memory is read from /proc")
def test_what_was_freed_below_a_block_that_stays_goes_back_once() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    before, held, after = map(float, done.stdout.split()[:3])
    assert done.stdout.split()[3:] == ["True", "False"]
    assert held > before - 10 and after < held - 80
