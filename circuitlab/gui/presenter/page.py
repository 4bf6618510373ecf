"""`StagePage`: what an audience sees of a step: its title, its figures, one line of text, a footer. It knows no engine.

Over a film stand at the right of the title its training step, or its parameter, and at the lower edge how far it has come. Both
follow its frames, and nothing else moves with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

from PySide6.QtCore import QRect, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetricsF, QPainter, QResizeEvent
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.guarded import guarded_widget
from circuitlab.draw.look.plain_text import tip_of
from circuitlab.draw.look.stage_theme import stage_theme
from circuitlab.draw.look.theme import Theme
from circuitlab.figures.marks import joined
from circuitlab.gui.presenter.shortened import shortened
from circuitlab.terminal import on_one_line

TITLE = 1 / 20  # of the height: the type of the title
GUTTER = 1 / 40  # of the height: between views beside each other
SIDE, END, BETWEEN = 1 / 120, 1 / 150, 1 / 200  # of the height: beside everything, above and below it, between its parts
BAR = 1 / 180  # of the height: the line that says how far a film has come, below everything


@dataclass(frozen=True)
class FilmPlace:
    """Where a film stands: `words` of its frame, as “step 4,000”, and the `share` of its frames that were shown, with this one.

    `every`: the words of all its frames, for the longest of which there is room.
    """

    words: str
    share: float
    every: tuple[str, ...]


Words = tuple[str, str, str, tuple[int, int], FilmPlace | None]  # title, line, footer, count, place: as `set_step` has them


class StageLine(QWidget):
    """One line of plain text, set in the largest type between two sizes in which it fits.

    Of a longer text stands as much as fits of its beginning, cut where no number reads as another (`shortened`).
    """

    def __init__(
        self, parent: QWidget, ink: str = "text", bold: bool = False, side: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft
    ) -> None:
        super().__init__(parent)
        self.text = ""
        self._ink, self._bold, self._side = ink, bold, side
        self._others: tuple[str, ...] = ()  # that it has been or will be, in the same type
        self._theme: Theme | None = None
        self._sizes = 1, 1  # px, the least and the largest
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)

    def say(self, text: str, others: Collection[str] = ()) -> None:
        """Set the text; what does not fit is read by screen readers. `others`: it is set no larger than these fit."""
        self.text, self._others = on_one_line(" ".join(text.split())), tuple(others)
        self.setAccessibleName(self.text)
        self.setToolTip(tip_of(self.text))
        self.setVisible(bool(self.text))
        self.update()

    def set_look(self, theme: Theme, least: float, largest: float) -> None:
        """Set the theme and the sizes of type in px."""
        self._theme, self._sizes = theme, (round(least), round(largest))
        self.update()

    def sizeHint(self) -> QSize:
        """A line of its largest type."""
        return QSize(80, 1 if self._theme is None else round(QFontMetricsF(self._font(self._sizes[1])).height()))

    def _font(self, size: int) -> QFont:
        assert self._theme is not None
        return self._theme.font(size, bold=self._bold)

    def fitting(self, width: float) -> tuple[QFont, str]:
        """What of the text stands in this width, and the largest font in which it fits, or the least one."""
        least, largest = self._sizes
        narrowest = QFontMetricsF(self._font(least))
        wide = narrowest.horizontalAdvance
        text = self.text if wide(self.text) <= width else shortened(self.text, width, wide)
        sizes = range(largest, least, -1)
        font = self._font(next((size for size in sizes if self._wide(size, text) <= width), least))
        return font, text

    def _wide(self, size: int, text: str) -> float:
        """Width in px of this text and the others in a size."""
        metrics = QFontMetricsF(self._font(size))
        return max(map(metrics.horizontalAdvance, (text, *self._others)))

    def widest(self) -> int:
        """Width in px of text and others in the largest type."""
        return ceil(self._wide(self._sizes[1], self.text)) + 1

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """The text."""
        if self._theme is None:
            return
        font, text = self.fitting(self.width())
        painter.setFont(font)
        painter.setPen(self._theme.colour(self._ink))
        painter.drawText(self.rect(), int(Qt.AlignmentFlag.AlignVCenter | self._side), text)


class StagePage(QWidget):
    """Lays out a step so that its figures have at least four fifths of the pixels, at any size.

    `theme_of(height)`: the theme of a page so many px high. `theme_changed(theme)`: the page is of another height, or dark. Views
    with a `set_theme` are given it before. A figure whose title is the step's does not repeat it.
    """

    theme_changed = Signal(object)

    def __init__(self, theme_of: Callable[[int], Theme] = stage_theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme_of = theme_of
        self._theme = theme_of(max(self.height(), 1))
        self._rows: Sequence[Sequence[QWidget]] = []
        self.title = StageLine(self, bold=True)
        self.place = StageLine(self, "accent", bold=True, side=Qt.AlignmentFlag.AlignRight)
        self.film: FilmPlace | None = None
        self._titles: tuple[str, ...] = ()  # that the film has had
        self.line, self.footer = StageLine(self), StageLine(self, "muted")
        self._restyle()

    @property
    def theme(self) -> Theme:
        """The theme of the present height."""
        return self._theme

    @property
    def dark(self) -> bool:
        """Whether the ground is black. Set, the page takes `stage_theme` on that ground."""
        return self._theme.dark

    @dark.setter
    def dark(self, dark: bool) -> None:
        self._theme_of = partial(stage_theme, dark=dark)
        self._restyle()

    def set_step(
        self,
        title: str,
        line: str,
        footer: str,
        count: tuple[int, int],
        film: FilmPlace | None = None,
        rows: Sequence[Sequence[QWidget]] | None = None,
    ) -> None:
        """What is written: `line` is one line of plain text, `footer` the conventions, `count` which step of how many, `film`
        where the step's film stands.

        `rows`: the views as well, laid out once; None: those that are there.
        """
        goes_on = film is not None and self.film is not None and film.every == self.film.every and rows is None
        self._titles = tuple(dict.fromkeys((*self._titles, title))) if goes_on else (title,)
        self.title.say(title, self._titles)
        self.film = film
        self.place.say(film.words if film is not None else "", film.every if film is not None else ())
        self.line.say(line)
        self.footer.say(joined(f"{count[0]} / {count[1]}" if count[1] else "", footer))
        self.update()
        if rows is not None:
            self.set_views(rows)
            return
        self._tell_title()
        self._place()

    def set_views(self, rows: Sequence[Sequence[QWidget]]) -> None:
        """Lay out these views. Those of before stay hidden parts of the page: to be taken out and put in again costs a polish."""
        now = [view for row in rows for view in row]
        for view in (view for row in self._rows for view in row if view not in now):
            view.hide()
        self._rows = [list(row) for row in rows if row]
        for view in now:
            if view.parent() is not self:
                view.setParent(self)
            _give_theme(view, self._theme)
        self._place()
        self._tell_title()
        for view in now:
            view.show()

    def _tell_title(self) -> None:
        for view in self.views:
            if (say := getattr(view, "say_title_above", None)) is not None:
                say(self.title.text)

    @property
    def views(self) -> list[QWidget]:
        """All views, row by row."""
        return [view for row in self._rows for view in row]

    def figures(self) -> QRect:
        """Where the views are."""
        width, height = self.width(), self.height()
        side, end, between = (round(part * height) for part in (SIDE, END, BETWEEN))
        top = end + (self.title.sizeHint().height() + between if self.title.text else 0)
        lines = [line for line in (self.line, self.footer) if line.text]
        bottom = height - end - sum(line.sizeHint().height() for line in lines) - (between if lines else 0)
        return QRect(side, top, max(width - 2 * side, 1), max(bottom - top, 1))

    def _place(self) -> None:
        room, between = self.figures(), round(BETWEEN * self.height())
        place = min(self.place.widest(), room.width() // 2) if self.film is not None else 0
        apart = round(GUTTER * self.height()) if place else 0
        top, high = round(END * self.height()), self.title.sizeHint().height()
        self.title.setGeometry(room.left(), top, room.width() - place - apart, high)
        self.place.setGeometry(room.right() + 1 - place, top, place, high)
        at = room.bottom() + 1 + between
        for line in (self.line, self.footer):
            if line.text:
                line.setGeometry(room.left(), at, room.width(), line.sizeHint().height())
                at += line.sizeHint().height()
        gutter = round(GUTTER * self.height())
        for i, row in enumerate(self._rows):
            top, high = _share(room.height(), between, len(self._rows), i)
            for j, view in enumerate(row):
                left, wide = _share(room.width(), gutter, len(row), j)
                view.setGeometry(room.left() + left, room.top() + top, wide, high)

    def _restyle(self) -> None:
        theme = self._theme_of(max(self.height(), 1))
        changed, self._theme = theme != self._theme, theme
        for line in (self.title, self.place):
            line.set_look(theme, theme.normal, TITLE * self.height())
        self.line.set_look(theme, theme.small, theme.normal)
        self.footer.set_look(theme, theme.small, theme.small)
        self.update()
        if changed:
            for view in self.views:
                _give_theme(view, theme)
            self.theme_changed.emit(theme)
        self._place()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another height is another theme."""
        super().resizeEvent(event)
        self._restyle()

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """The ground, and at its lower edge how far a film has come."""
        painter.fillRect(self.rect(), self._theme.colour("background"))
        if self.film is not None:
            high = max(2, round(BAR * self.height()))
            painter.fillRect(0, self.height() - high, self.width(), high, self._theme.colour("line"))
            painter.fillRect(0, self.height() - high, round(self.film.share * self.width()), high, self._theme.colour("accent"))


def _share(length: int, between: int, n: int, i: int) -> tuple[int, int]:
    """Where the `i`-th of `n` equal parts of a length begins, and how long it is."""
    start, end = ((length + between) * k // n for k in (i, i + 1))
    return start, end - between - start


def _give_theme(view: QWidget, theme: Theme) -> None:
    if getattr(view, "theme", None) != theme and (set_theme := getattr(view, "set_theme", None)) is not None:
        set_theme(theme)
