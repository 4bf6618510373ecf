"""Takes the window from one model to the next: a State whose models are not open is shown as soon as they are.

Nothing is read on the GUI thread, and nothing is recorded before it can be shown. A model that was only passed over leaves no
trace: no entry in the recent list, no hash. If States are requested faster than models open, the newest wins; those of its burst
whose models have been opened meanwhile are shown too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.engine.store import ModelStore
from circuitlab.errors import Cancelled
from circuitlab.gui.work.document import Document
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.runner import Runner
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.subject import ModelRef
from circuitlab.state.model_change import state_for, warm_tokenizer
from circuitlab.state.state import State

LANE = "models"


def models_of(state: State) -> tuple[ModelRef, ...]:
    """The models that a state needs open: its own and its reference's."""
    pin = state.reference
    return (state.model,) if pin is None or pin.subject.model == state.model else (pin.subject.model, state.model)


@dataclass(frozen=True, eq=False)
class PendingState:
    """A State that `act` shows once the models `needs` are open. States with the same non-empty `merge` are a burst."""

    needs: tuple[ModelRef, ...]
    act: Callable[[], None]
    target_state: Callable[[], State]
    merge: str = ""


class ModelLoader(QObject):
    """`show`, `undo` and `redo` on behalf of `AppContext`.

    `settled()`: the target state is shown. `given_up()`: it cannot be shown; the document is unchanged, and `failed(error)` gives
    the reason unless it was cancelled. `waiting_changed()`: a model is being opened for it, or no longer is. `message(text)`:
    what undo or redo did. `model_changed(before, after)`: another model is recorded; with what was to be kept
    on it, and with what is.
    """

    settled = Signal()
    given_up = Signal()
    waiting_changed = Signal()
    model_changed = Signal(object, object)
    message = Signal(str)
    failed = Signal(object)

    def __init__(self, store: ModelStore, document: Document, runner: Runner, parent: QObject) -> None:
        super().__init__(parent)
        self._store, self._document, self._runner = store, document, runner
        self._pending: PendingState | None = None  # the newest
        self._opening: PendingState | None = None  # whose models are being opened
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)

    @property
    def waiting(self) -> bool:
        """Whether the target state is not on the screen yet because its model is not open."""
        return self._pending is not None

    @property
    def target_state(self) -> State:
        """What will be recorded once its models are open, the recorded state otherwise: the next gesture builds on it."""
        return self._document.recorded if self._pending is None else self._pending.target_state()

    def show(self, state: State, label: str, merge: str = "") -> None:
        """Show a state, at once where its models are open, else when they are.

        Only the fields in which it differs from the recorded state are changed then: text typed meanwhile stays. It is fitted to
        its model (`model_change.state_for`).
        """
        recorded = self._document.recorded
        changes = {f.name: new for f in fields(State) if (new := getattr(state, f.name)) != getattr(recorded, f.name)}
        target_state = lambda: replace(self._document.recorded, **changes)
        needs = () if models_of(state) == models_of(recorded) else models_of(state)
        self._show_when_open(PendingState(needs, lambda: self._apply(target_state(), label, merge), target_state, merge))

    @Slot()
    def undo(self) -> None:
        """Take back what is pending, else step back."""
        document = self._document
        self._walk(document.before, document.undo, f"Undone: {document.undo_label}.")

    @Slot()
    def redo(self) -> None:
        """Step forward."""
        document = self._document
        self._walk(document.after, document.redo, f"Done again: {document.redo_label}.")

    def drop(self) -> None:
        """Give up the pending state."""
        if self._pending is not None:
            self._pending = None
            self.waiting_changed.emit()

    def reopen(self, state: State, act: Callable[[], None]) -> None:
        """Reopen the models of the state on the screen, which have been closed, then `act`."""
        self._show_when_open(PendingState(models_of(state), act, lambda: self._document.recorded))

    def _walk(self, state: State | None, step: Callable[[], None], message: str) -> None:
        """Step to the state before or after, and report the step in the status line."""
        if self.waiting:
            self.drop()
            self.given_up.emit()
            self.message.emit("Undone: the change for which a model was being opened.")
        elif state is not None:

            def act() -> None:
                step()
                self.message.emit(message)

            self._show_when_open(PendingState(models_of(state), act, lambda: self._document.recorded))

    def _apply(self, state: State, label: str, merge: str) -> None:
        recorded, model = self._document.recorded, self._store.peek(state.model)
        asked = state
        if model is not None and state.model != recorded.model:
            state = state_for(model, state, self._store.peek(recorded.model), recorded)
        self._document.apply(state, label, merge)
        if asked.model != recorded.model:
            self.model_changed.emit(replace(asked, model=recorded.model), self._document.recorded)

    def _show_when_open(self, pending: PendingState) -> None:
        if all(self._store.use(ref) is not None for ref in pending.needs):
            self.drop()
            pending.act()
            self.settled.emit()
            return
        self._pending = pending
        if self._opening is None:
            self._open(pending)
        self.waiting_changed.emit()

    def _open(self, pending: PendingState) -> None:
        """Open the models on a thread of their own, so that a slider never waits for a file that is being written."""
        self._opening = pending
        self._store.show(pending, pending.needs)  # one is not closed while the other is opened
        store, text = self._store, pending.target_state().text

        def work(job: Job) -> None:
            for ref in pending.needs:
                warm_tokenizer(store.open(ref), text)

        self._runner.do(self._slot, f"open {pending.needs[-1].name}", work, LANE)

    @Slot()
    def _finished(self) -> None:
        if self._opening is None:
            return
        opened, self._opening = self._opening, None
        newest = self._pending
        if newest is opened:
            self._pending = None
        try:
            if newest is opened or (newest is not None and opened.merge and opened.merge == newest.merge):
                opened.act()
        finally:  # even if showing it failed, nothing waits for it any more
            if newest is opened:
                self.waiting_changed.emit()
                self.settled.emit()
            self._go_on()

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        if self._opening is None:
            return
        failed, self._opening = self._opening, None
        if self._pending is failed:
            self.drop()
            if not isinstance(error, Cancelled):
                self.failed.emit(error)
            self.given_up.emit()
        self._go_on()

    def _go_on(self) -> None:
        """Go on to the State that has been requested meanwhile."""
        if self._pending is not None and self._opening is None:
            self._show_when_open(self._pending)
