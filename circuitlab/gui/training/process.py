"""The process that trains: started, asked to stop, taken up again, or handed over so that it outlives the window.

`python -m circuitlab train …` with this interpreter. It saves its state on SIGTERM and now and then, so nothing is lost when it
ends in whatever way: the same command goes on from there. Where there is no SIGTERM, stopping kills it and what it did since it
saved last is done again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, QTimer, Signal, Slot

import circuitlab
from circuitlab.gui.training.job import TrainingJob
from circuitlab.training.files import holder_of

PATIENCE = 15_000  # ms after which a process that was asked to stop is killed
TAIL = 4000  # characters of what it said on stderr that are kept
LOG = "train.log"
ELSEWHERE = "Another process is training in this folder."
STOPPED, TYPED = 130, (2, 3, 4)  # exit codes; see `circuitlab.errors`


def environment() -> QProcessEnvironment:
    """Ours, where the process finds the same CircuitLab: in a checkout as well as installed."""
    made = QProcessEnvironment.systemEnvironment()
    home = str(Path(circuitlab.__file__).resolve().parent.parent)
    known = made.value("PYTHONPATH", "")
    made.insert("PYTHONPATH", home if not known else f"{home}{os.pathsep}{known}")
    made.insert("PYTHONIOENCODING", "utf-8")
    return made


class TrainingProcess(QObject):
    """`said(line)` for each line of output, `changed()` when it starts, is asked to stop, or has ended.

    `outcome`: "" before the end and while it runs, else "done", "stopped" or "failed"; `error` says why it failed.
    """

    said = Signal(str)
    changed = Signal()

    def __init__(self, parent: QObject | None = None, program: str = sys.executable) -> None:
        super().__init__(parent)
        self.program = program
        self.job: TrainingJob | None = None
        self.outcome, self.error, self.stopping = "", "", False
        self._rest, self._complaints = "", ""
        self._process = QProcess(self)
        self._process.setProcessEnvironment(environment())
        self._process.readyReadStandardOutput.connect(self._read)
        self._process.readyReadStandardError.connect(self._read_error)
        self._process.finished.connect(self._finished)
        self._process.errorOccurred.connect(self._broken)
        self._patience = QTimer(self)
        self._patience.setSingleShot(True)
        self._patience.timeout.connect(self.kill)

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self._process.state() != QProcess.ProcessState.NotRunning

    @property
    def pid(self) -> int:
        """Of the process, 0 without one."""
        return int(self._process.processId())

    def start(self, job: TrainingJob) -> None:
        """Start, or go on with, a run."""
        if self.running:
            return
        self.job, self.outcome, self.error, self.stopping = job, "", "", False
        self._rest = self._complaints = ""
        self._process.start(self.program, job.arguments())
        self.changed.emit()

    @Slot()
    def resume(self) -> None:
        """The same once more: it goes on from what was saved last."""
        if self.job is not None:
            self.start(self.job)

    @Slot()
    def stop(self) -> None:
        """Ask it to save and end; the second time, or when it takes too long, it is killed."""
        if not self.running:
            return
        if self.stopping or sys.platform == "win32":
            self.stopping = True
            self.kill()
            return
        self.stopping = True
        self._process.terminate()
        self._patience.start(PATIENCE)
        self.changed.emit()

    @Slot()
    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def hand_over(self) -> bool:
        """Let the run go on without us: it saves and ends, and goes on in a process that nobody waits for. Blocks meanwhile.

        Its words go to `OUT/train.log`. False where it ended by itself.
        """
        job = self.job
        if not self.running or job is None:
            return False
        self.end()
        if self.outcome != "stopped":
            return False
        heir = QProcess()
        heir.setProcessEnvironment(environment())
        heir.setProgram(self.program)
        heir.setArguments(job.arguments())
        log = str(Path(job.out).expanduser() / LOG)
        heir.setStandardOutputFile(log, QProcess.OpenModeFlag.Append)
        heir.setStandardErrorFile(log, QProcess.OpenModeFlag.Append)
        found = heir.startDetached()
        return bool(found[0] if isinstance(found, tuple) else found)

    def end(self) -> None:
        """Stop it and wait until it has; what the window does before it is gone."""
        if not self.running:
            return
        self.stop()
        if not self._process.waitForFinished(PATIENCE):
            self.kill()
            self._process.waitForFinished(PATIENCE)

    @property
    def elsewhere(self) -> bool:
        """Whether the folder is another process' by now: a run that was left to itself, for instance."""
        return self.outcome == "failed" and ELSEWHERE in self.error

    def stop_elsewhere(self) -> None:
        """Ask that process to save and end; where it has ended already, whatever ended it, the run is stopped."""
        if self.job is None or not self.elsewhere:
            return
        holder = holder_of(Path(self.job.out).expanduser() / "state")
        if holder is None:
            self.heard("stopped")
        elif holder and sys.platform != "win32":
            with contextlib.suppress(OSError):  # it has ended meanwhile
                os.kill(holder, signal.SIGTERM)

    def heard(self, outcome: str, error: str = "") -> None:
        """What that process said of its end."""
        self.outcome, self.error = outcome, error
        self.changed.emit()

    # -- what comes back ----------------------------------------------------------------------------------------------

    @Slot()
    def _read(self) -> None:
        self._rest += bytes(self._process.readAllStandardOutput().data()).decode("utf-8", "replace")
        *lines, self._rest = self._rest.replace("\r\n", "\n").split("\n")
        for line in lines:
            self.said.emit(line)

    @Slot()
    def _read_error(self) -> None:
        text = bytes(self._process.readAllStandardError().data()).decode("utf-8", "replace")
        self._complaints = (self._complaints + text)[-TAIL:]
        for line in text.splitlines():
            self.said.emit(line)

    @Slot(int, QProcess.ExitStatus)
    def _finished(self, code: int, status: QProcess.ExitStatus) -> None:
        self._patience.stop()
        self._read()
        self._read_error()
        crashed = status == QProcess.ExitStatus.CrashExit
        if code == 0 and not crashed:
            self.outcome = "done"
        elif self.stopping or (code == STOPPED and not crashed):
            self.outcome = "stopped"
        else:
            self.outcome, self.error = "failed", self._why(code, crashed)
        self.stopping = False
        self.changed.emit()

    def _why(self, code: int, crashed: bool) -> str:
        words = self._complaints.strip()
        if crashed:
            return "The process was killed or broke off. What it saved is there: Resume goes on from it."
        if code in TYPED and words:
            return words
        last = words.splitlines()[-1] if words else "it said nothing"
        return f"The process ended with exit status {code}: {last}"

    @Slot(QProcess.ProcessError)
    def _broken(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            self.outcome = "failed"
            self.error = f"The process could not be started: {self._process.errorString()}\n  program: {self.program}"
            self.changed.emit()
