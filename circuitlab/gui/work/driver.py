"""What drives the window from one model to the next: states whose weights may not be open are shown once they are.

Nothing is read on the GUI thread, nothing is recorded before it can be shown, and nothing of a model that was only passed over
stays behind: no line in the recent list, no hash. Of wishes that come faster than models open the newest wins; those of one
burst that have been opened on the way are shown too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.errors import Cancelled
from circuitlab.gui.work.job import Job
from circuitlab.model.subject import ModelRef
from circuitlab.session.model_change import state_for, warm_tokenizer
from circuitlab.session.state import State

if TYPE_CHECKING:
    from circuitlab.gui.work.app_context import AppContext

SLOT, LANE = "drive", "models"


def models_of(state: State) -> tuple[ModelRef, ...]:
    """The models that a state needs open: its own and its reference's."""
    pin = state.reference
    return (state.model,) if pin is None or pin.subject.model == state.model else (pin.subject.model, state.model)


@dataclass(frozen=True, eq=False)
class Wish:
    """What is to be shown once `needs` are open. Wishes of one non-empty `merge` are a burst."""

    needs: tuple[ModelRef, ...]
    act: Callable[[], None]
    intended: Callable[[], State]
    merge: str = ""


class Driver(QObject):
    """`show`, `go`, `undo`, `redo`. `settled()` when what was wanted is shown, `given_up()` when it cannot be (the error went to
    `context.failed`, the document is what it was), `waiting_changed()` when a model is being opened for it or no longer is.
    """

    settled = Signal()
    given_up = Signal()
    waiting_changed = Signal()

    def __init__(self, context: AppContext) -> None:
        super().__init__(context)
        self.context = context
        self._wish: Wish | None = None  # the newest
        self._opening: Wish | None = None  # whose models are being opened
        context.runner.finished.connect(self._finished)
        context.runner.failed.connect(self._failed)

    @property
    def waiting(self) -> bool:
        """Whether something that is wanted is not on the screen because its model is not open yet."""
        return self._wish is not None

    @property
    def intended(self) -> State:
        """What will be recorded when everything that is wanted is shown: what the next change is to be made on."""
        return self.context.document.recorded if self._wish is None else self._wish.intended()

    def show(self, state: State, label: str, merge: str = "") -> None:
        """Show a state, at once where its models are open, else when they are.

        Only what it changes of what is recorded now is changed then: words typed meanwhile stay. It is fitted to its model
        (`fitting.fitted`).
        """
        shown = self.context.document.recorded
        changes = {f.name: new for f in fields(State) if (new := getattr(state, f.name)) != getattr(shown, f.name)}
        intended = lambda: replace(self.context.document.recorded, **changes)
        needs = () if models_of(state) == models_of(shown) else models_of(state)
        self._want(Wish(needs, lambda: self._apply(intended(), label, merge), intended, merge))

    def go(self, ref: ModelRef, label: str, merge: str = "") -> None:
        """Show what is shown on another model: another checkpoint, other parameters."""
        self.show(replace(self.intended, model=ref), label, merge)

    @Slot()
    def undo(self) -> None:
        """Take back what is on its way, else step back."""
        document = self.context.document
        self._walk(document.before, document.undo, f"Undone: {document.undo_label}.")

    @Slot()
    def redo(self) -> None:
        """Step forward."""
        document = self.context.document
        self._walk(document.after, document.redo, f"Done again: {document.redo_label}.")

    def drop(self) -> None:
        """What is wanted and not shown yet is no longer wanted."""
        if self._wish is not None:
            self._wish = None
            self.waiting_changed.emit()

    def reopen(self, state: State, act: Callable[[], None]) -> None:
        """A state is shown whose models have been closed: `act` when they are open again."""
        self._want(Wish(models_of(state), act, lambda: self.context.document.recorded))

    def _walk(self, state: State | None, step: Callable[[], None], told: str) -> None:
        """To the state before or after, and say in the status line what that was."""
        if self.waiting:
            self.drop()
            self.given_up.emit()
            self.context.message.emit("Undone: what was on its way.")
        elif state is not None:

            def act() -> None:
                step()
                self.context.message.emit(told)

            self._want(Wish(models_of(state), act, lambda: self.context.document.recorded))

    def _apply(self, state: State, label: str, merge: str) -> None:
        store, shown = self.context.engine.store, self.context.document.recorded
        model = store.peek(state.model)
        if model is not None and state.model != shown.model:
            state = state_for(model, state, store.peek(shown.model), shown)
        self.context.document.apply(state, label, merge)

    def _want(self, wish: Wish) -> None:
        store = self.context.engine.store
        if all(store.use(ref) is not None for ref in wish.needs):
            self.drop()
            wish.act()
            self.settled.emit()
            return
        self._wish = wish
        if self._opening is None:
            self._open(wish)
        self.waiting_changed.emit()

    def _open(self, wish: Wish) -> None:
        """On the thread of models: its own, so that a slider never waits for a file that is being written."""
        self._opening = wish
        store, text = self.context.engine.store, wish.intended().text

        def work(job: Job) -> None:
            for ref in wish.needs:  # the reference first: it is used, and not the one that is closed to make room
                warm_tokenizer(store.open(ref), text)

        self.context.runner.do(SLOT, f"open {wish.needs[-1].name}", work, LANE)

    @Slot(str, object)
    def _finished(self, slot: str, value: object) -> None:
        if slot != SLOT or self._opening is None:
            return
        made, self._opening = self._opening, None
        newest = self._wish
        if newest is made:
            self._wish = None
        try:
            if newest is made or (newest is not None and made.merge and made.merge == newest.merge):
                made.act()
        finally:  # whatever showing it did, nothing waits for it any more
            if newest is made:
                self.waiting_changed.emit()
                self.settled.emit()
            self._go_on()

    @Slot(str, object)
    def _failed(self, slot: str, error: BaseException) -> None:
        if slot != SLOT or self._opening is None:
            return
        made, self._opening = self._opening, None
        if self._wish is made:
            self.drop()
            if not isinstance(error, Cancelled):
                self.context.failed.emit(error)
            self.given_up.emit()
        self._go_on()

    def _go_on(self) -> None:
        """To what has been wanted meanwhile."""
        if self._wish is not None and self._opening is None:
            self._want(self._wish)
