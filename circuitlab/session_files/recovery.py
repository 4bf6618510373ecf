"""What can be recovered after an unclean end: a file for each window, written while it works, removed when it ends in order.

`<id>.circuitlab` in the recovery folder is the session as it was last autosaved, with keys of its own: `of`, the path of the
file it belongs to or "", `pid` and `boot`, the process that wrote it, and `closed` where its window ended in order and only the
session was never saved (see `last`). `<id>.1.circuitlab`, `<id>.2.circuitlab` are earlier ones, a minute and more apart: a
picture that crashes the program is autosaved, too. `<id>.lock` is locked for as long as the window lives.

A recovery file that has been offered stays until the recovered session has been autosaved by the window that took it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.file_lock import FileLock
from circuitlab.files import linked, made_folder, moved, read_at_most, write_whole
from circuitlab.paths import state_home
from circuitlab.session_files.migrations import VERSION
from circuitlab.session_files.session import SUFFIX, Session
from circuitlab.session_files.session_text import LARGEST, bytes_of, parse_session
from circuitlab.story.setup import Encoded

log = logging.getLogger("circuitlab.recovery")
MOST = 20  # sessions of windows that are gone, and damaged files, that are kept
GENERATIONS = 3
SPACING = 60.0  # s between generations
_OWN = ("of", "pid", "boot", "closed", "unsaved")


def recovery_folder() -> Path:
    """Where recovery files lie (not created here)."""
    return state_home() / "recovery"


# -- a session with the keys of a recovery file -------------------------------------------------------------------------------


def marked_bytes(session: Session, folder: Path, of: Path | None, **more: bool) -> bytes:
    """The text of a session in `folder` that says which file it belongs to and who wrote it; `more`: keys of `_OWN`."""
    own = {"of": "" if of is None else str(of.absolute()), "pid": os.getpid(), "boot": boot_id(), **more}
    return bytes_of(replace(session, unknown={**session.unknown, **own}), folder)


def read_marked(path: Path) -> tuple[Session, Path | None, Mapping[str, Any]]:
    """A session that `marked_bytes` wrote, the file it belongs to, and the keys that are not the session's. Raises `BadInput`."""
    session, own = _parsed(_read(path), path)
    return session, _file_of(own), own


def _read(path: Path) -> bytes:
    try:
        data = read_at_most(path, LARGEST)
    except OSError as error:
        raise BadInput(f"{path.name} cannot be read.", expected="a session", got=error.strerror or str(error)) from error
    if data is None:
        raise BadInput(f"{path.name} is too large for a session.", expected=f"at most {LARGEST} bytes", got="more")
    return data


def _parsed(data: bytes, path: Path) -> tuple[Session, Mapping[str, Any]]:
    session = parse_session(data, path.absolute().parent)
    own = {name: session.unknown[name] for name in _OWN if name in session.unknown}
    return replace(session, unknown={n: value for n, value in session.unknown.items() if n not in own}), own


def _file_of(own: Mapping[str, Any]) -> Path | None:
    of = own.get("of")
    return Path(of) if isinstance(of, str) and of and "\0" not in of else None


# -- the window that works ----------------------------------------------------------------------------------------------------


class Recovery:
    """The recovery file of one session in a window. Used by one thread at a time."""

    def __init__(self, folder: Path | None = None, spacing: float = SPACING) -> None:
        self.folder, self.spacing = folder or recovery_folder(), spacing
        self.id = uuid.uuid4().hex
        self._lock = FileLock(_lock_path(self.folder, self.id))

    @property
    def path(self) -> Path:
        """The newest generation."""
        return _copy_path(self.folder, self.id, 0)

    def write(self, session: Session, of: Path | None, closed: bool = False) -> None:
        """Autosave a session; `of` is the file it belongs to. Raises `BadMachine`; what was written before is intact then."""
        made_folder(self.folder)
        if not self._lock.held:
            with contextlib.suppress(OSError):  # a disk without locks: the process and the boot tell whether it is gone
                self._lock.take()
        data = marked_bytes(session, self.folder, of, **({"closed": True} if closed else {}))
        self._shift()
        write_whole(self.path, data, fresh=self._fresh)

    @property
    def _fresh(self) -> Path:
        """The temporary path; no other process writes there."""
        return self.folder / f"{self.id}.new"

    def _copy(self, generation: int) -> Path:
        return _copy_path(self.folder, self.id, generation)

    def _shift(self) -> None:
        """Keep the newest generation as an earlier one, unless there is one that is hardly older."""
        if not self.path.exists():
            return
        before = self._copy(1)
        if before.exists():
            if abs(_time(self.path) - _time(before)) < self.spacing:
                return
            for generation in range(GENERATIONS - 1, 1, -1):
                if self._copy(generation - 1).exists():
                    moved(self._copy(generation - 1), self._copy(generation))
        linked(self.path, before, self._fresh)

    def adopt(self, orphan: Orphan, claim: FileLock | None) -> None:
        """Take over the copies of a recovered session as earlier generations, once it has been written anew.

        Raises `BadMachine`; what could not be taken over stays where it is, and is offered again.
        """
        for generation, copy in enumerate(orphan.copies, 1):
            if generation < GENERATIONS:
                moved(copy, self._copy(generation))
        orphan.discard(claim)

    def remove(self) -> None:
        """The session has ended in order."""
        _discard(self.folder, self.id)
        self._lock.release(remove=True)

    def leave(self) -> None:
        """What was written is to be offered, although this process goes on: the file of the lock says so by being there."""
        self._lock.release()


def _lock_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.lock"


def _copy_path(folder: Path, name: str, generation: int) -> Path:
    return folder / (f"{name}.{generation}{SUFFIX}" if generation else f"{name}{SUFFIX}")


def _time(path: Path) -> float:
    """When a file was last written, 0 if that is not known."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _discard(folder: Path, name: str) -> None:
    """Remove the copies of a session, the oldest first: what a crash leaves is the newest."""
    for path in (*(_copy_path(folder, name, i) for i in reversed(range(GENERATIONS))), folder / f"{name}.new"):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s could not be removed: %s", path, error)


# -- windows that are gone ----------------------------------------------------------------------------------------------------


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
        lock = FileLock(_lock_path(self.folder, self.id))
        with contextlib.suppress(OSError):  # a disk without locks, or a folder that cannot be written
            if lock.take() is not None:
                return None
        return lock

    def discard(self, claim: FileLock | None = None) -> None:
        """Throw the session away, unless another window has claimed it. `claim`: its lock, where this window has it."""
        lock = claim or self.claim()
        if lock is not None:
            _discard(self.folder, self.id)
            lock.release(remove=True)


@dataclass(frozen=True)
class Found:
    """What lies in the recovery folder: `orphans`, newest first, closed ones last; `damaged`: files that could not be read."""

    orphans: tuple[Orphan, ...] = ()
    damaged: tuple[Path, ...] = ()


def orphans(folder: Path | None = None, stopped: Callable[[], bool] = lambda: False) -> Found:
    """The sessions of windows that are gone; of more than `MOST` the closed and the oldest are removed. For a worker thread.

    Files that cannot be read are moved into the folder `damaged` beside the others; those of a newer version stay untouched.
    """
    folder = folder or recovery_folder()
    found: list[Orphan] = []
    damaged: list[Path] = []
    for name in sorted({path.name.split(".")[0] for path in _listed(folder, f"*{SUFFIX}")}):
        if stopped():
            break
        if not _lives(folder, name):
            orphan, aside = _orphan(folder, name)
            damaged += aside
            found += [] if orphan is None else [orphan]
    found.sort(key=lambda orphan: (orphan.closed, -orphan.time))
    for orphan in found[MOST:]:
        log.warning("%s, “%s”, is removed: %d others can be recovered", orphan.id, orphan.title, MOST)
        orphan.discard()
    _remove_litter(folder)
    return Found(tuple(found[:MOST]), tuple(damaged))


def newer_copy(found: Iterable[Orphan], path: Path) -> Orphan | None:
    """The newest of these that belongs to a file and was autosaved after that was saved."""
    saved = _time(path)
    return next((o for o in found if o.of is not None and _same(o.of, path) and o.time > saved), None)


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
    path = _lock_path(folder, name)
    if path.exists():
        lock = FileLock(path)
        try:
            if lock.take() is not None:
                return True
            lock.release()
            return False
        except OSError:
            pass
    newest = next((copy for i in range(GENERATIONS) if (copy := _copy_path(folder, name, i)).exists()), None)
    try:
        table = json.loads(_read(newest)) if newest is not None else {}
    except (CircuitLabError, ValueError, RecursionError):
        return False
    pid = table.get("pid") if isinstance(table, dict) and table.get("boot") == boot_id() else None
    return isinstance(pid, int) and _runs(pid)


def boot_id() -> str:
    """What tells one start of the machine from another, "" where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


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
    copies = [copy for i in range(GENERATIONS) if (copy := _copy_path(folder, name, i)).is_file()]
    for i, copy in enumerate(copies):
        data = b""
        try:
            session, own = _parsed(data := _read(copy), copy)
        except BadInput as error:
            if _newer_version(data):
                return None, aside
            log.warning("%s: %s", copy, error)
            aside.append(set_aside(copy, folder))
            continue
        of = _file_of(own)
        title, steps, closed = _title(session, of), len(session.story.steps), own.get("closed") is True
        return Orphan(folder, name, tuple(copies[i:]), of, title, steps, _time(copy), len(aside), closed), aside
    _discard(folder, name)
    with contextlib.suppress(OSError):
        _lock_path(folder, name).unlink(missing_ok=True)
    return None, aside


def _newer_version(data: bytes) -> bool:
    """Whether this is a session of a newer version of CircuitLab, which that one can recover."""
    try:
        table = json.loads(data)
    except (ValueError, RecursionError):
        return False
    version = table.get("version") if isinstance(table, dict) and table.get("circuitlab") == "session" else None
    return isinstance(version, int) and version > VERSION


def set_aside(path: Path, folder: Path) -> Path:
    """A damaged file, moved into `damaged` in the recovery folder; the oldest of more than `MOST` go. Where not, it stays."""
    target = folder / "damaged" / path.name
    try:
        made_folder(target.parent)
        moved(path, target)
        for old in sorted(_listed(target.parent, "*"), key=_time, reverse=True)[MOST:]:
            old.unlink(missing_ok=True)
    except (CircuitLabError, OSError) as error:
        log.warning("%s stays where it is: %s", path, error)
        return path
    return target


def _title(session: Session, of: Path | None) -> str:
    if session.story.title or of is not None:
        return session.story.title or (of.stem if of is not None else "")
    prompt = session.now.prompt
    text = prompt.text if isinstance(prompt, Encoded) else prompt if isinstance(prompt, str) else ""
    return " · ".join(part for part in (session.now.model or "", " ".join(text.split())[:60]) if part) or "untitled"


def _remove_litter(folder: Path) -> None:
    """Locks and half-written files of windows that were killed before they wrote anything whole."""
    for path in (*_listed(folder, "*.lock"), *_listed(folder, "*.new")):
        name = path.name.split(".")[0]
        if time.time() - _time(path) > SPACING and not _listed(folder, f"{name}*{SUFFIX}") and not _lives(folder, name):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
