"""Where one stopped: the session of the window that was closed last, which the next start without a model comes back to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from circuitlab.errors import BadMachine
from circuitlab.files import made_folder, moved, write_whole
from circuitlab.paths import state_home
from circuitlab.session_files.recovery import marked_bytes, read_marked
from circuitlab.session_files.session import SUFFIX, Session

ASIDE = 3  # sessions that could not be opened are kept


@dataclass(frozen=True)
class Last:
    """A session as it was left. `of`: its file, None if it has none."""

    session: Session
    of: Path | None = None


def last_path() -> Path:
    """The file of the session that was left last."""
    return state_home() / f"last{SUFFIX}"


def keep_last(session: Session, of: Path | None) -> None:
    """Keep a session for the next start. Raises `BadMachine`."""
    path = last_path()
    made_folder(path.parent)
    write_whole(path, marked_bytes(session, path.parent, of))


def last() -> Last | None:
    """The session that was left last, None if there is none. Raises `BadInput` where it cannot be read."""
    path = last_path()
    return Last(*read_marked(path)) if path.exists() else None


def set_last_aside() -> Path | None:
    """Keep the session that was left last under another name, as the next one would replace it. Where it is then, if anywhere."""
    path = last_path()
    target = path.with_name(f"last-{time.strftime('%Y%m%d-%H%M%S')}{SUFFIX}")
    try:
        moved(path, target)
    except BadMachine:
        return None
    for old in sorted(path.parent.glob(f"last-*{SUFFIX}"))[:-ASIDE]:
        old.unlink(missing_ok=True)
    return target
