"""The “Note” menu: a note on the head, the edge or the token under the pointer, or on the panel."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from circuitlab.figures.marks import Hit
from circuitlab.gui.panel.note_dialog import title_of, write_note
from circuitlab.gui.work.app_context import AppContext
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.session import Note
from circuitlab.state.gestures import menu_state
from circuitlab.state.state import State


class NotesMenu(QMenu):
    """`pick(state, hit)`: the state after a click on what is pointed at. `panel`: the panel's name; "" for the prompt's tokens.

    `aim(hit)` before it is shown: the item under the pointer, or with None what is selected.
    """

    def __init__(self, context: AppContext, pick: Callable[[State, Hit], State], parent: QMenu, panel: str = "") -> None:
        super().__init__("Note", parent)
        self.context, self._pick, self._panel = context, pick, panel
        self._hit: Hit | None = None  # what is pointed at
        self._subjects: list[tuple[Note, ModelRef | None]] = []  # of the entries, in their order
        self.aboutToShow.connect(self.fill)

    def aim(self, hit: Hit | None) -> None:
        """Set the item that the entries are about."""
        self._hit = hit
        self.fill()

    @Slot()
    def forget(self) -> None:
        """Forget the item: opened from a button, the menu is about the selection."""
        self._hit = None

    @Slot()
    def fill(self) -> None:
        """List what can be noted."""
        self.clear()
        self._subjects = self._about()
        for i, (subject, _) in enumerate(self._subjects):
            written = self.context.notes.find(subject) is not None
            action = self.addAction(f"{'Your note' if written else 'Note'} on {title_of(subject)}…".replace("&", "&&"))
            action.setData(i)
            action.triggered.connect(self._write)

    def _about(self) -> list[tuple[Note, ModelRef | None]]:
        """What is under the pointer, each with its model: an edge, the leading head, a token; and the panel."""
        state, hit, notes = self.context.document.recorded, self._hit, self.context.notes
        meant = state if hit is None else menu_state(state, lambda before: self._pick(before, hit))
        selection, ref = meant.selection, state.model
        subjects: list[tuple[Note, ModelRef | None]] = []
        if self._panel and self.context.facts(ref).config.n_layers:
            if selection.edge is not None:
                edge = str(selection.edge[0]), str(selection.edge[1])
                subjects.append((notes.on_model(ref, Note("", edge=edge)), ref))
            subjects.append((notes.on_model(ref, Note("", head=str(selection.head))), ref))
        at = selection.destination
        here = state.tokens[at : at + 1] if at is not None else ()
        for token in here if selection.token is None else (selection.token,):
            subjects.append((notes.token(ref, token), ref))
        if self._panel:
            subjects.append((Note("", panel=self._panel), None))
        return subjects

    @Slot()
    def _write(self) -> None:
        action, menu = self.sender(), self.parentWidget()
        if isinstance(action, QAction) and menu is not None:
            subject, ref = self._subjects[int(action.data())]
            write_note(self.context, subject, ref, menu.parentWidget() or menu)
