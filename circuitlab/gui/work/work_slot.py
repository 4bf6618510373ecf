"""A place in the runner that belongs to somebody: its newest request or piece of work counts, and its owner alone hears of it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from PySide6.QtCore import QObject, Signal

Handler = Callable[..., object]


class WorkSlot(QObject):
    """Hand it to `Runner.ask` or `Runner.do`. It ends with its owner, and what still runs for it is then heard by nobody.

    `answered(Answer, role)`: an answer, partial ones too; `finished(value, role)`: the outcome of other work;
    `failed(error, role)`: of either, `Cancelled` where it was stopped. Handlers may leave out the `role`, by which an owner tells
    its slots apart.
    """

    answered = Signal(object, object)
    finished = Signal(object, object)
    failed = Signal(object, object)

    def __init__(
        self,
        owner: QObject,
        role: object = None,
        *,
        answered: Handler | None = None,
        finished: Handler | None = None,
        failed: Handler | None = None,
    ) -> None:
        super().__init__(owner)
        self.role = role
        self.serial = 0  # of the newest request; the runner's
        self.shown = 0  # results with a serial up to this are no longer shown; the runner's
        for signal, handler in ((self.answered, answered), (self.finished, finished), (self.failed, failed)):
            if handler is not None:
                signal.connect(handler)


class WorkSlots:
    """The slots of one owner by key, which is their `role`: made when asked for, let go when nobody needs them."""

    def __init__(self, owner: QObject, is_busy: Callable[[WorkSlot], bool], **handlers: Handler) -> None:
        self._owner, self._is_busy, self._handlers = owner, is_busy, handlers
        self._slots: dict[object, WorkSlot] = {}

    def __getitem__(self, key: object) -> WorkSlot:
        if key not in self._slots:
            self._slots[key] = WorkSlot(self._owner, key, **self._handlers)
        return self._slots[key]

    def keep_only(self, keys: Collection[object]) -> None:
        """Let go of the slots of other keys, unless something runs or waits for them: that may be asked for again."""
        for key in [key for key, slot in self._slots.items() if key not in keys and not self._is_busy(slot)]:
            self._slots.pop(key).deleteLater()

    def cancel(self, cancel_slot: Callable[[WorkSlot], object]) -> None:
        """Stop what runs for any of them, and let go of them all: nobody hears of it any more."""
        slots, self._slots = self._slots, {}
        for slot in slots.values():
            cancel_slot(slot)
            slot.deleteLater()
