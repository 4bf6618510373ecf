"""The training process: it can be started, stopped, resumed, and handed over so that it outlives the window.

It runs `python -m circuitlab train …` with this interpreter. It saves its state on SIGTERM and at intervals, and the same command
resumes from the last save, however the process ended. Where there is no SIGTERM, stopping kills it, and the steps since the last
save are repeated.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, QTimer, Signal, Slot

from circuitlab.child_process import environment, python
from circuitlab.disk.own_files import open_own
from circuitlab.gui.training.job import TrainingJob
from circuitlab.training.files import holder_of
from circuitlab.training.output import LOG

PATIENCE = 15_000  # ms a process gets to stop before it is killed
TAIL = 4000  # characters of stderr that are kept for the error message
KILLED = "The process was killed before it had saved. Resume continues from its last save."
ELSEWHERE = "Another process is training in this folder."
STOPPED, TYPED = 130, (2, 3, 4)  # exit codes; see `circuitlab.errors`


def _environment() -> QProcessEnvironment:
    env = QProcessEnvironment()
    for name, value in environment(finds_us=True, PYTHONIOENCODING="utf-8").items():
        env.insert(name, value)
    return env


class TrainingProcess(QObject):
    """`line_read(line)` for each line of output; `changed()` when the process starts, is asked to stop, or has ended.

    `outcome`: "" until it has ended, then "done", "stopped" or "failed"; `error` says why it failed.
    """

    line_read = Signal(str)
    changed = Signal()

    def __init__(self, parent: QObject | None = None, program: str = sys.executable) -> None:
        super().__init__(parent)
        self.program = program
        self.job: TrainingJob | None = None
        self.outcome, self.error, self.stopping = "", "", False
        self._killed = False
        self._partial_line, self._stderr = "", ""
        self._process = QProcess(self)
        self._process.setProcessEnvironment(_environment())
        self._process.readyReadStandardOutput.connect(self._read)
        self._process.readyReadStandardError.connect(self._read_error)
        self._process.finished.connect(self._finished)
        self._process.errorOccurred.connect(self._broken)
        self._patience = QTimer(self)
        self._patience.setSingleShot(True)
        self._patience.timeout.connect(self.kill)

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process.state() != QProcess.ProcessState.NotRunning

    @property
    def pid(self) -> int:
        """Process id; 0 while nothing runs."""
        return int(self._process.processId())

    def start(self, job: TrainingJob) -> None:
        """Start or resume a run; nothing happens while one is running."""
        if self.running:
            return
        self.job, self.outcome, self.error, self.stopping, self._killed = job, "", "", False, False
        self._partial_line = self._stderr = ""
        program, *arguments = python(*job.arguments(), program=self.program)
        self._process.start(program, arguments)
        self.changed.emit()

    @Slot()
    def resume(self) -> None:
        """Run the same job again: it resumes from the last save."""
        if self.job is not None:
            self.start(self.job)

    @Slot()
    def stop(self) -> None:
        """Ask the process to save and end; the second time, or when it takes too long, kill it."""
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
        """End the process at once, without a save."""
        self._killed = True
        self._process.kill()

    def hand_over(self) -> bool:
        """Continue the run in a detached process: the present one saves and ends, the new one resumes. Blocks until then.

        Output goes to `OUT/train.log`. False where the run ended by itself, or could not be started again.
        """
        job = self.job
        if not self.running or job is None:
            return False
        self.end()
        if self.outcome != "stopped":
            return False
        heir = QProcess()
        heir.setProcessEnvironment(_environment())
        program, *arguments = python(*job.arguments(), program=self.program)
        heir.setProgram(program)
        heir.setArguments(arguments)
        log = str(Path(job.out).expanduser() / LOG)
        with contextlib.suppress(OSError):  # Qt, which opens it, would follow a link
            open_own(Path(log)).close()
        heir.setStandardOutputFile(log, QProcess.OpenModeFlag.Append)
        heir.setStandardErrorFile(log, QProcess.OpenModeFlag.Append)
        started = heir.startDetached()
        return bool(started[0] if isinstance(started, tuple) else started)

    def end(self) -> None:
        """Stop the process and wait for its end, as the window does before it closes. One that saves already is not asked again,
        which would kill it."""
        if not self.running:
            return
        if not self.stopping:
            self.stop()
        if not self._process.waitForFinished(PATIENCE):
            self.kill()
            self._process.waitForFinished(PATIENCE)

    @property
    def elsewhere(self) -> bool:
        """Whether another process is training in the folder, for instance a run that was handed over."""
        return self.outcome == "failed" and ELSEWHERE in self.error

    def stop_elsewhere(self) -> None:
        """Ask that other process to save and end; if it has already ended, for whatever reason, the run counts as stopped."""
        if self.job is None or not self.elsewhere:
            return
        holder = holder_of(Path(self.job.out).expanduser() / "state")
        if holder is None:
            self.set_outcome("stopped")
        elif holder and sys.platform != "win32":
            with contextlib.suppress(OSError):  # it has ended meanwhile
                os.kill(holder, signal.SIGTERM)

    def set_outcome(self, outcome: str, error: str = "") -> None:
        """Record how that other process ended."""
        self.outcome, self.error = outcome, error
        self.changed.emit()

    # -- output and end -----------------------------------------------------------------------------------------------

    @Slot()
    def _read(self) -> None:
        self._partial_line += bytes(self._process.readAllStandardOutput().data()).decode("utf-8", "replace")
        *lines, self._partial_line = self._partial_line.replace("\r\n", "\n").split("\n")
        for line in lines:
            self.line_read.emit(line)

    @Slot()
    def _read_error(self) -> None:
        text = bytes(self._process.readAllStandardError().data()).decode("utf-8", "replace")
        self._stderr = (self._stderr + text)[-TAIL:]
        for line in text.splitlines():
            self.line_read.emit(line)

    @Slot(int, QProcess.ExitStatus)
    def _finished(self, code: int, status: QProcess.ExitStatus) -> None:
        self._patience.stop()
        self._read()
        self._read_error()
        crashed = status == QProcess.ExitStatus.CrashExit
        if code == 0 and not crashed:
            self.outcome = "done"
        elif code == STOPPED and not crashed:
            self.outcome = "stopped"
        elif crashed and self.stopping and (self._killed or code == signal.SIGTERM):  # by then, it had nothing to save
            self.outcome, self.error = "stopped", KILLED if self._killed else ""
        else:
            self.outcome, self.error = "failed", self._why(code, crashed)
        self.stopping = False
        self.changed.emit()

    def _why(self, code: int, crashed: bool) -> str:
        errors = self._stderr.strip()
        if crashed:
            return "The process was killed or crashed. Resume continues from its last save."
        if code in TYPED and errors:
            return errors
        last = errors.splitlines()[-1] if errors else "no error message"
        return f"The process ended with exit status {code}: {last}"

    @Slot(QProcess.ProcessError)
    def _broken(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            self.outcome = "failed"
            self.error = f"The process could not be started: {self._process.errorString()}\n  program: {self.program}"
            self.changed.emit()
