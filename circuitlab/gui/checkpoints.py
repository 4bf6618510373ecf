"""The bar of a model's training: one slider over its checkpoints that drives every panel; step, play, loop, pin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QMenu, QToolBar, QToolButton, QWidget

from circuitlab.analysis.base import SeriesRef
from circuitlab.analysis.training_series import RANDOM, TrainingSeriesParams, TrainingSeriesResult
from circuitlab.draw.theme import Theme
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import OpenModel
from circuitlab.gui.bars import button
from circuitlab.gui.bench import Bench
from circuitlab.gui.fitting import one_series
from circuitlab.gui.icons import SIZE, icon
from circuitlab.gui.labels import ShortLabel
from circuitlab.gui.moves import Moves
from circuitlab.gui.playing import Player
from circuitlab.gui.series_slider import Point, SeriesSlider
from circuitlab.model.series_measures import has_series
from circuitlab.model.subject import ModelRef, Subject
from circuitlab.session.state import State

SLOT = "checkpoints/series/now"
SPEEDS = (1, 2, 4, 8, 16)  # points a second, at most
PLAY_TIP, PAUSE_TIP = "Play the training (Ctrl+T)", "Stop here (Ctrl+T)"


class CheckpointBar(QToolBar):
    """Shown while the open model has a series. `waiting()` says whether a visible panel still awaits an answer.

    `moving()`: it is about to come or go, and what is below it to be moved.
    """

    moving = Signal()

    def __init__(self, bench: Bench, moves: Moves, waiting: Callable[[], bool], parent: QWidget) -> None:
        super().__init__("Training", parent)
        self.setObjectName("bar.checkpoints")
        self.setMovable(False)
        self.setIconSize(QSize(SIZE, SIZE))
        self.toggleViewAction().setVisible(False)  # it comes and goes with the model
        self.bench, self.moves = bench, moves
        self.player = Player(lambda: bench.driver.waiting or waiting(), self)
        self._model: OpenModel | None = None
        self._burst = 0  # drags and playings so far: each is one step of undo
        self._make_buttons()
        self.slider = SeriesSlider(self)
        self.label = ShortLabel(self, least=96)
        self.label.setContentsMargins(8, 0, 8, 0)
        for widget in (*self._steppers, self.loop, self.pace, self.slider, self.label, self.pin):
            self.addWidget(widget)
        self._connect()
        self.set_theme(bench.theme)
        self.refresh()

    def _make_buttons(self) -> None:
        def make(name: str, tip: str) -> QToolButton:
            made = button(self, f"checkpoints.{name}", "", tip)
            made.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonIconOnly)
            made.setAccessibleName(tip)
            return made

        self.first = make("first", "First checkpoint")
        self.previous = make("previous", "Previous checkpoint ([)")
        self.play_button = make("play", PLAY_TIP)
        self.next = make("next", "Next checkpoint (])")
        self.last = make("last", "Final weights")
        self._steppers = (self.first, self.previous, self.play_button, self.next, self.last)
        self.loop = make("loop", "Begin again at the end")
        self.loop.setCheckable(True)
        self.pace = button(self, "checkpoints.speed", "", "At most so many checkpoints a second; no panel is left half drawn")
        self.pace.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(self.pace)
        self._speeds = QActionGroup(menu)
        for speed in SPEEDS:
            action = menu.addAction(f"{speed} a second")
            action.setCheckable(True)
            action.setChecked(speed == self.player.speed)
            action.setData(speed)
            self._speeds.addAction(action)
        self.pace.setMenu(menu)
        self.pace.setText(f"{self.player.speed}/s ▾")
        self.pin = button(self, "checkpoints.pin", "Compare to this", "Pin it: every panel shows the difference to it")

    def _connect(self) -> None:
        bench = self.bench
        self.first.clicked.connect(self.to_first)
        self.previous.clicked.connect(self.step_back)
        self.play_button.clicked.connect(self.play_or_stop)
        self.next.clicked.connect(self.step_on)
        self.last.clicked.connect(self.to_last)
        self._speeds.triggered.connect(self._set_speed)
        self.pin.clicked.connect(self.pin_this)
        self.player.beat.connect(self._next)
        self.player.changed.connect(self._played)
        self.slider.sliderPressed.connect(self._pressed)
        self.slider.valueChanged.connect(self._slid)
        bench.document.changed.connect(self._changed)
        bench.driver.given_up.connect(self._given_up)
        bench.runner.answered.connect(self._answered)
        bench.theme_changed.connect(self.set_theme)

    @Slot(object)
    def set_theme(self, theme: Theme) -> None:
        """Icons in the theme's grey."""
        for made in (self.first, self.previous, self.next, self.last, self.loop, self.pin):
            made.setIcon(icon(made.objectName().partition(".")[2], theme))
        self._played()
        self.slider.set_theme(theme)

    # -- what is shown ------------------------------------------------------------------------------------------------

    @property
    def points(self) -> tuple[Point, ...]:
        """The checkpoints in the order of training and the final weights; () without a series."""
        return self.slider.points

    @property
    def position(self) -> int:
        """Index of the point that is shown, or on its way."""
        return self._index(self.bench.driver.intended.model)

    def _index(self, ref: ModelRef) -> int:
        """Of a point; the last checkpoint is found in the final weights where they stand for it."""
        return next((i for i, p in enumerate(self.points) if p.checkpoint == ref.checkpoint), len(self.points) - 1)

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        if old.model == new.model and old.reference == new.reference:
            return
        if self.player.playing and self._index(new.model) != self.slider.value():
            self.player.stop()  # somebody went elsewhere
        self.refresh()

    @Slot()
    def refresh(self) -> None:
        """Show the series of the open model, and where in it we are."""
        ref = self.bench.document.state.model
        model = self.bench.engine.store.peek(ref)
        if model is None:
            return  # it is being opened again
        before = self._model
        if before is None or not one_series(ref, before.ref) or model.opened.steps != before.opened.steps:
            self._take(model)
        self._model = model
        if self.isHidden() == bool(self.points):
            self.moving.emit()
            self.setVisible(bool(self.points))
        pin = self.bench.document.state.reference
        ours = pin is not None and one_series(pin.subject.model, ref)
        self.slider.pinned = self._index(pin.subject.model) if pin is not None and ours else None
        if not self.slider.isSliderDown():
            self.slider.show_value(self.position)
        self._say()

    def _take(self, model: OpenModel) -> None:
        """Another series, or none."""
        self.player.stop()
        self.slider.band = None
        checkpoints = tuple(Point(i, step) for i, step in enumerate(model.opened.steps))
        self.slider.show_points((*checkpoints, Point(None)) if checkpoints else ())
        if checkpoints and has_series(model.path):
            final = replace(model.ref, checkpoint=None)
            params = TrainingSeriesParams(models=(SeriesRef(final.source),))
            found = self.bench.runner.ask(SLOT, Request("training_series", params, Subject(final)))
            if found is not None:
                self._measured(found)

    @Slot(str, object)
    def _answered(self, slot: str, answer: Answer) -> None:
        if slot == SLOT and self._model is not None and answer.request.subject.model.source == self._model.ref.source:
            self._measured(answer)
            self.slider.show_value(self.position)
            self._say()

    def _measured(self, answer: Answer) -> None:
        """Tokens seen at each point, the step of the final weights, and where the phase change is."""
        found = answer.result
        assert isinstance(found, TrainingSeriesResult)
        if not self.points:
            return  # it was read again since, and its checkpoints are gone
        at = {int(c): i for i, c in enumerate(found.checkpoint)}
        known = lambda p: at.get(-1 if p.checkpoint is None else p.checkpoint)
        filled = tuple(
            p if (i := known(p)) is None else replace(p, step=int(found.steps[i]), tokens=int(found.tokens[i]))
            for p in self.points
        )
        final = filled[-1].step
        self.slider.show_points(tuple(p for p in filled if p.checkpoint is None or p.step != final))
        self.set_band(*found.phase[0, RANDOM].tolist())

    def set_band(self, first: float, last: float) -> None:
        """Mark the phase change: between two numbers of tokens seen; NaN where there is none."""
        self.slider.show_band(first, last)

    def _say(self) -> None:
        if not self.points:
            return
        at, last = self.slider.value(), len(self.points) - 1
        self.label.setText(self.points[at].words)
        for made, possible in ((self.first, at), (self.previous, at), (self.next, last - at), (self.last, last - at)):
            made.setEnabled(possible > 0)

    # -- by hand ------------------------------------------------------------------------------------------------------

    @Slot()
    def _pressed(self) -> None:
        self.player.stop()
        self._burst += 1

    @Slot(int)
    def _slid(self, index: int) -> None:
        """By a drag, the wheel, or the keyboard on the slider."""
        self.player.stop()
        self._go(index, f"checkpoint {self._burst}" if self.slider.isSliderDown() else "walk checkpoints")

    def to(self, index: int) -> None:
        """Go to the nearest point there is; steps one after another are one step of undo."""
        if self.points:
            self.player.stop()
            self._go(min(max(index, 0), len(self.points) - 1), "walk checkpoints")

    @Slot()
    def step_back(self) -> None:
        """To the checkpoint before."""
        self.to(self.position - 1)

    @Slot()
    def step_on(self) -> None:
        """To the checkpoint after."""
        self.to(self.position + 1)

    @Slot()
    def to_first(self) -> None:
        """To the beginning of the training."""
        self.to(0)

    @Slot()
    def to_last(self) -> None:
        """To the final weights."""
        self.to(len(self.points) - 1)

    @Slot()
    def pin_this(self) -> None:
        """This checkpoint becomes the reference: every panel shows the difference to it, wherever the slider goes."""
        if self.points:
            point = self.points[self._index(self.bench.document.recorded.model)]
            self.moves.pin_to_compare("final" if point.checkpoint is None else f"step {point.step:,}")

    def _go(self, index: int, merge: str) -> None:
        ref = replace(self.bench.document.recorded.model, checkpoint=self.points[index].checkpoint)
        self.slider.show_value(index)
        self._say()
        self.bench.driver.go(ref, self.points[index].words, merge)

    @Slot()
    def _given_up(self) -> None:
        """What was wanted cannot be shown, or is no longer wanted: back to what is."""
        self.player.stop()
        if self.points:
            self.slider.setSliderDown(False)
            self.slider.show_value(self.position)
            self._say()

    # -- playing ------------------------------------------------------------------------------------------------------

    @Slot(QAction)
    def _set_speed(self, action: QAction) -> None:
        self.player.speed = int(action.data())
        self.pace.setText(f"{self.player.speed}/s ▾")

    @Slot()
    def play_or_stop(self) -> None:
        """Play from here, from the beginning where this is the end; or stop."""
        if self.player.playing:
            self.player.stop()
        elif self.points:
            self._burst += 1
            self.player.begin()
            if self.position == len(self.points) - 1:
                self._show(0)

    @Slot()
    def _next(self) -> None:
        if self.position < len(self.points) - 1:
            self._show(self.position + 1)
        elif self.loop.isChecked():
            self._show(0)
        else:
            self.player.stop()

    def _show(self, index: int) -> None:
        self._go(index, f"checkpoint {self._burst}")
        self.player.shown()

    @Slot()
    def _played(self) -> None:
        """The button says what it does now."""
        playing = self.player.playing
        self.play_button.setIcon(icon("pause" if playing else "play", self.bench.theme))
        self.play_button.setToolTip(PAUSE_TIP if playing else PLAY_TIP)
