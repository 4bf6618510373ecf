"""A person's own files that settings of panels name: absolute paths in a State, names of the `files` table in a session file.

In the words of a file a control that names a file is `{"file": "names"}`; the table has its path, relative to the session's file,
and the hash of its bytes, so that a file that is missing or has changed is reported and not guessed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from circuitlab.disk.regular_file import Stamp, on_another_machine, sha256_of, stamp_of
from circuitlab.session_files.session import FileEntry, Session
from circuitlab.story.places import file_controls
from circuitlab.story.setup import Setup, Views

FILE = "file"
LARGEST_HASHED = 8 * 2**30  # bytes of a file that is hashed because a session names it
_hashes: dict[tuple[str, Stamp], str] = {}


def with_file_names(session: Session, views: Views) -> Session:
    """The session whose words name files by its table, which gets an entry for each. Reads the files to hash them."""
    controls = {name: file_controls(view) for name, view in views.items()}
    files = dict(session.files)

    def named(panel: str, control: str, value: object) -> object:
        if control not in controls.get(panel, ()) or not isinstance(value, str) or not value:
            return value
        path = os.path.abspath(value)
        name = next((name for name, entry in files.items() if entry.path == path), None) or _free_name(path, files)
        sha256 = file_sha256(path)
        entry = files.get(name, FileEntry(path))
        files[name] = replace(entry, sha256=sha256) if sha256 else entry
        return {FILE: name}

    session = with_controls(session, named)
    return replace(session, files=files)


def with_file_paths(session: Session) -> Session:
    """The session whose words name files by their absolute paths, as a State does; a name that no entry has stays as it is."""

    def absolute(panel: str, control: str, value: object) -> object:
        if not isinstance(value, Mapping) or set(value) != {FILE}:
            return value
        entry = session.files.get(value[FILE]) if isinstance(value[FILE], str) else None
        return value if entry is None else entry.path

    return with_controls(session, absolute)


def file_sha256(path: str, stopped: Callable[[], bool] = lambda: False) -> str:
    """The hash of a file's bytes, "" where it cannot be read: it is none, too large, or on another machine, which is not asked.

    It is read again only once something of it has changed. Raises `Cancelled` once `stopped()`.
    """
    if on_another_machine(path):
        return ""
    try:
        stat = os.stat(path)
        key = path, stamp_of(stat)
        if key not in _hashes:
            if stat.st_size > LARGEST_HASHED:
                return ""
            _hashes[key] = sha256_of((Path(path),), stopped)
        return _hashes[key]
    except (OSError, ValueError):
        return ""


def _free_name(path: str, files: Mapping[str, FileEntry]) -> str:
    stem = Path(path).stem
    return next(name for i in range(1, len(files) + 2) if (name := stem if i == 1 else f"{stem} {i}") not in files)


def with_controls(session: Session, change: Callable[[str, str, object], object]) -> Session:
    """The session with each control of a panel changed by `change(panel, control, value)`, in `now` and in every step."""

    def changed(setup: Setup) -> Setup:
        view = {
            panel: {name: change(panel, name, value) for name, value in controls.items()}
            for panel, controls in setup.view.items()
        }
        return setup if view == setup.view else replace(setup, view=view)

    steps = tuple(step if step.setup is None else replace(step, setup=changed(step.setup)) for step in session.story.steps)
    return replace(session, now=changed(session.now), story=replace(session.story, steps=steps))
