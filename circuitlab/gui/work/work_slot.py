"""A slot of the runner: of its requests or pieces of work the newest counts, and only its owner gets the result."""

from __future__ import annotations

from collections.abc import Callable, Collection

from PySide6.QtCore import QObject, Signal
from shiboken6 import isValid

Handler = Callable[..., object]


class WorkSlot(QObject):
    """Passed to `Runner.ask` or `Runner.do`. It ends with its owner; results of what still runs for it are then dropped.

    `answered(Answer, role)`: an answer, possibly partial. `finished(value, role)`: the outcome of other work.
    `failed(error, role)`: either has failed, with `Cancelled` if it was stopped. Handlers may leave out the `role`, by which an
    owner tells its slots apart. `in_sight()`: whether what it is for can be seen; if not, the work of other slots goes first.
    """

    answered = Signal(object, object)
    finished = Signal(object, object)
    failed = Signal(object, object)

    def __init__(
        self,
        owner: QObject,
        role: object = None,
        *,
        in_sight: Callable[[], bool] = lambda: True,
        answered: Handler | None = None,
        finished: Handler | None = None,
        failed: Handler | None = None,
    ) -> None:
        super().__init__(owner)
        self.role, self.in_sight = role, in_sight
        self.serial = 0  # of the newest request; the runner's
        self.shown = 0  # results with a serial up to this are no longer shown; the runner's
        for signal, handler in ((self.answered, answered), (self.finished, finished), (self.failed, failed)):
            if handler is not None:
                signal.connect(handler)


def belongs(slot: WorkSlot, owner: QObject | None) -> bool:
    """Whether a slot, if it is still there, is part of an owner."""
    one: QObject | None = slot if owner is not None and isValid(slot) else None
    while one is not None and one is not owner:
        one = one.parent()
    return one is not None


class WorkSlots:
    """The slots of one owner by key, which is their `role`: created on first use, deleted when no longer needed."""

    def __init__(
        self,
        owner: QObject,
        is_busy: Callable[[WorkSlot], bool],
        *,
        in_sight: Callable[[], bool] = lambda: True,
        **handlers: Handler,
    ) -> None:
        self._owner, self._is_busy, self._in_sight, self._handlers = owner, is_busy, in_sight, handlers
        self._slots: dict[object, WorkSlot] = {}

    def __getitem__(self, key: object) -> WorkSlot:
        if key not in self._slots:
            self._slots[key] = WorkSlot(self._owner, key, in_sight=self._in_sight, **self._handlers)
        return self._slots[key]

    def keep_only(self, keys: Collection[object]) -> None:
        """Delete the slots of other keys, unless a job runs or waits for them: its result may be requested again."""
        for key in [key for key, slot in self._slots.items() if key not in keys and not self._is_busy(slot)]:
            self._slots.pop(key).deleteLater()

    def end(self, end_slot: Callable[[WorkSlot], object]) -> None:
        """Cancel or put off what runs for any of them with `end_slot(slot)`, and delete them all; nobody hears the results."""
        slots, self._slots = self._slots, {}
        for slot in slots.values():
            end_slot(slot)
            slot.deleteLater()
