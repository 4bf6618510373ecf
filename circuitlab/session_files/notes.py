"""Notes of a session: what each is about, found again, replaced, and shown beside what papers say of a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from circuitlab.errors import CircuitLabError
from circuitlab.model.subject import Head, ModelRef
from circuitlab.session_files.model_table import Models
from circuitlab.session_files.session import Note


def about(note: Note) -> tuple[object, ...]:
    """What a note is about: equal for two notes on the same thing."""
    return note.model, note.head, note.edge, note.token, note.panel


def note_on(notes: Sequence[Note], subject: Note) -> Note | None:
    """The note on the thing that `subject` is about, None without one."""
    return next((note for note in notes if about(note) == about(subject)), None)


def with_note(notes: Sequence[Note], note: Note) -> tuple[Note, ...]:
    """The notes with this one in place of the one on the same thing, else at the end; without any text it is left out."""
    text, before = note.text.strip(), note_on(notes, note)
    if before is None:
        return (*notes, replace(note, text=text)) if text else tuple(notes)
    new = (replace(before, text=text),) if text else ()
    return tuple(after for one in notes for after in (new if one is before else (one,)))


def subject_of(note: Note) -> str:
    """What a note is about, in words: `L1H1`, `L0H3 → L1H6`, `‘ the’`, a panel's name; "" for the session."""
    if note.edge is not None:
        return f"{note.edge[0]} → {note.edge[1]}"
    if note.token is not None:
        return f"id {note.token}" if isinstance(note.token, int) else f"‘{note.token}’"
    return note.head or note.panel


def of_model(notes: Sequence[Note], models: Models, ref: ModelRef) -> tuple[Note, ...]:
    """The notes on a model, whichever of its checkpoints is open."""
    names = {name for name, entry in models.items() if entry.ref == replace(ref, checkpoint=None)}
    return tuple(note for note in notes if note.model in names)


def on_heads(notes: Sequence[Note]) -> tuple[tuple[Head, str], ...]:
    """(head, its text in one line) of the notes on heads, in their order; a note on an edge is none on the heads at its ends."""
    return tuple((head, in_one_line(note)) for note in notes if note.edge is None for head in _heads(note))


def on_edges(notes: Sequence[Note]) -> tuple[tuple[tuple[Head, Head], str], ...]:
    """((source, destination), its text in one line) of the notes on edges, in their order."""
    edges = ((_heads(note), note) for note in notes if note.edge is not None)
    return tuple(((heads[0], heads[1]), in_one_line(note)) for heads, note in edges if len(heads) == 2)


def in_one_line(note: Note) -> str:
    """The text of a note as it is shown beside what it is on."""
    return " ".join(note.text.split())


def _heads(note: Note) -> list[Head]:
    try:
        return [Head.parse(text) for text in (note.edge or ((note.head,) if note.head else ()))]
    except CircuitLabError:  # a file may say anything
        return []
