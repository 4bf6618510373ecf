"""The points of the open model's training: which there are, and what was measured at them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.analysis.base import SeriesRef
from circuitlab.analysis.training.series import RANDOM, TrainingSeriesParams, TrainingSeriesResult, training_series
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import OpenModel
from circuitlab.figures.panels.training.points import short
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.records.series_measures import has_series
from circuitlab.model.subject import ModelRef, Subject
from circuitlab.session.model_change import one_series

NOWHERE = (float("nan"), float("nan"))


@dataclass(frozen=True)
class Point:
    """A checkpoint, None the final weights; steps done and tokens seen, −1 where that is not known."""

    checkpoint: int | None
    step: int = -1
    tokens: int = -1

    @property
    def words(self) -> str:
        """Which one it is, in full."""
        final = ["final weights"] if self.checkpoint is None else []
        step = [f"step {self.step:,}"] if self.step >= 0 else []
        return " · ".join([*final, *step, *([f"{short(self.tokens, 1000)} tokens"] if self.tokens >= 0 else [])])

    @property
    def tick(self) -> str:
        """Which one it is, below its tick."""
        return "final" if self.step < 0 else short(self.step, 1000).replace(" ", "")


class Series(QObject):
    """`points` in the order of training, the final weights last, () for a model without a series.

    `phase`: the numbers of tokens seen between which the phase change lies, NaN where there is none. `measured()`: tokens, the
    step of the final weights and the phase change, which stand in a file beside the weights, have become known.
    """

    measured = Signal()

    def __init__(self, context: AppContext, parent: QObject) -> None:
        super().__init__(parent)
        self.context = context
        self.points: tuple[Point, ...] = ()
        self.phase = NOWHERE
        self._model: OpenModel | None = None
        self._slot = WorkSlot(self, answered=self._answered)

    def index(self, ref: ModelRef) -> int:
        """Of a point; the last checkpoint is found in the final weights where they stand for it."""
        return next((i for i, p in enumerate(self.points) if p.checkpoint == ref.checkpoint), len(self.points) - 1)

    def take(self, model: OpenModel) -> bool:
        """The series of an open model; whether it is another one than before."""
        before, self._model = self._model, model
        if before is not None and one_series(model.ref, before.ref) and model.opened.steps == before.opened.steps:
            return False
        checkpoints = tuple(Point(i, step) for i, step in enumerate(model.opened.steps))
        self.points, self.phase = ((*checkpoints, Point(None)) if checkpoints else ()), NOWHERE
        if checkpoints and has_series(model.path):
            final = replace(model.ref, checkpoint=None)
            params = TrainingSeriesParams(models=(SeriesRef(final.source),))
            found = self.context.runner.ask(self._slot, Request(training_series, params, Subject(final)))
            if found is not None:
                self._fill(found)
        return True

    @Slot(object)
    def _answered(self, answer: Answer[TrainingSeriesResult]) -> None:
        ours = self._model is not None and answer.request.subject.model.source == self._model.ref.source
        if ours and self.points:  # none where it was read again since, and its checkpoints are gone
            self._fill(answer)
            self.measured.emit()

    def _fill(self, answer: Answer[TrainingSeriesResult]) -> None:
        found = answer.result
        at = {int(c): i for i, c in enumerate(found.checkpoint)}
        known = lambda p: at.get(-1 if p.checkpoint is None else p.checkpoint)
        filled = tuple(
            p if (i := known(p)) is None else replace(p, step=int(found.steps[i]), tokens=int(found.tokens[i]))
            for p in self.points
        )
        final = filled[-1].step
        self.points = tuple(p for p in filled if p.checkpoint is None or p.step != final)
        first, last = found.phase[0, RANDOM].tolist()
        self.phase = (first, last)
