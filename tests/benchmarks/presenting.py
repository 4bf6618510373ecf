"""Presenting: from the key of a clicker to the painted step, on a stage of a full HD screen; what preparing costs; a report."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks.common import PEAK, ROOT, THREADS, WORK, Row, child, environment, gpt2_small, ratio

# Twenty steps of one prompt on a model of GPT-2 small's shape: heads one after another, two panels beside each other, a head
# ablated, all spectra. Painted means that something of each view of the step has been painted after the key, and no answer is
# outstanding; the processor time is that of the window's thread.
TALK = (
    """
import json, sys, time, statistics
import torch
torch.set_num_threads(int(sys.argv[2]))
from dataclasses import replace
from PySide6.QtCore import QEvent, QEventLoop, QObject, Qt
from PySide6.QtTest import QTest
from circuitlab.draw.look.app import application
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.gui.shell import main as gui
from circuitlab.gui.presenter.stage import Stage
from circuitlab.session_files.model_table import with_models
from circuitlab.story.setup import Other, Setup
from circuitlab.story.story import Step, Story
app = application(offscreen=True)
torch.manual_seed(1)
window = gui.make_window(sys.argv[1], None, remember=False)
window.resize(1280, 800); window.show()
for dock in window.docks.values():
    dock.hide()
ref = window.context.document.recorded.model
n = int(sys.argv[3])
ids = tuple(torch.randint(0, 50257, (n,)).tolist())
name = next(iter(with_models({}, [ref])))
def step(i):
    head = f'L{i % 12}H{(5 * i) % 12}'
    show = (('attention',), ('attention', 'predictions'), ('attention',), ('logit_lens',), ('attention', sys.argv[5]))[i % 5]
    cut = (head,) if i % 5 == 1 else ()
    pin = (Other(Setup(cut=()), 'uncut'),) if cut else ()
    return Step(f'Step {i + 1}', 'A line of text.', Setup(model=name, prompt=ids, heads=(head,), cut=cut, pin=pin,
                destination=n - 1, show=show))
story = Story('A talk', tuple(map(step, range(20))))
work = window.context.document.work
window.context.document.edit(replace(work, story=story, models=with_models({}, [ref])), 'talk')
def settle():
    while window.waiting or window.context.runner.busy or window.context.loader.waiting:
        app.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 5)
settle()
class Painted(QObject):
    # the views of which something has been painted since the key
    seen = set()
    def eventFilter(self, watched, event):
        if event.type() == QEvent.Type.Paint:
            while watched is not None and not isinstance(watched, FigureView):
                watched = watched.parent()
            self.seen.add(watched)
        return False
painted = Painted()
def staged():
    steps = window.preparing.readiness.steps
    stage = Stage(story, window.context, None, {i: s.ready for i, s in enumerate(steps) if s.ready is not None})
    stage.resize(1920, 1080); stage.show(); stage.go(0)
    while stage.waiting or window.context.runner.busy:
        app.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 5)
    app.processEvents()
    return stage
def key(stage, which):
    painted.seen.clear()
    a, busy = time.perf_counter(), time.thread_time()
    app.installEventFilter(painted)
    QTest.keyClick(stage.windowHandle(), which)
    while True:
        app.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 5)
        views = [feed.view for feed in stage.views.feeds]
        if views and not stage.waiting and all(view in painted.seen for view in views):
            app.removeEventFilter(painted)
            return time.perf_counter() - a, time.thread_time() - busy
def walk(stage):
    return [key(stage, Qt.Key.Key_PageDown) for _ in range(len(story.steps) - 1)]
def bare(stage):
    # the figures of a step, shown and painted again by nothing but their views
    views = [(feed.view, feed.figure()) for feed in stage.views.feeds]
    a = time.perf_counter()
    for view, figure in views:
        view.show_figure(figure)
    stage.page.repaint()
    return time.perf_counter() - a
def quantiles(times):
    walls = sorted(wall for wall, _ in times)
    return dict(p50=statistics.median(walls), p95=walls[int(.95 * (len(walls) - 1))], most=walls[-1],
                busy=statistics.median(busy for _, busy in times))
"""
    + PEAK
)

COLD = (
    TALK
    + """
stage = staged()
print(json.dumps(quantiles(walk(stage))))
stage.end(); window.close()
"""
)

PREPARED = (
    TALK
    + """
before = rss(); a = time.perf_counter()
window.preparing.prepare()
while window.preparing.busy:
    app.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 5)
took = time.perf_counter() - a
ready = window.preparing.readiness
assert ready.is_ready, ready.line
window.context.engine.cache.clear()
grown = rss() - before
stage = staged()
first = quantiles(walk(stage))
again, paints = [], []
for _ in range(int(sys.argv[4])):
    key(stage, Qt.Key.Key_Home)
    for _ in range(len(story.steps) - 1):
        again.append(key(stage, Qt.Key.Key_PageDown)); paints.append(bare(stage))
beyond = statistics.median(x - y for (x, _), y in zip(again, paints))
print(json.dumps(dict(took=took, held=ready.nbytes, models=len(ready.models), grown=grown, first=first, again=quantiles(again),
                      bare=statistics.median(paints), beyond=beyond)))
stage.end(); window.close()
"""
)


WRITE = """
import sys
from pathlib import Path
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.session import ModelEntry, Session
from circuitlab.session_files.session_text import bytes_of
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
path = Path(sys.argv[1])
shown = sys.argv[4].split()
setup = lambda i, name: Setup(model='m', prompt=sys.argv[3], heads=(f'L{i % 2}H{i % 4}',), destination=9, show=(name,))
steps = tuple(Step(f'Step {i}', 'A line of *text*.', setup(i, name)) for i, name in enumerate(shown))
now = Setup(model='m', prompt=sys.argv[3], show=('attention',))
session = Session({'m': ModelEntry(ModelRef(f'builtin:{sys.argv[2]}'))}, now, Story('Ten figures', steps))
path.write_bytes(bytes_of(session, path.parent))
print('{}')
"""
TEXT = "Captain Harville and Miss Penrose walked on, and Captain Harville and Miss Penrose sat down"


def milliseconds(times: dict[str, float]) -> str:
    """Quantiles from key to painted, and the processor time of the window's thread."""
    names = (("p50", "p50"), ("p95", "p95"), ("max", "most"), ("window's thread", "busy"))
    return " · ".join(f"{name} {1e3 * times[key]:.0f} ms" for name, key in names)


def rows(quick: bool) -> list[Row]:
    """All of them."""
    words = (
        str(gpt2_small()),
        str(THREADS),
        "32" if quick else "64",
        "1" if quick else "3",
        "predictions" if quick else "spectra",
    )
    cold, result = child(COLD, *words), child(PREPARED, *words)
    held = f"{result['took']:.1f} s, {result['held'] / 2**20:.1f} MiB held, process +{result['grown'] / 2**20:.0f} MiB"
    beyond = f"{1e3 * result['beyond']:.0f} ms beyond {1e3 * result['bare']:.0f}"
    first, again = result["first"], result["again"]
    return [
        Row("key to painted step, held", "its figures shown and painted", beyond, "≤ 50 ms", result["beyond"] <= 0.05),
        Row(
            "a prepared talk of 20 steps, 124 M parameters: key to painted",
            "",
            milliseconds(again),
            "p50 ≤ 50 ms",
            again["p50"] <= 0.05,
        ),
        Row("the first time through, its views being made", "", milliseconds(first), "p50 ≤ 100 ms", first["p50"] <= 0.1),
        Row("the same talk unprepared", "", milliseconds(cold), "", None),
        Row("preparing it", "", held, "", None),
        report(3 if quick else 5),
    ]


def report(rounds: int) -> Row:
    """A report of ten figures, in one process, against the same ten written one at a time by the command line."""
    folder = WORK / "report"
    folder.mkdir(exist_ok=True)
    path = folder / "ten figures.circuitlab"
    panels = "attention predictions attention composition attention logit_lens attention heads attention spectra".split()
    child(WRITE, str(path), "attn-only-2l", TEXT, " ".join(panels))
    times: list[tuple[float, float]] = []
    for _ in range(rounds):
        whole = commanded("report", path, "-o", folder / "ten.html")
        each = sum(
            commanded("figure", name, "--at", f"{path}#{i + 1}", "-o", folder / f"{i}.svg") for i, name in enumerate(panels)
        )
        times.append((whole, each))
    ours, peer = (statistics.median(t[i] for t in times) for i in (0, 1))
    note = f" ({ours:.1f} against {peer:.1f} s, {(folder / 'ten.html').stat().st_size / 1024:.0f} KiB)"
    return ratio(
        "a report of ten figures", "the same ten, circuitlab figure", statistics.median(a / b for a, b in times), 0.5, note
    )


def commanded(*words: str | Path) -> float:
    """Seconds of one command."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "circuitlab", *map(str, words)]
    subprocess.run(command, env=environment(), cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - began
