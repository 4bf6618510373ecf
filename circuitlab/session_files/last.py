"""Where one stopped: the session of the window that was closed last, to which the next start without a model comes back.

Only the window that came back to a session replaces it without a trace. What another one finds there that was never saved goes to
the recovery files, as a closed session: when somebody asks what can be recovered, or when that window ends.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from circuitlab.disk.files import made_folder, write_whole
from circuitlab.disk.paths import state_home
from circuitlab.errors import BadInput
from circuitlab.session_files.orphans import set_aside
from circuitlab.session_files.recovery import Recovery
from circuitlab.session_files.recovery_files import marked_bytes, read_marked, recovery_folder
from circuitlab.session_files.session import SUFFIX, Session

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
    """Keep a session for the next start. `seen`: the stamp of the one that its window came back to. Raises `BadMachine`."""
    path = last_path()
    made_folder(path.parent, private=True)
    if seen is None or seen != _stamp():
        _give_way()
    write_whole(path, marked_bytes(session, path.parent, of, unsaved=unsaved))


def offer_last(seen: Stamp | None = None) -> tuple[Path, ...]:
    """Have the recovery files hold what another window left, as `keep_last` would. The layout stays for the next start.

    `seen`: the stamp of the session that this window came back to, which is not offered. Returns the damaged file, where it is
    now. Raises `BadMachine`.
    """
    if seen is not None and seen == _stamp():
        return ()
    before, damaged = _give_way()
    if before is not None:
        write_whole(last_path(), marked_bytes(before.session, last_path().parent, before.of, unsaved=False))
    return damaged


def _give_way() -> tuple[Last | None, tuple[Path, ...]]:
    """Copy what another window left to the recovery files, with its time, if it was never saved; a damaged file is moved there.

    Returns what was copied and what was damaged. Raises `BadMachine`.
    """
    try:
        before = last()
    except BadInput:
        return None, (set_aside(last_path(), recovery_folder()),)
    if before is None or before.stamp is None or not before.unsaved or before.of is not None:
        return None, ()
    closed = Recovery()
    closed.write(before.session, None, closed=True)
    os.utime(closed.path, ns=(before.stamp[0], before.stamp[0]))  # when it was closed, not when it was moved
    closed.leave()
    return before, ()
