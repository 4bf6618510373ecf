"""The sweeps of a window: those that it has started or opened. The next window takes them up again, until they are put away."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Slot

from circuitlab.errors import CircuitLabError
from circuitlab.gui.sweeping.job import SweepJob
from circuitlab.gui.sweeping.run import SweepRun
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.processes import OwnProcess
from circuitlab.gui.work.settings import settings_file

KEY, MOST = "sweeps", 20


class Sweeps(QObject):
    """See the module. `remember` of the settings False: no other window learns of them."""

    def __init__(self, context: AppContext, parent: QObject) -> None:
        super().__init__(parent)
        self.context = context
        context.processes.removed.connect(self._put_away)

    @property
    def runs(self) -> list[SweepRun]:
        """Those that Jobs shows."""
        return [one for one in self.context.processes.all if isinstance(one, SweepRun)]

    def start(self, job: SweepJob) -> SweepRun:
        """Start a sweep, in place of one that has ended in its folder. Raises `CircuitLabError` where it cannot start."""
        folder, arguments = job.prepare()
        self._drop(folder)
        run = SweepRun(folder, self)
        self.context.processes.add(run)
        run.start(arguments)
        self._remember()
        return run

    def open(self, folder: Path) -> SweepRun:
        """The sweep in a folder, whoever works on it. Raises `BadInput` where there is none."""
        known = next((one for one in self.runs if one.folder == folder), None)
        if known is not None and known.running:
            return known
        run = SweepRun(folder, self)
        run.take_up()
        self._drop(folder)
        self.context.processes.add(run)
        self._remember()
        return run

    @Slot()
    def come_back(self) -> None:
        """Take up those of the last window; a folder that is gone is left out."""
        value: Any = settings_file().value(KEY, []) if self.context.settings.remember else []
        for folder in [value] if isinstance(value, str) else list(value or ()):
            with contextlib.suppress(CircuitLabError, OSError):
                self.open(Path(str(folder)))

    def _drop(self, folder: Path) -> None:
        for one in [one for one in self.runs if one.folder == folder]:
            self.context.processes.remove(one)

    @Slot(object)
    def _put_away(self, process: OwnProcess) -> None:
        if isinstance(process, SweepRun):
            self._remember()

    def _remember(self) -> None:
        if self.context.settings.remember:
            settings_file().setValue(KEY, [str(one.folder) for one in self.runs][-MOST:])
