"""Preparing the session's own story for presenting: on the slow lane, with its progress in the Story dock and among the jobs.

What is ready is known by the words of each step: an edit makes the line say so at once, without a look at any model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, QTimer, Signal, Slot
from PySide6.QtWidgets import QMessageBox

from circuitlab.counting import number_of
from circuitlab.draw.look.plain_text import PlainBox
from circuitlab.engine.engine import memory_words
from circuitlab.errors import Cancelled
from circuitlab.figures.contracts.panel import view_types
from circuitlab.figures.marks import joined
from circuitlab.gui.lessons.readiness_row import CANCEL, PREPARE, RELEASE, ReadinessRow
from circuitlab.gui.sessions.controller import SessionController
from circuitlab.gui.sessions.file_work import FRONTS
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.subject import ModelRef
from circuitlab.report.prepare import Readiness, StepReadiness, prepare, readiness_of
from circuitlab.session_files.model_table import mentioned
from circuitlab.session_files.work import Work
from circuitlab.story.panel_names import named_panels, unfollowed, unknown_panels
from circuitlab.story.setup import Setup
from circuitlab.story.story import Story
from circuitlab.story.values import Value

LANE = "slow"
EVERY = 500  # ms between looks at the progress
CHANGED = "changed since it was prepared"
UNPREPARED = "not prepared"
Act = Callable[[], object]


@dataclass(frozen=True, eq=False)
class _Outcome:
    """What a look at the story has given. `of`: the session that was looked at."""

    readiness: Readiness
    shown: tuple[_Shown, ...]
    of: object


@dataclass(frozen=True)
class _Shown:
    """What a step shows: its complete words, its numbers, the models that these name."""

    setup: Setup
    values: tuple[Value, ...]
    models: tuple[tuple[str, ModelRef], ...]


def _shown_by(work: Work) -> tuple[_Shown, ...]:
    """What each step of the story shows."""
    shown: list[_Shown] = []
    for i, step in enumerate(work.story.steps):
        setup = work.story.setup(i)
        names = mentioned(setup, Story(steps=(replace(step, setup=None),)), ())
        models = tuple((name, work.models[name].ref) for name in sorted(names) if name in work.models)
        shown.append(_Shown(replace(setup, zoom={}, unknown={}), step.values, models))
    return tuple(shown)


def _unlooked(title: str, shown: _Shown, why: str) -> StepReadiness:
    """A step that nobody has looked at as it is now: all that is known of it are the panels that it names."""
    missing, unknown = unfollowed(shown.setup, view_types()), unknown_panels(shown.setup, view_types())
    barred = bool(unknown) and len(unknown) == len(named_panels(shown.setup))
    return StepReadiness(title, lacking=missing if barred else (why, *missing))


def _is_unlooked(step: StepReadiness) -> bool:
    return step.lacking[:1] in ((CHANGED,), (UNPREPARED,))


def _computes(step: StepReadiness) -> bool:
    """Whether something of a step is computed while it is presented."""
    return step.computes or _is_unlooked(step)


def _is_helped(step: StepReadiness) -> bool:
    """Whether preparing may leave less to compute: what a step lacks after a look, it lacks after the next."""
    return step.is_helped or _is_unlooked(step)


def _question(ready: Readiness) -> str:
    """What is asked about before presenting: how many views cannot be shown, how many in part, how many are computed."""
    n, steps = len(ready.steps), [ready.steps[i] for i in ready.unready]
    computed = sum(map(_computes, steps))
    barred = sum(step.ready is None and not _computes(step) for step in steps)
    if computed == n:
        return "The story is not prepared."
    in_part = len(steps) - computed - barred
    is_are = lambda count: "is" if count == 1 else "are"
    clauses = [
        (count, words)
        for count, words in (
            (barred, "cannot be shown"),
            (in_part, f"{is_are(in_part)} shown in part"),
            (computed, f"{is_are(computed)} not ready"),
        )
        if count
    ]
    (count, words), *others = clauses
    return ", ".join((f"{count} of {number_of(n, 'view')} {words}", *(f"{count} {words}" for count, words in others))) + "."


class Preparing(QObject):
    """`changed()`: the line says something else, or preparing begins, goes on or ends.

    `row`: where it is said. What is held is released when another session takes the place of this one.
    """

    changed = Signal()

    def __init__(self, sessions: SessionController, row: ReadinessRow, parent: QObject) -> None:
        super().__init__(parent)
        self.sessions, self.context, self.row = sessions, sessions.context, row
        self._readiness = Readiness()  # as it was prepared, or looked up
        self._shown: tuple[_Shown, ...] = ()  # what each of its steps showed then
        self._then: Act | None = None  # what is done once it is ready
        self._of = object()  # the present session
        self._outcomes: deque[_Outcome] = deque()  # those that hold something and have not come here yet
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)
        self._timer = QTimer(self)  # what begins soon after another thing is not reported by its job
        self._timer.setInterval(EVERY)
        self._timer.timeout.connect(self._progressed)
        row.pressed.connect(self._pressed)
        sessions.opened.connect(self._another)
        self.context.document.work_changed.connect(self.refresh)
        self.context.runner.jobs_changed.connect(self._progressed)
        self.refresh()

    # -- what is ready ------------------------------------------------------------------------------------------------------

    @property
    def story(self) -> Story:
        """The story as it is recorded."""
        return self.context.document.work.story

    @property
    def busy(self) -> bool:
        """Whether it is being prepared or looked up."""
        return self.context.runner.is_busy(self._slot)

    @property
    def readiness(self) -> Readiness:
        """Whether each step of the story, as it is now, can be shown without computing anything. Never waits for a model."""
        known, engine = self._readiness.steps, self.context.engine
        lacking = CHANGED if known else UNPREPARED
        steps: list[StepReadiness] = []
        for step, shown in zip(self.story.steps, _shown_by(self.context.document.work), strict=True):
            at = next((i for i, one in enumerate(self._shown) if one == shown), None)
            one = _unlooked(step.title, shown, lacking) if at is None else known[at].now(engine)
            steps.append(replace(one, title=step.title))
        return replace(self._readiness, steps=tuple(steps))

    @property
    def line(self) -> str:
        """What is said of it: the progress while it is being prepared, else what is ready."""
        job = self.context.runner.job_of(self._slot)
        if job is not None:
            counted = f" {job.done} of {job.total}" if job.total else ""
            return f"Preparing{counted}{f': {job.text}' if job.text else '…'}"
        if self._readiness.steps:
            return self.readiness.line
        lacking = ((i, step.lacking[-1]) for i, step in enumerate(self.readiness.steps, 1) if step.lacking != (UNPREPARED,))
        return joined("Not prepared: presenting computes as it goes", *(f"view {i}: {what}" for i, what in lacking))

    @property
    def helps(self) -> bool:
        """Whether preparing may leave less to compute while presenting."""
        return any(map(_is_helped, self.readiness.steps))

    @property
    def absent(self) -> str:
        """What cannot be pointed at, as its weights are not here; "" where all are."""
        names = ", ".join(self.sessions.results.stored.entries)
        return f"the weights of {names} are not here: what no step shows cannot be computed" if names else ""

    @property
    def line_of_talk(self) -> str:
        """`line`, with what cannot be pointed at."""
        return joined(self.line, self.absent)

    @Slot()
    def refresh(self) -> None:
        """Say what is ready now."""
        self.row.setVisible(bool(self.story.steps))
        if not self.story.steps:
            return
        if self.busy:
            self.row.show_line(self.line, CANCEL)
        else:
            ready = self.readiness
            held = (
                f"{memory_words(ready.nbytes)} held, {number_of(len(ready.models), 'model')} kept open" if ready.answers else ""
            )
            helps = any(map(_is_helped, ready.steps))
            self.row.button.setVisible(helps or bool(ready.answers or ready.models))
            tip = "\n".join(filter(None, (*(ready.reasons if self._readiness.steps else ()), held, self.absent)))
            warns = bool(self._readiness.steps) and not ready.is_ready
            self.row.show_line(self.line, PREPARE if helps else RELEASE, tip, warns)
        self.changed.emit()

    @Slot()
    def _progressed(self) -> None:
        if self.busy:
            self.refresh()
        else:
            self._timer.stop()

    # -- preparing ------------------------------------------------------------------------------------------------------------

    @Slot(str)
    def _pressed(self, word: str) -> None:
        {PREPARE: self.prepare, CANCEL: self.cancel, RELEASE: self.release}[word]()

    def prepare(self, then: Act | None = None) -> None:
        """Compute what the steps show, and hold it. `then`: what is done once every step is ready."""
        self._then = then
        self._look(compute=True)

    @Slot()
    def cancel(self) -> None:
        """Stop preparing; what was held before stays."""
        self.context.runner.cancel_slot(self._slot)

    @Slot()
    def release(self) -> None:
        """Let go of what is held, and of the models that are kept open."""
        self._take(Readiness(), ())
        self.refresh()

    def _look(self, compute: bool) -> None:
        if not self.story.steps:
            return
        capture, engine, runner, views = self.sessions.capture(), self.context.engine, self.context.runner, view_types()
        shown, of = _shown_by(self.context.document.work), self._of

        def work(job: Job) -> _Outcome:
            session = capture.in_window(engine.store, views)
            readiness = (prepare if compute else readiness_of)(session, engine, FRONTS, runner.ctx(job))
            outcome = _Outcome(readiness, shown, of)
            self._outcomes.append(outcome)
            return outcome

        runner.do(self._slot, "prepare the story" if compute else "look up what is ready", work, LANE)
        self._timer.start()
        self.refresh()

    def _take(self, readiness: Readiness, shown: tuple[_Shown, ...]) -> None:
        before, self._readiness, self._shown = self._readiness, readiness, shown
        before.release(self.context.engine)

    @Slot(object)
    def _finished(self, outcome: _Outcome) -> None:
        wanted = outcome.of is self._of
        while self._outcomes:  # one that was overtaken by another does not come here, and must not stay held
            one = self._outcomes.popleft()
            if one is not outcome or not wanted:
                one.readiness.release(self.context.engine)
        if not wanted:
            return
        self._take(outcome.readiness, outcome.shown)
        self.refresh()
        then, self._then = self._then, None
        if then is not None:
            self.before_presenting(then)

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        self._then = None
        if not isinstance(error, Cancelled):
            self.context.failed.emit(error)
        self.refresh()

    @Slot()
    def _another(self) -> None:
        """Another session is here; what is stored with it may be all that its steps need."""
        self._then, self._of = None, object()
        self.context.runner.cancel_slot(self._slot)
        self._take(Readiness(), ())
        if self.sessions.results.stored.entries:
            self._look(compute=False)
        self.refresh()

    # -- presenting -----------------------------------------------------------------------------------------------------------

    def before_presenting(self, then: Act) -> None:
        """Do `then` where every step is ready. Where one is not, ask first whether to prepare, or to present all the same."""
        ready = self.readiness
        if ready.is_ready:
            then()
            return
        steps = [ready.steps[i] for i in ready.unready]
        box = PlainBox(
            QMessageBox.Icon.Question,
            "Present",
            _question(ready),
            QMessageBox.StandardButton.Cancel,
            self.sessions.window,
        )
        known = [why for step, why in zip(steps, ready.reasons, strict=True) if step.lacking != (UNPREPARED,)]
        computed = "What is not ready is computed while you present." if any(map(_computes, steps)) else ""
        box.setInformativeText("\n\n".join(filter(None, ("\n".join(known[:6]), computed))))
        first = box.addButton("Prepare first", QMessageBox.ButtonRole.AcceptRole) if any(map(_is_helped, steps)) else None
        anyway = box.addButton("Present all the same", QMessageBox.ButtonRole.DestructiveRole)
        box.setDefaultButton(first or anyway)
        box.exec()
        chosen = box.clickedButton()
        box.deleteLater()
        if chosen is anyway:
            then()
        elif first is not None and chosen is first:
            self.prepare(then)
