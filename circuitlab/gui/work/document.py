"""The document: the one State on the screen, the story and the notes beside it, their history, and previews not recorded.

Every part of the window reads it; only `AppContext` and `ModelLoader` write to it. Heads and edges that a selection names and its
model lacks are dropped here (`fit`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.session_files.work import Work
from circuitlab.state.history import History
from circuitlab.state.state import State


class Document(QObject):
    """`changed(old, new)` after every change; `history_changed()` when undo or redo mean something else.

    `fit(state, before)` returns the state with a selection that its model has, the same object if nothing had to be dropped; if
    the model has none of its heads, those of `before` stay selected. `work_changed()`: the story or the notes are others, by an
    edit, by undo or redo, or by another session. `dropped(State)`: a state was to be recorded whose selection names what its
    model lacks.
    """

    changed = Signal(object, object)
    history_changed = Signal()
    work_changed = Signal()
    dropped = Signal(object)

    def __init__(self, state: State, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._history: History[Work] = History(Work(state))
        self._shown = state
        self.fit: Callable[[State, State], State] = lambda state, before: state

    @property
    def state(self) -> State:
        """What is shown: the recorded state, or a preview of another."""
        return self._shown

    @property
    def recorded(self) -> State:
        """What is recorded, previews aside."""
        return self.work.state

    @property
    def work(self) -> Work:
        """What is recorded: the state, the story and the notes."""
        return self._history.value

    @property
    def before(self) -> State | None:
        """The state that undo would lead to, None at the beginning."""
        return None if self._history.before is None else self._history.before.state

    @property
    def after(self) -> State | None:
        """The state that redo would lead to, None at the end."""
        return None if self._history.after is None else self._history.after.state

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
            self._record(replace(self.work, state=fitting), label, merge)
        self._show(fitting)
        if label and fitting is not state:
            self.dropped.emit(state)

    def edit(self, work: Work, label: str, merge: str = "") -> None:
        """Record another story, other notes or other models as a step of undo of its own; the state stays as it is recorded."""
        self._record(replace(work, state=self.recorded), label, merge)

    def begin(self, work: Work) -> None:
        """Begin anew with this work, as when a session is opened: nothing is left to undo."""
        self._history = History(replace(work, state=self.fit(work.state, work.state)))
        self.history_changed.emit()
        self.work_changed.emit()
        self._show(self.recorded)

    def _record(self, work: Work, label: str, merge: str) -> None:
        before = self.work
        self._history.push(work, label, merge)
        self.history_changed.emit()
        self._tell(before)

    def _tell(self, before: Work) -> None:
        if replace(before, state=self.recorded) != self.work:
            self.work_changed.emit()

    def gather(self, start: State, merge: str) -> None:
        """Merge all steps after `start` into one, which the next change of the burst `merge` replaces.

        Edits of the story and the notes stay steps of their own.
        """
        self._history.gather(lambda work: work.state == start, merge, lambda work: replace(work, state=start))
        self.history_changed.emit()

    def _show(self, state: State) -> None:
        if state == self._shown:
            return
        old, self._shown = self._shown, state
        self.changed.emit(old, state)

    @Slot()
    def end_preview(self) -> None:
        """Show the recorded state again."""
        self._show(self.recorded)

    @Slot()
    def undo(self) -> None:
        """Step back."""
        before = self.work
        self._step_to(before, self._history.undo())

    @Slot()
    def redo(self) -> None:
        """Step forward."""
        before = self.work
        self._step_to(before, self._history.redo())

    def refit(self) -> None:
        """Fit what is recorded to its model, which has been read again and may have other heads; without a preview."""
        self._history.mend(replace(self.work, state=self.fit(self.recorded, self.recorded)))
        self._show(self.recorded)

    def mend(self, state: State) -> None:
        """Record `state` in place of what is recorded, without a step of undo."""
        self._history.mend(replace(self.work, state=self.fit(state, self.recorded)))
        self._show(self.recorded)

    def _step_to(self, before: Work, work: Work | None) -> None:
        """Show the work of a step, its state fitted again: its model may have been reread with other shapes meanwhile."""
        if work is not None:
            self._history.mend(replace(work, state=self.fit(work.state, work.state)))
            self.history_changed.emit()
            self._tell(before)
            self._show(self.recorded)
