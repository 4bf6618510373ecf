"""What the window shows, drawn without it: from the session's file, and by the command that a panel's menu copies."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtGui import QGuiApplication

import circuitlab.api as lab
from circuitlab.cli.parser import main
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.shell.window import Window
from circuitlab.state.state import Compare
from tests.gui.driving import dock, exported, save, settle, work_on
from tests.patience import SECONDS


def shown_panels(window: Window) -> list[str]:
    """The panels on the screen that have a figure."""
    shown = (name for name, place in window.docks.items() if isinstance(place, PanelDock) and place.shown)
    return [name for name in shown if dock(window, name).view.figure.grid]


NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.?\d+)(?:e[-+]?\d+)?")


def drawn_alike(one: str, other: str) -> bool:
    """Whether two SVG pictures are the same but for rounding: a window reuses the run of a prompt's beginning."""
    numbers, others = ([float(word) for word in NUMBER.findall(text)] for text in (one, other))
    return NUMBER.split(one) == NUMBER.split(other) and bool(np.allclose(numbers, others, rtol=1e-4, atol=1e-5))


@pytest.mark.parametrize("compare", ["now", "difference"])
def test_the_command_line_draws_what_the_window_shows(qtbot: Any, window: Window, tmp_path: Path, compare: Compare) -> None:
    work_on(window)
    window.context.apply(replace(window.context.document.recorded, compare=compare), "compare")
    settle(qtbot, window)
    save(qtbot, window, tmp_path / "talk.circuitlab")
    panels = shown_panels(window)
    assert len(panels) > 3
    for name in panels:
        exported(qtbot, window, tmp_path / "window.svg", name)
        assert main(["figure", name, "--at", str(tmp_path / "talk.circuitlab"), "-o", str(tmp_path / "line.svg")]) == 0
        assert drawn_alike((tmp_path / "line.svg").read_text("utf-8"), (tmp_path / "window.svg").read_text("utf-8")), name


@pytest.mark.slow
def test_a_copied_command_draws_the_same_in_a_fresh_process(qtbot: Any, window: Window, tmp_path: Path) -> None:
    work_on(window)
    settle(qtbot, window)
    actions = dock(window, "attention").actions_menu
    with qtbot.waitSignal(window.context.message, check_params_cb=lambda text: "ommand" in text):
        actions.copy_command()
    words = shlex.split(QGuiApplication.clipboard().text())
    assert words[:4] == ["circuitlab", "figure", "attention", "--at"]
    table = json.loads(words[4])
    assert [len(model["sha256"]) for model in table["models"].values()] == [64], "another model is never drawn"
    root = str(Path(__file__).resolve().parents[2])
    environment = os.environ | {"PYTHONPATH": root, "HOME": str(tmp_path / "home"), "LC_ALL": "C"}
    for words[-1] in ("attention.pdf", "attention.svg", "attention.png"):
        wanted = exported(qtbot, window, tmp_path / words[-1]).read_bytes()
        (tmp_path / words[-1]).unlink()
        command = [sys.executable, "-m", *words]
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=SECONDS, check=False)
        assert run.returncode == 0, run.stderr
        assert (tmp_path / words[-1]).read_bytes() == wanted, words[-1]
    settle(qtbot, window)


def test_a_session_in_python_is_what_the_window_shows(qtbot: Any, window: Window, tmp_path: Path) -> None:
    work_on(window)
    window.context.apply(replace(window.context.document.recorded, compare="difference"), "compare")
    settle(qtbot, window)
    save(qtbot, window, tmp_path / "talk.circuitlab")
    talk = lab.session(tmp_path / "talk.circuitlab")
    assert talk.now.state == window.context.document.recorded
    (answer,) = dock(window, "attention").feed.drawn_answers()["now"].values()
    heads = talk.now.state.selection.head
    np.testing.assert_array_equal(talk.now.compute("attention", set={"heads": heads}).result.values, answer.result.values)
