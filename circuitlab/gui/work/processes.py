"""Processes of their own that the window shows in Jobs: they go on without it, and are taken up again by the next one."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal, Slot


class OwnProcess(QObject):
    """Work that a process of its own does. `changed()`: it has begun, gone on or ended."""

    changed = Signal()
    title = ""

    @property
    def running(self) -> bool:
        """Whether it works."""
        raise NotImplementedError

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop, and goes on yet."""
        return False

    def words(self) -> str:
        """How far it is, or what has become of it."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ask it to stop, so that nothing is lost; end it at once where it was asked before."""
        raise NotImplementedError

    @property
    def shows(self) -> bool:
        """Whether there is something to look at."""
        return False

    def leave(self) -> None:
        """Stop watching it; it goes on."""


class Processes(QObject):
    """Those of one window, in their order. `changed()`: one is new, has gone on, ended, or was put away; `opened(process)`:
    somebody wants to see what one has done; `removed(process)`: it was put away.
    """

    changed = Signal()
    opened = Signal(object)
    removed = Signal(object)

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.all: list[OwnProcess] = []

    def add(self, process: OwnProcess) -> None:
        """Show one more."""
        self.all.append(process)
        process.changed.connect(self.changed)
        self.changed.emit()

    def remove(self, process: OwnProcess) -> None:
        """Show it no more; it goes on if it does."""
        self.all.remove(process)
        process.leave()
        self.removed.emit(process)
        process.deleteLater()
        self.changed.emit()

    @Slot()
    def leave(self) -> None:
        """The window closes: all go on without it."""
        for process in self.all:
            process.leave()
