"""The session's own story: what the window shows becomes a step; steps are worded, moved and deleted. All can be undone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.errors import Cancelled, bounded, reason
from circuitlab.figures.contracts.panel import view_types
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlots
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.model_table import names_by_ref, refs_of, with_models
from circuitlab.state.state import State
from circuitlab.story.capture import StoreNames, setup_of
from circuitlab.story.editing import with_film, with_step, with_step_moved, with_view, with_words, without_step
from circuitlab.story.setup import Play, Setup, placed
from circuitlab.story.story import Step, Story

PAUSE = 1.5  # s between keystrokes after which typing is another step of undo
LONGEST_TITLE = 80  # characters of a title that is proposed


@dataclass(frozen=True)
class _Capture:
    """A view to be turned into words: the State and the layout, the names of its models, and what the words are for."""

    state: State
    layout: Setup
    names: dict[ModelRef, str]
    take: Callable[[Setup], None]


class OwnStory(QObject):
    """`added(number)`: the view is now this step. `view_taken(number)`: this step now shows what the window showed.

    Words of tokens are looked up on the file thread, as a model may have to be opened again.
    """

    added = Signal(int)
    view_taken = Signal(int)

    def __init__(self, context: AppContext, parent: QObject) -> None:
        super().__init__(parent)
        self.context = context
        self._views = view_types()
        self._captures: dict[object, _Capture] = {}
        self._slots = WorkSlots(self, context.runner.is_busy, finished=self._captured, failed=self._failed)  # by capture
        self._count = self._burst = 0
        self._typed, self._typed_at = ("", 0), 0.0

    @property
    def story(self) -> Story:
        """The story as it is recorded."""
        return self.context.document.work.story

    @property
    def waiting(self) -> bool:
        """Whether a view is being turned into words."""
        return bool(self._captures)

    # -- views ----------------------------------------------------------------------------------------------------------

    def add(self, title: str, layout: Setup, place: Callable[[], int], model: ModelRef | None = None) -> None:
        """Add what is recorded now as a step. `layout`: the words of the layout and of a film; `place()`: where it goes, once it
        is ready; `model`: the checkpoint at which a film ends, which is the step's own.
        """
        state, words = self._shown(model), bounded(title, LONGEST_TITLE)

        def take(whole: Setup) -> None:
            at, title = min(place(), len(self.story.steps)), self._distinct(words, state)
            self._edit(with_step(self.story, at, title, whole, self._views), f"add step “{title}”", refs=refs_of(state))
            self.added.emit(at)

        self._start(_Capture(state, layout, self._names(state), take))

    def _distinct(self, title: str, state: State) -> str:
        """The title, where another step bears it with the position of the destination, and with a number if that does not do."""
        titles = {step.title for step in self.story.steps}
        position = state.selection.destination
        at = f"{title} · position {position}" if position is not None else title
        numbered = (f"{title} · {number}" for number in range(2, len(titles) + 3))
        return next(one for one in (title, at, *numbered) if one not in titles)

    def _shown(self, model: ModelRef | None) -> State:
        recorded = self.context.document.recorded
        return recorded if model is None else replace(recorded, model=model)

    def take_view(self, number: int, layout: Setup, model: ModelRef | None = None) -> None:
        """Let a step show what is recorded now (see `add`)."""
        state, step = self._shown(model), self.story.steps[number]

        def take(whole: Setup) -> None:
            at = self._place(step, number)
            if at is None:
                self.context.message.emit(f"“{step.title}” is no longer in the story: its view was not taken.")
                return
            label = f"take this view for “{step.title}”"
            self._edit(with_view(self.story, at, whole, self._views), label, refs=refs_of(state))
            self.view_taken.emit(at)

        self._start(_Capture(state, layout, self._names(state), take))

    def _place(self, step: Step, number: int) -> int | None:
        """Where a step stands by now; its words may have changed meanwhile."""
        steps = self.story.steps
        if number < len(steps) and steps[number].setup == step.setup:
            return number
        return next((i for i, one in enumerate(steps) if one == step), None)

    def _names(self, state: State) -> dict[ModelRef, str]:
        """What the session calls the models of a State."""
        names = names_by_ref(with_models(self.context.document.work.models, refs_of(state)))
        bases = {replace(ref, checkpoint=None) for ref in refs_of(state)}
        return {ref: name for ref, name in names.items() if ref in bases}

    def _start(self, capture: _Capture) -> None:
        self._count += 1
        self._captures[self._count] = capture
        store, views = self.context.engine.store, self._views
        work = lambda job: setup_of(capture.state, Setup(), StoreNames(store, capture.names), views, ids=True)
        self.context.runner.do(self._slots[self._count], "keep this view", work)

    @Slot(object, object)
    def _captured(self, words: Setup, key: object) -> None:
        capture = self._captures.pop(key)
        self._slots.keep_only(list(self._captures))
        if self._names(capture.state) != capture.names:  # the session calls the models otherwise by now
            self._start(replace(capture, names=self._names(capture.state)))
            return
        capture.take(replace(placed(words, capture.layout), play=capture.layout.play).over(Setup()))

    @Slot(object, object)
    def _failed(self, error: BaseException, key: object) -> None:
        self._captures.pop(key, None)
        if not isinstance(error, Cancelled):
            self.context.message.emit(f"This view could not be kept: {reason(error)}")

    # -- steps ----------------------------------------------------------------------------------------------------------

    def reword(self, number: int, field: str, text: str) -> None:
        """Set the `title`, `text` or `aside` of a step; what is typed without a pause is one step of undo."""
        now = time.monotonic()
        if (field, number) != self._typed or now - self._typed_at > PAUSE:
            self._burst += 1
        self._typed, self._typed_at = (field, number), now
        story = with_words(self.story, number, **{field: text})
        self._edit(story, f"{field} of step {number + 1}", f"story.{field}.{number}.{self._burst}")

    def end_burst(self) -> None:
        """What is typed from now on is another step of undo."""
        self._typed = ("", 0)

    def set_film(self, number: int, play: Play | None) -> str:
        """Let a step play a film, or none. Returns the burst with which showing it is one step of undo."""
        self._burst += 1
        merge = f"story.film.{self._burst}"
        self._edit(with_film(self.story, number, play), f"film of “{self.story.steps[number].title}”", merge)
        return merge

    def move(self, number: int, by: int) -> int:
        """Move a step up or down; return its number then."""
        to = min(max(number + by, 0), len(self.story.steps) - 1)
        if to != number:
            title = self.story.steps[number].title
            self._edit(with_step_moved(self.story, number, to, self._views), f"move step “{title}”")
        return to

    def delete(self, number: int) -> str:
        """Delete a step. Returns the burst with which what is shown instead is one step of undo."""
        self._burst += 1
        merge = f"story.delete.{self._burst}"
        title = self.story.steps[number].title
        self._edit(without_step(self.story, number, self._views), f"delete step “{title}”", merge)
        return merge

    def _edit(self, story: Story, label: str, merge: str = "", refs: tuple[ModelRef, ...] = ()) -> None:
        """Record another story. `refs`: the models that its new words name."""
        work = self.context.document.work
        models = with_models(work.models, refs) if refs else work.models
        self.context.document.edit(replace(work, story=story, models=models), label, merge)
