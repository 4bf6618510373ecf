"""The files of the recovery folder: their names, and the keys by which they differ from those that a person saves.

`<id>.circuitlab` is the session as it was last autosaved, with keys of its own: `of`, the path of the file it belongs to or "",
`pid` and `boot`, the process that wrote it, and `closed` where its window ended in order and only the session was never saved
(see `last`). `<id>.1.circuitlab`, `<id>.2.circuitlab` are earlier ones, a minute and more apart: a picture that crashes the
program is autosaved, too. `<id>.lock` is locked for as long as the window lives.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from circuitlab.disk.files import read_at_most
from circuitlab.disk.json_types import JsonObject
from circuitlab.disk.paths import state_home
from circuitlab.errors import BadInput, cause
from circuitlab.session_files.session import SUFFIX, Session
from circuitlab.session_files.session_text import LARGEST, bytes_of, parse_session

log = logging.getLogger("circuitlab.recovery")
GENERATIONS = 3
_OWN = ("of", "pid", "boot", "closed", "unsaved")


def recovery_folder() -> Path:
    """Where recovery files lie (not created here)."""
    return state_home() / "recovery"


def boot_id() -> str:
    """What tells one start of the machine from another, "" where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def lock_path(folder: Path, name: str) -> Path:
    """The file that is locked while the window lives."""
    return folder / f"{name}.lock"


def copy_path(folder: Path, name: str, generation: int) -> Path:
    """A copy of a session, 0 for the newest."""
    return folder / (f"{name}.{generation}{SUFFIX}" if generation else f"{name}{SUFFIX}")


def written_at(path: Path) -> float:
    """When a file was last written, 0 if that is not known."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def discard_files(folder: Path, name: str) -> None:
    """Remove the copies of a session, the oldest first: what a crash leaves is the newest."""
    for path in (*(copy_path(folder, name, i) for i in reversed(range(GENERATIONS))), folder / f"{name}.new"):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s could not be removed: %s", path, error)


# -- a session with the keys of a recovery file -------------------------------------------------------------------------------


def marked_bytes(session: Session, folder: Path, of: Path | None, **more: bool) -> bytes:
    """The text of a session in `folder` that says which file it belongs to and who wrote it; `more`: keys of `_OWN`."""
    own = {"of": "" if of is None else str(of.absolute()), "pid": os.getpid(), "boot": boot_id(), **more}
    return bytes_of(replace(session, unknown={**session.unknown, **own}), folder)


def read_marked(path: Path) -> tuple[Session, Path | None, JsonObject]:
    """A session that `marked_bytes` wrote, the file it belongs to, and the keys that are not the session's. Raises `BadInput`."""
    session, own = parse_marked(read_bytes(path), path)
    return session, file_of(own), own


def read_bytes(path: Path) -> bytes:
    """The bytes of a session's file. Raises `BadInput`."""
    try:
        data = read_at_most(path, LARGEST)
    except OSError as error:
        raise BadInput(
            f"{path.name} cannot be read.",
            expected="a session",
            got=cause(error),
            remedy="Check the path and its permissions; File → Recover a session… lists what was kept without being saved.",
        ) from error
    if data is None:
        raise BadInput(
            f"{path.name} is too large for a session.",
            expected=f"at most {LARGEST} bytes",
            got="more",
            remedy="Check the path and its permissions; File → Recover a session… lists what was kept without being saved.",
        )
    return data


def parse_marked(data: bytes, path: Path) -> tuple[Session, JsonObject]:
    """The session of such bytes, and the keys that are not the session's. Raises `BadInput`."""
    session = parse_session(data, path.absolute().parent)
    own = {name: session.unknown[name] for name in _OWN if name in session.unknown}
    return replace(session, unknown={n: value for n, value in session.unknown.items() if n not in own}), own


def file_of(own: Mapping[str, object]) -> Path | None:
    """The file that a session belongs to, of these keys."""
    of = own.get("of")
    return Path(of) if isinstance(of, str) and of and "\0" not in of else None
