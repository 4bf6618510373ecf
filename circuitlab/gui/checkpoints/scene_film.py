"""The scenes of a film, one after the other: once, until the end or until somebody does something."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.gui.checkpoints.inputs import Inputs
from circuitlab.gui.checkpoints.playing import Player
from circuitlab.gui.work.app_context import AppContext
from circuitlab.story.film import Scene


class SceneFilm(QObject):
    """`changed()`: it begins or ends. `waiting()`: whether a figure in front is still to be drawn; `watching`: any key and
    button stops it, not only one that changes what is shown.
    """

    changed = Signal()

    def __init__(self, context: AppContext, waiting: Callable[[], bool], parent: QObject, watching: bool = False) -> None:
        super().__init__(parent)
        self.context = context
        self.player = Player(waiting, lambda: context.loader.waiting, self)
        self._scenes: Sequence[Scene] = ()
        self._at = 0
        self._on = False  # until its end, the next step, or a click
        self._held = False
        self._recorded = context.document.recorded
        self._inputs = Inputs(self) if watching else None
        if self._inputs is not None:
            self._inputs.happened.connect(self.stop)
        self.player.beat.connect(self._next)
        self.player.changed.connect(self._played)
        context.loader.given_up.connect(self.stop)
        context.document.changed.connect(self._changed)

    @property
    def running(self) -> bool:
        """Whether it plays."""
        return self.player.playing

    def play(self, scenes: Sequence[Scene]) -> None:
        """Play the scenes, the first of which is shown."""
        self.stop()
        self._scenes, self._at = scenes, 0
        self._recorded = self.context.document.recorded
        self._on = len(scenes) > 1
        self._go_on()

    def hold(self, held: bool) -> None:
        """Wait at this scene while nobody sees it, and go on from there."""
        if held != self._held:
            self._held = held
            self.player.stop() if held else self._go_on()

    def _go_on(self) -> None:
        if self._on and not self._held:
            self.player.begin()
            self.player.point_shown()

    @Slot()
    def stop(self) -> None:
        """Stop at this scene, for good."""
        if self._on:
            self._on = False
            self.player.stop()
            self._hold()

    @Slot()
    def _next(self) -> None:
        self._at += 1
        if self._at >= len(self._scenes):
            self.stop()
            return
        self.context.show(self._scenes[self._at].state, "play the film", "film")
        self.player.point_shown()

    def _hold(self) -> None:
        """A colour means the same number in every frame."""
        self.context.hold_scales(self._on)

    @Slot()
    def _played(self) -> None:
        self._hold()
        if self._inputs is not None:
            self._inputs.watch(self.running)
        self.changed.emit()

    @Slot()
    def _changed(self, *_: object) -> None:
        """What is recorded is the next scene; anything else is of somebody who has clicked."""
        recorded = self.context.document.recorded
        if not self.running or recorded == self._recorded:
            return
        if recorded.model != self._recorded.model and recorded.model == self._scenes[self._at].state.model:
            self._recorded = recorded
        else:
            self.stop()
