"""The film of a step on the stage: it can be held to speak about a frame, and waits while something lies over it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Slot

from circuitlab.gui.checkpoints.scene_film import SceneFilm
from circuitlab.gui.presenter.aids import Aids
from circuitlab.gui.work.app_context import AppContext


class StageFilm(SceneFilm):
    """`paused`: the speaker holds it at the present frame."""

    def __init__(self, context: AppContext, waiting: Callable[[], bool], aids: Aids, parent: QObject) -> None:
        super().__init__(context, waiting, parent)
        self._aids, self.paused = aids, False
        aids.changed.connect(self._hold_or_go_on)

    @property
    def in_sight(self) -> bool:
        """Whether it plays or is paused, and nothing lies over it."""
        return self._on and not self._aids.covers

    def pause_or_go_on(self) -> bool:
        """Hold it at this frame, or continue; whether there was one in sight."""
        if not self.in_sight:
            return False
        self.paused = not self.paused
        self._hold_or_go_on()
        return True

    def give_up(self) -> bool:
        """Stop it for good; whether there was one in sight."""
        if not self.in_sight:
            return False
        self.stop()
        return True

    @Slot()
    def stop(self) -> None:
        """Stop at this scene, for good."""
        super().stop()
        if self.paused:
            self.paused = False
            self._hold_or_go_on()
            self.changed.emit()

    @Slot()
    def _hold_or_go_on(self) -> None:
        self.hold(self.paused or self._aids.covers)
