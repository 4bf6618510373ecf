"""A place in the runner that belongs to somebody: its newest request or piece of work counts, and its owner alone hears of it."""

from __future__ import annotations

from collections.abc import Callable

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
