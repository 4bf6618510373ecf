"""A real window is killed while somebody works, again and again: the next one offers what was autosaved last, and goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from circuitlab.session_files.orphans import orphans
from circuitlab.story.setup import Encoded
from tests.conftest import ROOT
from tests.models import directory
from tests.patience import SECONDS

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


# -- how much work is lost ----------------------------------------------------------------------------------------------------

# For each line, the folder of a home, a process of its own with a window in which a number is typed into the prompt 20 times a
# second. It writes down in the file `log` there, by the clock: what was recorded, when an autosave began, and when it had ended.
# Everything is imported once; a process is forked before there is an application or a thread.
PERSONS = """
import os, signal, sys, time
from circuitlab.launch import import_torch, settle_environment
settle_environment()
import_torch()
from PySide6.QtCore import QTimer
from circuitlab.gui.shell import main
model = sys.argv[1]
def works(home):
    for name in ("STATE", "CONFIG", "CACHE"):
        os.environ[f"XDG_{name}_HOME"] = os.path.join(home, name.lower())
    log = os.open(os.path.join(home, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    def say(what, number=0):
        os.write(log, f"{what} {number} {time.monotonic()!r}\\n".encode())
    fitted = main.show_fitting
    def shown(window):
        fitted(window)
        for dock in window._panels():
            dock.hide()
        i, write = [0], window.autosave.write
        def begins():
            say("begun")
            write()
        def step():
            i[0] += 1
            window.prompt.editor.setPlainText(f"n {i[0]}")
            window.prompt.commit()
            assert window.context.document.recorded.text == f"n {i[0]}"
            say("recorded", i[0])
        window.autosave.timer.timeout.disconnect()
        window.autosave.timer.timeout.connect(begins)
        window.autosave.written.connect(lambda: say("ended"))
        timer = window.typing = QTimer(window)
        timer.timeout.connect(step)
        timer.start(50)
    main.show_fitting = shown
    main.open_window(model, "n 0")
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    process = os.fork()
    if not process:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(0)
        works(line.strip())
        os._exit(1)
    print(process, flush=True)
"""
AT_ONCE = 4  # windows; most of the time each waits for its timer
KILLS = 100
ALLOWED = 2.0  # s of work that may be lost, and one write


class Persons:
    """Windows in which somebody works, by the folder of their home; see `PERSONS`."""

    def __init__(self, model: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen", "OMP_NUM_THREADS": "1"}
        words, pipe = [sys.executable, "-c", PERSONS, str(model)], subprocess.PIPE
        self._server = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment, text=True)
        self._asking = threading.Lock()

    def begin(self, home: Path) -> int:
        """The number of the process of a new window."""
        home.mkdir()
        assert self._server.stdin is not None and self._server.stdout is not None
        with self._asking:
            self._server.stdin.write(f"{home}\n")
            self._server.stdin.flush()
            return int(self._server.stdout.readline())

    def end(self) -> None:
        """No more of them."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait()


def log_of(home: Path) -> list[tuple[str, int, float]]:
    """(what, number, clock) of each line that is whole."""
    lines = (home / "log").read_text().split("\n")[:-1] if (home / "log").exists() else []
    return [(what, int(number), float(clock)) for what, number, clock in map(str.split, lines)]


def runs(process: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def lost_by_a_kill(persons: Persons, home: Path, after: float) -> tuple[float, list[float]]:
    """(s of work that recovery does not give back of a window that is killed so long after its first change, s of each write)."""
    process = persons.begin(home)
    deadline = time.monotonic() + SECONDS
    while not log_of(home):
        assert time.monotonic() < deadline, "the window never came"
        time.sleep(0.02)
    time.sleep(after)
    os.kill(process, signal.SIGKILL)
    killed = time.monotonic()
    while runs(process):
        time.sleep(0.01)
    found = orphans(home / "state" / "circuitlab" / "recovery")
    assert not found.damaged and len(found.orphans) <= 1
    number = 0
    if found.orphans:
        prompt = found.orphans[0].read().now.prompt
        number = int((prompt.text if isinstance(prompt, Encoded) else str(prompt)).split()[1])
    log = log_of(home)
    recorded = {i: clock for what, i, clock in log if what == "recorded"}
    assert number == 0 or number in recorded, "what is offered was once shown, or was written as the process ended"
    begun = [clock for what, _, clock in log if what == "begun"]
    ended = [clock for what, _, clock in log if what == "ended"]
    first_lost = recorded.get(number + 1, killed)
    return max(0.0, killed - first_lost), [b - a for a, b in zip(begun, ended, strict=False)]


@POSIX
@pytest.mark.slow
def test_a_kill_at_any_moment_costs_two_seconds_of_work_at_most(tmp_path: Path) -> None:
    rng = random.Random(16)
    persons = Persons(directory(tmp_path / "model"))
    homes = [(tmp_path / f"home {i}", rng.random() * 4) for i in range(KILLS)]
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            results = list(pool.map(lambda one: lost_by_a_kill(persons, *one), homes))
    finally:
        persons.end()
    lost = sorted(seconds for seconds, _ in results)
    write = max(seconds for _, writes in results for seconds in writes)
    print(f"{KILLS} kills: {lost[KILLS // 2]:.2f} s of work lost (median), {lost[-1]:.2f} s at most; a write took {write:.3f} s")
    assert lost[-1] <= ALLOWED + write
    assert lost[-1] > 0.5, "nothing was lost: the clock or the kills are wrong"
