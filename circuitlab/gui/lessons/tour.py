"""The walk through a story: the present step, its State and numbers, the place in each lesson, and the return at the end."""

from __future__ import annotations

import logging
from collections import deque
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
from circuitlab.story.story import Step, Story
from circuitlab.story.text import PENDING, fill_text
from circuitlab.story.values import Value, formatted, read_out

log = logging.getLogger("circuitlab.lessons")
LEFT = "lesson-left"
REMEMBERED = 64  # versions of one's own story


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
    """The walk through one story at a time: a lesson, or the session's own story.

    `changed()`: another story or step, or a new status of the step. `value_changed()`: a number is available or has failed.
    `setting(Setup)`: the State of a step is about to be shown; `shown(Setup, again)`: it is shown, and the docks must be
    arranged (`again`: even if they already are). `left(stay)`: the walk is over; `stay`: what is shown stays.
    """

    changed = Signal()
    value_changed = Signal()
    setting = Signal(object)
    shown = Signal(object, bool)
    left = Signal(bool)

    def __init__(self, context: AppContext, remember: bool, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.context, self.places = context, Places(remember)
        self.lesson: Story | None = None
        self.number = 0
        self.ready: Ready | None = None
        self.error: BaseException | None = None
        self.value_texts: dict[str, str] = {}  # the step's numbers as text, or `PENDING`, by name
        self.tips: dict[str, str] = {}  # the tooltip of each number, by name
        self._numbers: dict[str, float | Head] = {}
        self._before: State | None = None
        self._again, self._merge = False, ""
        self._stood: deque[tuple[Story, int]] = deque(maxlen=REMEMBERED)  # the step where one was in each version, newest first
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
    def own(self) -> bool:
        """Whether the story is the session's own, whose steps can be edited."""
        return self.lesson is not None and not isinstance(self.lesson, Lesson)

    @property
    def title(self) -> str:
        """The story's title; a lesson without one is called by its file."""
        if isinstance(self.lesson, Lesson):
            return self.lesson.title or self.lesson.name
        return (self.lesson.title if self.lesson is not None else "") or "This session"

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

    def start(self, story: Story, number: int | None = None) -> None:
        """Begin a story, by default at the step where it was left. The present State is restored at its end."""
        if self._before is None:
            self._before = self.context.document.recorded
        self.lesson = story
        self.ready = None
        self.go(self.first_step(story) if number is None else number)

    def first_step(self, story: Story) -> int:
        """The step at which a story begins: of a lesson the one where it was left."""
        return self.places.step(story) if isinstance(story, Lesson) else 0

    def follow(self, story: Story) -> None:
        """Go on in one's own story after an edit; after undo where one stood in that version. Leave it if no step is left."""
        if not self.own or self.lesson is None or story is self.lesson:
            return
        if not story.steps:
            self.leave()
            return
        values, stood = self.step.values, next((number for one, number in self._stood if one is story), self.number)
        self.lesson, self.number = story, min(stood, len(story.steps) - 1)
        if self.step.values != values:
            self.go(self.number)
        self.changed.emit()

    def renumber(self, number: int) -> None:
        """The present step of one's own story has been moved there; what is shown stays."""
        if self.lesson is not None:
            self.number = number
            self._stood.appendleft((self.lesson, number))
            self.changed.emit()

    def go(self, number: int, again: bool = False, merge: str = "") -> None:
        """Show a step. One without a setup of its own leaves the window alone when reached from the step before.

        `merge`: that of an edit of the story, with which showing the step is one step of undo.
        """
        if self.lesson is None or not 0 <= number < len(self.lesson.steps):
            return
        follows = number == self.number + 1 and not again and self.ready is not None and self.error is None
        self._stop()
        self.number = number
        if isinstance(self.lesson, Lesson):
            self.places.at(self.lesson, number)
        self._stood.appendleft((self.lesson, number))
        text_only = self.step.setup is None and follows
        self.value_texts = {value.name: PENDING for value in self.step.values}
        self.tips, self._numbers, self.error = {}, {}, None
        if not text_only:
            self.ready, self._again, self._merge = None, again, merge
            self._set_up(self.lesson.setup(number), self.step)
        self.changed.emit()

    def next(self) -> None:
        """Go to the next step; after the last one the story is finished."""
        if self.lesson is None:
            return
        if self.number + 1 < len(self.lesson.steps):
            self.go(self.number + 1)
        else:
            if isinstance(self.lesson, Lesson):
                self.places.finish(self.lesson)
            self.leave()

    def back(self) -> None:
        """Go to the previous step."""
        self.go(self.number - 1)

    def again(self) -> None:
        """Set up the present step again, whatever the user has changed since."""
        self.go(self.number, again=True)

    def stay(self) -> None:
        """Leave the story with what is shown."""
        self._leave(stay=True)

    def leave(self) -> None:
        """Leave the story: the State from before it is restored."""
        self._leave(stay=False)

    def _leave(self, stay: bool) -> None:
        if self.lesson is None:
            return
        self._stop()
        title, before = self.title, self._before
        self.lesson, self.ready, self._before, self.error = None, None, None, None
        self.value_texts, self.number = {}, 0
        if before is not None:
            now = self.context.document.recorded
            self.context.gather(before, "" if stay else LEFT)  # undo leads to the State before the story, not into it
            if before != now and not stay:
                self.context.show(before, f"leave “{title}”", LEFT)
        self.left.emit(stay)
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
        table, own = self.context.document.work.models if self.own else {}, self.own
        models = {name: entry.ref for name, entry in table.items()}
        resolver = lambda job: Resolver(engine, views, base, _Stoppable(job), models, tolerant=own)
        self.context.runner.do(self._slot, f"{self.title}: {step.title}", lambda job: resolver(job).ready(setup, step))

    @Slot(object)
    def _set(self, value: Ready) -> None:
        if self.lesson is None:
            return
        self.ready = value
        setup = self.lesson.setup(self.number)
        self.setting.emit(setup)
        self.context.show(value.state, f"{self.title}: {self.step.title}", self._merge)
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
