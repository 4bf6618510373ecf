"""A real window is killed while somebody works, again and again: the next one offers what was autosaved last, and goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from circuitlab.session_files.orphans import orphans
from circuitlab.story.setup import Encoded
from tests.conftest import ROOT
from tests.models import directory

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: processes that are killed")

# Types a number into the prompt 20 times a second, and prints each one that was recorded and each that was autosaved. `take`: the
# first session that is offered is recovered before that.
WORKS = """
import sys
from circuitlab.launch import import_torch, settle_environment
settle_environment()
import_torch()
from PySide6.QtCore import QTimer
from circuitlab.gui.shell import main
take, begin = sys.argv[2] == "take", int(sys.argv[3])
fitted = main.show_fitting
def say(*words):
    print(*words, flush=True)
def shown(window):
    fitted(window)
    i = [begin]
    def written():
        work = window.autosave._own.work
        say("autosaved", work.state.text if work is not None else "")
    def step():
        i[0] += 1
        window.prompt.editor.setPlainText(f"n {i[0]}")
        window.prompt.commit()
        say("recorded", window.context.document.recorded.text)
    timer = window.typing = QTimer(window)
    timer.timeout.connect(step)
    window.autosave.written.connect(written)
    def offered():
        dialog = window.recovering.dialog
        if dialog is None:
            QTimer.singleShot(20, offered)
            return
        window.sessions.opened.connect(lambda: (say("recovered", window.context.document.recorded.text), timer.start(50)))
        dialog.rows[0].recover.click()
    offered() if take else timer.start(50)
main.show_fitting = shown
main.open_window(sys.argv[1], "n 0")
"""


def killed_window(model: Path, take: bool, begin: int, autosaves: int, rng: random.Random) -> list[list[str]]:
    """What a window said that was killed at some moment after so many autosaves."""
    words = [sys.executable, "-c", WORKS, str(model), "take" if take else "", str(begin)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen"}
    said: list[list[str]] = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True) as window:
        assert window.stdout is not None
        for line in window.stdout:
            said.append(line.split(" ", 1))
            autosaves -= line.startswith("autosaved n")
            if not autosaves:
                time.sleep(rng.random() * 2)
                window.send_signal(signal.SIGKILL)
                autosaves = -1
    assert window.returncode == -signal.SIGKILL, said
    return said


def last_of(said: list[list[str]], kind: str) -> int:
    return max(int(words.split()[1]) for what, words in said if what == kind)


@POSIX
@pytest.mark.slow
def test_a_window_that_is_killed_again_and_again_goes_on_where_it_was(tmp_path: Path) -> None:
    model, rng, number = directory(tmp_path / "model"), random.Random(0), 0
    for attempt in range(5):
        said = killed_window(model, attempt > 0, 1000 * (attempt + 1), 1 + attempt % 2, rng)
        recovered = [int(words.split()[1]) for what, words in said if what == "recovered"]
        assert recovered == ([number] if attempt else []), "exactly what the one before had autosaved"
        found = orphans()
        assert len(found.orphans) == 1 and not found.damaged, "the one that was recovered has gone over into the new one"
        prompt = found.orphans[0].read().now.prompt
        number = int((prompt.text if isinstance(prompt, Encoded) else str(prompt)).split()[1])
        assert last_of(said, "autosaved") <= number <= last_of(said, "recorded")
        assert json.loads(found.orphans[0].copies[0].read_bytes())["pid"] not in (0, os.getpid())
