"""The steps of a talk are set up ahead, one after another, so that the next key finds its step ready."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QObject, Slot

from circuitlab.gui.lessons.tour import Tour
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.story.resolver import Ready


class StepsAhead(QObject):
    """Fills `Tour.prepared`: first what follows the present step, then what is before it. What fails is left to the tour."""

    def __init__(self, tour: Tour, prepared: Mapping[int, Ready], parent: QObject) -> None:
        super().__init__(parent)
        self.tour = tour
        tour.prepared.update(prepared)
        self._failed: set[int] = set()
        self._number: int | None = None  # the step that is being set up
        self._slot = WorkSlot(self, finished=self._finished, failed=self._not_finished)

    @Slot()
    def go_on(self) -> None:
        """Keep the present step, and set up the next one that is not ready."""
        tour = self.tour
        if tour.lesson is None:
            return
        if tour.ready is not None:
            tour.prepared[tour.number] = tour.ready
        order = (*range(tour.number + 1, len(tour.lesson.steps)), *range(tour.number))
        number = next((i for i in order if i not in tour.prepared and i not in self._failed), None)
        if self._number is None and number is not None:
            self._number = number
            title = f"{tour.title}: {tour.lesson.steps[number].title}"
            tour.context.runner.do(self._slot, title, tour.setting_up(number))

    @Slot(object)
    def _finished(self, ready: Ready) -> None:
        assert self._number is not None
        self.tour.prepared[self._number], self._number = ready, None
        self.go_on()

    @Slot(object)
    def _not_finished(self, error: BaseException) -> None:
        assert self._number is not None
        self._failed.add(self._number)
        self._number = None
        self.go_on()
