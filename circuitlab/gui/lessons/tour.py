"""The walk through a lesson: the present step, its State and numbers, the place in each lesson, and the return at the end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.analysis.base import NullContext
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.settings import settings_file
from circuitlab.gui.work.work_slot import WorkSlot, WorkSlots
from circuitlab.lessons.lesson import Lesson
from circuitlab.model.subject import Head
from circuitlab.session.state import State
from circuitlab.story.resolver import Ready, Resolver, nearest
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step
from circuitlab.story.text import PENDING, fill_text
from circuitlab.story.values import Value, formatted, read_out

log = logging.getLogger("circuitlab.lessons")
LEFT = "lesson-left"


class _Stoppable(NullContext):
    """The `Ctx` of the computations that set up a step: going to another step cancels them."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Raise `Cancelled` once the job is cancelled."""
        if self._job.cancelled.is_set():
            raise Cancelled


class Places:
    """How far each lesson has been read, and which to the end. `remember` False: only until the window closes."""

    def __init__(self, remember: bool) -> None:
        self.remember = remember
        self._cache: dict[str, int] = {}

    def _get(self, key: str) -> int:
        if key not in self._cache:
            value: Any = settings_file().value(f"lessons/{key}", 0) if self.remember else 0
            self._cache[key] = int(value) if str(value).isdecimal() else 0
        return self._cache[key]

    def _set(self, key: str, value: int) -> None:
        self._cache[key] = value
        if self.remember:
            settings_file().setValue(f"lessons/{key}", value)

    def step(self, lesson: Lesson) -> int:
        """The step to continue at, 0 for the beginning."""
        return min(self._get(f"{lesson.name}/step"), len(lesson.steps) - 1)

    def done(self, lesson: Lesson) -> bool:
        """Whether the lesson has been read to the end."""
        return bool(self._get(f"{lesson.name}/done"))

    def at(self, lesson: Lesson, step: int) -> None:
        """Remember the step at which a lesson is open."""
        self._set(f"{lesson.name}/step", step)

    def finish(self, lesson: Lesson) -> None:
        """Mark a lesson as read to the end; next time it starts from the beginning."""
        self._set(f"{lesson.name}/done", 1)
        self._set(f"{lesson.name}/step", 0)


class Tour(QObject):
    """The walk through one lesson at a time.

    `changed()`: another lesson or step, or a new status of the step. `value_changed()`: a number is available or has failed.
    `setting(Setup)`: the State of a step is about to be shown; `shown(Setup, again)`: it is shown, and the docks must be
    arranged (`again`: even if they already are). `left()`: the lesson is over.
    """

    changed = Signal()
    value_changed = Signal()
    setting = Signal(object)
    shown = Signal(object, bool)
    left = Signal()

    def __init__(self, context: AppContext, remember: bool, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.context, self.places = context, Places(remember)
        self.lesson: Lesson | None = None
        self.number = 0
        self.ready: Ready | None = None
        self.error: BaseException | None = None
        self.value_texts: dict[str, str] = {}  # the step's numbers as text, or `PENDING`, by name
        self.tips: dict[str, str] = {}  # the tooltip of each number, by name
        self._numbers: dict[str, float | Head] = {}
        self._before: State | None = None
        self._again = False
        self._slot = WorkSlot(self, finished=self._set, failed=self._setup_failed)
        # of the step's numbers, by name
        self._slots = WorkSlots(self, context.runner.is_busy, answered=self._answered, failed=self._failed)

    # -- the present step -----------------------------------------------------------------------------------------------

    @property
    def step(self) -> Step:
        """The present step. Only while a lesson is open."""
        assert self.lesson is not None
        return self.lesson.steps[self.number]

    @property
    def before(self) -> State | None:
        """The State from before the lesson, to which leaving it leads; None outside of lessons."""
        return self._before

    @property
    def waiting(self) -> bool:
        """Whether the step is being set up or a number is outstanding."""
        return self.context.runner.is_busy(self._slot) or PENDING in self.value_texts.values()

    @property
    def strayed(self) -> bool:
        """Whether the window now shows another model, prompt or ablation than the one the step's numbers belong to."""
        if self.ready is None or self.context.loader.waiting or self.context.runner.is_busy(self._slot):
            return False
        return self.context.document.state.subject != self.ready.state.subject

    @property
    def text(self) -> str:
        """The step's Markdown with its numbers filled in, as far as they are available."""
        words: Mapping[str, str] = self.ready.words if self.ready is not None else {}
        return fill_text(self.step.text, words, self.value_texts)

    # -- walking --------------------------------------------------------------------------------------------------------

    def start(self, lesson: Lesson, number: int | None = None) -> None:
        """Begin a lesson, by default at the step where it was left. The present State is restored at its end."""
        if self._before is None:
            self._before = self.context.document.recorded
        self.lesson = lesson
        self.ready = None
        self.go(self.places.step(lesson) if number is None else number)

    def go(self, number: int, again: bool = False) -> None:
        """Show a step. One without a setup of its own leaves the window alone when reached from the step before."""
        if self.lesson is None or not 0 <= number < len(self.lesson.steps):
            return
        follows = number == self.number + 1 and not again and self.ready is not None and self.error is None
        self._stop()
        self.number = number
        self.places.at(self.lesson, number)
        text_only = self.step.setup is None and follows
        self.value_texts = {value.name: PENDING for value in self.step.values}
        self.tips, self._numbers, self.error = {}, {}, None
        if not text_only:
            self.ready, self._again = None, again
            self._set_up(self.lesson.setup(number), self.step)
        self.changed.emit()

    def next(self) -> None:
        """Go to the next step; after the last one the lesson is finished."""
        if self.lesson is None:
            return
        if self.number + 1 < len(self.lesson.steps):
            self.go(self.number + 1)
        else:
            self.places.finish(self.lesson)
            self.leave()

    def back(self) -> None:
        """Go to the previous step."""
        self.go(self.number - 1)

    def again(self) -> None:
        """Set up the present step again, whatever the user has changed since."""
        self.go(self.number, again=True)

    def leave(self) -> None:
        """Leave the lesson: the State from before it is restored."""
        if self.lesson is None:
            return
        self._stop()
        title, before = self.lesson.title, self._before
        self.lesson, self.ready, self._before, self.error = None, None, None, None
        self.value_texts, self.number = {}, 0
        if before is not None:
            now = self.context.document.recorded
            self.context.gather(before, LEFT)  # undo leads to the State before the lesson, not into it
            if before != now:
                self.context.show(before, f"leave “{title}”", LEFT)
        self.left.emit()
        self.changed.emit()

    def _stop(self) -> None:
        self.value_texts = {}  # before the jobs are cancelled: their end no longer matters
        self.context.runner.cancel_slot(self._slot)
        self._slots.cancel(self.context.runner.cancel_slot)

    # -- the State and the numbers --------------------------------------------------------------------------------------

    def _set_up(self, setup: Setup, step: Step) -> None:
        """Prepare a step on the file thread: models are opened, token texts looked up, heads chosen by their scores."""
        views = {name: panel.view for name, panel in panels().items()}
        base, engine = self._before or self.context.document.recorded, self.context.engine
        assert self.lesson is not None
        title = f"{self.lesson.title}: {step.title}"
        self.context.runner.do(self._slot, title, lambda job: Resolver(engine, views, base, _Stoppable(job)).ready(setup, step))

    @Slot(object)
    def _set(self, value: Ready) -> None:
        if self.lesson is None:
            return
        self.ready = value
        setup = self.lesson.setup(self.number)
        self.setting.emit(setup)
        self.context.show(value.state, f"{self.lesson.title}: {self.step.title}")
        self.shown.emit(setup, self._again)
        for name, error in value.failed.items():
            self._fail(name, error)
        for name, (_, request) in value.requests.items():
            if (answer := self.context.runner.ask(self._slots[name], request)) is not None:
                self._take_answer(name, answer)
        self.changed.emit()

    def _has_value(self, name: str) -> bool:
        """Whether the step has a number of this name."""
        return name in self.value_texts and self.ready is not None

    @Slot(object, object)
    def _answered(self, answer: Answer, name: str) -> None:
        if self._has_value(name) and answer.complete:
            self._take_answer(name, answer)
            self.value_changed.emit()

    @Slot(object, object)
    def _failed(self, error: BaseException, name: str) -> None:
        if self._has_value(name):
            self._fail(name, error)
            self.value_changed.emit()

    @Slot(object)
    def _setup_failed(self, error: BaseException) -> None:
        if self.lesson is not None and not isinstance(error, Cancelled):
            self.error = error
            self.value_texts = dict.fromkeys(self.value_texts, f"not computed: {reason(error)}")
            self.changed.emit()

    def _take_answer(self, name: str, answer: Answer) -> None:
        assert self.ready is not None
        value, request = self.ready.requests[name]
        try:
            self._numbers[name] = read_out(value, answer.result, self._about(request))
        except (CircuitLabError, ValueError, TypeError, ArithmeticError, LookupError) as error:
            self._fail(name, error)
            return
        conventions = " · ".join(answer.result.conventions[:6])
        self.tips[name] = f"computed now: {value.read} of {value.analysis}, {request.subject.model.name}\n{conventions}"
        for one, (other, _) in self.ready.requests.items():
            if one == name or (other.minus == name and one in self._numbers):
                self._write(one, other)

    def _about(self, request: Request) -> State:
        """The State that `head`, `destination` … in a `read` refer to: the step's selection."""
        assert self.ready is not None
        return replace(self.ready.state, model=request.subject.model)

    def _write(self, name: str, value: Value) -> None:
        assert self.ready is not None
        number = self._numbers[name]
        if value.minus:
            other = self._numbers.get(value.minus)
            if other is None:
                return
            if isinstance(number, Head) or isinstance(other, Head):
                self._fail(name, TypeError("heads cannot be subtracted"))
                return
            number = number - other
        try:
            facts = self.context.facts(self.ready.requests[name][1].subject.model)
            self.value_texts[name] = formatted(number, value.format, facts.token_text)
        except (CircuitLabError, ValueError, ArithmeticError, LookupError) as error:
            self._fail(name, error)

    def _fail(self, name: str, error: BaseException) -> None:
        log.warning("%s: %s", name, error)
        self.value_texts[name] = f"not computed: {reason(error)}"
        self.tips[name] = str(error)
        if self.ready is not None:
            for one, (value, _) in self.ready.requests.items():
                if value.minus == name and self.value_texts.get(one) == PENDING:
                    self._fail(one, error)

    def to_checkpoint(self, step: int) -> None:
        """Follow a link to a training step of the open model. Raises `BadInput` where it has no series."""
        ref = self.context.document.recorded.model
        model = self.context.engine.store.peek(ref)  # every checkpoint lists the steps of all; nothing is opened here
        index = nearest(ref, () if model is None else model.opened.steps, step)
        self.context.go(replace(ref, checkpoint=index), f"step {step}")
