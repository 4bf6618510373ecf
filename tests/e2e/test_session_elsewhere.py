"""A session with results on another machine: another home, folder and locale, and no model. The same figures in a real window."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.gui.sessions.file_work import FRONTS
from circuitlab.report.saved_session import opened_session
from circuitlab.session_files.results import file_bytes
from tests.conftest import ROOT
from tests.figure_prints import figure_print
from tests.patience import SECONDS
from tests.unit.test_session_results import SHOWN, talk

# Opens a session by its dialog's button in a real window, walks its story, and prints each panel's figure by its hash, and why
# one that is not stored is empty.
WINDOW = """
import json, os, sys, time, traceback
from pathlib import Path
from circuitlab.launch import import_torch, settle_environment
settle_environment()
import_torch()
from PySide6.QtTest import QTest
from circuitlab.draw.look.app import application
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.sessions.models_dialog import ModelsDialog
from circuitlab.gui.shell.main import make_window
from tests.figure_prints import figure_print
from tests.patience import SECONDS

def stop(*error):
    traceback.print_exception(*error)
    sys.stderr.flush()
    os._exit(1)  # its workers would go on

sys.excepthook = stop

def until(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        QTest.qWait(10)

app = application()
window = make_window("builtin:attn-only-2l", "a b", remember=True)
window.resize(1280, 800)
window.show()
settled = lambda: not window.waiting and not window.context.runner.busy
until(settled)
opened = []
window.sessions.opened.connect(lambda: opened.append(1))
window.sessions.open(Path(sys.argv[1]))
until(lambda: window.findChildren(ModelsDialog))
dialog = window.findChildren(ModelsDialog)[0]
until(dialog.results.isEnabled)
dialog.results.click()
until(lambda: opened)
until(settled)

def figures(names):
    prints = {}
    for name in names:
        dock = window.docks[name]
        window.layout_of_docks.go_to(name)
        until(lambda: dock.shown)
        until(settled)
        figure = dock.feed.figure()
        prints[name] = figure_print(figure), any("stored" in part for part in figure.caption_parts)
    return prints

shown = json.loads(sys.argv[2])
result = {"0": figures(shown["0"]), "source": window.context.document.recorded.model.source}
window.layout_of_docks.go_to("bigram")
until(settled)
result["why"] = window.docks["bigram"].feed.figure().why_empty
window.lessons.open()
tour = window.lessons.tour
window.lessons.begin_own(0)
for i in ("1", "2", "3"):
    tour.go(int(i) - 1)
    until(lambda: tour.ready is not None and settled())
    result[i] = figures(shown[i])
    result[f"values {i}"] = dict(tour.value_texts)
tour.leave()
print("RESULT " + json.dumps(result))
window.close()
"""


@pytest.mark.slow
def test_a_moved_session_is_the_same_in_a_window_without_its_model(tmp_path: Path) -> None:
    path = talk(tmp_path / "here")
    live = opened_session(path, Engine(ModelStore()))
    file = live.with_results(FRONTS)
    places = (live.now, *live.steps)
    wanted = {str(i): {name: figure_print(places[i].figure(name).figure) for name in names} for i, names in SHOWN.items()}
    home = tmp_path / "another home"
    (home / "talks").mkdir(parents=True)
    moved = home / "talks" / "Vortrag ü.circuitlab"
    moved.write_bytes(file_bytes(file.session, path.parent, file.results))
    shutil.rmtree(tmp_path / "here")
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("XDG_", "LC_", "LANG"))}
    environment |= {"HOME": str(home), "LC_ALL": "C", "PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen"}
    command = [sys.executable, "-c", WINDOW, moved.name, json.dumps(SHOWN)]
    run = subprocess.run(
        command, cwd=moved.parent, env=environment, capture_output=True, text=True, timeout=2 * SECONDS, check=False
    )
    line = next((line for line in run.stdout.splitlines() if line.startswith("RESULT ")), "")
    assert line, run.stderr[-3000:]
    result = json.loads(line.removeprefix("RESULT "))
    assert result["source"].startswith("stored:")
    for i, names in wanted.items():
        assert {name: one[0] for name, one in result[i].items()} == names, i
        assert all(marked for _, marked in result[i].values()), i
    assert "not on this machine" in result["why"]
    assert result["values 2"]["loss"] == format(places[2].compute("token_loss").result.mean, ".2f")
