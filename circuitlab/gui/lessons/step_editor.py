"""A step of one's own: its title, its text and what is for the speaker alone, as fields; and what can be done with the step."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal, Slot
from PySide6.QtGui import QFocusEvent, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QLineEdit, QPlainTextEdit, QToolButton, QVBoxLayout, QWidget

from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.draw.look.theme import Theme
from circuitlab.gui.lessons.film_fields import FilmFields
from circuitlab.gui.lessons.own_story import OwnStory
from circuitlab.gui.lessons.sweep_fields import SweepFields
from circuitlab.gui.lessons.tour import Tour
from circuitlab.gui.widgets.flow import FlowLayout
from circuitlab.gui.work.app_context import AppContext
from circuitlab.state.constructed import parameters

SIDE = 16  # px
_COMING_BACK = (Qt.FocusReason.ActiveWindowFocusReason, Qt.FocusReason.PopupFocusReason)  # reasons to leave a field for a while
TEXT_HINT = "What does this view show? Markdown: **bold**, `code`, [Attention](panel:attention), [L1H1](head:L1H1)"
ASIDE_HINT = "For you alone: what to say here, what to wait for"


class StepEditor(QObject):
    """The widgets for the present step of one's own story; the page lays them out.

    `body` holds the fields of text and aside; `aside_shown` the aside while the text is read; `tools` the buttons.
    `take_wanted()`, `move_wanted(by)`, `delete_wanted()`: the buttons. `film_chosen(play)`: the film that the step is to play.
    `editing_changed()`: fields or text are shown.
    """

    take_wanted = Signal()
    move_wanted = Signal(int)
    delete_wanted = Signal()
    film_chosen = Signal(object)
    editing_changed = Signal()

    def __init__(self, context: AppContext, tour: Tour, own: OwnStory, page: QWidget) -> None:
        super().__init__(page)
        self.context, self.tour, self.own = context, tour, own
        self._filling = False
        self._make_fields(page)
        self._make_tools(page)

    def _make_fields(self, page: QWidget) -> None:
        self.title = QLineEdit(page)
        self.title.setAccessibleName("Title of the step")
        self.title.setPlaceholderText("Title")
        self.title.textEdited.connect(lambda text: self._typed("title", text))
        self.title.installEventFilter(self)
        self.body = QWidget(page)
        self.text, self.aside = self._field("Text of the step", TEXT_HINT), self._field("For the speaker alone", ASIDE_HINT)
        self.text.textChanged.connect(lambda: self._typed("text", self.text.toPlainText()))
        self.aside.textChanged.connect(lambda: self._typed("aside", self.aside.toPlainText()))
        box = QVBoxLayout(self.body)
        box.setContentsMargins(SIDE - 4, 0, SIDE - 4, 4)
        box.setSpacing(6)
        box.addWidget(self.text, 3)
        box.addWidget(self.aside, 1)
        self.film = FilmFields(self.body)
        self.film.chosen.connect(self.film_chosen)
        self.sweep = SweepFields(self.body)
        self.sweep.chosen.connect(self.film_chosen)
        for fields in (self.film, self.sweep):  # of a training, of the constructed model
            fields.hide()
            box.addWidget(fields)
        self.aside_shown = PlainLabel(page)
        self.aside_shown.setWordWrap(True)
        self.aside_shown.setProperty("role", "caption")

    def _field(self, name: str, hint: str) -> QPlainTextEdit:
        field = QPlainTextEdit(self.body)
        field.setAccessibleName(name)
        field.setPlaceholderText(hint)
        field.setTabChangesFocus(True)
        field.setUndoRedoEnabled(False)  # the document owns Ctrl+Z
        field.installEventFilter(self)
        return field

    def _make_tools(self, page: QWidget) -> None:
        self.tools = QWidget(page)
        row = FlowLayout(self.tools, 4)
        self.edit = self._tool("Edit", "Edit the text (Markdown) and what is for the speaker alone", self._toggled)
        self.edit.setCheckable(True)
        self.take = self._tool("Take this view", "Let this step show what the window shows now", self.take_wanted)
        self.up = self._tool("↑", "Move the step up", lambda: self.move_wanted.emit(-1))
        self.down = self._tool("↓", "Move the step down", lambda: self.move_wanted.emit(1))
        self.delete = self._tool("Delete", "Delete the step; undo (Ctrl+Z) brings it back", self.delete_wanted)
        for button in (self.edit, self.take, self.up, self.down, self.delete):
            row.addWidget(button)
        for button in (self.edit, self.take, self.delete):
            button.setProperty("role", "tool")

    def _tool(self, text: str, tip: str, act: object) -> QToolButton:
        button = QToolButton(self.tools)
        button.setText(text)
        button.setAccessibleName(tip if len(text) == 1 else text)
        button.setToolTip(tip_of(tip))
        button.setProperty("role", "narrow")
        button.setFocusPolicy(button.focusPolicy().StrongFocus)
        button.clicked.connect(act)  # type: ignore[arg-type]
        return button

    @property
    def editing(self) -> bool:
        """Whether the fields are shown instead of the text."""
        return self.tour.own and self.edit.isChecked()

    def show_step(self, another: bool) -> None:
        """Fill the fields with the present step. `another`: another one than before; one without words is shown for editing."""
        step, number, n = self.tour.step, self.tour.number, len(self.tour.lesson.steps) if self.tour.lesson is not None else 0
        if another:
            self.own.end_burst()
            self.edit.setChecked(not step.text and not step.aside)
        self._filling = True
        if self.title.text() != step.title:
            self.title.setText(step.title)
            self.title.setCursorPosition(0)
        for field, text in ((self.text, step.text), (self.aside, step.aside)):
            if field.toPlainText() != text:
                _replace_text(field, text)
        self._filling = False
        self.edit.setText("Done" if self.edit.isChecked() else "Edit")
        self.aside_shown.setText(f"For you alone: {step.aside}" if step.aside else "")
        if self.tour.ready is not None:
            play = None if step.setup is None else step.setup.play
            self.film.show_film(self._steps_of_training(), play)
            self.sweep.setVisible(parameters(self.tour.ready.state) is not None)
            self.sweep.show_sweep(play)
        self.up.setEnabled(number > 0)
        self.down.setEnabled(number + 1 < n)

    def _steps_of_training(self) -> tuple[int, ...]:
        """The training steps at which the step's model was kept, () while it is not open."""
        ready = self.tour.ready
        model = None if ready is None else self.context.engine.store.peek(ready.state.model)
        return () if model is None else model.opened.steps

    @Slot()
    def _toggled(self) -> None:
        self.own.end_burst()
        self.editing_changed.emit()
        if self.editing:
            self.text.setFocus()

    def _typed(self, field: str, text: str) -> None:
        if not self._filling and self.tour.own:
            self.own.reword(self.tour.number, field, text)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Undo and redo belong to the document; what is typed in a field ends as it is left; a title then shows its beginning."""
        if event.type() == QEvent.Type.FocusOut:
            self.own.end_burst()
            if watched is self.title and isinstance(event, QFocusEvent) and event.reason() not in _COMING_BACK:
                self.title.setCursorPosition(0)
        if isinstance(event, QKeyEvent) and event.type() in (QEvent.Type.KeyPress, QEvent.Type.ShortcutOverride):
            undo, redo = event.matches(QKeySequence.StandardKey.Undo), event.matches(QKeySequence.StandardKey.Redo)
            if undo or redo:
                if event.type() == QEvent.Type.KeyPress:
                    (self.context.undo if undo else self.context.redo)()
                event.accept()
                return True
        return False

    def set_theme(self, theme: Theme) -> None:
        """The title as large as a heading."""
        self.title.setFont(theme.font(theme.large + 3, bold=True))


def _replace_text(field: QPlainTextEdit, text: str) -> None:
    """Set a field's text; the cursor stays where the texts are alike."""
    place = field.textCursor().position()
    field.setPlainText(text)
    cursor = field.textCursor()
    cursor.setPosition(min(place, len(text)))
    field.setTextCursor(cursor)
