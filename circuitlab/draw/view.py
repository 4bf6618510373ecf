"""`FigureView`: a Figure on the screen. Title above, marks in rows, caption below; it draws again only what has changed."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QPoint, QRect, Qt, Signal, Slot
from PySide6.QtGui import QGuiApplication, QKeyEvent, QPainter, QPaintEvent, QPixmap, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from circuitlab.draw.busy import Busy
from circuitlab.draw.caption import Caption
from circuitlab.draw.heatmap import UNLIMITED
from circuitlab.draw.realise import realise
from circuitlab.draw.theme import GRID, LIGHT, Theme, palette, stylesheet
from circuitlab.figures.marks import Bars, Dials, Figure, Heatmap, Hit, Mark, Prose, Rows, Tokens

Key = tuple[type, str]
_HOVERS = ("hover", "leave")
NARROW, TALL = 480, 260  # px: below and above these a table goes under its map
ROOMY = 400  # px of height: from here on a table under its map gets more of it than the map
LOW = 400  # px: below it prose gets less
CHROME = 48  # px of height that a title and a line of caption take
FLAT = 300  # px of height: below it, and twice as wide as high, the text under a map stands beside it
FLOWS = Tokens | Bars | Dials | Prose
CAPTION_LINE = 150  # px of height for each line of caption above the second


def _layout_of(figure: Figure) -> tuple[tuple[Key, ...], ...]:
    return tuple(tuple((type(m), m.name) for m in row) for row in figure.grid)


def _map_and_table(row: tuple[Mark, ...]) -> bool:
    return len(row) == 2 and isinstance(row[0], Heatmap) and isinstance(row[1], Rows)


def _map_over_text(figure: Figure) -> bool:
    grid = figure.grid
    return [len(row) for row in grid] == [1, 1] and isinstance(grid[0][0], Heatmap) and isinstance(grid[1][0], Tokens)


def _shapes_of_maps(figure: Figure) -> tuple[tuple[int, ...], ...]:
    return tuple(row[0].values.shape for row in figure.grid if _map_and_table(row) and isinstance(row[0], Heatmap))


def _share_of_table(narrow: bool, stacked: bool, height: int) -> int:
    """What a table gets where its map gets 2."""
    if not narrow:
        return 2
    if stacked:
        return 3 if height >= ROOMY else 2
    return 5


class FigureView(QWidget):
    """Realises every mark.

    `picked(Hit)`: click, shift-click, double-click, and "leave" on Esc. `hovered(Hit, readout)`: hover, and leave with "".
    `context_requested(Hit | None, global position)`: right-click or menu key.
    """

    picked = Signal(object)
    hovered = Signal(object, str)
    context_requested = Signal(object, QPoint)

    def __init__(self, theme: Theme = LIGHT, parent: QWidget | None = None, on_paper: bool = False) -> None:
        super().__init__(parent)
        self._theme, self._figure, self._on_paper = theme, Figure(), on_paper
        self._shape: tuple[tuple[Key, ...], ...] = ()
        self._widgets: dict[Key, Any] = {}
        self._rows: list[QWidget] = []
        self._stacked = self._why_above = False
        self._shapes: tuple[tuple[int, ...], ...] = ()  # of the maps that stand beside tables
        self._title, self._shown, self._why = (QLabel(self) for _ in range(3))
        self._caption = Caption(self)
        for label in (self._title, self._shown, self._why):
            label.setTextFormat(Qt.TextFormat.PlainText)
        self._title.setWordWrap(True)
        self._why.setWordWrap(True)
        self._why.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._shown.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignBottom)
        head = QHBoxLayout()
        head.addWidget(self._title, 1)
        head.addWidget(self._shown)
        self._body = QVBoxLayout()
        self._body.setSpacing(GRID)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(GRID, GRID // 2, GRID, GRID // 2)
        layout.setSpacing(GRID // 2)
        layout.addLayout(head)
        layout.addLayout(self._body, 1)
        layout.addWidget(self._why, 1)
        layout.addWidget(self._caption)
        self._busy = Busy(self, theme)
        self._label()
        self.set_theme(theme)

    # what is shown ---------------------------------------------------------------------------------------------------

    @property
    def figure(self) -> Figure:
        """The figure that is drawn."""
        return self._figure

    @property
    def theme(self) -> Theme:
        """The theme it is drawn in."""
        return self._theme

    def widget(self, name: str) -> Any:
        """The widget of the mark called `name`."""
        return next(w for (_, known), w in self._widgets.items() if known == name)

    def show_figure(self, figure: Figure) -> None:
        """Draw a figure. One without marks and without a reason is not an answer yet: the old picture stays."""
        if figure is self._figure or (not figure.grid and not figure.why_empty and self._figure.grid):
            return
        shape = _layout_of(figure)
        relaid = shape != self._shape or figure.weights != self._figure.weights
        self._figure = figure
        if relaid:
            self._lay_out(figure, shape)
        for mark in figure.marks():
            self._widgets[type(mark), mark.name].show_mark(mark)
        if (shapes := _shapes_of_maps(figure)) and (relaid or shapes != self._shapes):
            self._shapes = shapes
            self._turn()
        self._align()
        if any(isinstance(m, FLOWS | Rows) for m in figure.marks()):
            self._share_by_content()
        self._label()

    def _lay_out(self, figure: Figure, shape: tuple[tuple[Key, ...], ...]) -> None:
        """Widgets by type and name are kept; others are made or thrown away."""
        wanted = {key for row in shape for key in row}
        for key in [k for k in self._widgets if k not in wanted]:
            gone = self._widgets.pop(key)
            gone.hide()
            gone.deleteLater()
        for mark in figure.marks():
            if (type(mark), mark.name) not in self._widgets:
                self._widgets[type(mark), mark.name] = self._make(mark)
        old, self._rows = self._rows, []
        for i, row in enumerate(shape):
            holder = QWidget(self)
            side = QHBoxLayout(holder)
            side.setContentsMargins(0, 0, 0, 0)
            side.setSpacing(2 * GRID)
            for key in row:
                side.addWidget(self._widgets[key], 1)
                self._widgets[key].show()
            self._body.addWidget(holder, round(100 * figure.weights[i]) if i < len(figure.weights) else 100)
            self._rows.append(holder)
        for holder in old:
            self._body.removeWidget(holder)
            holder.hide()
            holder.deleteLater()
        for i in range(self._body.count()):
            weight = round(100 * figure.weights[i]) if i < len(figure.weights) else 100
            self._body.setStretch(i, weight)
        self._shape = shape
        self._turn()
        self._busy.raise_()

    def _turn(self) -> None:
        """A map and its table stand side by side; one above the other where that is too narrow and there is the height."""
        self._turn_text()
        narrow = self.width() < NARROW and not self._on_paper
        self._stacked = stacked = narrow and self.height() >= TALL
        for holder, row in zip(self._rows, self._figure.grid, strict=False):
            side = holder.layout()
            if isinstance(side, QBoxLayout) and _map_and_table(row):
                side.setDirection(QBoxLayout.Direction.TopToBottom if stacked else QBoxLayout.Direction.LeftToRight)
                side.setSpacing(GRID if stacked else 2 * GRID)
                side.setStretch(0, 2)
                side.setStretch(1, _share_of_table(narrow, stacked, self.height()))
                map_ = self._widgets[type(row[0]), row[0].name]
                beside = (self.width() - 4 * GRID) * 2 // 7  # stretches alone do not hold where hints ask for more than there is
                map_.setMaximumWidth(
                    UNLIMITED
                    if stacked or self._on_paper
                    else beside
                    if narrow
                    else map_.natural_width(max(self.height() - CHROME, 60))
                )
                map_.setMaximumHeight(map_.natural_height(self.width() - 2 * GRID) if stacked else UNLIMITED)

    def _turn_text(self) -> None:
        """A map over its text: side by side where there is much more width than height, which a map cannot use."""
        flat = self.height() < FLAT and self.width() > 2 * self.height() and not self._on_paper
        beside = flat and _map_over_text(self._figure)
        self._body.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
        if _map_over_text(self._figure):
            weights = self._figure.weights or (1.0, 1.0)
            for i in range(2):
                self._body.setStretch(i, 100 if beside else round(100 * weights[i]))

    def _align(self) -> None:
        """Maps above each other over the same columns are equally wide, whatever the numbers beside them."""
        alone = [row[0] for row in self._figure.grid if len(row) == 1]
        maps = [m for m in alone if isinstance(m, Heatmap) and not m.square and m.colour_bar]
        if len(maps) < 2 or len({m.values.shape[1] for m in maps}) > 1:
            return
        widgets = [self._widgets[type(m), m.name] for m in maps]
        least = max(w.bar.natural_extent() for w in widgets)
        for widget in widgets:
            widget.widen_bar(least)

    def _make(self, mark: Mark) -> Any:
        widget = realise(mark, self._theme)
        widget.setParent(self)
        widget.setAccessibleName(mark.name)
        widget.gestured.connect(self._gestured)
        widget.context.connect(self.context_requested)
        widget.noted.connect(self._noted)
        if self._on_paper:
            widget.prepare_export()
        return widget

    def _share_by_content(self) -> None:
        """Rows of text and bars ask for what they need, at most two fifths; pictures share the rest.

        Where shares are given, tables and bars above others take no more than what is in them.
        """
        if self._figure.weights:
            self._cap_by_content()
            return
        width = max(self.width() - 2 * GRID, 100)
        room = max(self.height() - 60, 100)
        for i, row in enumerate(self._figure.grid):
            if i >= len(self._rows):
                return
            flows = all(isinstance(m, FLOWS) for m in row)
            if flows and len(self._figure.grid) > 1:
                need = max(self._widgets[type(m), m.name].natural_height(width // len(row)) for m in row)
                most = self._room_for_prose(room) if all(isinstance(m, Prose) for m in row) else room * 2 // 5
                self._rows[i].setMaximumHeight(max(28, min(need, most)))
                self._rows[i].setMinimumHeight(max(28, min(need, most, 48 if self.height() < LOW else most)))

    def _room_for_prose(self, room: int) -> int:
        """It scrolls, pictures do not; where a panel is high and narrow pictures cannot use the height."""
        if self.height() < LOW:
            return room // 4
        return room // 2 if self.width() < NARROW else room * 2 // 5

    def _cap_by_content(self) -> None:
        width = max(self.width() - 2 * GRID, 100)
        for holder, row in zip(self._rows[:-1], self._figure.grid, strict=False):
            under = self._stacked and _map_and_table(row)
            if all(isinstance(m, Rows | Bars) for m in row) or _map_and_table(row):
                needs = [self._widgets[type(m), m.name].natural_height(width // (1 if under else len(row))) for m in row]
                holder.setMaximumHeight(max(28, sum(needs) + GRID if under else max(needs)))

    def _label(self) -> None:
        figure = self._figure
        notes = [w.note() for w in self._widgets.values() if w.note()] if self._rows else []
        caption = " · ".join(t for t in (figure.caption, *notes) if t)
        shown = f"showing {figure.shown[0]:,} of {figure.shown[1]:,}" if figure.shown else ""
        for label, text in (
            (self._title, figure.title),
            (self._shown, shown),
            (self._why, figure.why_empty),
        ):
            if label.text() != text:
                label.setText(text)
            label.setVisible(bool(text))
        self._place_why(bool(figure.grid))
        self._caption.say(caption, 0 if self._on_paper else max(2, self.height() // CAPTION_LINE))
        self._caption.setVisible(bool(caption))
        self.setAccessibleName(figure.title)
        self.setAccessibleDescription(caption or figure.why_empty)

    def _place_why(self, above: bool) -> None:
        """In the middle of an empty figure; where there is something to click, in front of it."""
        layout = self.layout()
        if above == self._why_above or not isinstance(layout, QVBoxLayout):
            return
        self._why_above = above
        layout.removeWidget(self._why)
        layout.insertWidget(1 if above else 2, self._why, 0 if above else 1)
        self._why.setAlignment(Qt.AlignmentFlag.AlignLeft if above else Qt.AlignmentFlag.AlignCenter)

    @Slot()
    def _noted(self) -> None:
        self._label()

    # gestures --------------------------------------------------------------------------------------------------------

    @Slot(object, str)
    def _gestured(self, hit: Hit, readout: str) -> None:
        if hit.gesture in _HOVERS:
            self.hovered.emit(hit, readout)
        else:
            self.picked.emit(hit)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """R resets; Esc in any mark releases."""
        if event.key() == Qt.Key.Key_R and not event.modifiers():
            self.reset_view()
            return
        if event.key() == Qt.Key.Key_Escape and self._figure.grid:
            self.picked.emit(Hit(self._focused(), (), "leave"))
        super().keyPressEvent(event)

    def _focused(self) -> str:
        for (_, name), widget in self._widgets.items():
            if widget.hasFocus():
                return name
        return self._figure.grid[0][0].name

    # commands --------------------------------------------------------------------------------------------------------

    def set_theme(self, theme: Theme) -> None:
        """Chrome in another theme; data keep their colours."""
        self._theme = theme
        self.setPalette(palette(theme))
        sheet = stylesheet(theme)
        if self.styleSheet() != sheet:
            self.setStyleSheet(sheet)
        colours = {self._title: ("text", theme.normal, True), self._shown: ("muted", theme.small, False)}
        colours |= {self._caption: ("muted", theme.small, False), self._why: ("muted", theme.normal, False)}
        for label, (name, size, bold) in colours.items():
            label.setFont(theme.font(size, bold=bold))
            ink = label.palette()
            ink.setColor(label.foregroundRole(), theme.colour(name))
            label.setPalette(ink)
        background = self.palette()
        background.setColor(self.backgroundRole(), theme.colour("background"))
        self.setPalette(background)
        self._busy.set_theme(theme)
        for widget in self._widgets.values():
            widget.set_theme(theme)
        self._align()

    def set_busy(self, busy: bool, fraction: float | None = None) -> None:
        """A new answer is being computed: the old picture dims after 150 ms under a thin progress line."""
        self._busy.set_busy(busy, fraction)

    def reset_view(self) -> None:
        """Zoom out to everything."""
        for widget in self._widgets.values():
            widget.reset_view()

    def copy_image(self) -> None:
        """The picture as it is on the screen, to the clipboard."""
        self._busy.hide()
        picture: QPixmap = self.grab(QRect(QPoint(0, 0), self.size()))
        QGuiApplication.clipboard().setPixmap(picture)

    def paintEvent(self, event: QPaintEvent) -> None:
        """The theme's background. Not by the palette: a style sheet's first polish puts back the one it knew before."""
        painter = QPainter(self)
        painter.fillRect(event.rect(), self._theme.colour("background"))
        painter.end()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The veil covers everything."""
        super().resizeEvent(event)
        self._busy.setGeometry(self.rect())
        self._turn()
        self._share_by_content()
        self._label()

    def set_stroke(self, scale: float) -> None:
        """Line widths for a painter that is scaled by `scale`."""
        for widget in self._widgets.values():
            if hasattr(widget, "set_stroke"):
                widget.set_stroke(scale)

    def lay_out_for_paper(self, width: int) -> int:
        """Give every mark the height it asks for at this width; the height of the whole."""
        inner = width - 2 * GRID
        for row, holder in zip(self._figure.grid, self._rows, strict=True):
            each = (inner - 2 * GRID * (len(row) - 1)) // max(len(row), 1)
            holder.setMinimumHeight(0)
            holder.setFixedHeight(max(self._widgets[type(m), m.name].natural_height(each) for m in row))
        self._label()
        layout = self.layout()
        assert layout is not None
        layout.activate()
        return max(layout.totalHeightForWidth(width), layout.totalMinimumSize().height())
