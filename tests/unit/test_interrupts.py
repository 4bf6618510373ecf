"""Ctrl+C where Python may not raise it waits for the end, and then comes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from circuitlab.interrupts import kept_from_children, starting, uncollected, uninterrupted


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """That of Python, wherever the tests run."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_comes_at_the_end() -> None:
    lines = list[int]()
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        lines.append(1)
        os.kill(os.getpid(), signal.SIGINT)
        lines.append(2)
    assert lines == [1, 2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_handler_of_somebody_else_stays() -> None:
    numbers = list[int]()
    theirs = lambda number, frame: numbers.append(number)
    signal.signal(signal.SIGINT, theirs)
    with uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
    assert numbers == [signal.SIGINT] and signal.getsignal(signal.SIGINT) is theirs


def test_nothing_is_collected_while_the_program_is_made() -> None:
    """Whoever collects afterwards does so again, whoever did not does not; inside one another, and where it fails."""
    assert gc.isenabled()
    with pytest.raises(ValueError), starting():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
        raise ValueError
    assert gc.isenabled()


LOOPED = """
import gc, os
from circuitlab import launch, probe
probe.display_plan = lambda: probe.Plan("window")
launch.import_torch()
from PySide6.QtWidgets import QApplication
whole = []
gc.collect()
gc.set_threshold(100, 1, 1)  # wherever there is any collection, there is soon a whole one
gc.callbacks.append(lambda phase, info: whole.append(info["generation"]) if phase == "start" else None)
QApplication.exec = lambda *_: (print(whole.count(2), flush=True), os._exit(0))
launch.open_or_render()
"""


def test_a_command_makes_its_window_without_a_whole_collection(tmp_path: Path) -> None:
    """Until the loop begins, where a timer collects: each would go through the whole of torch."""
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", LOOPED], capture_output=True, text=True, env=environment, check=False)
    assert run.stdout == "0\n", run.stderr[-2000:]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs a POSIX system: signals that are blocked")
def test_an_interrupt_is_kept_from_the_processes_that_are_begun_inside() -> None:
    """It comes here at the end, also where it came inside."""
    code = "import os; os.kill(os.getpid(), 2); print('goes on')"
    stopped = lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"KeyboardInterrupt" in stopped().stderr
    after = list[int]()
    with pytest.raises(KeyboardInterrupt), kept_from_children():
        assert stopped().stdout.split() == [b"goes", b"on"]
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        after.append(1)
    assert after == [1] and not signal.pthread_sigmask(signal.SIG_BLOCK, ())
