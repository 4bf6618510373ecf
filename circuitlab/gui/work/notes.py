"""The session's notes: what is noted of a head, an edge, a token or a panel, and the one way to write it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import chain

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.engine.store import ModelStore
from circuitlab.gui.work.document import Document
from circuitlab.model.records.known_heads import YOURS
from circuitlab.model.subject import Head, ModelRef
from circuitlab.session_files.model_table import names_by_ref, with_models
from circuitlab.session_files.notes import in_one_line, note_on, of_model, on_edges, on_heads, subject_of, with_note
from circuitlab.session_files.session import Note
from circuitlab.state.cuts import heads_of
from circuitlab.state.state import State
from circuitlab.story.capture import StoreNames


class Notes(QObject):
    """`changed()`: a note is another, written here, by undo and redo, or with another session."""

    changed = Signal()

    def __init__(self, document: Document, store: ModelStore, parent: QObject) -> None:
        super().__init__(parent)
        self._document, self._store = document, store
        self._last: tuple[Note, ...] = ()
        self._tokens: tuple[object, dict[int, str]] = None, {}
        document.work_changed.connect(self._work_changed)

    @Slot()
    def _work_changed(self) -> None:
        if self.all != self._last:
            self._last = self.all
            self.changed.emit()

    @property
    def all(self) -> tuple[Note, ...]:
        """Every note, in the order of writing."""
        return self._document.work.notes

    def on_model(self, ref: ModelRef, subject: Note) -> Note:
        """`subject` as one of this model, by the name that the session calls it."""
        models = with_models(self._document.work.models, [ref])
        return replace(subject, model=names_by_ref(models)[replace(ref, checkpoint=None)])

    def token(self, ref: ModelRef, token: int) -> Note:
        """The subject of a note on a token of an open model: its text where that names it, else its id."""
        return self.on_model(ref, Note("", token=StoreNames(self._store).token(ref, token)))

    def find(self, subject: Note) -> Note | None:
        """The note on this thing, None without one."""
        return note_on(self.all, subject)

    def on_heads(self, ref: ModelRef) -> tuple[tuple[Head, str], ...]:
        """(head, text in one line) of a model's notes on heads."""
        work = self._document.work
        return on_heads(of_model(work.notes, work.models, ref)) if work.notes else ()

    def on_edges(self, ref: ModelRef) -> tuple[tuple[tuple[Head, Head], str], ...]:
        """((source, destination), text in one line) of a model's notes on edges."""
        work = self._document.work
        return on_edges(of_model(work.notes, work.models, ref)) if work.notes else ()

    def on_tokens(self, ref: ModelRef) -> dict[int, str]:
        """What is shown of each token of an open model that is noted, by its id; the same object for the same notes."""
        work = self._document.work
        key = ref, work.notes
        if self._tokens[0] != key:
            notes = of_model(work.notes, work.models, ref)
            shown = lambda note: YOURS + in_one_line(note)
            self._tokens = key, {token: shown(note) for note in notes for token in self.ids(note, ref)}
        return self._tokens[1]

    def shown_by(self, state: State, panels: Collection[str]) -> tuple[Note, ...]:
        """The notes on what these panels show of a State, in the order of writing: on a chosen or an ablated head, the chosen
        edge, a token of the prompt, a chosen or a target token, and on one of the panels.
        """
        work, selection, model = self._document.work, state.selection, self._store.peek(state.model)
        edits = () if model is None else [heads_of(edit, model.opened.weights.config) for edit in state.subject.edits]
        heads = {str(head) for head in chain(selection.heads, *edits)}
        edge = selection.edge and (str(selection.edge[0]), str(selection.edge[1]))
        tokens = {*state.tokens, selection.token, *selection.target.tokens}

        def shown(note: Note) -> bool:
            if note.edge is not None:
                return note.edge == edge
            return note.head in heads or not tokens.isdisjoint(self.ids(note, state.model))

        of_this = of_model(work.notes, work.models, state.model)
        return tuple(note for note in work.notes if note.panel in panels or (note in of_this and shown(note)))

    def ids(self, note: Note, ref: ModelRef) -> tuple[int, ...]:
        """The id of the token that a note is about in an open model; none for a note on something else."""
        if not isinstance(note.token, str):
            return () if note.token is None else (note.token,)
        model = self._store.peek(ref)
        tokenizer = None if model is None else model.opened.weights.tokenizer
        token = None if tokenizer is None else tokenizer.find(note.token)
        return () if token is None else (token,)

    def write(self, subject: Note, text: str, ref: ModelRef | None = None) -> None:
        """Write the note on a thing, in place of an earlier one; an empty text deletes it. `ref`: the model that it names."""
        work = self._document.work
        models = work.models if ref is None or not text.strip() else with_models(work.models, [ref])
        notes = with_note(work.notes, replace(subject, text=text))
        label = f"{'note' if text.strip() else 'delete the note'} on {subject_of(subject) or 'the session'}"
        self._document.edit(replace(work, notes=notes, models=models), label)
