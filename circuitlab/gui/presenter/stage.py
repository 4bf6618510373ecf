"""The stage: a window for an audience that walks the steps of a story. What is done on it changes nothing but its own document.

    stage = Stage(work.story, window.context)
    stage.go(0)
    stage.showFullScreen()

The keys are those of `keys.py`, whatever has the focus: they are taken at the native window, before any mark hears of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QCloseEvent, QHideEvent, QKeyEvent, QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from circuitlab.errors import reason
from circuitlab.figures.marks import Figure
from circuitlab.gui.lessons.tour import Tour
from circuitlab.gui.presenter.aids import Aids
from circuitlab.gui.presenter.keys import ENTER, ERASE, KeyWatch, action_of, digit_of, is_plain
from circuitlab.gui.presenter.page import StagePage, Words
from circuitlab.gui.presenter.stage_film import StageFilm
from circuitlab.gui.presenter.stage_views import StageViews, pictures_of
from circuitlab.gui.presenter.step_words import UNTITLED, footer_of, line_of, place_of, side_shown, title_of, title_of_others
from circuitlab.gui.presenter.steps_ahead import StepsAhead
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.model_loader import models_of
from circuitlab.model.subject import ModelRef
from circuitlab.state.state import State
from circuitlab.story.resolver import Ready
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from circuitlab.terminal import on_one_line


class Stage(QWidget):
    """`context`: that of the window, whose engine and runner it shares. `base`: the State that the story begins with, None: the
    recorded one. `prepared`: steps by number that need not be set up.

    `step_changed(number)`: another step, from 0; its picture follows as soon as it can be shown.
    `turned()`: another picture of the step is shown. `ended()`: it has been closed.
    `acts`: what each action of `keys.KEYS` does, by name.
    """

    step_changed = Signal(int)
    ended = Signal()
    turned = Signal()
    swap_wanted = Signal()

    def __init__(
        self, story: Story, context: AppContext, base: State | None = None, prepared: Mapping[int, Ready] | None = None
    ) -> None:
        super().__init__(None, Qt.WindowType.Window)
        self.setObjectName("stage")
        self.setWindowTitle(f"{on_one_line(story.title) or 'Story'} · CircuitLab")
        self.story = story
        self._window = context
        self.context = context.beside(base or context.document.recorded, self)
        self.tour = Tour(self.context, False, self)
        self.ahead = StepsAhead(self.tour, prepared or {}, self)
        self.page = StagePage(parent=self)
        self.page.setObjectName("stage.page")
        self.views = StageViews(self.context, self.page)
        self.aids = Aids(self.page, lambda number: 1 <= number <= self.count)
        self.film = StageFilm(self.context, lambda: self.views.waiting, self.aids, self)
        self._announced = -1  # the step that was announced last
        self._written: int | None = None  # the step whose picture is shown
        self._seen: int | None = None  # the step that is frozen
        self._picture = 0  # which of the step's is shown
        self._set_up: State | None = None  # that of the step that is shown, before anything was done on it
        self._problem: BaseException | None = None  # why the model of the step cannot be opened
        self._kept: tuple[ModelRef, ...] = ()
        self._keep_open()
        self._late = False  # the picture waits for a model that is being opened
        self._over = False
        self.acts: dict[str, Callable[[], object]] = {
            "on": self.next,
            "back": self.back,
            "first": self.first,
            "last": self.last,
            "picture": self.next_picture,
            "restore": self.restore,
            "black": self.aids.black,
            "white": self.aids.white,
            "freeze": self.aids.freeze,
            "ring": self.aids.ring_pointer,
            "swap": self.swap_wanted.emit,
            "end": self.end,
        }
        self.watch = KeyWatch(self, self.key, self.film.pause_or_go_on)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        box.addWidget(self.page, 1)
        self._connect()

    def _connect(self) -> None:
        self.page.theme_changed.connect(self._set_theme)
        self.tour.setting.connect(self._about_to_set)
        self.tour.shown.connect(self._shown)
        self.tour.changed.connect(self._walked)
        self.views.drawn.connect(self._write)
        self.tour.value_changed.connect(self._write)
        self.context.loader.settled.connect(self._settled)
        self.context.failed.connect(self._failed)
        self.aids.asked.connect(self._asked)
        self.aids.changed.connect(self._aids_changed)
        self._set_theme(self.page.theme)

    def lay_below(self, strip: QWidget) -> None:
        """A strip that has its room below the page, as long as it is shown."""
        layout = self.layout()
        assert layout is not None
        layout.addWidget(strip)

    @Slot(object)
    def _set_theme(self, theme: object) -> None:
        self.context.set_theme(self.page.theme)
        self.aids.set_theme(self.page.theme)
        self._keep_ring_free()

    def _keep_ring_free(self) -> None:
        self.views.keep_readouts_apart(self.aids.ring.radius if self.aids.ringed else 0.0)

    def _keep_open(self, *states: State) -> None:
        """Let other steps not close the models of these States, nor what the window comes back to."""
        refs = tuple(ref for state in (self._window.document.recorded, *states) for ref in models_of(state))
        store = self.context.engine.store
        store.keep(refs)
        store.let_go(self._kept)
        self._kept = refs

    # -- walking --------------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many steps there are."""
        return len(self.story.steps)

    @property
    def index(self) -> int:
        """The present step, from 0."""
        return self.tour.number

    @property
    def step(self) -> Step:
        """The present step."""
        return self.story.steps[self.index]

    @property
    def setup(self) -> Setup:
        """The complete words of the present step."""
        return self.story.setup(self.index)

    @property
    def frozen(self) -> bool:
        """Whether the audience keeps a picture, whatever step is shown below it."""
        return self.aids.frozen

    @property
    def seen(self) -> int:
        """The step that the audience sees: the present one, unless another is frozen."""
        return self.index if self._seen is None else self._seen

    @Slot()
    def _aids_changed(self) -> None:
        self._keep_ring_free()
        if not self.frozen:
            self._seen = None
        elif self._seen is None:
            self._seen = self.index if self._written is None else self._written

    @property
    def waiting(self) -> bool:
        """Whether the step is being set up, a model opened, or a figure outstanding."""
        return self.tour.waiting or self.context.loader.waiting or self.views.waiting

    def go(self, number: int) -> None:
        """Show a step, from 0; what was done live is forgotten. A number without a step does nothing.

        While the picture is frozen the audience does not see it.
        """
        if not 0 <= number < self.count:
            return
        self.aids.clear()
        self.views.hush()
        self.film.stop()
        self._late, self._problem, self._picture, self._set_up = False, None, 0, None
        if self.tour.lesson is None:
            self.tour.start(self.story, number)
        else:
            self.tour.go(number, again=True)

    def next(self) -> None:
        """Go to the next step; after the last one nothing happens. A curtain is only lifted."""
        if not self.aids.lift():
            self.go(self.index + 1)

    def back(self) -> None:
        """Go to the previous step. A curtain is only lifted."""
        if not self.aids.lift():
            self.go(self.index - 1)

    def first(self) -> None:
        """Go to the first step."""
        self.go(0)

    def last(self) -> None:
        """Go to the last step."""
        self.go(self.count - 1)

    def restore(self) -> None:
        """Show the exact picture of the step again, after it was pointed at."""
        self.go(self.index)

    def next_picture(self) -> None:
        """Show the next panel of the step, after the last one all of them, then begin again. A curtain is only lifted."""
        if not self.aids.lift() and self._written == self.index and self.views.in_front:
            self.aids.clear()
            self.views.hush()
            self._picture = (self._picture + 1) % len(pictures_of(self.setup))
            self._lay_out()
            self.turned.emit()

    @Slot(int)
    def _asked(self, number: int) -> None:
        self.go(number - 1)

    def end(self) -> None:
        """Close the stage."""
        self.close()

    # -- the picture ----------------------------------------------------------------------------------------------------

    @Slot(object)
    def _about_to_set(self, setup: Setup) -> None:
        self.views.hush()

    @Slot(object, bool)
    def _shown(self, setup: Setup, again: bool) -> None:
        """The State of the step is recorded, or will be when its model is open: until then the last picture stays."""
        self._late = self.context.loader.waiting
        if not self._late:
            self._arrange()

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        """Errors are drawn where the figure would be, and are in the log; one that leaves no step to show is said here."""
        if self._late and not self.context.loader.waiting:
            self._late, self._problem = False, error
            self._walked()

    @Slot()
    def _settled(self) -> None:
        if self._late:
            self._late = False
            self._arrange()

    def _arrange(self) -> None:
        """Show the figures of the present step, and its words with them."""
        ready = self.tour.ready
        self._written, self._set_up = self.index, self.context.document.recorded
        self._lay_out()
        self._keep_open(self.context.document.recorded)
        if ready is not None and ready.film:
            self.film.play(ready.film)
        self.ahead.go_on()

    def _lay_out(self) -> None:
        """Lay out the present picture of the step with its words, and let it ask."""
        names = pictures_of(self.setup)[self._picture]
        rows = self.views.rows(names)
        with ExitStack() as still:
            for view in (view for row in rows for view in row):
                still.enter_context(view.still())
            self._write(rows)
            self.views.show(names)
            self._write()
        self.views.zoom(self.setup)

    @property
    def picture_words(self) -> str:
        """Which of the step's pictures is shown, "" where it has one."""
        count = len(pictures_of(self.setup))
        return f"picture {self._picture + 1} of {count} (V)" if count > 1 else ""

    @Slot()
    def _walked(self) -> None:
        if self.tour.lesson is None:
            return
        if self.problem is not None:
            self.views.hush()
            self._written = self.index
            self._write([])
        else:
            self._write()
        if self._announced != self.index:
            self._announced = self.index
            self.step_changed.emit(self.index)

    @property
    def problem(self) -> BaseException | None:
        """Why the present step cannot be shown."""
        return self.tour.error or self._problem

    @Slot()
    def _write(self, rows: Sequence[Sequence[QWidget]] | None = None) -> None:
        """Write the words of the step, once its picture is shown, or why there is none. `rows`: the views, if others."""
        if self._written != self.index:
            return
        if self.problem is None:
            figures = (feed.view.figure for feed in self.views.feeds if feed.view.figure.grid)
            words = self.words_of(self.index, self.tour.ready, self.context.document.state, figures, self.tour.value_texts)
            if other := title_of_others(self.setup, pictures_of(self.setup)[self._picture]):
                words = (other, "", *words[2:])
        else:  # the State is another step's
            line = f"This step cannot be shown: {reason(self.problem)}"
            words = (self.step.title or UNTITLED, line, "", (self.index + 1, self.count), None)
        self.page.set_step(*words, rows)

    def words_of(
        self, number: int, ready: Ready | None, state: State, figures: Iterable[Figure], values: Mapping[str, str]
    ) -> Words:
        """What is written on the page of a step that shows these figures of a State. `values`: its numbers as text, by name."""
        step, setup = self.story.steps[number], self.story.setup(number)
        line = line_of(step, setup, {} if ready is None else ready.words, values)
        figures = tuple(figures)
        side = side_shown(state, figures)
        footer = footer_of(side, self.context.facts_if_open(side.model), figures)
        place = place_of(() if ready is None else ready.film, state)
        return title_of(step, setup, state, figures), line, footer, (number + 1, self.count), place

    def public_line(self) -> str:
        """The line of the present step that everybody reads, with its numbers filled in."""
        ready = self.tour.ready
        return line_of(self.step, self.setup, {} if ready is None else ready.words, self.tour.value_texts)

    # -- keys -----------------------------------------------------------------------------------------------------------

    def key(self, event: QKeyEvent) -> bool:
        """Do what a key does; whether it is one of the stage's."""
        action = action_of(event)
        if not action and not (self.film.in_sight and is_plain(event)):
            return False
        if event.isAutoRepeat():  # a key that is held down, or a clicker that is sat on
            return True
        if not action:
            self.film.pause_or_go_on()
        elif action == "digit":
            self.aids.digit(digit_of(event))
        elif self.aids.typing and event.key() in ENTER:
            self.aids.confirm()
        elif self.aids.typing and event.key() == ERASE:
            self.aids.erase()
        elif action in self.acts and (action != "end" or not self._back_out()):
            self.acts.get(action, lambda: None)()
        return True

    def _back_out(self) -> bool:
        """Stop a film, else leave the last of the aids, else release what was selected; whether there was any."""
        return self.film.give_up() or self.aids.back_out() or self._release()

    def _release(self) -> bool:
        """Take back what was selected on the step; whether there was anything. A film stays at the frame where it is."""
        before, now = self._set_up, self.context.target_state
        if before is None:
            return False
        if self.setup.play is not None:
            before = replace(before, model=now.model)
        in_tables = self.views.release()
        if before != now:
            self.context.show(before, "release")
        return in_tables or before != now

    # -- opening and closing --------------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        """From now on its requests go before those of the window."""
        super().showEvent(event)
        self.context.runner.lead = self

    def hideEvent(self, event: QHideEvent) -> None:
        """The window's requests are like any others again."""
        super().hideEvent(event)
        if self.context.runner.lead is self:
            self.context.runner.lead = None

    def closeEvent(self, event: QCloseEvent) -> None:
        """Stop what runs for it."""
        super().closeEvent(event)
        if self._over:
            return
        self._over = True
        self.views.hush()
        self.film.stop()
        self.context.runner.cancel_of(self)
        self.context.engine.store.let_go(self._kept)
        self.ended.emit()
