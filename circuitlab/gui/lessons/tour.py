"""Walking a lesson: the step that is shown, its State in the window, its numbers, the place in each lesson, and the way back."""

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
from circuitlab.gui.work.settings import stored
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.lessons.lesson import Lesson, Step
from circuitlab.lessons.state import Ready, Resolver, nearest
from circuitlab.lessons.step import Setup
from circuitlab.lessons.text import PENDING, fill_text
from circuitlab.lessons.values import Value, formatted, read_out
from circuitlab.model.subject import Head
from circuitlab.session.state import State

log = logging.getLogger("circuitlab.lessons")
LEFT = "lesson-left"


class _Stoppable(NullContext):
    """The `Ctx` of what is computed to set up a step: another step stops it."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Stop where another step is wanted."""
        if self._job.cancelled.is_set():
            raise Cancelled


class Places:
    """How far each lesson was read, and which were read to the end. `remember` False: until the window closes."""

    def __init__(self, remember: bool) -> None:
        self.remember = remember
        self._kept: dict[str, int] = {}

    def _get(self, key: str) -> int:
        if key not in self._kept:
            value: Any = stored().value(f"lessons/{key}", 0) if self.remember else 0
            self._kept[key] = int(value) if str(value).isdecimal() else 0
        return self._kept[key]

    def _set(self, key: str, value: int) -> None:
        self._kept[key] = value
        if self.remember:
            stored().setValue(f"lessons/{key}", value)

    def step(self, lesson: Lesson) -> int:
        """The step to go on from, 0 for the beginning."""
        return min(self._get(f"{lesson.name}/step"), len(lesson.steps) - 1)

    def done(self, lesson: Lesson) -> bool:
        """Whether it was read to the end."""
        return bool(self._get(f"{lesson.name}/done"))

    def at(self, lesson: Lesson, step: int) -> None:
        """Remember the place."""
        self._set(f"{lesson.name}/step", step)

    def finish(self, lesson: Lesson) -> None:
        """Read to the end: next time from the beginning."""
        self._set(f"{lesson.name}/done", 1)
        self._set(f"{lesson.name}/step", 0)


class Tour(QObject):
    """`changed()`: another lesson, step or state of it. `spoke()`: a number has come. `setting(Setup)`: the window is about to be
    set; `shown(Setup, bool)`: it is, its docks are to be arranged (True: whatever they are now). `left()`: the lesson is over.
    """

    changed = Signal()
    spoke = Signal()
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
        self.said: dict[str, str] = {}
        self.tips: dict[str, str] = {}
        self._numbers: dict[str, float | Head] = {}
        self._before: State | None = None
        self._again = False
        self._slot = WorkSlot(self, finished=self._set, failed=self._not_set)
        self._slots: dict[str, WorkSlot] = {}  # of the numbers, by name

    # -- where we are ---------------------------------------------------------------------------------------------------

    @property
    def step(self) -> Step:
        """The step that is shown. Only in a lesson."""
        assert self.lesson is not None
        return self.lesson.steps[self.number]

    @property
    def waiting(self) -> bool:
        """Whether the step is being set up, or a number is still to come."""
        return self.context.runner.is_busy(self._slot) or PENDING in self.said.values()

    @property
    def strayed(self) -> bool:
        """Whether the window shows another model, prompt or ablation by now than the numbers of the step are about."""
        if self.ready is None or self.context.loader.waiting or self.context.runner.is_busy(self._slot):
            return False
        return self.context.document.state.subject != self.ready.state.subject

    @property
    def text(self) -> str:
        """The step's Markdown with what is known of its numbers."""
        words: Mapping[str, str] = self.ready.words if self.ready is not None else {}
        return fill_text(self.step.text, words, self.said)

    # -- walking --------------------------------------------------------------------------------------------------------

    def start(self, lesson: Lesson, number: int | None = None) -> None:
        """Begin a lesson, or go on where it was left. What the window shows now comes back at its end."""
        if self._before is None:
            self._before = self.context.document.recorded
        self.lesson = lesson
        self.ready = None
        self.go(self.places.step(lesson) if number is None else number)

    def go(self, number: int, again: bool = False) -> None:
        """Show a step. One that only talks leaves the window as it is when it is reached from the step before."""
        if self.lesson is None or not 0 <= number < len(self.lesson.steps):
            return
        follows = number == self.number + 1 and not again and self.ready is not None and self.error is None
        self._stop()
        self.number = number
        self.places.at(self.lesson, number)
        talks = self.step.setup is None and follows
        self.said = {value.name: PENDING for value in self.step.values}
        self.tips, self._numbers, self.error = {}, {}, None
        if not talks:
            self.ready, self._again = None, again
            self._set_up(self.lesson.setup(number), self.step)
        self.changed.emit()

    def next(self) -> None:
        """The step after; behind the last one the lesson is done."""
        if self.lesson is None:
            return
        if self.number + 1 < len(self.lesson.steps):
            self.go(self.number + 1)
        else:
            self.places.finish(self.lesson)
            self.leave()

    def back(self) -> None:
        """The step before."""
        self.go(self.number - 1)

    def again(self) -> None:
        """The window as this step sets it up, whatever was tried meanwhile."""
        self.go(self.number, again=True)

    def leave(self) -> None:
        """Out of the lesson: the person's own state comes back, with the notes and bookmarks made meanwhile."""
        if self.lesson is None:
            return
        self._stop()
        title, before = self.lesson.title, self._before
        self.lesson, self.ready, self._before, self.error = None, None, None, None
        self.said, self.number = {}, 0
        if before is not None:
            now = self.context.document.recorded
            own = replace(before, notes=now.notes, bookmarks=now.bookmarks)
            self.context.gather(before, LEFT)  # undo leads to what was before, not into the lesson
            if own != now:
                self.context.show(own, f"leave “{title}”", LEFT)
        self.left.emit()
        self.changed.emit()

    def _stop(self) -> None:
        slots = [self._slot, *(self._slot_of(name) for name in self.said)]
        self.said = {}  # before the jobs are told: their end no longer matters
        for slot in slots:
            self.context.runner.cancel_slot(slot)

    # -- the State and the numbers --------------------------------------------------------------------------------------

    def _set_up(self, setup: Setup, step: Step) -> None:
        """On the file thread: models are opened, texts of tokens found, heads chosen by their scores."""
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
        now = self.context.document.recorded
        state = replace(value.state, notes=now.notes, bookmarks=now.bookmarks)
        setup = self.lesson.setup(self.number)
        self.setting.emit(setup)
        self.context.show(state, f"{self.lesson.title}: {self.step.title}")
        self.shown.emit(setup, self._again)
        for name, error in value.failed.items():
            self._fail(name, error)
        for name, (_, request) in value.requests.items():
            if (found := self.context.runner.ask(self._slot_of(name), request)) is not None:
                self._hear(name, found)
        self.changed.emit()

    def _slot_of(self, name: str) -> WorkSlot:
        if name not in self._slots:
            self._slots[name] = WorkSlot(self, name, answered=self._answered, failed=self._failed)
        return self._slots[name]

    def _awaits(self, name: str) -> bool:
        """Whether the step has a number of this name."""
        return name in self.said and self.ready is not None

    @Slot(object, object)
    def _answered(self, answer: Answer, name: str) -> None:
        if self._awaits(name) and answer.complete:
            self._hear(name, answer)
            self.spoke.emit()

    @Slot(object, object)
    def _failed(self, error: BaseException, name: str) -> None:
        if self._awaits(name):
            self._fail(name, error)
            self.spoke.emit()

    @Slot(object)
    def _not_set(self, error: BaseException) -> None:
        if self.lesson is not None and not isinstance(error, Cancelled):
            self.error = error
            self.said = dict.fromkeys(self.said, f"not computed: {reason(error)}")
            self.changed.emit()

    def _hear(self, name: str, answer: Answer) -> None:
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
        """What `head`, `destination` … in a `read` mean: what the step has chosen."""
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
            self.said[name] = formatted(number, value.format, facts.token_text)
        except (CircuitLabError, ValueError, ArithmeticError, LookupError) as error:
            self._fail(name, error)

    def _fail(self, name: str, error: BaseException) -> None:
        log.warning("%s: %s", name, error)
        self.said[name] = f"not computed: {reason(error)}"
        self.tips[name] = str(error)
        if self.ready is not None:
            for one, (value, _) in self.ready.requests.items():
                if value.minus == name and self.said.get(one) == PENDING:
                    self._fail(one, error)

    def to_checkpoint(self, step: int) -> None:
        """A link to a training step of the open model. Raises `BadInput` where it has no series."""
        ref = self.context.document.recorded.model
        model = self.context.engine.store.peek(ref)  # every checkpoint knows the steps of all; nothing is opened here
        index = nearest(ref, () if model is None else model.opened.steps, step)
        self.context.go(replace(ref, checkpoint=index), f"step {step}")
