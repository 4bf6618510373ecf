"""The document: the one State on the screen, its history, and previews that are not recorded.

Everybody reads it; it is written through `AppContext` and the `ModelLoader` alone. Whatever a State's selection names that its
model does not have is dropped here (`fit`).
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.session.history import History
from circuitlab.session.state import State


class Document(QObject):
    """`changed(old, new)` after every change; `history_changed()` when undo or redo mean something else.

    `fit(state, shown)` is the state with a selection that its model has, the same object where it has it already.
    `dropped(State)`: a step was to be recorded whose selection named what its model does not have.
    """

    changed = Signal(object, object)
    history_changed = Signal()
    dropped = Signal(object)

    def __init__(self, state: State, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._history = History(state)
        self._shown = state
        self.fit: Callable[[State, State], State] = lambda state, shown: state

    @property
    def state(self) -> State:
        """What is shown: the recorded state, or a preview of another."""
        return self._shown

    @property
    def recorded(self) -> State:
        """What is recorded, previews aside."""
        return self._history.state

    @property
    def before(self) -> State | None:
        """Where undo would lead, None at the beginning."""
        return self._history.before

    @property
    def after(self) -> State | None:
        """Where redo would lead, None at the end."""
        return self._history.after

    @property
    def undo_label(self) -> str:
        """What undo takes back."""
        return self._history.undo_label

    @property
    def redo_label(self) -> str:
        """What redo does again."""
        return self._history.redo_label

    def apply(self, state: State, label: str, merge: str = "") -> None:
        """Show `state`. With a label it is recorded; "" makes it a preview (a hover, a slider being dragged)."""
        fitting = self.fit(state, self.recorded)
        if label:
            self._history.push(fitting, label, merge)
            self.history_changed.emit()
        self._show(fitting)
        if label and fitting is not state:
            self.dropped.emit(state)

    def gather(self, start: State, merge: str) -> None:
        """Make one step of undo of all that came after `start`; the next change of the burst `merge` takes its place."""
        self._history.gather(start, merge)
        self.history_changed.emit()

    def _show(self, state: State) -> None:
        if state == self._shown:
            return
        old, self._shown = self._shown, state
        self.changed.emit(old, state)

    @Slot()
    def end_preview(self) -> None:
        """Back to what is recorded."""
        self._show(self._history.state)

    @Slot()
    def undo(self) -> None:
        """Step back."""
        self._walked(self._history.undo())

    @Slot()
    def redo(self) -> None:
        """Step forward."""
        self._walked(self._history.redo())

    def _walked(self, state: State | None) -> None:
        """To a state that fitted when it was recorded; its model may have been read again since, with other shapes."""
        if state is not None:
            self._history.mend(self.fit(state, state))
            self.history_changed.emit()
            self._show(self.recorded)
