"""A part of a training that plays once, from one checkpoint to another, until its end or until somebody does something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.gui.checkpoints.inputs import Inputs
from circuitlab.gui.checkpoints.playing import Player
from circuitlab.gui.work.app_context import AppContext
from circuitlab.model.subject import ModelRef

Ends = tuple[ModelRef, ModelRef]  # the model at the first and the last point


class Film(QObject):
    """`changed()`: it begins or ends. `begin(first, last)` starts the player at a point that is shown.

    `burst()`: the name of a new burst, which is one step of undo.
    """

    changed = Signal()

    def __init__(
        self,
        context: AppContext,
        player: Player,
        begin: Callable[[ModelRef, ModelRef], None],
        burst: Callable[[], str],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self.context, self.player, self._begin, self._burst = context, player, begin, burst
        self.running = False
        self._awaited: Ends | None = None  # its first model is being opened
        self._recorded = context.document.recorded
        self._inputs = Inputs(self)
        self._inputs.happened.connect(self.stop)
        player.changed.connect(self._player_changed)
        context.document.changed.connect(self._state_changed)
        context.loader.given_up.connect(self.stop)
        context.loader.settled.connect(self.go_on)

    def play(self, first: ModelRef, last: ModelRef) -> None:
        """Play from one point to another of the present model's series, backwards where the second is earlier."""
        self.stop()
        merge = self._burst()
        if self.context.target_state.model != first:
            self.context.go(first, "play the training", merge)
        self._awaited = (first, last)
        self.go_on()

    @Slot()
    def go_on(self) -> None:
        """Begin once the first point is shown; give it up where something else is."""
        if self._awaited is None or self.context.loader.waiting:
            return
        (first, last), self._awaited = self._awaited, None
        if self.context.document.recorded.model == first:
            self._begin(first, last)
            self.running = self.player.playing
            if self.running:
                self._recorded = self.context.document.recorded
                self._inputs.watch(True)
                self.changed.emit()

    @Slot()
    def stop(self) -> None:
        """Stop at this point."""
        self._awaited = None
        if self.running:
            self.player.stop()

    @Slot()
    def _state_changed(self, *_: object) -> None:
        """Something else than the checkpoint has been changed, as by a shortcut."""
        recorded = self.context.document.recorded
        if self.running and replace(recorded, model=self._recorded.model) != self._recorded:
            self.stop()

    @Slot()
    def _player_changed(self) -> None:
        if self.running and not self.player.playing:
            self.running = False
            self._inputs.watch(False)
            self.changed.emit()
