"""Reading a session on the file thread, until its models are open: what is missing or has changed is asked about once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QWidget

from circuitlab.disk.formats import is_picture
from circuitlab.errors import Cancelled, titled
from circuitlab.gui.sessions.file_work import Searcher, Staged
from circuitlab.gui.sessions.models_dialog import ModelsDialog
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot

Act = Callable[[], object]


@dataclass(frozen=True, eq=False)
class _Follows:
    """What follows an opening: `then(Staged)` with the session, or `given_up()`."""

    then: Callable[[Staged], object]
    given_up: Act


def _nothing() -> None:
    """Nobody need be told that it was given up."""


class SessionOpening(QObject):
    """One session at a time: the newest that is asked for. `failed` errors go to the context; nothing is changed by them.

    `model_wanted(name, dialog)`: see `ModelsDialog.wanted`.
    """

    model_wanted = Signal(str, object)

    def __init__(self, context: AppContext, searcher: Callable[[], Searcher], window: QWidget, parent: QObject) -> None:
        super().__init__(parent)
        self.context, self._searcher, self._window = context, searcher, window
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)

    def file(self, path: Path, then: Callable[[Staged], object]) -> None:
        """The session of a file."""
        kind = "picture" if is_picture(path) else "session"
        self.begin(f"open {path.name}", lambda searcher: searcher.stage(path), then, failure=f"This {kind} cannot be opened")

    def begin(
        self,
        title: str,
        stage: Callable[[Searcher], Staged],
        then: Callable[[Staged], object],
        given_up: Act = _nothing,
        *,
        failure: str,
    ) -> None:
        """A session that `stage` reads and looks for the models of, on the file thread. `failure`: the title of its error."""
        if isinstance(self._slot.role, _Follows):
            self._slot.role.given_up()
        self._slot.role = _Follows(then, given_up)
        searcher = self._searcher()

        def work(job: Job) -> Staged:
            with titled(failure):
                return stage(replace(searcher, stopped=job.cancelled.is_set))

        self.context.runner.do(self._slot, title, work, "search")

    @Slot(object, object)
    def _finished(self, staged: Staged, follows: _Follows) -> None:
        self._slot.role = None
        if staged.work is not None:
            follows.then(staged)
            return
        dialog = ModelsDialog(staged, self.context.runner, self._searcher(), self._window)
        dialog.resolved.connect(follows.then)
        dialog.rejected.connect(follows.given_up)
        dialog.wanted.connect(self.model_wanted)
        dialog.open()

    @Slot(object, object)
    def _failed(self, error: BaseException, follows: _Follows) -> None:
        self._slot.role = None
        follows.given_up()
        if not isinstance(error, Cancelled):
            self.context.failed.emit(error)
