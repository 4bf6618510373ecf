"""The walk through a story: the present step, its State and numbers, the place in each lesson, and the return at the end."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.engine.request import Answer, Request
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.figures.contracts.panel import view_types
from circuitlab.gui.lessons.lesson_places import Places
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job, StoppableContext
from circuitlab.gui.work.work_slot import WorkSlot, WorkSlots
from circuitlab.lessons.lesson import Lesson
from circuitlab.model.subject import Head
from circuitlab.state.state import State
from circuitlab.story.places import real_folder
from circuitlab.story.resolver import Ready, Resolver, nearest
from circuitlab.story.story import Step, Story
from circuitlab.story.text import PENDING, fill_text
from circuitlab.story.values import Value, difference, formatted, not_computed, read_out

log = logging.getLogger("circuitlab.lessons")
LEFT = "lesson-left"
REMEMBERED = 64  # versions of one's own story


def _prepared(step: Step) -> tuple[object, ...]:
    """What of a step is prepared when it is shown, besides the State."""
    return step.values, None if step.setup is None else step.setup.play


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
        self.no_numbers: dict[str, str] = {}  # why a number is not computed, by name
        self.prepared: dict[int, Ready] = {}  # steps that need not be set up again, of a story that is not edited
        self.filming = False  # the step's film runs: its checkpoint is not that of the step's numbers
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
        """Whether the window now shows another model, prompt or ablation than the step does."""
        if self.ready is None or self.filming or self.context.loader.waiting or self.context.runner.is_busy(self._slot):
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
        if self.lesson is not story:
            self._stop()
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
        before, stood = _prepared(self.step), next((number for one, number in self._stood if one is story), self.number)
        self.lesson, self.number = story, min(stood, len(story.steps) - 1)
        if _prepared(self.step) != before:
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
        self._stop(put_off=number != self.number)
        self.number = number
        if isinstance(self.lesson, Lesson):
            self.places.at(self.lesson, number)
        self._stood.appendleft((self.lesson, number))
        text_only = self.step.setup is None and follows
        self.value_texts = {value.name: PENDING for value in self.step.values}
        self.tips, self.no_numbers, self._numbers, self.error = {}, {}, {}, None
        if not text_only:
            self.ready, self._again, self._merge = None, again, merge
            if (ready := self.prepared.get(number)) is not None:
                self._set(ready)
                return
            self._set_up(number)
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

    def _stop(self, put_off: bool = False) -> None:
        """Wait for nothing any more. `put_off`: the step is left and may be come back to, so what its numbers take goes on."""
        runner = self.context.runner
        self.value_texts = {}  # before the jobs are cancelled: their end no longer matters
        runner.cancel_slot(self._slot)
        self._slots.end(runner.put_off if put_off else runner.cancel_slot)

    # -- the State and the numbers --------------------------------------------------------------------------------------

    def _set_up(self, number: int) -> None:
        self.context.runner.do(self._slot, f"{self.title}: {self.step.title}", self.setting_up(number))

    def setting_up(self, number: int) -> Callable[[Job], Ready]:
        """Prepare a step, on the file thread: models are opened, token texts looked up, heads chosen by their scores."""
        assert self.lesson is not None
        setup, step = self.lesson.setup(number), self.lesson.steps[number]
        views = view_types()
        base, engine = self._before or self.context.document.recorded, self.context.engine
        table, own = self.context.document.work.models if self.own else {}, self.own
        models = {name: entry.ref for name, entry in table.items()}
        folder = real_folder(self.lesson.path) if isinstance(self.lesson, Lesson) else None

        def ready(job: Job) -> Ready:
            ctx = StoppableContext(job.cancelled.is_set)
            return Resolver(engine, views, base, ctx, models, tolerant=own, folder=folder).ready(setup, step)

        return ready

    @Slot(object)
    def _set(self, ready: Ready) -> None:
        if self.lesson is None:
            return
        self.ready = ready
        setup = self.lesson.setup(self.number)
        self.setting.emit(setup)
        self.context.show(ready.beginning, f"{self.title}: {self.step.title}", self._merge)
        self.shown.emit(setup, self._again)
        for name, error in ready.failed.items():
            self._fail(name, error)
        for name, (_, request) in ready.requests.items():
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
            self.value_texts = {name: not_computed(name) for name in self.value_texts}
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
        number, other = self._numbers[name], self._numbers.get(value.minus)
        if value.minus and other is None:
            return
        try:
            number = number if other is None else difference(name, number, other)
            facts = self.context.facts(self.ready.requests[name][1].subject.model)
            self.value_texts[name] = formatted(number, value.format, facts.token_text)
        except (CircuitLabError, ValueError, ArithmeticError, LookupError) as error:
            self._fail(name, error)

    def _fail(self, name: str, error: BaseException) -> None:
        log.warning("%s: %s", name, error)
        self.value_texts[name] = not_computed(name)
        self.tips[name], self.no_numbers[name] = str(error), reason(error)
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
