"""What the speaker sees on a screen of their own: notes, the next picture, clock and time, and whether all is ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QRect, QSize, Qt, QTime, Signal, Slot
from PySide6.QtGui import QDragEnterEvent, QImage, QKeyEvent, QPainter, QShowEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QToolButton, QVBoxLayout, QWidget

from circuitlab.draw.look.guarded import guarded_widget
from circuitlab.draw.look.plain_text import InkLabel, PlainLabel, tip_of
from circuitlab.draw.look.theme import Theme
from circuitlab.figures.marks import joined
from circuitlab.gui.lessons.text_view import LessonText
from circuitlab.gui.presenter.clock import TalkClock, clock_words
from circuitlab.gui.presenter.overlays import Overlay
from circuitlab.gui.widgets.chrome import scaled
from circuitlab.story.text import escaped
from circuitlab.terminal import on_one_line

SIDE, APART = 24, 16  # px
TIME, HEADING, NOTES = 34, 20, 19  # px of type: read from where one stands and not from where one sits
LAST = "The end"
ON_STAGE, BEHIND = "On the stage", "Behind the frozen picture"
NO_NOTES = "No notes for this step."
Notes = Sequence[tuple[str, str]]  # (what one is about, its text)


@dataclass(frozen=True)
class Shown:
    """A step as the speaker sees it: its title, the note that is theirs alone, and the line that everybody reads.

    `notes`: those of the session on what the step shows.
    """

    title: str
    aside: str = ""
    line: str = ""
    notes: Notes = ()


def notes_markdown(aside: str, notes: Notes) -> str:
    """What a speaker reads of a step: its own note, then those of the session on what it shows."""
    lines = lambda text: "  \n".join(escaped(line.strip()) for line in text.splitlines() if line.strip())
    return "\n\n".join(filter(None, (aside, *(f"**{escaped(about)}:** {lines(text)}" for about, text in notes)))) or NO_NOTES


class Picture(QWidget):
    """A picture as large as its room lets it be, or the reason why there is none."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.image, self.reason = QImage(), ""

    def show_image(self, image: QImage, reason: str = "") -> None:
        """Show an image; a null one: the reason."""
        self.image, self.reason = image, reason
        self.setAccessibleName(reason or "a picture of a step")
        self.update()

    def room(self) -> QSize:
        """Device pixels that a picture of a screen's proportions has here."""
        ratio = self.devicePixelRatio()
        return QSize(16, 9).scaled(self.size() * ratio, Qt.AspectRatioMode.KeepAspectRatio)

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """The image at the top, on its own ground."""
        if self.image.isNull():
            painter.setPen(self.palette().placeholderText().color())
            flags = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop | Qt.TextFlag.TextWordWrap
            painter.drawText(self.rect(), int(flags), self.reason)
            return
        size = self.image.size().scaled(self.size(), Qt.AspectRatioMode.KeepAspectRatio)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        place = QRect(self.rect().topLeft(), size)
        painter.drawImage(place, self.image)
        painter.setPen(self.palette().mid().color())
        painter.drawRect(place.adjusted(0, 0, -1, -1))


class SpeakerView(Overlay):
    """Covers the window while a talk is given. `key(event)`: what the keys of the stage do; whether one was among them.

    `swap_wanted()`, `end_wanted()`: buttons. `turned(by)`: the buttons to the next step and back.
    """

    swap_wanted = Signal()
    end_wanted = Signal()
    turned = Signal(int)

    def __init__(self, parent: QWidget, theme: Theme, clock: TalkClock, key: Callable[[QKeyEvent], bool]) -> None:
        super().__init__(parent)
        self.setObjectName("speaker")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAcceptDrops(True)
        self.clock, self._key, self.theme = clock, key, theme
        self._present = 0, 0, False  # number, count and whether it is behind a frozen picture
        self.count, self.elapsed, self.left, self.time = (InkLabel(self) for _ in range(4))
        self.title, self.after, self.ready = (PlainLabel(self) for _ in range(3))
        self.notes = LessonText(self)
        self.notes.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.notes.setViewportMargins(0, 0, 0, 0)
        self.notes.setAccessibleName("Notes of this step")
        self.picture = Picture(self)  # of the next step
        self.on_stage, self.mirror = InkLabel(ON_STAGE, self), Picture(self)
        self.pause = self._button("Pause", "Stop the time, or let it go on", clock.pause_or_resume)
        self.back = self._button("‹ Back", "The step before", lambda: self.turned.emit(-1))
        self.on = self._button("Next ›", "The next step", lambda: self.turned.emit(1))
        self.swap = self._button("Swap screens", "Stage and speaker change places (S)", self.swap_wanted.emit)
        self.end = self._button("End", "End the talk (Esc)", self.end_wanted.emit)
        self._lay_out()
        clock.ticked.connect(self._tick)
        self.set_theme(theme)

    def _button(self, text: str, tip: str, act: Callable[[], object]) -> QToolButton:
        button = QToolButton(self)
        button.setText(text)
        button.setToolTip(tip_of(tip))
        button.setProperty("role", "primary")
        button.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # the keys are those of the stage, whatever was clicked
        button.clicked.connect(lambda: act())
        return button

    def _lay_out(self) -> None:
        top, foot, now, after = QHBoxLayout(), QHBoxLayout(), QVBoxLayout(), QVBoxLayout()
        top.setSpacing(2 * SIDE)
        for widget in (self.count, self.elapsed, self.left):
            top.addWidget(widget, 0, Qt.AlignmentFlag.AlignBaseline)
        top.addWidget(self.pause, 0, Qt.AlignmentFlag.AlignVCenter)
        top.addStretch(1)
        top.addWidget(self.time, 0, Qt.AlignmentFlag.AlignBaseline)
        for column, heading, widget, share in (
            (now, self.title, self.notes, 1),
            (after, self.after, self.picture, 3),
            (after, self.on_stage, self.mirror, 2),
        ):
            column.setSpacing(APART // 2)
            column.addWidget(heading)
            column.addWidget(widget, share)
        foot.setSpacing(APART // 2)
        foot.addWidget(self.back)
        foot.addWidget(self.on)
        foot.addSpacing(APART)
        foot.addWidget(self.ready, 1)
        foot.addWidget(self.swap)
        foot.addWidget(self.end)
        for label in (self.title, self.after, self.ready):
            label.setWordWrap(True)
        grid = QGridLayout(self)
        grid.setContentsMargins(SIDE, APART, SIDE, APART)
        grid.setHorizontalSpacing(2 * SIDE)
        grid.setVerticalSpacing(APART)
        grid.addLayout(top, 0, 0, 1, 2)
        grid.addLayout(now, 1, 0)
        grid.addLayout(after, 1, 1)
        grid.addLayout(foot, 2, 0, 1, 2)
        grid.setRowStretch(1, 1)
        grid.setColumnStretch(0, 1)
        grid.setColumnStretch(1, 1)

    # -- what is shown ----------------------------------------------------------------------------------------------------

    def set_theme(self, theme: Theme) -> None:
        """Sizes and colours of the window's theme."""
        self.theme = theme
        for label in (self.count, self.elapsed, self.left, self.time):
            label.setFont(theme.font(theme.px(TIME)))
        for label in (self.title, self.after, self.on_stage):
            label.setFont(theme.font(theme.px(HEADING), bold=True))
        larger = theme.px(NOTES) / (theme.normal + 1)
        self.notes.set_theme(scaled(theme, larger))
        self._tick()

    def show_step(self, number: int, count: int, now: Shown, after: Shown | None, behind: bool = False) -> None:
        """Show the step `number` of `count`, counted from 1, and what comes after it; None at the end.

        `behind`: the audience still sees a frozen picture of another, so that this one comes next. As long as neither changes
        the next picture stays, and the notes stay where they are scrolled to.
        """
        present = number, count, behind
        if self._present != present:
            self._present = present
            self.picture.show_image(QImage())
            self.notes.verticalScrollBar().setValue(0)
        self.count.setText(f"{number} / {count}")
        title = on_one_line(now.title)
        self.title.setText(title)
        self.notes.show_markdown(notes_markdown(now.aside or now.line, now.notes), {})
        self.after.setText(f"{BEHIND}: {title}" if behind else LAST if after is None else f"Next: {on_one_line(after.title)}")
        self.back.setEnabled(number > 1)
        self.on.setEnabled(number < count)

    def show_state(self, picture: str, over: str) -> None:
        """Say what the audience sees: `picture`: which of the step's, `over`: what lies over it; "" for nothing of note."""
        words = joined(picture, over)
        self.on_stage.setText(f"{ON_STAGE}: {words}" if words else ON_STAGE)
        self.on_stage.set_ink(self.theme.colour("accent" if over else "text"))

    def show_stage(self, image: QImage) -> None:
        """Show what the audience sees."""
        self.mirror.show_image(image)

    def show_ready(self, line: str) -> None:
        """Say whether everything is ready, in one line."""
        self.ready.setText(line)

    @Slot()
    def _tick(self) -> None:
        clock = self.clock
        self.elapsed.setText(clock_words(clock.elapsed))
        left = clock_words(clock.left)
        self.left.setText((f"{left.lstrip('−')} over" if clock.left < 0 else f"{left} left") if clock.minutes else "")
        self.time.setText(QTime.currentTime().toString("HH:mm"))
        self.pause.setText("Pause" if clock.running else "Resume" if clock.elapsed else "Start")
        for label, colour in (
            (self.count, "text"),
            (self.elapsed, "text" if clock.running else "faint"),
            (self.left, "accent" if clock.near_end else "muted"),
            (self.time, "muted"),
        ):
            label.set_ink(self.theme.colour(colour))

    # -- keys and paint ---------------------------------------------------------------------------------------------------

    def event(self, event: QEvent) -> bool:
        """Keys of the stage are no shortcuts of the window while this covers it."""
        if event.type() == QEvent.Type.ShortcutOverride:
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Walk and point as on the stage."""
        if not self._key(event):
            super().keyPressEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Take what is dragged here and refuse it: ignored, it would go on to the window, which opens it."""
        event.setDropAction(Qt.DropAction.IgnoreAction)
        event.accept()

    def showEvent(self, event: QShowEvent) -> None:
        """Have the keyboard."""
        super().showEvent(event)
        self.raise_()
        self.setFocus()

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """The ground, over everything in the window."""
        painter.fillRect(self.rect(), self.theme.colour("background"))
