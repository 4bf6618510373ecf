"""The speaker's note below the page of the stage, for a talk with one screen: everybody can read it while it is shown.

It covers nothing of the step: the page is laid out above it. The strip is as high for every note, so that a walk through steps
moves nothing; a longer one is set smaller, then in a higher strip, and of the longest stand whole lines, and that it goes on.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QPainter, QTextDocument
from PySide6.QtWidgets import QVBoxLayout, QWidget

from circuitlab.draw.look.guarded import guarded_widget
from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.draw.look.stage_theme import stage_theme
from circuitlab.draw.look.theme import Theme
from circuitlab.gui.lessons.text_view import LessonText
from circuitlab.gui.widgets.chrome import scaled

USUAL, MOST = 1 / 4, 2 / 5  # of the height of the stage
GOES_ON = "… the note goes on"
SCALES = (0.75, 0.65, 0.55, 0.45)  # of the stage's type: it is read from the desk and not from the back row


class Peek(QWidget):
    """See the module. `under`: the stage, whose height gives the type. Hidden until it is toggled; takes no clicks."""

    def __init__(self, under: QWidget) -> None:
        super().__init__(under)
        self.setObjectName("stage.aside")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.under, self.theme = under, stage_theme(max(under.height(), 1))
        self._wanted = self._covered = False
        self.notes = LessonText(self)
        self.notes.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.notes.setViewportMargins(0, 0, 0, 0)
        self.notes.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.more = PlainLabel(GOES_ON, self)  # over the lines without room
        self.more.setAutoFillBackground(True)
        self.box = QVBoxLayout(self)
        self.box.addWidget(self.notes)
        self.hide()
        under.installEventFilter(self)

    def set_dark(self, dark: bool) -> None:
        """On the ground of the stage."""
        self._style(stage_theme(max(self.under.height(), 1), dark))

    def show_notes(self, markdown: str) -> None:
        """Show this note from now on, where it is shown."""
        self.notes.show_markdown(markdown, {})
        self._style(self.theme)

    def toggle(self) -> None:
        """Show it, or hide it."""
        self._wanted = not self._wanted
        self._show_or_hide()

    def put_away(self) -> None:
        """Hide it, if it is shown."""
        self._wanted = False
        self._show_or_hide()

    def cover(self, covered: bool) -> None:
        """Hide it while a curtain is down: black is black."""
        self._covered = covered
        self._show_or_hide()

    def _show_or_hide(self) -> None:
        self.setVisible(self._wanted and not self._covered)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Take the type of the stage's height."""
        if watched is self.under and event.type() == QEvent.Type.Resize:
            self.set_dark(self.theme.dark)
        return False

    def _style(self, theme: Theme) -> None:
        """The largest type in which the note has room in a strip of the usual height, else the least."""
        self.theme = theme
        width, height = self.under.width(), self.under.height()
        high = 0
        for scale in SCALES:
            side = round(theme.small * scale)
            self.notes.set_theme(scaled(theme, scale))
            self.box.setContentsMargins(side, side // 2, side, side // 2)
            document = self.notes.document()
            document.setTextWidth(max(width - 2 * side, 1))
            high = round(document.size().height()) + 2 * side
            if high <= height * USUAL:
                break
        self.setFixedHeight(round(min(max(high, height * USUAL), height * MOST)))
        self._say_more(scaled(theme, SCALES[-1]), high > self.height())

    def _say_more(self, theme: Theme, cut: bool) -> None:
        self.more.setVisible(cut)
        if not cut:
            return
        self.more.setFont(theme.font(theme.small))
        ink = self.more.palette()
        ink.setColor(self.more.backgroundRole(), theme.colour("background"))
        ink.setColor(self.more.foregroundRole(), theme.colour("accent"))
        self.more.setPalette(ink)
        margins = self.box.contentsMargins()
        room = self.height() - margins.top() - self.more.sizeHint().height()
        top = margins.top() + whole_lines(self.notes.document(), room)
        self.more.setGeometry(margins.left(), top, self.under.width() - 2 * margins.left(), self.height() - top)
        self.more.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.more.raise_()

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """A ground of its own, with a line above it."""
        painter.fillRect(self.rect(), self.theme.colour("background"))
        painter.fillRect(0, 0, self.width(), max(2, round(self.theme.small / 12)), self.theme.colour("line"))


def whole_lines(document: QTextDocument, room: float) -> int:
    """Height in px of the lines of a document that have room."""
    high, block = 0.0, document.begin()
    while block.isValid():
        top, lines = document.documentLayout().blockBoundingRect(block).top(), block.layout()
        ends = (top + lines.lineAt(i).rect().bottom() for i in range(lines.lineCount()))
        high = max([high, *(end for end in ends if end <= room)])
        block = block.next()
    return round(high)
