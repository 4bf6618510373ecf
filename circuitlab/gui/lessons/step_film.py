"""The film of the present step of a story: it plays when the step is shown, and again when it is asked for."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.counting import number
from circuitlab.gui.lessons.host import Host
from circuitlab.gui.lessons.tour import Tour
from circuitlab.story.setup import FINAL, Checkpoint, Index, Play, Sweep


def point_words(point: Checkpoint) -> str:
    """A point of a training as it is said."""
    if isinstance(point, Index):
        return f"checkpoint {point.index}"
    return "final weights" if point == FINAL else f"step {point:,}"


def film_words(play: Play) -> str:
    """From where to where a film plays."""
    if isinstance(play, Sweep):
        return f"{play.name} {number(play.first, '.5g')} → {number(play.last, '.5g')}"
    return " → ".join(map(point_words, play))


class StepFilm(QObject):
    """`changed()`: it begins or ends."""

    changed = Signal()

    def __init__(self, tour: Tour, host: Host, parent: QObject) -> None:
        super().__init__(parent)
        self.tour, self.main = tour, host
        self._connected = False
        tour.setting.connect(self.stop)
        tour.left.connect(self.stop)
        tour.shown.connect(self._shown)

    @property
    def words(self) -> str:
        """From where to where the present step's film plays, "" without one."""
        play = None if self.tour.lesson is None else self.tour.lesson.setup(self.tour.number).play
        return "" if play is None else film_words(play)

    @property
    def ready(self) -> bool:
        """Whether it can be played."""
        return self.tour.ready is not None and bool(self.tour.ready.film)

    @Slot()
    def toggle(self) -> None:
        """Stop it, or play it from its beginning."""
        if self.tour.filming:
            self.stop()
        elif self.tour.lesson is not None and self.tour.ready is not None and self.tour.ready.film:
            self._connect()
            scenes = self.tour.ready.film
            if isinstance(self.tour.lesson.setup(self.tour.number).play, Sweep):
                self.main.checkpoints.sweep.play(scenes)
            else:
                self.main.checkpoints.film.play(scenes[0].state.model, scenes[-1].state.model)

    def _connect(self) -> None:
        """The bar of checkpoints is made after the stories."""
        if not self._connected:
            self._connected = True
            self.main.checkpoints.film.changed.connect(self._changed)
            self.main.checkpoints.sweep.changed.connect(self._changed)

    @Slot()
    def _shown(self, *_: object) -> None:
        self.toggle()

    @Slot()
    def stop(self, *_: object) -> None:
        """Stop it where it is."""
        if self._connected:
            self.main.checkpoints.film.stop()
            self.main.checkpoints.sweep.stop()

    @Slot()
    def _changed(self) -> None:
        self.tour.filming = self.main.checkpoints.film.running or self.main.checkpoints.sweep.running
        self.changed.emit()
