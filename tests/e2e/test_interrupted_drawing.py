"""Ctrl+C while Qt draws: status 130, and no file, whatever is drawn; and in the event loop of a window."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

STEP = {
    "model": "construct:rope-induction",
    "text": "A B C A B",
    "show": ["attention", "predictions"],
    "play": {"offset": [1, 3]},
}
SCRIPT = """
import os, signal, sys
from circuitlab.launch import settle_environment
settle_environment()
from circuitlab.cli.parser import main
from circuitlab.draw.view.figure_view import FigureView

resized, left = FigureView.resizeEvent, [0]

def interrupted(view, event):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGINT)
    resized(view, event)

FigureView.resizeEvent = interrupted
for at in (1, 2):
    for command in (["film", "talk.circuitlab#1", "-o", "a.webp"], ["report", "talk.circuitlab", "-o", "a.html"],
                    ["report", "talk.circuitlab", "-o", "a.pdf"], ["sheet", "talk.circuitlab#1", "--data", "-o", "s.pdf"],
                    ["figure", "attention", "--at", "talk.circuitlab#1", "-o", "f.svg"]):
        left[0] = at
        print(command[-1], main(command), left[0] <= 0, os.listdir("."), flush=True)
"""


@pytest.mark.slow
def test_an_interrupt_in_the_middle_of_a_picture_ends_the_command(tmp_path: Path) -> None:
    session = {"circuitlab": "session", "version": 1, "now": {"model": "construct:rope-induction"}}
    session["story"] = {"title": "", "steps": [{"title": "It moves", "text": "", "set": STEP}]}
    (tmp_path / "talk.circuitlab").write_text(json.dumps(session), encoding="utf-8")
    run = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    lines = run.stdout.splitlines()
    assert run.returncode == 0 and len(lines) == 10, run.stderr[-2000:]
    for line in lines:
        assert line.endswith("130 True ['talk.circuitlab']"), line
    assert run.stderr.splitlines() == ["Cancelled."] * 10


WINDOW = """
import os, signal, sys
from PySide6.QtCore import QTimer
from circuitlab.gui.shell import main
shown = main.show_fitting
main.show_fitting = lambda window: (shown(window), QTimer.singleShot(0, lambda: os.kill(os.getpid(), signal.SIGINT)))
sys.exit(main.open_window("construct:rope-induction"))
"""


def test_an_interrupt_ends_a_window(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", WINDOW], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 128 + signal.SIGINT and "Traceback" not in run.stderr, run.stderr[-2000:]
