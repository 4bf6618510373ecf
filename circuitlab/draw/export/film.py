"""A film frame by frame: the figures of one step at each checkpoint, on a page of the size of a slide.

Axes, colours and the room of every text are the same in all frames: every figure is laid out once before the first is painted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QImage, QPainter, QRegion, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLayout, QVBoxLayout, QWidget

from circuitlab.draw.export.pictures import discard
from circuitlab.draw.look.app import application
from circuitlab.draw.look.guarded import faults
from circuitlab.draw.look.plain_text import InkLabel
from circuitlab.draw.look.slide import Film, Slide
from circuitlab.draw.look.theme import Theme, palette
from circuitlab.draw.view.caption import Caption
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.draw.view.settling import settle
from circuitlab.errors import CircuitLabError
from circuitlab.figures.marks import Figure, beyond
from circuitlab.interrupts import uninterrupted

MARGIN = 24  # px of a slide 720 high
TITLE_GAP = 12  # px between the title and where the film stands
BAR = 4  # px of its line that says how far it has come


class FilmFigures(QWidget):
    """Views in equal parts of its size, however much each asks for: as the window arranges the panels of a step, side by side,
    then in columns of two.
    """

    def __init__(self, theme: Theme, n: int, gap: int, parent: QWidget) -> None:
        super().__init__(parent)
        self.views = [FigureView(theme, self) for _ in range(n)]
        self._gap = gap
        for view in self.views:
            view.fold.away = True
            view.hold_ranges(True)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Share the room."""
        super().resizeEvent(event)
        n = len(self.views)
        each, end = 1 if n < 3 else 2, QPoint(self._gap + 1, self._gap + 1)
        lefts = _cuts(self.width(), self._gap, -(-n // each))
        for i, view in enumerate(self.views):
            column, row = divmod(i, each)
            tops = _cuts(self.height(), self._gap, min(each, n - column * each))
            view.setGeometry(QRect(QPoint(lefts[column], tops[row]), QPoint(lefts[column + 1], tops[row + 1]) - end))


class FilmPage(QWidget):
    """The page of a film. It shows any frame; what it has shown before only makes room."""

    @uninterrupted()
    def __init__(self, film: Film, slide: Slide) -> None:
        super().__init__()
        self.film, self.slide, self.theme = film, slide, slide.look
        theme, n = self.theme, len(film.frames[0].figures)
        self.setPalette(palette(theme))
        self._share = 0.0
        self._title, self._place, self._caption = InkLabel(self), InkLabel(self), Caption(self, True)
        for label, size, ink, bold in (
            (self._title, theme.large, "text", True),
            (self._place, theme.large, "accent", True),
            (self._caption, theme.small, "muted", False),
        ):
            label.setFont(theme.font(size, bold=bold))
            label.set_ink(theme.colour(ink))
        self._place.setMinimumWidth(max(self._place.fontMetrics().horizontalAdvance(f.words) for f in film.frames) + 2)
        self._place.setAlignment(Qt.AlignmentFlag.AlignRight)
        margin = round(MARGIN * slide.height / 720)
        self._title.setText(self._on_one_line(film.title, slide.width - 2 * margin - self._place.minimumWidth()))
        self._figures = FilmFigures(theme, n, margin // 2, self)
        self.views = self._figures.views
        for i, view in enumerate(self.views):
            titles = {frame.figures[i].title for frame in film.frames}
            if all(beyond(film.title, title) != title for title in titles):  # in some frames alone it would move the picture
                view.say_title_above(self._title.text())
        self._lay_out(margin)
        self.resize(slide.width, slide.height)

    @property
    def title_text(self) -> str:
        """What stands above the figures."""
        return self._title.text()

    def _on_one_line(self, title: str, width: int) -> str:
        """A title as far as there is room. Its lines are none of the slide."""
        return self._title.fontMetrics().elidedText(" ".join(title.split()), Qt.TextElideMode.ElideRight, width - TITLE_GAP)

    def _lay_out(self, margin: int) -> None:
        head, box = QHBoxLayout(), QVBoxLayout(self)
        head.addWidget(self._title, 1)
        head.addWidget(self._place)
        box.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)  # a slide does not grow with what stands on it
        box.setContentsMargins(margin, margin // 2, margin, margin // 2 + BAR)
        box.setSpacing(margin // 4)
        box.addLayout(head)
        box.addWidget(self._figures, 1)
        box.addWidget(self._caption)

    @uninterrupted()
    def show_frame(self, i: int) -> None:
        """Show a frame."""
        frame = self.film.frames[i]
        self._place.setText(frame.words)
        once = _shared_parts(frame.figures)
        about = dict.fromkeys(part for figure in frame.figures for part in figure.about)
        self._caption.say((*about, *once), 2, len(about))
        for view, figure, seen in zip(self.views, frame.figures, self.film.seen or ({},) * len(self.views), strict=True):
            view.say_once(once)
            view.show_figure(figure)
            if seen:
                view.show_visible_parts(seen)
        self._share = (i + 1) / len(self.film.frames)
        settle(self)

    @uninterrupted()
    def image(self) -> QImage:
        """What it shows."""
        image = QImage(self.slide.width, self.slide.height, QImage.Format.Format_RGB32)
        image.fill(self.theme.colour("background"))
        painter = QPainter(image)
        self.render(painter, QPoint(0, 0), QRegion(QRect(QPoint(0, 0), self.size())), QWidget.RenderFlag.DrawChildren)
        line = max(1, round(BAR * self.slide.height / 720))
        painter.fillRect(0, self.height() - line, self.width(), line, self.theme.colour("line"))
        painter.fillRect(0, self.height() - line, round(self._share * self.width()), line, self.theme.colour("accent"))
        painter.end()
        return image


def _cuts(length: int, gap: int, n: int) -> list[int]:
    """Where each of `n` equal parts of a length begins, and where one more would."""
    return [(length + gap) * k // n for k in range(n + 1)]


def _shared_parts(figures: Sequence[Figure]) -> tuple[str, ...]:
    """Parts of the captions that all panels have: they are said once."""
    if len(figures) < 2:
        return ()
    first, *others = (figure.caption_parts for figure in figures)
    return tuple(part for part in first if all(part in other for other in others))


def drawn(film: Film, slide: Slide) -> Iterator[QImage | None]:
    """Every frame as an image, one behind the other; before them as often None, while their room is measured.

    On the thread of the widgets; between two steps others may have their turn. Raises `CircuitLabError` where a part of a figure
    cannot be drawn, `UsageError` where the frames are too many.
    """
    slide.check(len(film.frames))
    application(offscreen=True)
    page = FilmPage(film, slide)
    try:
        for i in range(len(film.frames)):
            page.show_frame(i)
            yield None
        for i in range(len(film.frames)):
            with faults() as reasons:
                page.show_frame(i)
                image = page.image()
            if reasons:
                raise CircuitLabError("A part of the film could not be drawn.", got=reasons[0], remedy="The Log has the details.")
            yield image
    finally:
        discard(page)
