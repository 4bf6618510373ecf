"""A story as a lesson and back: `circuitlab session FILE --markdown OUT.md`, `circuitlab session LESSON.md -o OUT.circuitlab`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from circuitlab.counting import number_of
from circuitlab.disk.files import need_writable, write_whole
from circuitlab.disk.formats import SESSION, is_session
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import UsageError
from circuitlab.figures.contracts.panel import view_types
from circuitlab.lessons.lesson import SUFFIX, read
from circuitlab.lessons.writing import markdown_of
from circuitlab.report.saved_session import opened_session
from circuitlab.session_files.assembly import hashed
from circuitlab.session_files.lesson_story import for_lesson, session_of_lesson
from circuitlab.session_files.session_lock import replacing
from circuitlab.session_files.session_text import bytes_of
from circuitlab.story.places import real_folder
from circuitlab.terminal import on_one_line


def write_lesson(file: Path, out: Path) -> int:
    """Write the story of a session as a lesson. Raises `BadInput` where it cannot be read, or a lesson cannot hold it."""
    if out.suffix.lower() != SUFFIX:
        raise UsageError(
            "A lesson needs its own ending.",
            expected=f"--markdown NAME{SUFFIX}",
            got=out.name,
            remedy="Add the ending to the name.",
        )
    need_writable(out)
    session = opened_session(file, Engine(ModelStore())).session
    lesson = for_lesson(session, out, view_types())
    write_whole(out, markdown_of(lesson.story).encode("utf-8"), named=True)
    print("\n".join(map(on_one_line, (f"{out}: {number_of(len(lesson.story.steps), 'step')}", *lesson.remarks))))
    return 0


def write_session(file: Path, out: Path) -> int:
    """Write a lesson as a session. Raises `BadInput` where it cannot be read."""
    if not is_session(out) or is_session(file):
        raise UsageError(
            "A lesson becomes a session.",
            expected=f"LESSON{SUFFIX} -o NAME{SESSION}",
            got=f"{file.name} -o {out.name}",
            remedy="Name the lesson first, then the session after -o.",
        )
    need_writable(out)
    session, store = session_of_lesson(read(file).story, real_folder(file), view_types()), ModelStore()
    session = replace(session, models={name: hashed(entry, store) for name, entry in session.models.items()})
    with replacing(out):
        write_whole(out, bytes_of(session, real_folder(out)), named=True)
    print(f"{out}: {number_of(len(session.story.steps), 'step')}")
    return 0
