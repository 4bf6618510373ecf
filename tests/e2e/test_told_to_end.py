"""A real window is told to end by a signal: it asks nobody, keeps everything, and ends with the status of the signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from circuitlab.session_files.last import last
from circuitlab.session_files.orphans import orphans
from circuitlab.session_files.session import Session
from circuitlab.story.setup import Encoded
from tests.conftest import ROOT
from tests.models import directory
from tests.patience import SECONDS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: signals")

# Argv: the model, the moment, the session's file, the signal. It types, and tells itself to end at once, before any autosave.
WORKS = """
import os, signal, sys, threading, time
from pathlib import Path
from circuitlab.launch import import_torch, settle_environment
settle_environment()
import_torch()
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QFileDialog, QMessageBox
from circuitlab.gui.shell import ending, main
moment, file, number = sys.argv[2], Path(sys.argv[3]), getattr(signal, sys.argv[4])
fitted = main.show_fitting
def told():
    os.kill(os.getpid(), number)
def stuck():
    threading.Timer(0.2, told).start()
    threading.Timer(0.4, told).start()
    time.sleep(600)
def changed(window):
    window.prompt.editor.setPlainText("n 2")  # as typed: within the pause after a key
    window.autosave.timer.stop()
    if moment == "in a dialog":
        QTimer.singleShot(0, told)
        QMessageBox(QMessageBox.Icon.Question, "", "stay?", QMessageBox.StandardButton.Yes, window).exec()
    elif moment == "stuck":
        stuck()
    else:
        told()
def shown(window):
    fitted(window)
    act = lambda: changed(window)
    if moment == "with a file":
        QTimer.singleShot(0, lambda: window.sessions.save_to(file, act))
    else:
        QTimer.singleShot(0, act)
main.show_fitting = shown
sys.exit(main.open_window(sys.argv[1], "n 0"))
"""


def ended(model: Path, moment: str, file: Path, number: str) -> int:
    """The status of a window that was told to end."""
    words = [sys.executable, "-c", WORKS, str(model), moment, str(file), number]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen"}
    reset = lambda: [signal.signal(one, signal.SIG_DFL) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=SECONDS, preexec_fn=reset, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


def text_of(session: Session) -> str:
    prompt = session.now.prompt
    return prompt.text if isinstance(prompt, Encoded) else str(prompt)


@pytest.mark.parametrize(("moment", "number"), [("at once", "SIGTERM"), ("in a dialog", "SIGTERM"), ("at once", "SIGHUP")])
def test_the_next_start_comes_back_to_what_was_typed(tmp_path: Path, moment: str, number: str) -> None:
    status = ended(directory(tmp_path / "model"), moment, tmp_path / "no.circuitlab", number)
    left = last()
    assert status == 128 + getattr(signal, number)
    assert left is not None and left.unsaved and text_of(left.session) == "n 2"
    assert not orphans().orphans, "nothing is offered: it is there"


def test_what_is_unsaved_of_a_file_is_offered_and_the_file_is_what_it_was(tmp_path: Path) -> None:
    file = tmp_path / "mine.circuitlab"
    assert ended(directory(tmp_path / "model"), "with a file", file, "SIGTERM") == 128 + signal.SIGTERM
    (offered,) = orphans().orphans
    left = last()
    assert offered.of == file and not offered.closed and text_of(offered.read()) == "n 2"
    assert left is not None and left.of == file and "n 2" not in file.read_text("utf-8")


def test_a_second_signal_ends_one_that_is_stuck(tmp_path: Path) -> None:
    assert ended(directory(tmp_path / "model"), "stuck", tmp_path / "no.circuitlab", "SIGINT") == 128 + signal.SIGINT


def test_handlers_are_put_back_and_those_of_others_stay() -> None:
    from circuitlab.gui.shell.ending import ending

    theirs = lambda number, frame: None
    before = signal.signal(signal.SIGTERM, theirs), signal.signal(signal.SIGINT, signal.default_int_handler)
    threads = threading.active_count()
    try:
        with ending(lambda: None) as told:
            assert signal.getsignal(signal.SIGTERM) is theirs
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler and not told.status
        assert threading.active_count() == threads
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
