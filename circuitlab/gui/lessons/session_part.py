"""What the person has kept in this session, above the lessons: the steps of the own story, and the notes."""

from __future__ import annotations

import re

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QListWidgetItem, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.errors import bounded
from circuitlab.gui.lessons.readiness_row import ReadinessRow
from circuitlab.gui.lessons.rows import SIDE, Paragraph, RowList
from circuitlab.gui.lessons.step_film import film_words
from circuitlab.gui.panel.note_dialog import title_of
from circuitlab.gui.widgets.labels import ShortLabel
from circuitlab.gui.work.app_context import AppContext
from circuitlab.session_files.session import Note
from circuitlab.session_files.work import Work
from circuitlab.story.story import Step

EMPTY = "Ctrl+K keeps this view as a step. Right-click a head, a token or a panel to write a note on it."
_LINK, _MARKS = re.compile(r"\[([^\[\]]*+)\]\([^)]{0,500}+\)"), re.compile(r"[*_`#>]+")
STEPS, NOTES = 0.4, 0.25  # of the dock's height, at most
LEAST = 40  # px


def title_of_step(number: int, step: Step) -> str:
    """What lists call a step."""
    return f"{number + 1}  {step.title or 'Untitled'}"


def film_of_step(step: Step) -> str:
    """What lists say of the film that a step plays, "" without one."""
    play = None if step.setup is None else step.setup.play
    return "" if play is None else f"film: {film_words(play)}"


class _Share(RowList):
    """A list as high as its entries, up to a share of the dock; in a lower one less, so that it never makes its dock higher."""

    def __init__(self, context: AppContext, name: str, parent: QWidget) -> None:
        super().__init__(context, name, parent)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        self._wanted = LEAST

    def fit(self, height: int) -> None:
        """Be so many px high at most, and no higher than the entries."""
        self._wanted = min(self.natural_height(self.width()), max(LEAST, height))
        self.updateGeometry()

    def sizeHint(self) -> QSize:
        """As high as is wanted."""
        return QSize(super().sizeHint().width(), self._wanted)

    def minimumSizeHint(self) -> QSize:
        """High enough for an entry or two."""
        return QSize(super().minimumSizeHint().width(), min(self._wanted, LEAST))


class StepList(_Share):
    """The steps of the own story. `chosen(number)`: a step was clicked, or Enter pressed on it."""

    chosen = Signal(int)
    above = 6

    def __init__(self, context: AppContext, parent: QWidget) -> None:
        super().__init__(context, "Steps of this session", parent)
        self.steps: tuple[Step, ...] = ()
        self.itemActivated.connect(self._chosen)
        self.itemClicked.connect(self._chosen)

    def fill(self, steps: tuple[Step, ...]) -> None:
        """List these steps; the current row stays."""
        row = self.currentRow()
        self.clear()  # before it has other entries: their heights are asked for to the last
        self.steps = steps
        for number, step in enumerate(steps):
            words = (title_of_step(number, step), film_of_step(step), first_line(step.text))
            QListWidgetItem(". ".join(filter(None, words)), self)
        if steps:
            self.setCurrentRow(min(max(row, 0), len(steps) - 1))

    def paragraphs(self, row: int) -> tuple[Paragraph, ...]:
        """Number and title; that it plays a film, and the first line of the text, where there is one."""
        step = self.steps[row]
        line = " · ".join(filter(None, (film_of_step(step), first_line(step.text))))
        return Paragraph(title_of_step(row, step), bold=True), *((Paragraph(line, "muted", small=True),) if line else ())

    @Slot(QListWidgetItem)
    def _chosen(self, item: QListWidgetItem) -> None:
        self.chosen.emit(self.row(item))


class NoteList(_Share):
    """The notes. `chosen(Note)`: clicked; `edited(Note)`: double-clicked or entered; `deleted(Note)`: the Delete key on it."""

    chosen = Signal(object)
    edited = Signal(object)
    deleted = Signal(object)
    above = 6

    def __init__(self, context: AppContext, parent: QWidget) -> None:
        super().__init__(context, "Notes", parent)
        self.notes: tuple[Note, ...] = ()
        self.itemClicked.connect(lambda item: self.chosen.emit(self.notes[self.row(item)]))
        self.itemActivated.connect(lambda item: self.edited.emit(self.notes[self.row(item)]))

    def fill(self, notes: tuple[Note, ...]) -> None:
        """List these notes."""
        row = self.currentRow()
        self.clear()
        self.notes = notes
        for note in notes:
            item = QListWidgetItem(f"{title_of(note)}: {' '.join(note.text.split())}", self)
            item.setToolTip(tip_of(f"{note.text}\n\nClick to go there, double-click to edit, Delete to delete"))
        if notes:
            self.setCurrentRow(min(max(row, 0), len(notes) - 1))

    def paragraphs(self, row: int) -> tuple[Paragraph, ...]:
        """What it is about, with its model where that is another than the open one; its text."""
        note = self.notes[row]
        entry = self.context.document.work.models.get(note.model)
        other = note.model and (entry is None or entry.ref.source != self.context.document.state.model.source)
        title = title_of(note) + (f" · {note.model}" if other else "")
        return Paragraph(title[0].upper() + title[1:], bold=True), Paragraph(" ".join(note.text.split()), "muted")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Delete deletes the current note."""
        if event.key() == Qt.Key.Key_Delete and self.currentRow() >= 0:
            self.deleted.emit(self.notes[self.currentRow()])
        else:
            super().keyPressEvent(event)


class SessionPart(QWidget):
    """Steps and notes of the session. `keep_wanted()`, `note_wanted()`: its buttons.

    `readiness`: whether the steps can be presented without computing anything.
    """

    keep_wanted = Signal()
    note_wanted = Signal()

    def __init__(self, context: AppContext, parent: QWidget) -> None:
        super().__init__(parent)
        self.title, self.notes_title = ShortLabel(self, "title", fills=True), ShortLabel(self, "title", fills=True)
        self.notes_title.setText("Notes")
        self.keep = self._button("Keep this view", "Add this view as a step (Ctrl+K)")
        self.keep.clicked.connect(self.keep_wanted)
        self.write = self._button("Note", "Write a note on the session. On a head, a token or a panel: right-click it")
        self.write.clicked.connect(self.note_wanted)
        self.empty = PlainLabel(EMPTY, self)
        self.empty.setWordWrap(True)
        self.empty.setProperty("role", "caption")
        self.steps, self.readiness = StepList(context, self), ReadinessRow(self)  # made in the order in which they are read
        self.notes = NoteList(context, self)
        self._height = 0
        head, hint, notes = QHBoxLayout(), QVBoxLayout(), QVBoxLayout()
        head.setContentsMargins(SIDE, 8, SIDE, 4)
        head.setSpacing(8)
        head.addWidget(self.title, 1)
        head.addWidget(self.keep)
        head.addWidget(self.write)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        box.addLayout(head)
        hint.setContentsMargins(SIDE, 0, SIDE, 0)
        hint.addWidget(self.empty)
        box.addLayout(hint)
        box.addWidget(self.steps)
        box.addWidget(self.readiness)
        notes.setContentsMargins(SIDE, 6, SIDE, 0)
        notes.addWidget(self.notes_title)
        box.addLayout(notes)
        box.addWidget(self.notes)

    def _button(self, text: str, tip: str) -> QToolButton:
        button = QToolButton(self)
        button.setText(text)
        button.setToolTip(tip_of(tip))
        button.setProperty("role", "primary")
        button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        return button

    def fill(self, work: Work) -> None:
        """List what is kept."""
        if self.steps.steps != work.story.steps:
            self.steps.fill(work.story.steps)
        if self.notes.notes != work.notes:
            self.notes.fill(work.notes)
        self.title.setText(work.story.title or "This session")
        self.empty.setVisible(not work.story.steps and not work.notes)
        self.steps.setVisible(bool(work.story.steps))
        for widget in (self.notes_title, self.notes):
            widget.setVisible(bool(work.notes))
        self.fit(self._height)

    def fit(self, height: int) -> None:
        """Make the lists as high as their entries, up to a part of `height` px."""
        self._height = height
        for rows, share in ((self.steps, STEPS), (self.notes, NOTES)):
            rows.fit(round(share * height))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Lines wrap at another width."""
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.fit(self._height)

    def sizeHint(self) -> QSize:
        """As the layout asks, in height; any width."""
        return QSize(0, super().sizeHint().height())


def first_line(text: str) -> str:
    """The first line of a Markdown text that says something, without its marks."""
    lines = (_MARKS.sub("", _LINK.sub(r"\1", line)).strip(" -") for line in text.split("\n"))
    return bounded(next(filter(None, lines), ""))
