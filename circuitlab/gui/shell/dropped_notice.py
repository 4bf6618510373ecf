"""The line that says which interventions another model did without, and puts back those that it can have."""

from __future__ import annotations

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QWidget

from circuitlab.counting import number_of
from circuitlab.draw.look.plain_text import tip_of
from circuitlab.gui.widgets.standing_line import StandingLine
from circuitlab.gui.work.app_context import AppContext
from circuitlab.state.cuts import words
from circuitlab.state.model_change import dropped_edits, one_series, put_back
from circuitlab.state.state import State

NAMED = 2  # interventions that are named in the line; all of them in its tooltip


class DroppedNotice(StandingLine):
    """It stands on the model that dropped them until they are put back or it is put away; undo, which brings the model before
    back with them, hides it, and redo shows it again."""

    def __init__(self, context: AppContext, parent: QWidget) -> None:
        super().__init__("dropped", parent)
        self.context = context
        self._before: State | None = None
        self._after = context.document.recorded
        self.back_button = self.button("Put back", "")
        self.back_button.clicked.connect(self._put_back)
        self.dismiss_button = self.button("Dismiss", "Put this line away: undo still leads back to them")
        self.dismiss_button.clicked.connect(self._dismiss)
        context.model_changed.connect(self._changed_model)
        context.document.changed.connect(self.refresh)

    @Slot(object, object)
    def _changed_model(self, before: State, after: State) -> None:
        """Another model has taken the place of the one before."""
        if dropped_edits(before, after):
            self._before, self._after = before, after
        elif not one_series(after.model, self._after.model):
            self._before, self._after = None, after
        self.refresh()

    @Slot()
    def refresh(self, *_: object) -> None:
        """Say which interventions are not there on the model that is shown."""
        before, now = self._before, self.context.document.recorded
        if before is None or not one_series(now.model, self._after.model):
            self.say("")
            return
        dropped = [edit for edit, _ in dropped_edits(before, now)]
        if not dropped:
            self.say("")
            return
        more = f" and {len(dropped) - NAMED} more" if len(dropped) > NAMED else ""
        named = "; ".join(map(words, dropped[:NAMED]))
        were, them = ("was", "it") if len(dropped) == 1 else ("were", "them")
        gone = f"{number_of(len(dropped), 'intervention')} on {self.context.name_of(before.model)} {were} dropped"
        self.say(f"{gone} (undo brings {them} back): {named}{more}.")
        fitting = [edit for edit, _ in dropped_edits(self._with_those_that_fit(), now)]
        self.back_button.setVisible(bool(fitting))
        tip = f"What fits {self.context.name_of(now.model)} and this prompt:"
        self.back_button.setToolTip(tip_of("\n".join((tip, *map(words, fitting)))))

    def _with_those_that_fit(self) -> State:
        now, config = self.context.document.recorded, self.context.config(self.context.document.recorded.model)
        return now if self._before is None or config is None else put_back(config, self._before, now)

    @Slot()
    def _put_back(self) -> None:
        self.context.apply(self._with_those_that_fit(), "put interventions back")

    @Slot()
    def _dismiss(self) -> None:
        self._before = None
        self.refresh()
