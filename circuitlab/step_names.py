"""FILE#STEP on the command line: a session file and one of its steps. Imports nothing heavy."""

from __future__ import annotations

import os
from pathlib import Path

from circuitlab.disk.formats import opens_as_session
from circuitlab.errors import UsageError


def file_and_step(place: str) -> tuple[str, str | None]:
    """The file that is named, and what stands behind its last "#", None without one.

    A file that is there is meant whatever its name is; JSON text is no name.
    """
    if place.lstrip().startswith("{") or os.path.lexists(place):
        return place, None
    file, mark, step = place.rpartition("#")
    return (file, step) if mark and (os.path.isfile(file) or opens_as_session(Path(file))) else (place, None)


def refuse_step(place: str, what: str, remedy: str) -> None:
    """Raise `UsageError` where a step is named for what is about a whole session: `what` says what that is."""
    file, step = file_and_step(place)
    if step is not None:
        name = Path(file).name
        raise UsageError(what, expected=name, got=f"{name}#{step[:40]}", remedy=remedy)
