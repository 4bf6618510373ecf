"""A real window is killed while somebody works, again and again: the next one offers what was autosaved last, and goes on."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
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
    """What a window said that was killed some changes after so many autosaves."""
    words = [sys.executable, "-c", WORKS, str(model), "take" if take else "", str(begin)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen"}
    said: list[list[str]] = []
    more = rng.randrange(1, 40)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True) as window:
        assert window.stdout is not None
        for line in window.stdout:
            said.append(line.split(" ", 1))
            autosaves -= line.startswith("autosaved n")
            more -= autosaves <= 0 and line.startswith("recorded")
            if not more:
                window.send_signal(signal.SIGKILL)
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
        result = orphans()
        assert len(result.orphans) == 1 and not result.damaged, "the one that was recovered has gone over into the new one"
        prompt = result.orphans[0].read().now.prompt
        number = int((prompt.text if isinstance(prompt, Encoded) else str(prompt)).split()[1])
        assert last_of(said, "autosaved") <= number <= last_of(said, "recorded")
        assert json.loads(result.orphans[0].copies[0].read_bytes())["pid"] not in (0, os.getpid())


# -- how much work is lost ----------------------------------------------------------------------------------------------------

# For each line, the folder of a home, a process of its own with a window in which a number is typed into the prompt 20 times a
# second. It says through the pipe `log` there, in order: what was recorded and whether an autosave is then on its way, when its
# timer was started and for how long, when an autosave began and when it had ended. Everything is imported once; a process is
# forked before there is an application or a thread. A number in a line: wait for the end of this process.
PERSONS = """
import os, sys
from circuitlab.launch import import_torch, settle_environment
settle_environment()
import_torch()
from PySide6.QtCore import QTimer
from circuitlab.gui.shell import main
model = sys.argv[1]
def works(home):
    for name in ("STATE", "CONFIG", "CACHE"):
        os.environ[f"XDG_{name}_HOME"] = os.path.join(home, name.lower())
    log = os.open(os.path.join(home, "log"), os.O_WRONLY)
    def say(what, number=0, more=0):
        os.write(log, f"{what} {number} {more}\\n".encode())
    fitted = main.show_fitting
    def shown(window):
        fitted(window)
        for dock in window._panels():
            dock.hide()
        i, autosave = [0], window.autosave
        write, start = autosave.write, autosave.timer.start
        def begins():
            say("begun")
            write()
        def starts(ms):
            say("timer", ms)
            start(ms)
        def step():
            i[0] += 1
            window.prompt.editor.setPlainText(f"n {i[0]}")
            window.prompt.commit()
            assert window.context.document.recorded.text == f"n {i[0]}"
            say("recorded", i[0], int(autosave.waiting))
        autosave.timer.start = starts
        autosave.timer.timeout.disconnect()
        autosave.timer.timeout.connect(begins)
        autosave.written.connect(lambda: say("ended"))
        timer = window.typing = QTimer(window)
        timer.timeout.connect(step)
        timer.start(50)
    main.show_fitting = shown
    main.open_window(model, "n 0")
for line in sys.stdin:
    if line.strip().isdigit():
        os.waitpid(int(line), 0)
        print("gone", flush=True)
        continue
    process = os.fork()
    if not process:
        os.close(0)
        works(line.strip())
        os._exit(1)
    print(process, flush=True)
"""
AT_ONCE = 4  # windows; most of the time each waits for its timer
KILLS = 100
MOST_LINES = 90  # that a window says before it is killed: some four seconds of typing
INTERVAL = 1500  # ms at most from a change to the autosave of it; two seconds are promised, with the writing


class Persons:
    """Windows in which somebody works, by the folder of their home; see `PERSONS`."""

    def __init__(self, model: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen", "OMP_NUM_THREADS": "1"}
        words, pipe = [sys.executable, "-c", PERSONS, str(model)], subprocess.PIPE
        self._server = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment, text=True)
        self._asking = threading.Lock()

    def begin(self, home: Path) -> int:
        """The number of the process of a new window."""
        return int(self._asked(str(home)))

    def kill(self, process: int) -> None:
        """Kill one, and wait for its end."""
        os.kill(process, signal.SIGKILL)
        assert self._asked(str(process)) == "gone"

    def _asked(self, line: str) -> str:
        assert self._server.stdin is not None and self._server.stdout is not None
        with self._asking:
            self._server.stdin.write(f"{line}\n")
            self._server.stdin.flush()
            return self._server.stdout.readline().strip()

    def end(self) -> None:
        """No more of them."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait()


Line = tuple[str, int, int]


def lines_of(log: int, most: int) -> list[Line]:
    """What comes through a pipe that nobody waits at, until so many lines have come or its writer has gone."""
    waiting, data = select.poll(), b""
    waiting.register(log, select.POLLIN)
    while data.count(b"\n") < most:
        assert waiting.poll(SECONDS * 1000), "the window never came"
        if not (piece := os.read(log, 65536)):
            break
        data += piece
    whole = data.decode().split("\n")[:-1]  # each is written at once
    return [(what, int(number), int(more)) for what, number, more in map(str.split, whole)]


def said_before_a_kill(persons: Persons, home: Path, after: int) -> tuple[list[Line], int]:
    """(what a window said that was killed after so many lines, the number that is offered of its work; 0 where none is)."""
    home.mkdir()
    os.mkfifo(home / "log")
    log = os.open(home / "log", os.O_RDONLY | os.O_NONBLOCK)
    try:
        process = persons.begin(home)
        said = lines_of(log, after)
        persons.kill(process)
        said += lines_of(log, sys.maxsize)
    finally:
        os.close(log)
    result = orphans(home / "state" / "circuitlab" / "recovery")
    assert not result.damaged and len(result.orphans) <= 1
    if not result.orphans:
        return said, 0
    prompt = result.orphans[0].read().now.prompt
    return said, int((prompt.text if isinstance(prompt, Encoded) else str(prompt)).split()[1])


def bounds(said: list[Line]) -> tuple[int, int]:
    """What an autosave that had ended must have kept, and the most that one can have kept which may have ended as well."""
    recorded, begun, least = 0, 0, 0
    for what, number, _ in said:
        if what == "recorded":
            recorded = number
        elif what == "begun":
            begun = recorded
        elif what == "ended":
            least = begun
    return least, begun


@POSIX
@pytest.mark.slow
def test_a_kill_at_any_moment_costs_what_came_since_the_last_autosave_began(tmp_path: Path) -> None:
    """And one begins an interval after the first change that is not kept: none is waited for longer, whatever else is typed."""
    rng = random.Random(16)
    persons = Persons(directory(tmp_path / "model"))
    homes = [(tmp_path / f"home {i}", rng.randrange(1, MOST_LINES)) for i in range(KILLS)]
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            results = list(pool.map(lambda one: said_before_a_kill(persons, *one), homes))
    finally:
        persons.end()
    for said, offered in results:
        least, most = bounds(said)
        assert least <= offered <= most, said[-20:]
        assert all(waiting for what, _, waiting in said if what == "recorded"), "a change for which no autosave is on its way"
        started = [(what, number) for what, number, _ in said if what in ("timer", "begun")]
        for (what, ms), (after, _) in pairwise(started):
            assert what != "timer" or (ms <= INTERVAL and after == "begun"), "an autosave that is put off"
    last = [max((number for what, number, _ in said if what == "recorded"), default=0) for said, _ in results]
    assert any(0 < offered < typed for (_, offered), typed in zip(results, last, strict=True)), "each was killed as one had ended"
