"""What is drawn in parts on the thread of the widgets for a worker that waits for it: frames of a film, figures of a report."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.analysis.base import Ctx

WAIT = 0.05  # s between looks whether it was cancelled
_END = object()
Drawn = TypeVar("Drawn")


class Drawer(QObject):
    """Between two parts everything else has its turn."""

    _wanted = Signal(object)
    _left = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._parts: Iterator[object] | None = None
        self._drawn: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._wanted.connect(self._draw)
        self._left.connect(self.stop)

    @property
    def busy(self) -> bool:
        """Whether something is being drawn."""
        return self._parts is not None

    def parts(self, draw: Callable[[], Iterator[Drawn]], total: int, ctx: Ctx) -> list[Drawn]:
        """All that the iterator gives, which is made and asked on the thread of the widgets. Called on a worker.

        `total`: how many parts there will be, about. Raises `Cancelled`, and what drawing raises.
        """
        parts: list[Drawn] = []
        try:
            while True:
                self._wanted.emit(draw)
                one = self._next(ctx, min(len(parts), total), total)
                if one is _END:
                    return parts
                if isinstance(one, BaseException):
                    raise one
                parts.append(one)
        finally:
            self._left.emit()

    def _next(self, ctx: Ctx, done: int, total: int) -> Any:
        while True:
            ctx.tick(done, total, "drawing")
            try:
                return self._drawn.get(timeout=WAIT)
            except queue.Empty:
                pass

    @Slot(object)
    def _draw(self, draw: Callable[[], Iterator[object]]) -> None:
        try:
            if self._parts is None:
                self._parts = draw()
            self._drawn.put(next(self._parts, _END))
        except Exception as error:
            self._drawn.put(error)

    @Slot()
    def stop(self) -> None:
        """Leave what is being drawn; on the thread of the widgets."""
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.close()  # type: ignore[attr-defined]
        while not self._drawn.empty():
            self._drawn.get()
