"""Presenting from the window: which story is shown on the stage, how it is asked, and the talk that is being given."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QMainWindow

from circuitlab.gui.checkpoints.bar import CheckpointBar
from circuitlab.gui.lessons.dock import LessonsDock
from circuitlab.gui.presenter.dialog import Choice, PresentDialog
from circuitlab.gui.presenter.options import TalkOptions, remember, remembered
from circuitlab.gui.presenter.preparing import Preparing
from circuitlab.gui.presenter.screens import attached
from circuitlab.gui.presenter.stage import Stage
from circuitlab.gui.presenter.step_words import UNTITLED
from circuitlab.gui.presenter.talk import Talk
from circuitlab.gui.work.app_context import AppContext
from circuitlab.story.resolver import Ready
from circuitlab.story.story import Story


class Host(Protocol):
    """What it needs of its window."""

    context: AppContext
    remember: bool
    lessons: LessonsDock
    checkpoints: CheckpointBar
    preparing: Preparing

    def commit_typing(self) -> None: ...


class Presenting(QObject):
    """`changed()`: a talk begins or ends. `talk`: the one that is being given, None without one."""

    changed = Signal()

    def __init__(self, host: Host, window: QMainWindow) -> None:
        super().__init__(window)
        self._host, self.window = host, window
        self.talk: Talk | None = None
        self._options = remembered() if host.remember else TalkOptions()

    # -- what would be presented --------------------------------------------------------------------------------------------

    @property
    def stage(self) -> Stage | None:
        """The stage of the talk."""
        return None if self.talk is None else self.talk.stage

    @property
    def _lesson(self) -> Story | None:
        """The lesson that is walked through, None outside of lessons."""
        tour = self._host.lessons.tour
        return None if tour.own else tour.lesson

    @property
    def story(self) -> Story:
        """What would be presented: the lesson that is walked through, otherwise the session's own story."""
        return self._lesson or self._host.context.document.work.story

    @property
    def here(self) -> int:
        """The step that the window shows, from 0; the first where it shows none."""
        tour = self._host.lessons.tour
        return tour.number if tour.lesson is not None else 0

    @property
    def possible(self) -> bool:
        """Whether there is anything to present."""
        return bool(self.story.steps)

    # -- beginning ----------------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask on which screen, from which step, on which ground and for how long; then begin."""
        if self._is_on() or not self.possible:
            return
        choice = Choice([step.title or UNTITLED for step in self.story.steps], attached())
        preparing = None if self._lesson else self._host.preparing
        dialog = PresentDialog(choice, replace(self._options, first=self.here), preparing, self.window)
        dialog.wanted.connect(self.present)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def from_start(self) -> None:
        """Present from the first step on, as the last talk was given."""
        self.present(replace(self._options, first=0))

    def from_here(self) -> None:
        """Present from the step on that the window shows, as the last talk was given."""
        self.present(replace(self._options, first=self.here))

    @Slot(object)
    def present(self, options: TalkOptions) -> None:
        """Begin, after a question where not all is ready. In a talk that is on: go to the step to begin with."""
        if self.stage is not None or self._lesson is not None or not self.possible:
            self._begin(options)
        else:
            self._host.preparing.before_presenting(lambda: self._begin(options))

    def present_prepared(self, options: TalkOptions) -> None:
        """Prepare the session's own story, then begin; a question where not all can be made ready."""
        self._host.preparing.prepare(lambda: self._begin(options))

    def begin(self, number: int) -> None:
        """Begin with a step, from 0, as the last talk was given, whether it is ready or not."""
        self._begin(replace(self._options, first=number))

    def _begin(self, options: TalkOptions) -> None:
        if self._is_on():
            assert self.stage is not None
            self.stage.go(options.first)
        elif self.possible:
            self.open(options).begin()
            self._keep(options)

    def _keep(self, options: TalkOptions) -> None:
        """Remember how the talk is given; the only screen there is says nothing of the next time."""
        self._options = replace(options, first=0, screen=options.screen if len(attached()) > 1 else "")
        if self._host.remember:
            remember(self._options)

    def _is_on(self) -> bool:
        """Whether a talk is being given already; its stage comes to the front."""
        if self.stage is not None:
            self.stage.raise_()
            self.stage.activateWindow()
        return self.stage is not None

    def open(self, options: TalkOptions | None = None) -> Talk:
        """A talk whose stage is made and not shown."""
        self._host.commit_typing()
        self._host.checkpoints.player.stop()  # nothing goes on behind the stage
        stage = Stage(self.story, self._host.context, self._host.lessons.tour.before, self._prepared())
        line = (lambda: "") if self._lesson else (lambda: self._host.preparing.line_of_talk)
        self.talk = Talk(self.window, self._host.context, stage, options or self._options, line)
        self.talk.ended.connect(self._ended)
        self.changed.emit()
        return self.talk

    def _prepared(self) -> dict[int, Ready]:
        """The steps that are set up already, by number."""
        steps = () if self._lesson else self._host.preparing.readiness.steps
        return {i: step.ready for i, step in enumerate(steps) if step.ready is not None}

    # -- ending -------------------------------------------------------------------------------------------------------------

    @Slot()
    def _ended(self) -> None:
        talk, self.talk = self.talk, None
        if talk is not None:
            self._keep(replace(self._options, screen=talk.screens.wanted))
            talk.deleteLater()
            self.changed.emit()

    @Slot()
    def end(self) -> None:
        """End the talk, if there is one."""
        if self.talk is not None:
            self.talk.end()
