"""The page of a story: the present step, its text, and the buttons to move through the steps; one's own can be edited."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRect, QSize, Qt, Signal, Slot
from PySide6.QtGui import QMouseEvent, QPainter
from PySide6.QtWidgets import QHBoxLayout, QLabel, QToolButton, QVBoxLayout, QWidget

from circuitlab.draw.look.guarded import guarded_widget
from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.draw.look.style_rules import set_sheet
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.pointing.focus_order import chain, stops
from circuitlab.errors import NotFetched, reason
from circuitlab.gui.checkpoints.inputs import BUTTON
from circuitlab.gui.lessons.own_story import OwnStory
from circuitlab.gui.lessons.step_editor import StepEditor
from circuitlab.gui.lessons.step_film import StepFilm
from circuitlab.gui.lessons.text_view import LessonText
from circuitlab.gui.lessons.tour import Tour
from circuitlab.gui.widgets.buttons import tint
from circuitlab.gui.work.app_context import AppContext
from circuitlab.state.state import State
from circuitlab.story.values import why_not_computed
from circuitlab.terminal import on_one_line

SIDE = 16  # px beside text and buttons
LEAVE_LESSON = "‹ All lessons"


class Dots(QWidget):
    """One dot per step: earlier steps filled, the present one in the accent. `chosen(n)`: the dot of step n was clicked."""

    chosen = Signal(int)
    STEP, RADIUS = 14, 3

    def __init__(self, context: AppContext, parent: QWidget) -> None:
        super().__init__(parent)
        self.context = context
        self._n = self._at = 0
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def show_step(self, at: int, n: int) -> None:
        """Mark step `at` (from 0) of `n`."""
        self._at, self._n = at, n
        self.setAccessibleName(f"step {at + 1} of {n}")
        self.updateGeometry()
        self.update()

    @property
    def _step(self) -> float:
        """px from dot to dot; less where there are too many for the width."""
        return min(self.STEP, self.width() / max(self._n, 1))

    def sizeHint(self) -> QSize:
        """All dots at their full distance, in one line."""
        return QSize(self.STEP * self._n, 16)

    def minimumSizeHint(self) -> QSize:
        """The dots can be squeezed together."""
        return QSize(40, 16)

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """Draw earlier steps filled, the present one in the accent, later ones hollow."""
        theme = self.context.theme
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for i in range(self._n):
            name = "accent" if i == self._at else "muted" if i < self._at else "faint"
            painter.setPen(theme.colour(name))
            painter.setBrush(theme.colour(name) if i <= self._at else Qt.BrushStyle.NoBrush)
            radius = self.RADIUS + (1 if i == self._at else 0)
            painter.drawEllipse(QPointF((i + 0.5) * self._step, self.height() / 2), radius, radius)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Report the step whose dot was clicked."""
        number = int(event.position().x() // self._step) if self._n else -1
        if 0 <= number < self._n:
            self.chosen.emit(number)


class LessonPage(QWidget):
    """The page. `followed(kind, where)`: a link in the text was clicked. `editor`: the widgets for a step of one's own.

    `model_wanted(name)`: the step's model of the catalogue, which is not on this machine, is to be got.
    """

    followed = Signal(str, str)
    model_wanted = Signal(str)

    def __init__(self, context: AppContext, tour: Tour, own: OwnStory, film: StepFilm, parent: QWidget) -> None:
        super().__init__(parent)
        self.context, self.tour, self.film = context, tour, film
        self._shown: tuple[object, ...] = ()  # which step of which story
        self.leave = self._button(LEAVE_LESSON, "Back to the list. Your state from before the lesson is restored", tour.leave)
        self.stay = self._button("Stay here", "Leave the story, and go on from what the window shows", tour.stay)
        self.place = self._label("caption")
        self.title, self.heading, self.warning = self._label("caption"), self._label("lesson"), self._label("warning")
        self.get = self._button("", "Get the model of this lesson; then the step is set up", self._want_model)
        self.get.hide()
        self.dots = Dots(context, self)
        self.dots.chosen.connect(tour.go)
        self.editor = StepEditor(context, tour, own, self)
        self.editor.editing_changed.connect(self.refresh)
        self.text = LessonText(self)
        self.text.followed.connect(self.followed)
        self.stray = self._label("caption")
        self.stray.setText(
            "These numbers belong to another model or prompt than the panels now show. “Set up again” restores the step."
        )
        self.stray.hide()
        self.play = self._button("", "Play the film of this step, or stop it", film.toggle)
        self.play.setObjectName(BUTTON)
        self.play.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.back = self._button("Back", "The previous step (Alt+PgUp)", tour.back)
        self.again = self._button("Set up again", "Restore the panels, prompt and selection of this step", tour.again)
        self.next = self._button("Next", "The next step (Alt+PgDown)", tour.next)
        self.next.setProperty("role", "onward")
        self._lay_out()
        tour.changed.connect(self.refresh)
        tour.value_changed.connect(self.show_values)
        film.changed.connect(self._show_film)
        context.document.changed.connect(self._watch)
        context.theme_changed.connect(self.set_theme)
        self.set_theme(context.theme)

    def _button(self, text: str, tip: str, act: object) -> QToolButton:
        button = QToolButton(self)
        button.setText(text)
        button.setToolTip(tip_of(tip))
        button.setProperty("role", "primary")
        button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        button.clicked.connect(act)  # type: ignore[arg-type]
        return button

    def _label(self, role: str) -> QLabel:
        label = PlainLabel(self)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setWordWrap(True)
        label.setProperty("role", role)
        return label

    def _lay_out(self) -> None:
        top, bottom = QHBoxLayout(), QHBoxLayout()
        top.setContentsMargins(SIDE - 12, 8, SIDE, 0)  # the button's words align with the text
        for button in (self.leave, self.stay):
            button.setProperty("role", "")
            top.addWidget(button)
        top.addStretch(1)
        top.addWidget(self.place)
        self.place.setWordWrap(False)
        head = QVBoxLayout()
        head.setContentsMargins(SIDE, 8, SIDE, 6)
        head.setSpacing(4)
        for widget in (self.title, self.heading, self.editor.title, self.warning):
            head.addWidget(widget)
        head.addWidget(self.get, 0, Qt.AlignmentFlag.AlignLeft)
        bottom.setContentsMargins(SIDE, 4, SIDE, 10)
        bottom.setSpacing(6)
        bottom.addWidget(self.back)
        bottom.addWidget(self.again)
        bottom.addStretch(1)
        bottom.addWidget(self.next)
        note = QVBoxLayout()
        note.setContentsMargins(SIDE, 0, SIDE, 0)
        note.addWidget(self.play, 0, Qt.AlignmentFlag.AlignLeft)
        note.addWidget(self.editor.aside_shown)
        note.addWidget(self.stray)
        dots = QHBoxLayout()
        dots.setContentsMargins(SIDE, 6, SIDE, 2)
        dots.addWidget(self.dots, 0, Qt.AlignmentFlag.AlignLeft)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        box.addLayout(top)
        box.addLayout(head)
        box.addWidget(self.text, 1)
        box.addWidget(self.editor.body, 1)
        box.addLayout(note)
        box.addLayout(dots)
        tools = QVBoxLayout()
        tools.setContentsMargins(SIDE, 4, SIDE, 4)
        tools.addWidget(self.editor.tools)
        box.addLayout(tools)
        box.addLayout(bottom)

    def chain_stops(self) -> None:
        """Tab goes from top to bottom, whether the step is read or edited."""
        editor = self.editor
        fields = (editor.title, self.text, editor.text, editor.aside)
        chain([self.leave, self.stay, self.get, *fields, *stops(editor.tools), self.back, self.again, self.next])

    @Slot()
    def refresh(self) -> None:
        """Show the present step and its status."""
        tour = self.tour
        if tour.lesson is None:
            return
        n = len(tour.lesson.steps)
        self.title.setText(on_one_line(tour.title))
        shown = (tour.own, tour.number) if tour.own else (tour.title, tour.number)
        new, self._shown = shown != self._shown, shown
        self.heading.setText(on_one_line(tour.step.title))
        self._show_editor(new)
        self.place.setText(f"{tour.number + 1} of {n}")
        self.dots.show_step(tour.number, n)
        self.back.setEnabled(tour.number > 0)
        self.again.setEnabled(tour.lesson.setup(tour.number).model is not None or tour.step.setup is not None)
        self.next.setText("Next" if tour.number + 1 < n else "Finish")
        self.show_values()
        self._show_film()
        if new:
            self.text.verticalScrollBar().setValue(0)

    def _show_editor(self, another: bool) -> None:
        """Show what a step of one's own has besides: fields or its aside, and its buttons. `another`: than before."""
        own, editor = self.tour.own, self.editor
        if own:
            editor.show_step(another)
        self.leave.setText("‹ Story" if own else LEAVE_LESSON)
        for widget in (self.stay, editor.title, editor.tools):
            widget.setVisible(own)
        self.heading.setVisible(not own)
        editor.body.setVisible(editor.editing)
        self.text.setVisible(not editor.editing)
        focus = self.window().focusWidget()
        if another and editor.editing and focus is not None and self.isAncestorOf(focus):
            editor.text.setFocus()
        editor.aside_shown.setVisible(own and not editor.editing and bool(editor.aside_shown.text()))

    @Slot()
    def _show_film(self) -> None:
        """Show the button of the step's film, and whether it runs."""
        runs, words = self.tour.filming, self.film.words
        self.play.setVisible(bool(words))
        self.play.setEnabled(self.film.ready)
        self.play.setText("Stop the film" if runs else f"Play {words}")
        tint(self.play, "stop" if runs else "play", self.context.theme, "text")
        self._show_stray()

    def _show_stray(self) -> None:
        """Show whether the numbers in the text are of something else than the panels. A text without numbers never is."""
        tour = self.tour
        self.stray.setVisible(tour.lesson is not None and bool(tour.step.values) and tour.strayed)

    @Slot()
    def show_values(self) -> None:
        """Show the text with the numbers that are available."""
        if self.tour.lesson is not None:
            self.text.show_markdown(self.tour.text, self.tour.tips)
            self._show_remarks()
            self._show_stray()

    def _show_remarks(self) -> None:
        """Show what is not as the step has it, and why."""
        tour, ready = self.tour, self.tour.ready
        no_film = f"The film of this step cannot play: {ready.no_film}" if ready is not None and ready.no_film else ""
        no_numbers = [why_not_computed(name, why) for name, why in tour.no_numbers.items()]
        remarks = "\n".join(filter(None, ("" if ready is None else ready.mismatch, no_film, *no_numbers)))
        self.warning.setText(remarks if tour.error is None else f"This step could not be set up: {reason(tour.error)}")
        self.warning.setVisible(bool(self.warning.text()))
        self.get.setVisible(isinstance(tour.error, NotFetched))
        if isinstance(tour.error, NotFetched):
            self.get.setText(f"Get {tour.error.name}…")

    @Slot()
    def _want_model(self) -> None:
        if isinstance(error := self.tour.error, NotFetched):
            self.model_wanted.emit(error.name)

    @Slot(object, object)
    def _watch(self, now: State, before: State) -> None:
        if isinstance(self.tour.error, NotFetched) and now.model != before.model:
            self.tour.again()  # it may be the one that was missing
        self._show_stray()

    @Slot(object)
    def set_theme(self, theme: Theme) -> None:
        """Apply the colours and sizes of heading and buttons; the rest follows the window's style sheet."""
        self.text.set_theme(theme)
        self.heading.setFont(theme.font(theme.large + 3, bold=True))
        self.editor.set_theme(theme)
        self.next.setMinimumWidth(theme.px(72))
        set_sheet(self, _sheet(theme))
        self.dots.update()
        self._show_film()

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """Fill the page with the background colour of figures."""
        painter.fillRect(QRect(0, 0, self.width(), self.height()), self.context.theme.colour("background"))


def _sheet(theme: Theme) -> str:
    """The page's ground, its buttons and the fields of a step of one's own."""
    button = f"background: {theme.raised}; border: 1px solid {theme.line};"
    onward = f"background: {theme.accent}; color: {theme.on_accent}; border: 1px solid {theme.accent}; padding: 3px 12px;"
    field = f"border: 1px solid {theme.line}; border-radius: 4px; background: {theme.background};"
    buttons = (
        f"{kind} {{ {button} padding: 3px {px}px; }} {kind}:disabled {{ color: {theme.faint}; }}"
        f"{kind}:hover, {kind}:focus {{ border-color: {theme.accent}; }}"
        for kind, px in (_role("primary", 10), _role("tool", 7), _role("narrow", 2))
    )
    return "\n".join((
        f"LessonPage {{ background: {theme.background}; }} QToolButton {{ border-radius: 4px; }}",
        *buttons,
        f'QToolButton[role="onward"] {{ {onward} }}',
        f'QToolButton[role="onward"]:focus, QToolButton[role="onward"]:hover {{ border-color: {theme.text}; }}',
        f"QPlainTextEdit {{ {field} }} QLineEdit {{ {field} border-color: transparent; margin-left: -4px; padding: 0 2px; }}",
        f"QLineEdit:hover {{ border-color: {theme.line}; }}",
        f"QPlainTextEdit:focus, QLineEdit:focus {{ border-color: {theme.accent}; }}",
    ))  # fmt: skip


def _role(name: str, px: int) -> tuple[str, int]:
    return f'QToolButton[role="{name}"]', px
