"""Whether files of open models have changed since they were opened: asked of the disk on a thread of its own.

A disk that does not answer, as of a server that is gone, holds up nobody: a look waits for a moment and goes on without it, and
no second one is begun before the first has ended. What is found stays found until the model is read again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from weakref import ReferenceType

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.engine.file_changes import FileChange
from circuitlab.engine.open_model import OpenModel
from circuitlab.engine.store import ModelStore
from circuitlab.model.subject import ModelRef

LOOKING = "circuitlab-files"  # the thread
A_MOMENT = 0.25  # s that an export waits for a disk: a local one answers in microseconds

Found = tuple[tuple[OpenModel, FileChange | None], ...]


class FileWatch(QObject):
    """`changed()`: something else is found of a model than before.

    `_seen(Found)` brings what a thread has found to this one.
    """

    changed = Signal()
    _seen = Signal(object)

    def __init__(self, store: ModelStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._found: dict[ModelRef, tuple[ReferenceType[OpenModel], FileChange]] = {}  # which keeps no weights
        self._looking: threading.Thread | None = None
        self._given_up: threading.Thread | None = None  # one for which an export has waited long enough
        self._seen.connect(self._take)

    def change(self, ref: ModelRef) -> FileChange | None:
        """What has become of the files of a model since it was opened (`OpenModel.file_change`), as far as it is known."""
        result = self._found.get(ref)
        return result[1] if result is not None and result[0]() is self._store.peek(ref) is not None else None

    def look(self, refs: Iterable[ModelRef], seconds: float = 0) -> None:
        """Look at the files of these models; what is found within `seconds` is known when this returns, else later."""
        if self._still_looking(seconds):
            return
        models = [model for ref in refs if (model := self._store.peek(ref)) is not None and not model.absent]
        if not any(model.opened.files for model in models):
            return
        result: list[Found] = []

        def work() -> None:
            result.append(tuple((model, model.file_change) for model in models))
            with suppress(RuntimeError):  # whoever asked is gone
                self._seen.emit(result[0])

        self._looking = threading.Thread(target=work, name=LOOKING, daemon=True)
        self._looking.start()
        if seconds:
            self._looking.join(seconds)
            self._given_up = self._looking if self._looking.is_alive() else None
            if result:
                self._take(result[0])

    def _still_looking(self, seconds: float) -> bool:
        """Whether the look before this one has not ended, nor does within `seconds`; one that did not is waited for no more."""
        if self._looking is None:
            return False
        if self._looking is not self._given_up:
            self._looking.join(seconds)
        if not self._looking.is_alive():
            return False
        self._given_up = self._looking if seconds else self._given_up
        return True

    @Slot(object)
    def _take(self, found: Found) -> None:
        before = dict(self._found)
        for model, change in found:
            self._found.pop(model.ref, None)
            if change is not None:
                self._found[model.ref] = (ReferenceType(model), change)
        if before != self._found:
            self.changed.emit()
