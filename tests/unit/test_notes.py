"""Notes without a window: one per thing, of the model that they name, shown beside what papers say of a head."""

from __future__ import annotations

from dataclasses import replace

from circuitlab.model.records.known_heads import KnownHeads, Published, Role, with_notes
from circuitlab.model.subject import Head, ModelRef
from circuitlab.session_files.notes import note_on, of_model, on_edges, on_heads, subject_of, with_note
from circuitlab.session_files.session import ModelEntry, Note

MINE, OTHER = ModelRef("file:/m/mine"), ModelRef("builtin:gpt-mini")
MODELS = {"mine": ModelEntry(MINE), "gpt-mini": ModelEntry(OTHER)}
HEAD = Note("commas", model="mine", head="L1H1")
EDGE = Note("who\n tells it", model="mine", edge=("L0H3", "L1H1"))
SESSION = Note("of all of it")
PAPER = Published("tiny", (), {}, (), {Head(1, 1): (Role("induction", "A. Body 2020", "p. 3"),)})


def test_there_is_one_note_on_a_thing() -> None:
    notes = with_note(with_note((), HEAD), EDGE)
    notes = with_note(with_note(notes, SESSION), replace(HEAD, text=" names \n"))
    assert notes == (replace(HEAD, text="names"), EDGE, SESSION)
    assert note_on(notes, Note("", model="mine", head="L1H1")) == notes[0]
    assert note_on(notes, Note("", model="gpt-mini", head="L1H1")) is None
    assert with_note(notes, replace(HEAD, text=" ")) == (EDGE, SESSION)
    assert with_note(notes, Note(" ", panel="attention")) == notes


def test_what_a_file_says_besides_stays_with_its_note() -> None:
    read = replace(HEAD, unknown={"colour": "red"})
    assert with_note((read,), replace(HEAD, text="new")) == (replace(read, text="new"),)


def test_notes_are_named_by_what_they_are_about() -> None:
    about = [HEAD, EDGE, Note("", model="m", token=" the"), Note("", model="m", token=7), Note("", panel="attention"), SESSION]
    assert [subject_of(note) for note in about] == ["L1H1", "L0H3 → L1H1", "‘ the’", "id 7", "attention", ""]


def test_notes_on_heads_are_those_of_the_model_and_not_of_its_edges() -> None:
    notes = (HEAD, EDGE, replace(HEAD, model="gpt-mini", text="elsewhere"), Note("", model="mine", head="no head"), SESSION)
    own = of_model(notes, MODELS, replace(MINE, checkpoint=3))
    assert own == (HEAD, EDGE, notes[3]), "at every checkpoint of it"
    assert on_heads(own) == ((Head(1, 1), "commas"),)
    broken = replace(EDGE, edge=("L0H3", "elsewhere"))
    assert on_edges((*own, broken)) == (((Head(0, 3), Head(1, 1)), "who tells it"),)


def test_notes_stand_beside_what_papers_say() -> None:
    published, notes = KnownHeads(PAPER, "shape"), ((Head(1, 1), "a"), (Head(0, 2), "b"))
    both, alone = with_notes(published, notes), with_notes(None, notes)
    assert with_notes(published, ()) is published and with_notes(None, ()) is None
    assert with_notes(published, notes) is both, "for the same notes nothing is drawn again"
    assert both is not None and alone is not None
    assert both.hints[1, 1].endswith(" · your note: a") and "A. Body 2020" in both.hints[1, 1]
    assert both.hints[0, 2] == alone.hints[0, 2] == "your note: b" and set(alone.hints) == {(1, 1), (0, 2)}
    assert both.short(Head(1, 1)) == "induction" and alone.short(Head(1, 1)) == ""
    assert "A. Body 2020" in both.caption and "L0H2" in both.caption and "published" not in alone.caption
    edge = (Head(0, 2), Head(1, 3))
    tied = with_notes(None, notes, ((edge, "c"),))
    only = with_notes(None, (), ((edge, "c"),))
    assert tied is not None and only is not None and not only.hints, "its heads are not noted"
    assert tied.caption == "your notes: L1H1, L0H2, L0H2→L1H3" and only.caption == "your notes: L0H2→L1H3"
    assert (only.key(()), only.key({edge})) == ("", "your note"), "an edge that is not drawn has no mark"
    assert only.edge_hints == {edge: "your note: c"}
    assert tied.note_texts(()) == ("L1H1 “a”", "L0H2 “b”") and only.note_texts({edge}) == ("L0H2→L1H3 “c”",)
    assert {known.key(()) for known in (both, alone, published)} == {
        "named in papers or your note",
        "your note",
        "named in papers",
    }
