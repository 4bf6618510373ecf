"""The session file that this window has open, and the question where another window has it already."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QMessageBox, QWidget

from circuitlab.disk.file_lock import FileLock, Holder, holder_of
from circuitlab.draw.look.plain_text import PlainBox
from circuitlab.errors import BadInput
from circuitlab.gui.sessions.moments import moment
from circuitlab.session_files.session_lock import session_lock

READ_ONLY, COPY = "Open read-only", "Open a copy"
REPLACE, ELSEWHERE = "Replace it", "Save elsewhere…"


def owner(holder: Holder) -> str:
    """Who has a file open, for a sentence."""
    return f"{holder.words()}{f', since {moment(holder.since)}' if holder.since else ''}"


def in_use(path: Path, holder: Holder) -> BadInput:
    """The error of a save to a file that another window has open."""
    return BadInput(
        f"{path.name} is open in another window and was not replaced.",
        expected="a file that no other window has open",
        got=owner(holder),
        remedy="Save under another name, or close it there first.",
    )


def in_use_box(parent: QWidget, path: Path, holder: Holder) -> PlainBox:
    """The question how to open a file that another window has open."""
    box = PlainBox(
        QMessageBox.Icon.Information, "Open in another window", f"“{path.name}” is open in another window.", parent=parent
    )
    box.setInformativeText(
        f"By {owner(holder)}.\n\nRead-only, it is saved under another name. A copy is a session of its own, without a file yet."
    )
    for words in (READ_ONLY, COPY):
        box.addButton(words, QMessageBox.ButtonRole.AcceptRole)
    box.setDefaultButton(box.addButton(QMessageBox.StandardButton.Cancel))
    return box


def changed_box(parent: QWidget, path: Path, error: BadInput) -> PlainBox:
    """The question what becomes of a session file that another program has changed."""
    box = PlainBox(QMessageBox.Icon.Warning, "Changed by another program", error.what, parent=parent)
    box.setInformativeText(f"Replaced, it is kept beside the new one, as {path.name}~.")
    for words in (ELSEWHERE, REPLACE):
        box.addButton(words, QMessageBox.ButtonRole.AcceptRole)
    box.setDefaultButton(box.addButton(QMessageBox.StandardButton.Cancel))
    return box


class FileHold:
    """At most one lock: that of the session's file."""

    def __init__(self) -> None:
        self._lock: FileLock | None = None

    def other(self, path: Path) -> Holder | None:
        """Who else has a file open."""
        lock = session_lock(path)
        return None if self._lock is not None and self._lock.path == lock.path else holder_of(lock.path)

    def take(self, path: Path | None) -> Holder | None:
        """Hold this file in place of the one before; None if it is held now, or cannot be locked, else who has it.

        A file in a folder that cannot be written to needs no lock: nobody replaces it.
        """
        lock = None if path is None else session_lock(path)
        if lock is not None and self._lock is not None and self._lock.path == lock.path:
            return None
        self.release()
        try:
            holder = None if lock is None else lock.take()
        except OSError:
            return None
        self._lock = lock if holder is None else None
        return holder

    def release(self) -> None:
        """Hold nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release(remove=True)
