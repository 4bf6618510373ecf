"""Objects of Qt in cycles are destroyed on the thread of the window, whichever thread allocates meanwhile."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from circuitlab.gui.widgets.one_row import OneRow
from circuitlab.gui.work.garbage import collected_on_this_thread
from tests.gui.driving import shown_window
from tests.models import directory


class Cycle:
    """Refers to itself, as a closed window does; says which thread destroyed it."""

    def __init__(self, threads: list[threading.Thread]) -> None:
        self.itself, self.threads = self, threads

    def __del__(self) -> None:
        self.threads.append(threading.current_thread())


def _allocate() -> list[list[int]]:
    """What makes Python collect: more containers than its thresholds, none of them let go."""
    return [[i] for i in range(200_000)]


def _destroyed_while_a_worker_allocates(threads: list[threading.Thread]) -> None:
    Cycle(threads)
    worker = threading.Thread(target=_allocate)
    worker.start()
    worker.join()


def test_a_worker_that_allocates_collects_nothing(qtbot: QtBot) -> None:
    threads: list[threading.Thread] = []
    with collected_on_this_thread(seconds=0.01):
        _destroyed_while_a_worker_allocates(threads)
        assert not threads
        held = _allocate()
        qtbot.waitUntil(lambda: bool(threads))
    assert held and threads == [threading.current_thread()]
    assert gc.isenabled()


def test_without_it_the_worker_would() -> None:
    threads: list[threading.Thread] = []
    _destroyed_while_a_worker_allocates(threads)
    assert threads and threads[0] is not threading.current_thread()


def test_what_a_window_has_put_off_goes_with_it(qtbot: QtBot, tmp_path: Path) -> None:
    """Docks that are still to be sized, a drawer to be emptied: nothing is done to what is destroyed."""
    with shown_window(qtbot, directory(tmp_path / "model")) as window:
        window.layout_of_docks._settle()
        window.findChildren(OneRow)[0]._closed()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)  # type: ignore[arg-type]
    QApplication.processEvents()  # what fails in a slot fails the test
    assert not isValid(window)
