"""The checkpoint bar: one slider over the checkpoints of a model that drives every panel; step, play, loop, pin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QWidget

from circuitlab.draw.look.plain_text import tip_of
from circuitlab.draw.look.theme import Theme
from circuitlab.gui.checkpoints.film import Ends, Film
from circuitlab.gui.checkpoints.offer import CheckpointOffer
from circuitlab.gui.checkpoints.playing import Player, pace_button
from circuitlab.gui.checkpoints.scene_film import SceneFilm
from circuitlab.gui.checkpoints.series import Point, Series
from circuitlab.gui.checkpoints.series_slider import SeriesSlider
from circuitlab.gui.widgets.buttons import flat, tint
from circuitlab.gui.widgets.labels import ShortLabel
from circuitlab.gui.widgets.strip import FULL, SHORTEST, SIGNS
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.state_commands import StateCommands
from circuitlab.model.archives.offering import obtainable
from circuitlab.model.subject import ModelRef
from circuitlab.state.model_change import one_series
from circuitlab.state.state import State
from circuitlab.story.setup import FINAL, Checkpoint

PLAY_TIP, PAUSE_TIP = "Play the training (Ctrl+T)", "Stop at this checkpoint (Ctrl+T)"
NO_WEIGHTS = "The training cannot be played: the weights are not on this machine"


class CheckpointBar(QWidget):
    """The bar, visible while the open model has a series, or one that can be got (`offer`).

    `waiting()`: whether a visible panel still awaits an answer.
    """

    def __init__(self, context: AppContext, state_commands: StateCommands, waiting: Callable[[], bool], parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("bar.checkpoints")
        self.context, self.state_commands = context, state_commands
        self.player = Player(waiting, lambda: context.loader.waiting, self)
        self.series = Series(context, self)
        self.sweep = SceneFilm(context, waiting, self, watching=True)
        self.film = Film(context, self.player, self._begin_film, self._next_burst, self)
        self._ends: Ends | None = None  # of what plays
        self._plays = True  # the weights of the series are there
        self._burst = 0  # number of drags and playbacks so far; each is one undo step
        self._make_buttons()
        self.slider = SeriesSlider(self)
        self.label = ShortLabel(self, least=96)
        self.label.setContentsMargins(8, 0, 8, 0)
        self._stage = FULL
        self.offer = CheckpointOffer(self)
        self._controls = QWidget(self)
        whole, row = QHBoxLayout(self), QHBoxLayout(self._controls)
        for line in (whole, row):
            line.setContentsMargins(0, 0, 0, 0)
            line.setSpacing(2)
        whole.addWidget(self._controls)
        whole.addWidget(self.offer)
        for widget in (*self._steppers, self.loop, self.pace, self.slider, self.label, self.pin):
            row.addWidget(widget, 1 if widget is self.slider else 0)
        self._connect()
        self.set_theme(context.theme)
        self.refresh()

    def _make_buttons(self) -> None:
        def make(name: str, tip: str) -> QToolButton:
            button = flat(self, f"checkpoints.{name}", "", tip)
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonIconOnly)
            button.setAccessibleName(tip)
            return button

        self.first = make("first", "First checkpoint")
        self.previous = make("previous", "Previous checkpoint ([)")
        self.play_button = make("play", PLAY_TIP)
        self.next = make("next", "Next checkpoint (])")
        self.last = make("last", "Final weights")
        self._steppers = (self.first, self.previous, self.play_button, self.next, self.last)
        self.loop = make("loop", "Loop: start again after the last checkpoint")
        self.loop.setCheckable(True)
        self.pace = pace_button(self.player, self)
        self._fill_pace()
        self.pin = flat(
            self, "checkpoints.pin", "Compare to this", "Pin this checkpoint: every panel then shows the difference from it"
        )

    def _fill_pace(self) -> None:
        """Add to the menu the actions whose buttons a narrow bar hides."""
        menu = self.pace.menu()
        menu.addSeparator()
        menu.addAction("First checkpoint").triggered.connect(self.to_first)
        menu.addAction("Final weights").triggered.connect(self.to_last)
        loop = menu.addAction("Loop")
        loop.setCheckable(True)
        loop.toggled.connect(self.loop.setChecked)
        self.loop.toggled.connect(loop.setChecked)

    def _connect(self) -> None:
        context = self.context
        self.first.clicked.connect(self.to_first)
        self.previous.clicked.connect(self.step_back)
        self.play_button.clicked.connect(self.play_or_stop)
        self.next.clicked.connect(self.step_on)
        self.last.clicked.connect(self.to_last)
        self.pin.clicked.connect(self.pin_this)
        self.player.beat.connect(self._next)
        self.player.changed.connect(self._played)
        self.player.passed.connect(self._passed)
        self.series.measured.connect(self._measured)
        self.slider.sliderPressed.connect(self._pressed)
        self.slider.valueChanged.connect(self._slider_moved)
        self.player.changed.connect(self._hold)
        self.slider.sliderPressed.connect(self._hold)
        self.slider.sliderReleased.connect(self._hold)
        context.document.changed.connect(self._changed)
        context.loader.given_up.connect(self._given_up)
        context.theme_changed.connect(self.set_theme)

    @Slot(object)
    def set_theme(self, theme: Theme) -> None:
        """Draw the icons in the theme's grey."""
        for button in (self.first, self.previous, self.next, self.last, self.loop, self.pin):
            tint(button, button.objectName().partition(".")[2], theme)
        self._played()
        self.slider.set_theme(theme)
        self.offer.set_theme(theme)
        self.compact(self._stage)

    def compact(self, stage: int) -> None:
        """Show less, the higher the stage: first, last and loop are also in the speed menu, the tokens in the tooltip."""
        self._stage = stage
        for button in (self.first, self.last, self.loop):
            button.setVisible(stage < 1)
        for button in (self.previous, self.next, self.label):
            button.setVisible(stage < SHORTEST)
        self.pace.setVisible(stage < SIGNS)
        style = Qt.ToolButtonStyle.ToolButtonIconOnly if stage >= 1 else Qt.ToolButtonStyle.ToolButtonTextBesideIcon
        self.pin.setToolButtonStyle(style)
        self.offer.compact(stage)
        self._show_point()
        for part in (self._controls, self.offer):
            part.updateGeometry()  # else who asks at once how wide the bar is hears how wide it was

    def _words(self, point: Point) -> str:
        return point.words if self._stage < 1 else "".join(point.parts[:1])

    # -- what is shown ------------------------------------------------------------------------------------------------

    @property
    def points(self) -> tuple[Point, ...]:
        """The checkpoints in the order of training, then the final weights; () without a series."""
        return self.series.points

    @property
    def position(self) -> int:
        """Index of the point that is shown or being opened."""
        return self.series.index(self.context.target_state.model)

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        if old.model == new.model and old.pinned == new.pinned:
            return
        if self.player.playing and self.series.index(new.model) != self.slider.value():
            self.player.stop()  # the user went to another checkpoint
        self.refresh()

    @Slot()
    def refresh(self) -> None:
        """Show the series of the open model and the present point."""
        ref = self.context.document.state.model
        model = self.context.engine.store.peek(ref)
        if model is None:
            return  # it is being reopened
        if self._plays == model.absent:
            self._plays = not model.absent
            self._played()
        if self.series.show(model):
            self.player.stop()
            self._show_series()
        self.offer.show_archive(None if self.points or model.absent else obtainable(ref))
        self._controls.setVisible(bool(self.points))
        shown = bool(self.points) or self.offer.archive is not None
        if self.isHidden() == shown:
            self.setVisible(shown)
        pin = self.context.document.state.pinned
        ours = pin is not None and one_series(pin.subject.model, ref)
        self.slider.pinned = self.series.index(pin.subject.model) if pin is not None and ours else None
        if not self.slider.isSliderDown():
            self.slider.show_value(self.position)
        self._show_point()

    def _show_series(self) -> None:
        self.slider.show_points(self.series.points)
        self.slider.show_band(*self.series.phase)

    @Slot()
    def _measured(self) -> None:
        self._show_series()
        self.slider.show_value(self.position)
        self._show_point()

    def _show_point(self) -> None:
        """Show the slider's point in words, and enable the buttons that lead to another one."""
        if not self.points:
            return
        index, last = self.slider.value(), len(self.points) - 1
        self.label.reserve(map(self._words, self.points))
        self.label.setText(self._words(self.points[index]))
        self.label.setToolTip(tip_of(self.points[index].words))
        for button, steps in ((self.first, index), (self.previous, index), (self.next, last - index), (self.last, last - index)):
            button.setEnabled(steps > 0)

    # -- by hand ------------------------------------------------------------------------------------------------------

    @Slot()
    def _pressed(self) -> None:
        self.player.stop()
        self._burst += 1

    @Slot()
    def _hold(self) -> None:
        """Hold the colour scales through a playback or a drag."""
        self.context.hold_scales(self.player.playing or self.slider.isSliderDown())

    @Slot(int)
    def _slider_moved(self, index: int) -> None:
        """Go to the point chosen by a drag, the wheel or the keyboard."""
        self.player.stop()
        self._go(index, f"checkpoint {self._burst}" if self.slider.isSliderDown() else "walk checkpoints")

    def to(self, index: int) -> None:
        """Go to a point, or the nearest end; consecutive steps are one undo step."""
        if self.points:
            self.player.stop()
            self._go(min(max(index, 0), len(self.points) - 1), "walk checkpoints")

    @Slot()
    def step_back(self) -> None:
        """Go to the previous checkpoint."""
        self.to(self.position - 1)

    @Slot()
    def step_on(self) -> None:
        """Go to the next checkpoint."""
        self.to(self.position + 1)

    @Slot()
    def to_first(self) -> None:
        """Go to the first checkpoint."""
        self.to(0)

    @Slot()
    def to_last(self) -> None:
        """Go to the final weights."""
        self.to(len(self.points) - 1)

    @Slot()
    def pin_this(self) -> None:
        """Pin this checkpoint as the reference: every panel shows the difference from it, wherever the slider goes."""
        if self.points:
            point = self.points[self.series.index(self.context.document.recorded.model)]
            self.state_commands.pin_to_compare("final weights" if point.checkpoint is None else f"step {point.step:,}")

    def _go(self, index: int, merge: str) -> None:
        self.slider.show_value(index)
        self._show_point()
        self.context.go(self._at(index), self.points[index].words, merge)

    @Slot()
    def _given_up(self) -> None:
        """Move the slider back: the requested checkpoint cannot be opened, or was cancelled."""
        self.player.stop()
        if self.points:
            self.slider.setSliderDown(False)
            self.slider.show_value(self.position)
            self._show_point()

    # -- playing ------------------------------------------------------------------------------------------------------

    @Slot()
    def play_or_stop(self) -> None:
        """Play from here, or from the beginning if this is the end; while playing, stop."""
        if self.player.playing:
            self.player.stop()
        elif self.plays:
            self._burst += 1
            self._ends = self.rest
            self.player.begin()
            if self.position == len(self.points) - 1:
                self._show(0)

    @property
    def plays(self) -> bool:
        """Whether there is a series whose weights are on this machine."""
        return bool(self.points) and self._plays

    @property
    def rest(self) -> Ends:
        """What playing shows: from the present point, at the end from the beginning, to the final weights."""
        return self._at(self.position if self.position < len(self.points) - 1 else 0), self._at(len(self.points) - 1)

    @property
    def reel(self) -> Ends | None:
        """What plays now, None while nothing does."""
        return self._ends if self.player.playing else None

    def checkpoint(self, ref: ModelRef) -> Checkpoint:
        """A point of the series in the words of a step."""
        return FINAL if ref.checkpoint is None else self.points[self.series.index(ref)].step

    def _at(self, index: int) -> ModelRef:
        return replace(self.context.document.recorded.model, checkpoint=self.points[index].checkpoint)

    def _next_burst(self) -> str:
        self._burst += 1
        return f"checkpoint {self._burst}"

    def _begin_film(self, first: ModelRef, last: ModelRef) -> None:
        if self.points and first != last:
            self._ends = first, last
            self.player.begin()
            self.player.point_shown()

    @Slot()
    def _next(self) -> None:
        end = len(self.points) - 1 if self._ends is None else self.series.index(self._ends[1])
        if self.position != end:
            self._show(self.position + (1 if end > self.position else -1))
        elif self.loop.isChecked() and not self.film.running:
            self._show(0)
        else:
            self.player.stop()

    def _show(self, index: int) -> None:
        self._go(index, f"checkpoint {self._burst}")
        self.player.point_shown()

    @Slot()
    def _passed(self) -> None:
        self.context.message.emit(
            "A slow panel: playback continues without it, and the panel is dimmed until its answer arrives."
        )

    @Slot()
    def _played(self) -> None:
        """Update the icon and tooltip of the play button."""
        playing = self.player.playing
        tint(self.play_button, "pause" if playing else "play", self.context.theme)
        self.play_button.setEnabled(self._plays)
        self.play_button.setToolTip(tip_of(PAUSE_TIP if playing else PLAY_TIP if self._plays else NO_WEIGHTS))
