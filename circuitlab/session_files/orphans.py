"""Sessions of windows that are gone without having ended in order, or without having been saved: to recover or to throw away."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from circuitlab.disk.file_lock import FileLock
from circuitlab.disk.files import made_folder, moved
from circuitlab.errors import BadInput, CircuitLabError, bounded
from circuitlab.session_files.migrations import VERSION
from circuitlab.session_files.recovery_files import (
    GENERATIONS,
    boot_id,
    copy_path,
    discard_files,
    file_of,
    lock_path,
    parse_marked,
    read_bytes,
    read_marked,
    recovery_folder,
    written_at,
)
from circuitlab.session_files.session import SUFFIX, Session
from circuitlab.story.setup import Encoded

log = logging.getLogger("circuitlab.recovery")
MOST = 20  # sessions, and damaged files, that are kept
LITTER = 60.0  # s after which what a killed window left half written goes


@dataclass(frozen=True)
class Orphan:
    """The session of a window that is gone. `copies`: its generations, newest first; the first can be read.

    `of`: the file that it belongs to. `title`: of its story, else its file's name, else its model and text. `time`: when it was
    last autosaved, in seconds since the epoch. `damaged`: how many newer copies could not be read. `closed`: its window ended in
    order, and only the session was never saved.
    """

    folder: Path
    id: str
    copies: tuple[Path, ...]
    of: Path | None
    title: str
    steps: int
    time: float
    damaged: int = 0
    closed: bool = False

    def read(self, copy: int = 0) -> Session:
        """The session of a copy. Raises `BadInput`."""
        return read_marked(self.copies[copy])[0]

    def claim(self) -> FileLock | None:
        """The lock of the session, so that no other window offers it; None if another one has it."""
        lock = FileLock(lock_path(self.folder, self.id))
        with contextlib.suppress(OSError):  # a disk without locks, or a folder that cannot be written
            if lock.take() is not None:
                return None
        return lock

    def discard(self, claim: FileLock | None = None) -> None:
        """Throw the session away, unless another window has claimed it. `claim`: its lock, where this window has it."""
        lock = claim or self.claim()
        if lock is not None:
            discard_files(self.folder, self.id)
            lock.release(remove=True)


@dataclass(frozen=True)
class Recoverable:
    """What lies in the recovery folder: `orphans`, newest first, closed ones last; `damaged`: files that could not be read."""

    orphans: tuple[Orphan, ...] = ()
    damaged: tuple[Path, ...] = ()


def orphans(folder: Path | None = None, stopped: Callable[[], bool] = lambda: False) -> Recoverable:
    """The sessions of windows that are gone; of more than `MOST` the closed and the oldest are removed. For a worker thread.

    Files that cannot be read are moved into the folder `damaged` beside the others; those of a newer version stay untouched.
    """
    folder = folder or recovery_folder()
    sessions: list[Orphan] = []
    damaged: list[Path] = []
    for name in sorted({path.name.split(".")[0] for path in _listed(folder, f"*{SUFFIX}")}):
        if stopped():
            break
        if not _lives(folder, name):
            orphan, aside = _orphan(folder, name)
            damaged += aside
            sessions += [] if orphan is None else [orphan]
    now = time.time()  # where a clock has been set back, what it says of what was written before says nothing
    sessions.sort(key=lambda orphan: (orphan.closed, orphan.time > now, -orphan.time))
    for orphan in sessions[MOST:]:
        log.warning("%s, “%s”, is removed: %d others can be recovered", orphan.id, orphan.title, MOST)
        orphan.discard()
    _remove_litter(folder)
    return Recoverable(tuple(sessions[:MOST]), tuple(damaged))


def newer_copy(sessions: Iterable[Orphan], path: Path) -> Orphan | None:
    """The newest of these that belongs to a file and was autosaved after that was saved, or may have been: where the file is of a
    time that is yet to come, a clock has been set back, or was another machine's."""
    saved = written_at(path)
    unknown = saved > time.time()
    return next((o for o in sessions if o.of is not None and _same(o.of, path) and (unknown or o.time > saved)), None)


def _same(a: Path, b: Path) -> bool:
    return os.path.normcase(os.path.realpath(a)) == os.path.normcase(os.path.realpath(b))


def _listed(folder: Path, pattern: str) -> list[Path]:
    try:
        return [path for path in folder.glob(pattern) if path.is_file()]
    except OSError as error:
        log.warning("%s cannot be read: %s", folder, error)
        return []


def _lives(folder: Path, name: str) -> bool:
    """Whether the window that writes a session is still there: it has the lock, or, without one, its process runs."""
    path = lock_path(folder, name)
    if path.exists():
        lock = FileLock(path)
        try:
            if lock.take() is not None:
                return True
            lock.release()
            return False
        except OSError:
            pass
    newest = next((copy for i in range(GENERATIONS) if (copy := copy_path(folder, name, i)).exists()), None)
    try:
        table = json.loads(read_bytes(newest)) if newest is not None else {}
    except (CircuitLabError, ValueError, RecursionError):
        return False
    pid = table.get("pid") if isinstance(table, dict) and table.get("boot") == boot_id() else None
    return isinstance(pid, int) and _runs(pid)


def _runs(pid: int) -> bool:
    """Whether there is such a process."""
    if sys.platform == "win32" or pid <= 0:  # there, locks always work, and signal 0 is Ctrl+C
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _orphan(folder: Path, name: str) -> tuple[Orphan | None, list[Path]]:
    """The session of a window that is gone, from its newest copy that can be read; and the damaged ones, where they are now."""
    aside: list[Path] = []
    copies = [copy for i in range(GENERATIONS) if (copy := copy_path(folder, name, i)).is_file()]
    for i, copy in enumerate(copies):
        data = b""
        try:
            session, own = parse_marked(data := read_bytes(copy), copy)
        except BadInput as error:
            if _newer_version(data):
                return None, aside
            if unread(error):  # all of it stays, and is offered when it can be read
                log.warning("%s: %s", copy, error)
                return None, [*aside, copy]
            log.warning("%s: %s", copy, error)
            aside.append(set_aside(copy, folder))
            continue
        of = file_of(own)
        title, steps, closed = session_title(session, of), len(session.story.steps), own.get("closed") is True
        return Orphan(folder, name, tuple(copies[i:]), of, title, steps, written_at(copy), len(aside), closed), aside
    if not any(copy.exists() for copy in copies):  # what could not be moved stays, with the lock that says whose it was
        discard_files(folder, name)
        with contextlib.suppress(OSError):
            lock_path(folder, name).unlink(missing_ok=True)
    return None, aside


def _newer_version(data: bytes) -> bool:
    """Whether this is a session of a newer version of CircuitLab, which that one can recover."""
    try:
        table = json.loads(data)
    except (ValueError, RecursionError):
        return False
    version = table.get("version") if isinstance(table, dict) and table.get("circuitlab") == "session" else None
    return isinstance(version, int) and version > VERSION


def unread(error: BadInput) -> bool:
    """Whether the system could not read a file now (too many open ones, no right, a disk that fails), which says nothing of what
    is in it."""
    return isinstance(error.__cause__, OSError)


def set_aside(path: Path, folder: Path) -> Path:
    """A damaged file, moved into `damaged` in the recovery folder; the oldest of more than `MOST` go. Where not, it stays."""
    target = folder / "damaged" / path.name
    try:
        made_folder(target.parent)
        moved(path, target)
        for old in sorted(_listed(target.parent, "*"), key=written_at, reverse=True)[MOST:]:
            old.unlink(missing_ok=True)
    except (CircuitLabError, OSError) as error:
        log.warning("%s stays where it is: %s", path, error)
        return path
    return target


def session_title(session: Session, of: Path | None) -> str:
    """The title of its story, else its file's name, else its model and the beginning of its text."""
    if session.story.title or of is not None:
        return session.story.title or (of.stem if of is not None else "")
    prompt = session.now.prompt
    text = prompt.text if isinstance(prompt, Encoded) else prompt if isinstance(prompt, str) else ""
    return " · ".join(part for part in (session.now.model or "", bounded(" ".join(text.split()), 60)) if part) or "untitled"


def _remove_litter(folder: Path) -> None:
    """Locks and half-written files of windows that were killed before they wrote anything whole."""
    for path in (*_listed(folder, "*.lock"), *_listed(folder, "*.new")):
        name = path.name.split(".")[0]
        if time.time() - written_at(path) > LITTER and not _listed(folder, f"{name}*{SUFFIX}") and not _lives(folder, name):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
