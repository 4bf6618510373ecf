"""“Train a model…” in a window that is killed: the training goes on, and the next window shows it, with its curves."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from circuitlab.figures.marks import Lines
from circuitlab.gui.shell.window import Window
from circuitlab.gui.training.dialog import TrainingDialog
from circuitlab.gui.training.view import GOES_ON
from circuitlab.training.files import holder_of
from circuitlab.training.state import read_state
from tests.conftest import ROOT
from tests.gui.driving import settle
from tests.gui.test_training_dialog import TEXT, longer_recipe, training
from tests.models import directory
from tests.patience import SECONDS

if not hasattr(os, "pidfd_open"):
    pytest.skip("needs Linux: descriptors of processes", allow_module_level=True)

_WINDOW = """
import sys
from PySide6.QtCore import QTimer
from circuitlab.draw.look.app import application
from circuitlab.gui.shell.main import make_window
from circuitlab.gui.training.dialog import TrainingDialog

model, recipe, text, out = sys.argv[1:]
app = application(offscreen=True)
window = make_window(model, "ab", remember=False)
window.show()
window.dialogs.ask_training()
dialog = window.findChild(TrainingDialog)
dialog.form.choose_recipe(recipe)
dialog.form.texts.add(text)
dialog.form.out.setText(out)

def look():
    if dialog.form.checked is not None and not dialog.process.running and not dialog.process.outcome:
        dialog.start.click()
    if dialog.process.outcome:
        print(dialog.process.outcome, dialog.process.error, flush=True)
    if dialog.view.progress.state == "training" and dialog.view.progress.step > 20:
        print("training", dialog.process.pid, flush=True)
        timer.stop()

timer = QTimer()
timer.timeout.connect(look)
timer.start(50)
app.exec()
"""


@pytest.mark.slow
def test_the_next_window_shows_what_the_killed_one_trained(window: Window, qtbot: QtBot, tmp_path: Path) -> None:
    out, text = tmp_path / "run", tmp_path / "fables.txt"
    text.write_text(TEXT, encoding="utf-8")
    words = [sys.executable, "-c", _WINDOW, str(directory(tmp_path / "m")), longer_recipe(tmp_path, 20_000), str(text), str(out)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as killed:
        assert killed.stdout is not None
        said = killed.stdout.readline().split()
        killed.kill()
    assert said[:1] == ["training"], said
    run = os.pidfd_open(int(said[1]))
    ended = lambda seconds: bool(select.select([run], [], [], seconds)[0])
    try:
        assert not ended(0)
        window.dialogs.ask_training()
        dialog = window.findChild(TrainingDialog)
        assert isinstance(dialog, TrainingDialog)
        qtbot.waitUntil(lambda: dialog.process.elsewhere)
        assert GOES_ON in dialog.view.error.text()
        qtbot.waitUntil(lambda: training(dialog, 20))
        qtbot.waitUntil(lambda: isinstance(dialog.view.view.figure.find("loss at checkpoints"), Lines))
        assert dialog.view.losses
        dialog.view.stop.click()
        dialog.view.stop.click()
        assert ended(SECONDS)
        qtbot.waitUntil(lambda: dialog.process.outcome == "stopped")
        assert dialog.view.resume.isEnabled() and holder_of(out / "state") is None
        saved, skipped = read_state(out / "state")
        assert saved is not None and not skipped
        settle(qtbot, window)
    finally:
        if not ended(0):
            signal.pidfd_send_signal(run, signal.SIGKILL)
        os.close(run)
