"""`FigureView`: a Figure on the screen. Title above, marks in rows, caption below; only what has changed is redrawn."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from PySide6.QtCore import QEvent, QPoint, QRect, Qt, Signal, Slot
from PySide6.QtGui import QFontMetricsF, QGuiApplication, QHideEvent, QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QApplication, QHBoxLayout, QVBoxLayout, QWidget

from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.draw.look.theme import GRID, LIGHT, Theme, palette, stylesheet
from circuitlab.draw.painted.mark import plain_tip
from circuitlab.draw.plots.plot import PlotMark, Range
from circuitlab.draw.pointing.focus_order import chain
from circuitlab.draw.pointing.pointer_note import PointerNote
from circuitlab.draw.view._arranged import as_arranged
from circuitlab.draw.view._busy import Busy
from circuitlab.draw.view._fold import Fold
from circuitlab.draw.view._realise import realise
from circuitlab.draw.view._spoken import name_for_readers
from circuitlab.draw.view.caption import Caption, Wrapped
from circuitlab.draw.view.places import Key, Places
from circuitlab.figures.marks import Figure, Hit, Mark, joined

_HOVERS = ("hover", "leave")
SHORT_CAPTION = 3  # lines of a short caption on paper
CAPTION_LINE = 150  # px of height for each line of caption above the second


class FigureView(QWidget):
    """Realises every mark.

    `picked(Hit)`: click, shift-click, double-click, and "leave" on Esc. `hovered(Hit, readout)`: hover, and leave with "".
    `context_requested(Hit | None, global position)`: right-click or menu key.
    """

    picked = Signal(object)
    hovered = Signal(object, str)
    context_requested = Signal(object, QPoint)

    def __init__(self, theme: Theme = LIGHT, parent: QWidget | None = None, paper: Paper | None = None) -> None:
        super().__init__(parent)
        self._theme, self._figure, self._paper = theme, Figure(), paper
        self._widgets: dict[Key, Any] = {}
        self._why_above = False
        self._once: frozenset[str] = frozenset()  # parts of captions that the window says for all its figures
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self._frozen = False  # while the pointer is on an item, text around the picture does not move it
        self._count, self._why = PlainLabel(self), PlainLabel(self)
        self._title, self._caption = Wrapped(self, paper is None), Caption(self, paper is None)
        for label in (self._count, self._why):
            label.setTextFormat(Qt.TextFormat.PlainText)
        self._why.setWordWrap(True)
        self._why.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._count.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignBottom)
        head = QHBoxLayout()
        head.addWidget(self._title, 1)
        head.addWidget(self._count)
        self._places = Places(self, self._widgets, paper is not None)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(GRID, GRID // 2, GRID, GRID // 2)
        layout.setSpacing(GRID // 2)
        layout.addLayout(head)
        layout.addLayout(self._places.body, 1)
        layout.addWidget(self._why, 1)
        self.fold = Fold(self._caption, self, paper is not None)
        layout.addLayout(self.fold.row)
        self._busy = Busy(self, theme)
        self.note = PointerNote(self, theme)
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
        return next(w for (_, mark_name), w in self._widgets.items() if mark_name == name)

    def show_figure(self, figure: Figure) -> None:
        """Draw a figure. One without marks and without a reason is not an answer yet: the old picture stays."""
        if figure is self._figure or (not figure.grid and not figure.why_empty and self._figure.grid):
            return
        relaid, focused = not self._places.same(figure), self._has_keyboard()
        if relaid:  # while the widgets are still those of the last figure: one that goes from under the pointer says so
            self._freeze(False)
        self._figure = figure
        if relaid:
            self._keep_widgets(figure)
            self._places.lay_out(figure)
            marks = (self._widgets[type(mark), mark.name] for mark in figure.marks())
            stops = (stop for widget in marks for stop in getattr(widget, "tab_stops", lambda w=widget: [w])())
            chain([self, *stops, self.fold])
            self._busy.raise_()
        for mark in figure.marks():
            self._widgets[type(mark), mark.name].show_mark(mark)
        self._places.fit_figure(figure, relaid, self._frozen)
        self._label()
        self.note.refresh(self._widgets.values())
        if not self._frozen:
            self._places.leave_frames()
        if focused and figure.grid and (self.hasFocus() or not self._has_keyboard()):
            self.take_keyboard()  # the focused mark is new, or has gone

    def _keep_widgets(self, figure: Figure) -> None:
        """Keep the widgets whose type and name stay; create and delete the others."""
        keys = {(type(mark), mark.name) for mark in figure.marks()}
        for key in [k for k in self._widgets if k not in keys]:
            gone = self._widgets.pop(key)
            gone.hide()
            gone.deleteLater()
        for mark in figure.marks():
            if (type(mark), mark.name) not in self._widgets:
                self._widgets[type(mark), mark.name] = self._make(mark)

    def _make(self, mark: Mark) -> Any:
        widget = realise(mark, self._theme, self._paper is not None)
        widget.setParent(self)
        widget.gestured.connect(self._gestured)
        widget.context.connect(self._context)
        widget.noted.connect(self._noted)
        if self._paper is not None:
            widget.prepare_export(self._paper)
        return widget

    def _label(self) -> None:
        figure = self._figure
        caption = self._caption_parts()
        visible = tuple(part for part in caption if part not in self._once)
        count = f"showing {figure.shown[0]:,} of {figure.shown[1]:,}" if figure.shown else ""
        self._title.say((figure.title,) if figure.title else ())
        for label, text in ((self._count, count), (self._why, figure.why_empty)):
            if label.text() != text:
                label.setText(text)
        for label in (self._title, self._count, self._why) if not self._frozen else ():
            label.setVisible(bool(label.text()))
        self._place_why(bool(figure.grid))
        self._say(visible)
        if visible != caption:
            self._caption.setToolTip(plain_tip(joined(*caption)))
        name_for_readers(self, figure, self._widgets)
        self.setAccessibleDescription(joined(*caption) or figure.why_empty)

    @property
    def whole_caption(self) -> str:
        """The figure's caption and how it is drawn; on paper also what it is a figure of."""
        return joined(*self._caption_parts())

    def _caption_parts(self) -> tuple[str, ...]:
        about = self._figure.about if self._paper is not None else ()
        notes = dict.fromkeys(note for w in self._widgets.values() for note in w.notes())
        parts = [w.part_words() for w in self._widgets.values() if isinstance(w, PlotMark)]
        return tuple(filter(None, (*about, *self._figure.caption_parts, *parts, *notes)))

    def parts(self) -> dict[str, Range]:
        """The visible ranges of zoomed or panned marks, by name."""
        return {n: w.part for (_, n), w in self._widgets.items() if isinstance(w, PlotMark) and w.part is not None}

    def part_words(self) -> str:
        """The same in words, "" where every mark is shown whole."""
        return joined(*(w.part_words() for w in self._widgets.values() if isinstance(w, PlotMark) and w.part is not None))

    def show_parts(self, parts: Mapping[str, Range]) -> None:
        """Zoom marks to these ranges."""
        for name, part in parts.items():
            self.widget(name).show_part(part)

    def say_once(self, parts: Collection[str]) -> None:
        """Caption parts that the window shows once for all its figures: here they are in the tool tip, and in a copied image."""
        if (repeated := frozenset(parts)) != self._once:
            self._once = repeated
            self._label()

    def room_for_marks(self) -> int:
        """Height in px between title and caption."""
        width = self.width() - 2 * GRID
        title = self._title.heightForWidth(width) if self._title.isVisibleTo(self) else 0
        caption = self._caption.heightForWidth(width) if self._caption.isVisibleTo(self) else 0
        why = self._why.heightForWidth(width) if self._why.isVisibleTo(self) else 0
        return self.height() - title - caption - why - 3 * GRID

    def _say(self, caption: tuple[str, ...]) -> None:
        paper = self._paper
        if paper is None:
            self._caption.say(caption, max(2, self.height() // CAPTION_LINE))
        else:
            self._caption.say(caption, SHORT_CAPTION if paper.caption == "short" else 0, len(self._figure.about))
        if not self._frozen:
            self._caption.setVisible(bool(caption) and (paper is None or paper.caption != "none"))

    def _place_why(self, above: bool) -> None:
        """The reason stands in the middle of an empty figure, or above marks that can be clicked."""
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
        if hit.gesture not in _HOVERS:
            self.picked.emit(hit)
            return
        mark: Any = self.sender()
        pointed = hit.gesture == "hover" and getattr(mark, "pointer", True) is not None
        if pointed:
            self._freeze(True)
        self.note.show_readout(mark, readout)
        self.hovered.emit(hit, readout)
        if not pointed:
            self._freeze(False)

    def _freeze(self, frozen: bool) -> None:
        """Freeze title, caption and heights while the pointer is on an item, or let them take what they need."""
        if frozen == self._frozen or self._paper is not None:
            return
        self._frozen = frozen
        for label in (self._title, self._caption):
            label.freeze(frozen)
        if not frozen:
            self._places.fit_figure(self._figure, False)
            self._label()

    @Slot(object, QPoint)
    def _context(self, hit: Hit | None, where: QPoint) -> None:
        self.note.leave(self._widgets.values())
        self.context_requested.emit(hit, where)

    def leaveEvent(self, event: QEvent) -> None:
        """The pointer has gone."""
        super().leaveEvent(event)
        self.note.leave(self._widgets.values())

    def hideEvent(self, event: QHideEvent) -> None:
        """Behind another tab, or closed: nothing is hovered."""
        super().hideEvent(event)
        self.note.leave(self._widgets.values())
        self._freeze(False)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """R resets the view; Esc in any mark releases."""
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

    @property
    def walked(self) -> QWidget | None:
        """The mark with the keyboard focus, or the first one; None in an empty figure."""
        marks = [self._widgets[type(mark), mark.name] for mark in self._figure.marks()]
        return next((w for w in marks if w.hasFocus()), marks[0] if marks else None)

    def zoom(self, factor: float) -> None:
        """Show `factor` times as much of the walked mark, where it can be zoomed."""
        if (act := getattr(self.walked, "zoom", None)) is not None:
            act(factor)

    def _has_keyboard(self) -> bool:
        focus = self.window().focusWidget()
        return focus is not None and (focus is self or self.isAncestorOf(focus))

    def take_keyboard(self) -> None:
        """Focus the first mark, whose items the arrows then walk. An empty figure passes the focus on once it has a mark."""
        place = self._figure.grid[0][0] if self._figure.grid else None
        widget = self if place is None else self._widgets[type(place), place.name]
        widget.setFocus(Qt.FocusReason.ShortcutFocusReason)

    # commands --------------------------------------------------------------------------------------------------------

    def set_theme(self, theme: Theme) -> None:
        """Another theme: hues stay, scales begin at its background."""
        self._theme = theme
        self.setPalette(palette(theme))
        own, app = stylesheet(theme), QApplication.instance()
        if isinstance(app, QApplication) and own in app.styleSheet():
            own = ""  # the application has it: a sheet per view as well would take seconds to polish
        if self.styleSheet() != own:
            self.setStyleSheet(own)
        colours = {self._title: ("text", theme.normal, True), self._count: ("muted", theme.small, False)}
        colours |= {self._caption: ("muted", theme.small, False), self._why: ("muted", theme.normal, False)}
        for label, (name, size, bold) in colours.items():
            label.setFont(theme.font(size, bold=bold))
            ink = label.palette()
            ink.setColor(label.foregroundRole(), theme.colour(name))
            label.setPalette(ink)
        background = self.palette()
        background.setColor(self.backgroundRole(), theme.colour("background"))
        self.setPalette(background)
        self.fold.set_theme(theme)
        self._busy.set_theme(theme)
        self.note.set_theme(theme)
        for widget in self._widgets.values():
            widget.set_theme(theme)
        self._places.align()

    def set_busy(self, busy: bool, fraction: float | None = None) -> None:
        """Recomputing: the old picture dims after 150 ms under a thin progress line."""
        self._busy.set_busy(busy, fraction)

    def reset_view(self) -> None:
        """Zoom out to everything."""
        for widget in self._widgets.values():
            widget.reset_view()

    def as_shown(self) -> Figure:
        """The figure with its tables sorted and filtered as on the screen."""
        return as_arranged(self._figure, self._widgets)

    def copy_image(self) -> None:
        """Copy the picture to the clipboard as it is on the screen."""
        self._busy.hide()
        once = self._once
        self.say_once(())
        self.fold.hide()  # not part of a picture
        QGuiApplication.clipboard().setPixmap(self.grab(QRect(QPoint(0, 0), self.size())))
        self.say_once(once)
        self.fold.refresh()

    def paintEvent(self, event: QPaintEvent) -> None:
        """The theme's background. Not by the palette: a style sheet's first polish puts back the one it knew before."""
        painter = QPainter(self)
        painter.fillRect(event.rect(), self._theme.colour("background"))
        painter.end()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The veil covers everything; the readout at the pointer was of another place."""
        super().resizeEvent(event)
        self.note.leave(self._widgets.values())
        self._busy.setGeometry(self.rect())
        self._places.resized()
        self._label()
        for label in (self._title, self._caption):
            label.forget()

    def set_stroke(self, scale: float) -> None:
        """Device pixels per px of line width, for a scaled painter."""
        for widget in self._widgets.values():
            if hasattr(widget, "set_stroke"):
                widget.set_stroke(scale)

    def natural_height(self) -> int:
        """Height in px of the marks at the present width, with all text around them."""
        layout = self.layout()
        assert layout is not None
        width, margins = max(self.width() - 2 * GRID, 80), layout.contentsMargins()
        parts = [max(self._widgets[type(m), m.name].natural_height(width // len(row)) for m in row) for row in self._figure.grid]
        if not self._title.isHidden() or not self._count.isHidden():
            parts.insert(0, max(label.sizeHint().height() for label in (self._title, self._count) if not label.isHidden()))
        parts += [label.heightForWidth(width) for label in (self._why, self._caption) if not label.isHidden()]
        return margins.top() + sum(parts) + layout.spacing() * max(0, len(parts) - 1) + margins.bottom()

    def least_width(self) -> float:
        """Width in px below which part of the figure cannot be read, each part having the whole width."""
        words = self._figure.title.split()
        title = max(map(QFontMetricsF(self._title.font()).horizontalAdvance, words), default=0.0)
        return max([title, *(w.least_width() for w in self._widgets.values())]) + 2 * GRID

    def lay_out_for_paper(self, width: int, height: int | None = None) -> int:
        """Give every mark the height it asks for at this width; the height of the whole.

        `height`: marks share it as on the screen; returned is the least height in which nothing is lost.
        """
        self._label()
        self._places.give_heights(width, share=height is not None)
        layout = self.layout()
        assert layout is not None
        layout.activate()
        high = layout.totalHeightForWidth(width) if height is None else layout.minimumHeightForWidth(width)
        return max(high, layout.totalMinimumSize().height())
