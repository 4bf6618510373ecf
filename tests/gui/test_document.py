"""The document alone: what undo steps through."""

from __future__ import annotations

from dataclasses import replace

from circuitlab.gui.work.document import Document
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.session import Note
from circuitlab.state.state import State


def test_a_note_written_in_a_lesson_stays_when_the_lesson_is_left_and_is_undone_alone() -> None:
    start = State(ModelRef("builtin:m"))
    document = Document(start)
    document.apply(replace(start, tokens=(1,)), "a step")
    document.edit(replace(document.work, notes=(Note("written here"),)), "note")
    document.apply(replace(start, tokens=(2,)), "the next step")
    document.gather(start, "leaving")
    document.apply(start, "leave", "leaving")
    assert (document.recorded, document.work.notes) == (start, (Note("written here"),))
    assert document.undo_label == "note"
    document.undo()
    assert (document.recorded, document.work.notes) == (start, ())
