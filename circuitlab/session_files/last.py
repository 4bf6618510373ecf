"""Where one stopped: the session of the window that was closed last, to which the next start without a model comes back.

Only the window that came back to a session replaces it without a trace. What another one finds there that was never saved goes to
the recovery files, as a closed session: when somebody asks what can be recovered, or when that window ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from circuitlab.disk.file_lock import FileLock, waited
from circuitlab.disk.files import made_folder, write_whole, writing
from circuitlab.disk.paths import state_home
from circuitlab.errors import BadInput, BadMachine
from circuitlab.session_files.orphans import set_aside, unread
from circuitlab.session_files.recovery import Recovery
from circuitlab.session_files.recovery_files import marked_bytes, read_marked, recovery_folder
from circuitlab.session_files.session import SUFFIX, Session

ROOM = 2**16  # bytes: more than most sessions without a file have
PATIENCE = 10.0  # s for another window that keeps its session
Stamp = tuple[int, int, int]  # of a file: when it was written, its length and its number on the disk


@dataclass(frozen=True)
class Last:
    """A session as it was left. `of`: its file, None if it has none; `unsaved`: it holds work that is in no file."""

    session: Session
    of: Path | None = None
    unsaved: bool = False
    stamp: Stamp | None = None


def last_path() -> Path:
    """The file of the session that was left last."""
    return state_home() / f"last{SUFFIX}"


def _stamp() -> Stamp | None:
    try:
        stat = last_path().stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def last() -> Last | None:
    """The session that was left last, None if there is none. Raises `BadInput` where it cannot be read."""
    stamp = _stamp()
    if stamp is None:
        return None
    session, of, own = read_marked(last_path())
    return Last(session, of, own.get("unsaved") is True, stamp)


def keep_last(session: Session, of: Path | None, unsaved: bool, seen: Stamp | None = None) -> None:
    """Keep a session for the next start. `seen`: the stamp of the one that its window came back to.

    Raises `BadMachine`, also where what is there can neither be read nor moved: it is not replaced then.
    """
    path = last_path()
    made_folder(path.parent, private=True)
    with _alone():
        if seen is None or seen != _stamp():
            _give_way()
        write_whole(path, marked_bytes(session, path.parent, of, unsaved=unsaved))


def need_room_for_last(size: int = ROOM) -> None:
    """Raise `BadMachine` where a session of so many bytes could not be kept for the next start, before its window is gone."""
    path = last_path()
    made_folder(path.parent, private=True)
    probe = path.with_suffix(".room")
    write_whole(probe, bytes(size))
    with writing(probe):
        probe.unlink(missing_ok=True)


def offer_last(seen: Stamp | None = None) -> tuple[Path, ...]:
    """Have the recovery files hold what another window left, as `keep_last` would. The layout stays for the next start.

    `seen`: the stamp of the session that this window came back to, which is not offered. Returns the damaged file, where it is
    now. Raises `BadMachine`.
    """
    if _stamp() is None:
        return ()
    with _alone():
        if seen is not None and seen == _stamp():
            return ()
        before, damaged = _give_way()
        if before is not None:
            write_whole(last_path(), marked_bytes(before.session, last_path().parent, before.of, unsaved=False))
    return damaged


@contextmanager
def _alone() -> Iterator[None]:
    """Inside, no other window replaces the last session: what is looked at is what is replaced. Raises `BadMachine`.

    A folder without locks has none, as elsewhere.
    """
    held_up = lambda holder: BadMachine(
        "Another window is keeping its session just now.",
        expected="to be alone with the last session for a moment",
        got=f"{holder}, for {PATIENCE:g} seconds",
        remedy="Try again. If it never ends, end that process; what was autosaved stays to be recovered.",
    )
    with waited(FileLock(last_path().with_suffix(".lock")), held_up, PATIENCE):
        yield


def _give_way() -> tuple[Last | None, tuple[Path, ...]]:
    """Copy what another window left to the recovery files, with its time, if it was never saved; a damaged file is moved there.

    Returns what was copied and what was damaged. Raises `BadMachine`.
    """
    try:
        before = last()
    except BadInput as error:
        aside = last_path() if unread(error) else set_aside(last_path(), recovery_folder())
        if aside == last_path():  # it stays, and nobody writes over it
            raise BadMachine(
                "The last session can neither be read nor moved, and is not replaced.",
                expected=f"a session at {aside.name}, or a folder beside it to move it to",
                got=error.got or error.what,
                remedy="Check the folder's rights and its disk; what was autosaved stays to be recovered.",
            ) from error
        return None, (aside,)
    if before is None or before.stamp is None or not before.unsaved or before.of is not None:
        return None, ()
    closed = Recovery()
    closed.write(before.session, None, closed=True)
    with writing(closed.path):
        os.utime(closed.path, ns=(before.stamp[0], before.stamp[0]))  # when it was closed, not when it was moved
    closed.leave()
    return before, ()
