"""Between which checkpoints a step of one's own plays its film: two lists, the first of which says that it plays none."""

from __future__ import annotations

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QComboBox, QWidget

from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.gui.lessons.step_film import point_words
from circuitlab.gui.widgets.flow import FlowLayout
from circuitlab.story.setup import FINAL, Checkpoint, Index, Play

TIP = "A film: when the step is shown, the training plays from the first of these checkpoints to the second"
WIDTH = 9  # characters of a list: steps beyond are shown in the list itself


class FilmFields(QWidget):
    """`chosen(play)`: the person has chosen two training steps, None for no film."""

    chosen = Signal(object)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._steps: tuple[int, ...] | None = None
        self.first, self.last = self._list("The film begins at"), self._list("The film ends at")
        row = FlowLayout(self, 6)
        row.setContentsMargins(4, 0, 4, 0)
        for widget in (PlainLabel("Play", self), self.first, PlainLabel("to", self), self.last):
            row.addWidget(widget)

    def _list(self, name: str) -> QComboBox:
        box = QComboBox(self)
        box.setAccessibleName(name)
        box.setToolTip(tip_of(TIP))
        box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        box.setMinimumContentsLength(WIDTH)
        box.activated.connect(self._activated)
        return box

    def show_film(self, steps: tuple[int, ...], play: Play | None) -> None:
        """Show the film of a step whose model was kept at these training steps."""
        self.setVisible(bool(steps))
        if steps != self._steps:
            self._steps = steps
            for box, begin in ((self.first, [("no film", None)]), (self.last, [])):
                box.clear()
                for text, point in (*begin, *((point_words(step), step) for step in steps), (point_words(FINAL), FINAL)):
                    box.addItem(text, point)
        ends: tuple[Checkpoint | None, Checkpoint] = play if isinstance(play, tuple) else (None, FINAL)
        for box, point in zip((self.first, self.last), ends, strict=True):
            box.setCurrentIndex(0 if point is None else box.findData(self._series_point(point)))
        self.last.setEnabled(play is not None)

    def _series_point(self, point: Checkpoint | None) -> Checkpoint | None:
        """The point of the series that a word means."""
        steps = self._steps or ()
        if isinstance(point, Index):
            return steps[point.index] if point.index < len(steps) else None
        return min(steps, key=lambda step: abs(step - point)) if isinstance(point, int) and steps else point

    @Slot()
    def _activated(self, *_: object) -> None:
        first, last = self.first.currentData(), self.last.currentData()
        self.chosen.emit(None if first is None else (first, last))
