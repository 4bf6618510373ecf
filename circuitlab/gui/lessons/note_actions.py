"""What can be done with the notes in the list: go to what one is about, edit it, delete it; and a note on the session."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QWidget

from circuitlab.errors import CircuitLabError, reason
from circuitlab.gui.lessons.host import Host
from circuitlab.gui.panel.note_dialog import write_note
from circuitlab.model.subject import Head, ModelRef
from circuitlab.session_files.session import Note
from circuitlab.state.state import State


class NoteActions(QObject):
    """`window`: the parent of dialogs."""

    def __init__(self, host: Host, window: QWidget, parent: QObject) -> None:
        super().__init__(parent)
        self.main, self.context, self._window = host, host.context, window

    def _model(self, note: Note) -> ModelRef | None:
        entry = self.context.document.work.models.get(note.model)
        return None if entry is None else entry.ref

    @Slot()
    def write(self) -> None:
        """Write a note on the session."""
        self.edit(Note(""))

    @Slot(object)
    def edit(self, note: Note) -> None:
        """Open the dialog of a note."""
        write_note(self.context, note, self._model(note), self._window)

    @Slot(object)
    def delete(self, note: Note) -> None:
        """Delete a note; undo brings it back."""
        self.context.notes.write(note, "")

    @Slot(object)
    def show(self, note: Note) -> None:
        """Go to what a note is about: select the head, the edge or the token, or show the panel."""
        ref, state = self._model(note), self.context.document.recorded
        if note.panel in self.main.docks:
            self.main.layout_of_docks.go_to(note.panel)
        elif ref is not None and ref != replace(state.model, checkpoint=None):
            self.context.message.emit(f"This note is about {note.model}, which is not the open model.")
        elif ref is not None:
            try:
                self._select(note, state)
            except CircuitLabError as error:
                self.context.message.emit(reason(error))

    def _select(self, note: Note, state: State) -> None:
        heads = tuple(Head.parse(text) for text in note.edge or (() if note.token is not None else (note.head,)))
        if len(heads) == 2:
            self.context.apply(state.with_edge(heads[0], heads[1], state.selection.edge_kind), f"select {heads[0]} → {heads[1]}")
        elif heads:
            self.context.apply(state.with_heads(*heads), f"select {heads[0]}")
        else:
            self._select_token(note, state)

    def _select_token(self, note: Note, state: State) -> None:
        noted = self.context.notes.ids(note, state.model)
        places = [place for place, token in enumerate(state.tokens) if token in noted]
        if places:
            self.context.apply(state.select(destination=places[-1], locked=True), "select a token")
        else:
            self.context.message.emit("The prompt does not have this token.")
