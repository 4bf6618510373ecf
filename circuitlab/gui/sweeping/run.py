"""A sweep that goes on in a process of its own: started, watched by its journal, stopped, taken up again.

It is `python -m circuitlab sweep DIR/spec.toml -o DIR` in a session of its own, so that neither the end of the window nor Ctrl+C
in its terminal reaches it. What is shown is read from the folder, whoever works on it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Slot

from circuitlab.child_process import environment, python, started
from circuitlab.counting import number_of
from circuitlab.disk.file_lock import holder_of
from circuitlab.disk.own_files import fresh_file
from circuitlab.errors import CircuitLabError, cause
from circuitlab.gui.work.own_process import in_words
from circuitlab.gui.work.processes import OwnProcess
from circuitlab.interrupts import STATUS
from circuitlab.sweep.journal import NAME
from circuitlab.sweep.record import LOCK, LOG
from circuitlab.sweep.status import Watch
from circuitlab.sweep.table import LEFT
from circuitlab.sweep.time_left import duration
from circuitlab.sweep.work import DONE

EVERY, AT_ONCE = 500, 20  # ms between two looks at its folder, and where there is more to read
TAIL = 4000  # bytes at the end of what it said that are read for an error


class SweepRun(OwnProcess):
    """A sweep in a folder. `outcome`: "" while it works, then "done", "stopped" or "failed"; `error` says why it failed;
    `counts`: how many of its questions have each status."""

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.folder, self.title = folder, f"sweep {folder.name}"
        self.counts: dict[str, int] = {}
        self.outcome, self.error = "", ""
        self._process: subprocess.Popen[bytes] | None = None
        self._asked_to_stop = False
        self._watch = Watch(folder)
        self._began: tuple[float, int] | None = None  # when it was first seen at work, and how much was done then
        self._timer = QTimer(self)
        self._timer.setInterval(EVERY)
        self._timer.timeout.connect(self.look)

    # -- what it does -------------------------------------------------------------------------------------------------------

    def start(self, arguments: Sequence[str], program: str = sys.executable) -> None:
        """Start the process, whose words go to a file of the folder."""
        try:
            with fresh_file(self.folder / LOG) as log:
                env = environment(finds_us=True, PYTHONIOENCODING="utf-8")
                words = python(*arguments, program=program)
                self._process = started(words, stdout=log, stderr=subprocess.STDOUT, env=env, apart=True)
        except OSError as error:
            self._end("failed", f"The process could not be started: {cause(error)}")
            return
        self._timer.start()
        self.changed.emit()

    def take_up(self) -> None:
        """Watch what is in the folder already, whoever works on it. Raises `BadInput` where it holds no sweep."""
        self.counts = self._watch.look()
        self.look()
        if self.running:
            self._timer.start()

    @property
    def pid(self) -> int:
        """The process that works on it on this machine, 0 without one."""
        if self._process is not None:
            return self._process.pid if self._process.returncode is None else 0
        holder = holder_of(self.folder / LOCK)
        return holder.pid if holder is not None and holder.machine == platform.node() else 0

    @property
    def running(self) -> bool:
        """Whether a process works on it, as far as was seen."""
        return not self.outcome

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop, and has not ended."""
        return self._asked_to_stop and self.running

    @Slot()
    def stop(self) -> None:
        """Interrupt it as Ctrl+C does: what is done is kept, and the tables are written. The second time it is killed."""
        if not self.running or not (pid := self.pid):
            return
        gently = not self._asked_to_stop and sys.platform != "win32"
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.kill(pid, signal.SIGINT if gently else getattr(signal, "SIGKILL", signal.SIGTERM))
        self._asked_to_stop = True
        self.changed.emit()

    def leave(self) -> None:
        """Look at it no more; it goes on."""
        self._timer.stop()
        if self._process is not None and self._process.poll() is None:
            self._process.returncode = 0  # nobody waits for it here any more, which Python would complain of

    # -- how far it is ------------------------------------------------------------------------------------------------------

    @Slot()
    def look(self) -> None:
        """Read on in its folder, and see whether it has ended."""
        ended = self._ended()  # before its files, which are whole once it has
        with contextlib.suppress(CircuitLabError, OSError):  # it has not planned yet, or the folder is gone
            self.counts = self._watch.look()
            self.title = f"sweep {self._watch.plan.title or self.folder.name}"
            if self._began is None:
                self._began = time.monotonic(), self.answered
        self._timer.setInterval(AT_ONCE if self._watch.behind else EVERY)
        if ended is None or self._watch.behind:
            self.changed.emit()
            return
        outcome, error = ended
        self._end(outcome or ("stopped" if self.counts.get(LEFT) else "done"), error)

    @property
    def questions(self) -> int:
        """How many it asks; 0 while it is not known."""
        return sum(self.counts.values())

    @property
    def answered(self) -> int:
        """How many of these are settled: done, refused or failed."""
        return self.questions - self.counts.get(LEFT, 0)

    def _ended(self) -> tuple[str, str] | None:
        """(outcome, error) of a process that has ended, the outcome "" where its files say it; None while it works."""
        if self._process is None:
            return None if holder_of(self.folder / LOCK) is not None else ("", "")
        status = self._process.poll()
        if status is None:
            return None
        if status == STATUS or (self._asked_to_stop and status != 0):
            return "stopped", ""
        return ("done", "") if status == 0 else ("failed", self._why(status))

    def _why(self, status: int) -> str:
        output = ""
        with contextlib.suppress(OSError), (self.folder / LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            output = file.read().decode("utf-8", "replace").strip()
        if status < 0:
            return "The process was killed or crashed; the same sweep goes on from where it was."
        return in_words(output) or f"The process ended with exit status {status} and said nothing."

    def _end(self, outcome: str, error: str = "") -> None:
        self._timer.stop()
        self.outcome, self.error = outcome, error
        self.changed.emit()

    def words(self) -> str:
        """How far it is, or what has become of it."""
        asked = f"{self.answered:,} of {number_of(self.questions, 'question')}"
        rest = [f"{n:,} {status}" for status, n in sorted(self.counts.items()) if status not in (DONE, LEFT)]
        if self.outcome == "failed":
            return f"failed: {' '.join(self.error.split())}"
        if not self.questions:
            return "reading models and prompts" if self.running else "stopped before it began"
        if self.outcome:
            return " · ".join([f"{self.outcome}: {asked}", *rest])
        left = self._left()
        return " · ".join([asked, *rest, *([f"about {duration(left)} left"] if left else []), *(["stopping"] * self.stopping)])

    def _left(self) -> float | None:
        """Seconds that are left at the pace of the answers that were seen to come; None before there are any."""
        if self._began is None or not (came := self.answered - self._began[1]):
            return None
        return (time.monotonic() - self._began[0]) / came * self.counts.get(LEFT, 0)

    @property
    def shows(self) -> bool:
        """Whether there are answers to look at."""
        return self.answered > 0 and (self.folder / NAME).exists()
