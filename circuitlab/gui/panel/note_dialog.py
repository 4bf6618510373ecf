"""The dialog in which a note is written: on a head, an edge, a token, a panel, or the session."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.widgets.buttons import push
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.work.app_context import AppContext
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.notes import subject_of
from circuitlab.session_files.session import Note

ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)


def title_of(note: Note) -> str:
    """What a note is about, as the window calls it."""
    panel = panels().get(note.panel)
    return panel.title if panel is not None else subject_of(note) or "the session"


def write_note(context: AppContext, subject: Note, ref: ModelRef | None, parent: QWidget) -> None:
    """Open the dialog for the note on a thing."""
    NoteDialog(context, subject, ref, parent).open()


class NoteDialog(Dialog):
    """The note on one thing. `ref`: the model that it is about, None for a panel and the session."""

    usual = (380, 220)

    def __init__(self, context: AppContext, subject: Note, ref: ModelRef | None, parent: QWidget) -> None:
        super().__init__(parent)
        self.context, self.subject, self.ref = context, subject, ref
        title, earlier = title_of(subject), context.notes.find(subject)
        self.setWindowTitle(f"Note on {title}")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.editor = QPlainTextEdit("" if earlier is None else earlier.text, self)
        self.editor.setAccessibleName(f"Note on {title}")
        self.editor.setPlaceholderText("What you have seen or want to check")
        self.editor.setTabChangesFocus(True)
        self.editor.installEventFilter(self)
        self.delete = push(self, "Delete", self._delete)
        self.delete.setVisible(earlier is not None)
        self.cancel, self.keep = push(self, "Cancel", self.reject), push(self, "Keep", self.accept)
        self.keep.setToolTip("Keep the note (Ctrl+Return)")
        self.primary = self.keep
        row = QHBoxLayout()
        for button in (self.delete, None, self.cancel, self.keep):
            row.addStretch(1) if button is None else row.addWidget(button)
        box = QVBoxLayout(self)
        box.addWidget(self.editor, 1)
        box.addLayout(row)
        self.accepted.connect(self._keep)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Ctrl+Return keeps the note; Return begins a new line of it."""
        control = Qt.KeyboardModifier.ControlModifier
        if isinstance(event, QKeyEvent) and event.key() in ENTER and event.modifiers() & control:
            if event.type() == QEvent.Type.KeyPress:
                self.accept()
            event.accept()
            return True
        return super().eventFilter(watched, event)

    @Slot()
    def _keep(self) -> None:
        self.context.notes.write(self.subject, self.editor.toPlainText(), self.ref)

    @Slot()
    def _delete(self) -> None:
        self.editor.clear()
        self.accept()
