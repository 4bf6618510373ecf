"""Sessions: opening one, with and without its model, against a cold start of the same view; saving one of ten steps."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time

from safetensors.torch import load_file, save_file

from tests.benchmarks.common import ROOT, WORK, Row, child, environment, ratio

# Both wait for the same panel to be painted, in a window of the same size; what differs is what the window is begun with.
PAINTED = """
import os, sys
from circuitlab import launch
launch.settle_environment(); launch.import_torch()
from circuitlab.gui.shell import main as gui
from circuitlab.draw.look.app import application
app = application(offscreen=True)
window = gui.make_window(*(word or None for word in sys.argv[1:3]), remember=False)
window.resize(1280, 800); window.show()
panel = window.docks['attention']
while panel.waiting or not panel.view.figure.grid:
    app.processEvents()
panel.view.repaint()
os._exit(0)
"""

KEPT = """
import sys, time
import torch
from pathlib import Path
from circuitlab.gui.shell import main as gui
from circuitlab.draw.look.app import application
from circuitlab.model.subject import Head
app = application(offscreen=True)
window = gui.make_window(sys.argv[2], sys.argv[3], remember=False)
window.resize(1280, 800); window.show()
context, own = window.context, window.lessons.own_steps
def settle():
    while window.waiting or context.runner.busy or window.prompt.timer.isActive() or window.lessons.waiting:
        app.processEvents()
settle()
def saved(path):
    window.sessions.save_to(Path(path))
    while window.sessions.saves.busy:
        app.processEvents()
"""

PREPARE = (
    KEPT
    + """
saved(sys.argv[1])
print('{}')
window.close()
"""
)

SAVE = (
    KEPT
    + """
import json, os, statistics
state = context.document.recorded
for i in range(10):
    context.apply(state.with_heads(Head(i // 4 % 2, i % 4)), 'head'); settle()
    own.keep_view(); settle()
assert len(window.lessons.own.story.steps) == 10
path = sys.argv[1]
saved(path)
def bare(data):
    with open(path + '.bare', 'wb') as file:
        file.write(data); file.flush(); os.fsync(file.fileno())
times = []
for i in range(int(sys.argv[4])):
    context.apply(state.with_heads(Head(i % 2, i % 3)), 'head'); settle()
    a = time.perf_counter(); saved(path); b = time.perf_counter()
    data = open(path, 'rb').read()
    c = time.perf_counter(); bare(data); times.append((b - a, time.perf_counter() - c))
print(json.dumps(dict(ours=statistics.median(t[0] for t in times), bare=statistics.median(t[1] for t in times), size=len(data))))
window.close()
"""
)
# The model is gone: the one question is answered by “Open with its results only”.
STORED = """
import os, sys
from pathlib import Path
from circuitlab import launch
launch.settle_environment(); launch.import_torch()
from circuitlab.gui.shell import main as gui
from circuitlab.gui.sessions.models_dialog import ModelsDialog
from circuitlab.draw.look.app import application
app = application(offscreen=True)
window = gui.make_window(None, None, remember=False)
window.resize(1280, 800); window.show()
window.sessions.open(Path(sys.argv[1]))
def wait(until):
    while not until():
        app.processEvents()
    return until()
dialog = wait(lambda: next((d for d in window.findChildren(ModelsDialog) if d.isVisible()), None))
dialog.results.click()
wait(lambda: window.sessions.path is not None)
panel = window.docks['attention']
wait(lambda: not panel.waiting and any('stored' in part for part in panel.view.figure.caption_parts))
panel.view.repaint()
os._exit(0)
"""
# All is computed before: what differs is the page around the figures.
REPORT = """
import json, statistics, sys, time
from pathlib import Path
import circuitlab.api as lab
talk, folder = lab.session(sys.argv[1]), Path(sys.argv[2])
folder.mkdir(exist_ok=True)
def pictures():
    for i, step in enumerate(talk.steps):
        for panel in step.setup.show:
            step.figure(panel, out=folder / f'{i}-{panel}.svg')
def seconds(act):
    a = time.perf_counter(); act(); return time.perf_counter() - a
acts = dict(page=lambda: talk.report(folder / 'a.html'), pdf=lambda: talk.report(folder / 'a.pdf'), pictures=pictures)
for act in acts.values():
    act()
times = [{name: seconds(act) for name, act in acts.items()} for _ in range(int(sys.argv[3]))]
print(json.dumps({name: statistics.median(one[name] for one in times) for name in acts}))
"""
MODEL, TEXT = "attn-only-2l", "Captain Harville and Miss Penrose walked on, and Captain Harville and Miss Penrose sat down"


def rows(quick: bool) -> list[Row]:
    """All of them."""
    rounds = 3 if quick else 7
    talk, ten = WORK / "talk.circuitlab", WORK / "ten steps.circuitlab"
    child(PREPARE, str(talk), MODEL, TEXT)
    cold, opened, share = starts((MODEL, TEXT), (str(talk), ""), rounds)
    note = f" ({opened:.2f} against {cold:.2f} s)"
    out = [ratio("a session to its first painted panel", "a cold start of the same view", share, 1.1, note)]
    out.append(without_its_model(rounds))
    found = child(SAVE, str(ten), MODEL, TEXT, "8" if quick else "20")
    ours, bare = found["ours"] * 1e3, found["bare"] * 1e3
    said = f"{ours:.0f} against {bare:.1f} ms, {found['size'] / 1024:.1f} KiB"
    out.append(Row("saving a session of ten steps", "write + fsync of its bytes", said, "≤ 100 ms", ours <= 100))
    return [*out, *reports(str(ten), "3" if quick else "7")]


def reports(session: str, rounds: str) -> list[Row]:
    """A report of ten steps as a page and as PDF, each against their figures as SVG files."""
    measured = child(REPORT, session, str(WORK / "reports"), rounds)
    note = {name: f" ({measured[name]:.2f} against {measured['pictures']:.2f} s)" for name in ("page", "pdf")}
    peer = "every figure of each step as SVG"
    shares = {name: measured[name] / measured["pictures"] for name in note}
    return [ratio(f"a report of ten steps as {name}", peer, shares[name], 2.0, note[name]) for name in note]


def without_its_model(rounds: int) -> Row:
    """A session with its results inside, whose model is taken away, against a cold start while that is there."""
    folder, gone = WORK / "stored", WORK / "taken away"  # not beside the session, where it would be found
    there = folder / "mine"
    for old in (folder, gone):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(ROOT / "models" / MODEL, there)
    weights = there / "model.safetensors"
    save_file({name: tensor * 1.001 for name, tensor in load_file(weights).items()}, weights)  # no longer the shipped one
    talk, stored = folder / "talk.circuitlab", folder / "stored.circuitlab"
    child(PREPARE, str(talk), str(there), TEXT)
    command = [sys.executable, "-m", "circuitlab", "session", str(talk), "--results", "-o", str(stored)]
    subprocess.run(command, env=environment(), cwd=ROOT, check=True, capture_output=True)
    times: list[tuple[float, float]] = []
    for _ in range(rounds + 1):
        cold = start((str(there), TEXT))
        there.rename(gone)
        times.append((cold, start((str(stored),), STORED)))
        gone.rename(there)
    cold, opened = (statistics.median(t[i] for t in times[1:]) for i in (0, 1))
    share = statistics.median(b / a for a, b in times[1:])
    note = f" ({opened:.2f} against {cold:.2f} s, {stored.stat().st_size / 1024:.0f} KiB)"
    what = "a session with results, its model gone and asked about, to the same panel"
    return ratio(what, "a cold start with the model", share, 2, note)


def starts(one: tuple[str, str], other: tuple[str, str], rounds: int) -> tuple[float, float, float]:
    """Median seconds of two starts, each a process of its own, in turn; and the median of other/one round by round."""
    times: list[tuple[float, float]] = []
    for _ in range(rounds + 1):
        times.append((start(one), start(other)))
    warm = times[1:]
    return (
        statistics.median(t[0] for t in warm),
        statistics.median(t[1] for t in warm),
        statistics.median(t[1] / t[0] for t in warm),
    )


def start(words: tuple[str, ...], code: str = PAINTED) -> float:
    """Seconds of a process from its start to its first painted panel. `words`: what `make_window` is given, or the code."""
    began = time.perf_counter()
    command = [sys.executable, "-c", code, *words]
    subprocess.run(command, env=environment(), cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - began
