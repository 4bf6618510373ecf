"""The checkpoints of the open model's training, with their tokens and the phase change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.analysis.base import SeriesRef
from circuitlab.analysis.training.series import RANDOM, TrainingSeriesParams, TrainingSeriesResult, training_series
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import OpenModel
from circuitlab.figures.marks import joined
from circuitlab.figures.panels.training.points import short
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.subject import ModelRef, Subject
from circuitlab.state.model_change import one_series

NO_PHASE = (float("nan"), float("nan"))


@dataclass(frozen=True)
class Point:
    """One point of the training. `checkpoint`: its index, None for the final weights; `step` and `tokens`: −1 if unknown."""

    checkpoint: int | None
    step: int = -1
    tokens: int = -1

    @property
    def words(self) -> str:
        """The point in full: its parts in one line."""
        return joined(*self.parts)

    @property
    def parts(self) -> tuple[str, ...]:
        """Step and tokens as far as they are known, after "final weights" for these."""
        final = ("final weights",) if self.checkpoint is None else ()
        step = (f"step {self.step:,}",) if self.step >= 0 else ()
        return (*final, *step, *((f"{short(self.tokens, 1000)} tokens",) if self.tokens >= 0 else ()))

    @property
    def tick(self) -> str:
        """The short label below its tick."""
        return "final" if self.step < 0 else short(self.step, 1000).replace(" ", "")


class Series(QObject):
    """`points` in the order of training, the final weights last; () for a model without a series.

    `phase`: the two token counts between which the phase change lies, NaN if there is none. `measured()`: the file beside the
    weights has been read, which gives the tokens of each point, the step of the final weights and the phase change.
    """

    measured = Signal()

    def __init__(self, context: AppContext, parent: QObject) -> None:
        super().__init__(parent)
        self.context = context
        self.points: tuple[Point, ...] = ()
        self.phase = NO_PHASE
        self._model: OpenModel | None = None
        self._slot = WorkSlot(self, answered=self._answered)

    def index(self, ref: ModelRef) -> int:
        """The index of a model's point; a last checkpoint that equals the final weights has the index of those."""
        return next((i for i, p in enumerate(self.points) if p.checkpoint == ref.checkpoint), len(self.points) - 1)

    def show(self, model: OpenModel) -> bool:
        """Take the series of an open model. Returns whether it is another series than before."""
        before, self._model = self._model, model
        if before is not None and one_series(model.ref, before.ref) and model.opened.steps == before.opened.steps:
            return False
        checkpoints = tuple(Point(i, step) for i, step in enumerate(model.opened.steps))
        self.points, self.phase = ((*checkpoints, Point(None)) if checkpoints else ()), NO_PHASE
        if checkpoints and model.measured:
            final = replace(model.ref, checkpoint=None)
            params = TrainingSeriesParams(models=(SeriesRef(final.source),))
            answer = self.context.runner.ask(self._slot, Request(training_series, params, Subject(final)))
            if answer is not None:
                self._fill(answer)
        return True

    @Slot(object)
    def _answered(self, answer: Answer[TrainingSeriesResult]) -> None:
        ours = self._model is not None and answer.request.subject.model.source == self._model.ref.source
        if ours and self.points:  # no points if the model was reopened without its checkpoints
            self._fill(answer)
            self.measured.emit()

    def _fill(self, answer: Answer[TrainingSeriesResult]) -> None:
        """Add the measured steps and tokens to the points; drop a checkpoint that equals the final weights."""
        series = answer.result
        rows = {int(c): i for i, c in enumerate(series.checkpoint)}
        row = lambda p: rows.get(-1 if p.checkpoint is None else p.checkpoint)
        filled = tuple(
            p if (i := row(p)) is None else replace(p, step=int(series.steps[i]), tokens=int(series.tokens[i]))
            for p in self.points
        )
        final = filled[-1].step
        self.points = tuple(p for p in filled if p.checkpoint is None or p.step != final)
        first, last = series.phase[0, RANDOM].tolist()
        self.phase = (first, last)
