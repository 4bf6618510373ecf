"""The session's own story: what the window shows becomes a step; steps are worded, moved and deleted. All can be undone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.errors import Cancelled, bounded, reason
from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlots
from circuitlab.model.subject import ModelRef
from circuitlab.session.state import State
from circuitlab.session_files.model_table import names_by_ref, refs_of, with_models
from circuitlab.story.capture import StoreNames, setup_of
from circuitlab.story.editing import with_step, with_step_moved, with_view, with_words, without_step
from circuitlab.story.setup import Setup
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
    """`added(number)`: the view is now this step. `taken(number)`: this step now shows what the window showed.

    Words of tokens are looked up on the file thread, as a model may have to be opened again.
    """

    added = Signal(int)
    taken = Signal(int)

    def __init__(self, context: AppContext, parent: QObject) -> None:
        super().__init__(parent)
        self.context = context
        self._views = {name: panel.view for name, panel in panels().items()}
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

    def add(self, title: str, layout: Setup, place: Callable[[], int]) -> None:
        """Add what is recorded now as a step. `layout`: the words of the layout; `place()`: where it goes, once it is ready."""

        state, words = self.context.document.recorded, bounded(title, LONGEST_TITLE)

        def take(whole: Setup) -> None:
            at = min(place(), len(self.story.steps))
            self._edit(with_step(self.story, at, words, whole, self._views), f"add step “{words}”", refs=refs_of(state))
            self.added.emit(at)

        self._start(_Capture(state, layout, self._names(state), take))

    def take_view(self, number: int, layout: Setup) -> None:
        """Let a step show what is recorded now."""
        state, step = self.context.document.recorded, self.story.steps[number]

        def take(whole: Setup) -> None:
            at = self._place(step, number)
            if at is None:
                self.context.message.emit(f"“{step.title}” is no longer in the story: its view was not taken.")
                return
            label = f"take this view for “{step.title}”"
            self._edit(with_view(self.story, at, whole, self._views), label, refs=refs_of(state))
            self.taken.emit(at)

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
        layout = capture.layout
        placed = replace(words, arrange=layout.arrange, show=layout.show, alone=layout.alone, zoom=layout.zoom)
        capture.take(placed.over(Setup()))

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
