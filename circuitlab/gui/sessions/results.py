"""The results of the session in a window: computing them for its file, and the models that are known by them alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Slot

from circuitlab.errors import Cancelled, titled
from circuitlab.gui.sessions.file_work import Capture, Staged
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.session_files.results import Results
from circuitlab.session_files.stored_models import StoredModels
from circuitlab.story.setup import Views

LANE = "slow"  # the file thread must be free for the autosave


@dataclass(frozen=True, eq=False)
class _Follows:
    """What follows the computation: `then(Results)`, or `given_up()`."""

    name: str
    then: Callable[[Results], object]
    given_up: Callable[[], object]


class SessionResults(QObject):
    """`of_file`: the results in the session's file, None where it holds none; `stored`: the models known by them alone."""

    def __init__(self, context: AppContext, views: Views, parent: QObject) -> None:
        super().__init__(parent)
        self.context, self._views = context, views
        self.of_file: Results | None = None
        self.stored = StoredModels()
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)

    def take(self, staged: Staged) -> None:
        """Those of another session."""
        self.context.runner.cancel_slot(self._slot)  # of the session that is left
        self.stored.leave(self.context.engine)
        staged.stored.place(self.context.engine.store)
        self.stored, self.of_file = staged.stored, staged.results

    def compute(self, capture: Capture, name: str, then: Callable[[Results], object], given_up: Callable[[], object]) -> None:
        """Compute what the views of a captured session show, for the file `name`; a computation under way is given up."""
        if isinstance(self._slot.role, _Follows):
            self._slot.role.given_up()
        self._slot.role = _Follows(name, then, given_up)
        engine, views, runner = self.context.engine, self._views, self.context.runner

        def work(job: Job) -> Results:
            with titled("The session cannot be saved with its results"):
                gathering = capture.gathering(capture.in_window(engine.store, views), engine)
                return replace(gathering, compute=True, ctx=runner.ctx(job)).results()

        runner.do(self._slot, f"results for {name}", work, LANE)

    @Slot(object, object)
    def _finished(self, results: Results, follows: _Follows) -> None:
        self._slot.role = None
        follows.then(results)

    @Slot(object, object)
    def _failed(self, error: BaseException, follows: _Follows) -> None:
        self._slot.role = None
        if isinstance(error, Cancelled):
            self.context.message.emit(f"{follows.name} was not saved: computing its results was cancelled.")
        else:
            self.context.failed.emit(error)
        follows.given_up()
