"""`FigureView`: a Figure on the screen. Title above, marks in rows, caption below; only what has changed is redrawn."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from PySide6.QtCore import QEvent, QPoint, QRect, Qt, Signal, Slot
from PySide6.QtGui import QFontMetricsF, QGuiApplication, QHideEvent, QImage, QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QApplication, QHBoxLayout, QVBoxLayout, QWidget

from circuitlab.caption_parts import About, Essential, OnPaper, Reference, about_of
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.plain_text import InkLabel
from circuitlab.draw.look.style_rules import set_sheet
from circuitlab.draw.look.theme import GRID, LIGHT, Theme, palette, stylesheet
from circuitlab.draw.painted.mark import PaintedMark, plain_tip
from circuitlab.draw.plots.plot import PlotMark, Range
from circuitlab.draw.plots.xy import XYPlot
from circuitlab.draw.pointing.focus_order import chain
from circuitlab.draw.pointing.pointer_note import PointerNote
from circuitlab.draw.view._arranged import as_arranged
from circuitlab.draw.view._busy import Busy
from circuitlab.draw.view._fold import Fold
from circuitlab.draw.view._letter import Letter
from circuitlab.draw.view._realise import realise
from circuitlab.draw.view._spoken import name_for_readers
from circuitlab.draw.view.caption import Caption, Title
from circuitlab.draw.view.places import Key, Places
from circuitlab.figures.marks import Edges, Figure, Hit, Mark, beyond, joined
from circuitlab.story.zoom import Part

_HOVERS = ("hover", "leave")
STILL = "still of"  # in a title: the model that a pale picture is of, while that of another one is computed
SHORT_CAPTION = 3  # lines of a short caption on paper
CAPTION_LINE = 150  # px of height for each line of caption above the second
PASSES = 4  # in which words and picture of a stage are fitted to each other
MOST_WORDS = 0.3  # of the height of a stage: its caption, whose last parts go before the picture is a speck
BESIDE_REFERENCE = 3  # lines of caption at most while there is a reference, all of which have their room


class FigureView(QWidget):
    """Realises every mark.

    `picked(Hit)`: click, shift-click, double-click, and "leave" on Esc. `hovered(Hit, readout)`: hover, and leave with "".
    `reread(readout)`: another figure under what is hovered, or under nothing ("").
    `context_requested(Hit | None, global position)`: right-click or menu key. `turned()`: by hand another part is shown.
    """

    picked = Signal(object)
    turned = Signal()
    hovered = Signal(object, str)
    reread = Signal(str)
    context_requested = Signal(object, QPoint)

    def __init__(
        self, theme: Theme = LIGHT, parent: QWidget | None = None, paper: Paper | None = None, letter: str | None = None
    ) -> None:
        super().__init__(parent)
        self._theme, self._figure, self._paper = theme, Figure(), paper
        self._letter = None if letter is None else Letter(letter, self)  # of a part of a sheet, whose title is ordinary text
        self._widgets: dict[Key, Any] = {}
        self._why_above = self._themed = False
        self._title_above = ""
        self._titles: tuple[str, ...] | None = None  # that comparing gives the figure; None without a reference
        self._once: frozenset[str] = frozenset()  # parts of captions that the window says for all its figures
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self._read: tuple[Any, str] = None, ""  # the mark that is hovered, and its readout
        self._still_said = ""  # in the title
        self._pale, self._still_of = False, ""  # dimmed; the model that the picture is still of, where another is being computed
        self._holds = False  # ranges only grow
        self._still = self._due = False  # nothing is laid out yet; it has to be
        self._settling = self._hopes = False  # words and picture of a stage are fitted; first as if all had room
        self._frozen = False  # while the pointer is on an item, text around the picture does not move it
        self._count, self._why = InkLabel(self), InkLabel(self)
        self._title, self._caption = Title(self, paper is None), Caption(self, paper is None)
        for label in (self._count, self._why):
            label.setTextFormat(Qt.TextFormat.PlainText)
        self._why.setWordWrap(True)
        self._why.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._count.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignBottom)
        head = QHBoxLayout()
        if self._letter is not None:
            head.addWidget(self._letter, 0, Qt.AlignmentFlag.AlignTop)
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
        self._busy.dimmed.connect(self._dimmed)
        self.note = PointerNote(self, theme)
        self._label()
        self.set_theme(theme)

    # what is shown ---------------------------------------------------------------------------------------------------

    @property
    def figure(self) -> Figure:
        """The figure that is drawn."""
        return self._figure

    @property
    def title(self) -> str:
        """The title of the figure that is drawn."""
        return self._figure.title

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
        self._fit(relaid)
        self.note.refresh(self._widgets.values())
        self._read_again()
        if focused and figure.grid and (self.hasFocus() or not self._has_keyboard()):
            self.take_keyboard()  # the focused mark is new, or has gone

    def _fit(self, relaid: bool) -> None:
        """Fit places and words to the figure, whose marks stand elsewhere than before if `relaid`."""
        self._places.fit_figure(self._figure, relaid, self._frozen or self._still)
        self._label()
        if not (self._frozen or self._still):
            self._places.give_frames()
        self._settle_stage()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Lay nothing out until the end: figure, size and the words above change together, and are fitted to each other once."""
        layout = self.layout()
        assert layout is not None
        self._still, self._due = True, False
        layout.setEnabled(False)
        try:
            yield
        finally:
            layout.setEnabled(True)
            self._still = False
            if self._due:
                layout.invalidate()
                layout.activate()  # words are fitted to the width that they have
                if self._settles:
                    self._settle_stage()
                else:
                    self._fit(True)
                layout.activate()

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
        widget: Any = realise(mark, self._theme, self._paper is not None)  # some have signals and methods that others lack
        widget.setParent(self)
        widget.gestured.connect(self._gestured)
        widget.context.connect(self._context)
        widget.noted.connect(self._noted)
        if hasattr(widget, "turned"):
            widget.turned.connect(self.turned)
        if self._holds and hasattr(widget, "hold_range"):
            widget.hold_range(True)
        if self._paper is not None:
            widget.setPalette(palette(self._theme))  # not that of the application, whose theme no file is to depend on
            widget.prepare_export(self._paper)
        return widget

    def _label(self) -> None:
        if self._still:
            self._due = True
            return
        figure = self._figure
        count = "" if self._theme.stage else self._shown_words()  # there the title has the room
        title = beyond(self._title_above, figure.title)
        self._still_said = self._still_words
        title = joined(title, self._still_said)
        self._title.say(figure.title_parts(title), self._lines() if self._theme.stage else 0)
        self._title.keep_room(self._titles or () if title and not self._theme.stage else (), 0)  # there it has one line
        for label, text in ((self._count, count), (self._why, figure.why_empty)):
            if label.text() != text:
                label.setText(text)
        for label in (self._title, self._count, self._why) if not self._frozen else ():
            label.setVisible(bool(label.text()))
        self._place_why(bool(figure.grid))
        caption = self.caption_parts
        visible = tuple(part for part in self._parts_in_sight(caption) if part not in self._once)
        self._say(visible)
        if visible != caption:
            self._caption.setToolTip(plain_tip(joined(*caption)))
        name_for_readers(self, figure, self._widgets)
        self.setAccessibleDescription(joined(*caption) or figure.why_empty)

    def _shown_words(self) -> str:
        """How many of its items the figure shows, "" of one that leaves none out."""
        figure = self._figure
        edges = " edges, the largest" if any(isinstance(mark, Edges) for mark in figure.marks()) else ""
        return f"showing {figure.shown[0]:,} of {figure.shown[1]:,}{edges}" if figure.shown else ""

    @property
    def whole_caption(self) -> str:
        """The figure's caption and how it is drawn; on paper also what it is a figure of."""
        return joined(*self.caption_parts)

    @property
    def caption_parts(self) -> tuple[str, ...]:
        """The parts of `whole_caption`."""
        about = self._figure.about if self._paper is not None else ()
        widgets = [self._widgets[type(mark), mark.name] for mark in self._figure.marks()]
        shown = [w for w in widgets if not self._theme.stage or w.isVisibleTo(self)]
        placed = () if self._hopes else self._places.notes
        cut = (words for w in shown if isinstance(w, PaintedMark) for words in w.without_room())
        notes = {} if self._hopes else dict.fromkeys((*cut, *(note for w in shown for note in w.notes())))
        parts = [w.part_words() for w in widgets if isinstance(w, PlotMark)]
        own = (part for part in self._figure.caption_parts if self._paper is not None or not isinstance(part, OnPaper))
        count = Essential(self._shown_words()) if self._theme.stage else ""
        first, last = (placed, ()) if self._theme.stage else ((), placed)  # the first is kept longest
        caption = tuple(filter(None, (*about, count, *first, *own, *parts, *last, *notes)))
        return caption if self._paper is None else tuple(sorted(caption, key=self._rank))

    def _rank(self, part: str) -> int:
        """Of a part of the caption on paper: what the figure is of and compared with, its conventions, then what may give way."""
        return 0 if part in self._figure.about or isinstance(part, Reference) else 1 if about_of(part) is About.READING else 2

    def _parts_in_sight(self, caption: tuple[str, ...]) -> tuple[str, ...]:
        """Of these parts those that the theme has words for."""
        if self._theme.words == "full":
            return caption
        brief = self._figure.brief
        return tuple(part for part in caption if part in brief or isinstance(part, Essential))

    def parts(self) -> dict[str, Range]:
        """The visible ranges of zoomed or panned marks, by name."""
        parts = ((name, w.kept_part()) for (_, name), w in self._widgets.items() if isinstance(w, PlotMark))
        return {name: part for name, part in parts if part is not None}

    def part_words(self) -> str:
        """The same in words, "" where every mark is shown whole."""
        return joined(*(w.part_words() for w in self._widgets.values() if isinstance(w, PlotMark) and w.part is not None))

    def show_parts(self, parts: Mapping[str, Range]) -> None:
        """Zoom marks to these ranges."""
        for name, part in parts.items():
            self.widget(name).show_part(part)

    def visible_parts(self) -> dict[str, Part]:
        """What is seen of the marks that are not shown whole, in their own units, by name; of tables their rows and order."""
        parts = ((name, w.visible_part()) for (_, name), w in self._widgets.items() if hasattr(w, "visible_part"))
        return {name: part for name, part in parts if part is not None}

    def show_visible_parts(self, parts: Mapping[str, Part]) -> tuple[str, ...]:
        """Show these parts, which another figure may have had, and every other mark whole. The names of those that are not here
        as they were: a mark that is shown as far as it goes, or whole.
        """
        others: list[str] = []
        for (_, name), widget in self._widgets.items():
            if hasattr(widget, "visible_part"):
                if name not in parts:
                    widget.show_whole()
                elif not widget.show_visible_part(parts[name]):
                    others.append(name)
        return tuple(others)

    def hold_ranges(self, on: bool) -> None:
        """From now on axes only grow from one figure to the next, as in a film; or each fits its figure again."""
        self._holds = on
        for widget in self._widgets.values():
            if hasattr(widget, "hold_range"):
                widget.hold_range(on)

    def say_title_above(self, title: str) -> None:
        """What stands above the view already is not written again: of a title that begins with it the rest is."""
        if title != self._title_above:
            self._title_above = title
            self._label()

    def say_once(self, parts: Collection[str]) -> None:
        """Caption parts that the window shows once for all its figures: here they are in the tool tip, and in a copied image."""
        if (repeated := frozenset(parts)) != self._once:
            self._once = repeated
            self._label()

    def keep_room(self, titles: tuple[str, ...] | None) -> None:
        """While there is a reference, keep room for the captions and these titles of each side: the picture stays where it is.

        None: there is no reference.
        """
        if titles != self._titles:
            self._titles = titles
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
            lines = self._lines()
            compared = self._titles is not None and bool(self._figure.grid)
            lines = min(lines, BESIDE_REFERENCE) if compared else lines
            most = int(MOST_WORDS * self.height() / self._caption.fontMetrics().lineSpacing()) if self._theme.stage else 0
            self._caption.say(caption, lines, most=max(most, lines))
            self._caption.keep_room((), lines if compared else 0)
        else:
            first = sum(self._rank(part) < 2 for part in caption)
            self._caption.say(caption, SHORT_CAPTION if paper.caption == "short" else 0, first)
        if not self._frozen:
            self._caption.setVisible(bool(caption or self._caption.room[1]) and (paper is None or paper.caption != "none"))

    def _lines(self) -> int:
        """How many lines words around the picture may take, two at least in a window."""
        return max(1 if self._theme.stage else 2, self.height() // self._theme.px(CAPTION_LINE))

    def _place_why(self, above: bool) -> None:
        """The reason stands in the middle of an empty figure, or above marks that can be clicked."""
        layout = self.layout()
        if above == self._why_above or not isinstance(layout, QVBoxLayout):
            return
        self._why_above = above
        layout.removeWidget(self._why)
        layout.insertWidget(1 if above else 2, self._why, 0 if above else 1)
        self._why.setAlignment(Qt.AlignmentFlag.AlignLeft if above else Qt.AlignmentFlag.AlignCenter)

    def below_why(self) -> int:
        """px from the top to the end of the words that say why an empty figure shows nothing."""
        place = self._why.geometry()
        return place.center().y() + self._why.heightForWidth(place.width()) // 2

    @Slot()
    def _noted(self) -> None:
        if self._settling:
            return
        if self._still:
            self._due = True
            return
        before = self.room_for_marks()
        self._label()
        if self.room_for_marks() != before:
            self._settle_stage()

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
        self._read = (mark, readout) if readout else (None, "")
        self.hovered.emit(hit, readout)
        if not pointed:
            self._freeze(False)

    def _read_again(self) -> None:
        """A readout that is on the screen is of the figure that is drawn, or goes with the one that it was of."""
        mark, before = self._read
        if mark is None:
            return
        readout = mark.hovered_readout if mark in self._widgets.values() else ""
        self._read = (mark, readout) if readout else (None, "")
        if readout != before:
            self.reread.emit(readout)

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

    def forget_pointer(self) -> None:
        """Nothing is hovered until the pointer moves again: another picture is about to be shown under it."""
        for widget in self._widgets.values():
            QApplication.sendEvent(widget, QEvent(QEvent.Type.Leave))
        self.note.leave(self._widgets.values())

    def forget_hand(self) -> None:
        """Nothing is hovered, selected by hand or focused: the next picture is drawn as in a new view."""
        self.forget_pointer()
        focus = self.window().focusWidget()
        if focus is not None and self._has_keyboard():
            focus.clearFocus()
        for widget in self._widgets.values():
            if hasattr(widget, "forget_hand"):
                widget.forget_hand()

    def release(self) -> bool:
        """Select what the figure has chosen and nothing else. Whether anything else was selected by hand."""
        released = [widget.release() for widget in self._widgets.values() if hasattr(widget, "release")]  # all of them
        return any(released)

    def leaveEvent(self, event: QEvent) -> None:
        """The pointer has gone."""
        super().leaveEvent(event)
        self.note.leave(self._widgets.values())

    def hideEvent(self, event: QHideEvent) -> None:
        """Behind another tab, or closed: nothing is hovered, and what was is read nowhere."""
        super().hideEvent(event)
        self.note.leave(self._widgets.values())
        if self._read[1]:
            self._read = (None, "")
            self.reread.emit("")
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
        if theme == self._theme and self._themed:
            return
        reworded, self._theme, self._themed = theme.words != self._theme.words, theme, True
        self.setPalette(palette(theme))
        if self._paper is not None:
            self.setFont(theme.font())
        own, app = stylesheet(theme), QApplication.instance()
        if isinstance(app, QApplication) and own in app.styleSheet():
            own = ""  # the application has it: a sheet per view as well would take seconds to polish
        set_sheet(self, own)
        lettered = self._letter is not None
        colours = {self._title: ("text", theme.small if lettered else theme.normal, not lettered)}
        colours |= {self._count: ("muted", theme.small, False)}
        colours |= {self._caption: ("muted", theme.small, False), self._why: ("muted", theme.normal, False)}
        for label, (name, size, bold) in colours.items():
            label.setFont(theme.font(size, bold=bold))
            label.set_ink(theme.colour(name))
        if self._letter is not None:
            self._title.setContentsMargins(0, self._letter.set_theme(theme, self._title.font()), 0, 0)
        background = self.palette()
        background.setColor(self.backgroundRole(), theme.colour("background"))
        self.setPalette(background)
        side = 0 if theme.stage else GRID  # a stage has room beside it
        layout = self.layout()
        if layout is not None:
            layout.setContentsMargins(side, GRID // 2, side, GRID // 2)
        self.fold.set_theme(theme)
        self._busy.set_theme(theme)
        self.note.set_theme(theme)
        for widget in self._widgets.values():
            widget.set_theme(theme)
        if reworded:
            self._label()
        self._places.align()

    def set_busy(self, busy: bool, fraction: float | None = None, still_of: str = "") -> None:
        """Recomputing: the old picture dims after 150 ms under a thin progress line. `still_of`: what it is of until then, where
        all around it says otherwise; the title says so while it is pale.
        """
        self._still_of = still_of
        self._busy.set_busy(busy, fraction)
        self._say_still()

    @Slot(bool)
    def _dimmed(self, pale: bool) -> None:
        self._pale = pale
        self._say_still()

    @property
    def _still_words(self) -> str:
        return f"{STILL} {self._still_of}" if self._pale and self._still_of else ""

    def _say_still(self) -> None:
        if self._still_said != self._still_words:
            self._label()

    def reset_view(self) -> None:
        """Zoom out to everything."""
        for widget in self._widgets.values():
            widget.reset_view()
        self.turned.emit()

    def as_shown(self) -> Figure:
        """The figure with its tables sorted and filtered as on the screen."""
        return as_arranged(self._figure, self._widgets)

    def copy_image(self) -> None:
        """Copy the picture to the clipboard as it is on the screen."""
        QGuiApplication.clipboard().setImage(self.image())

    def image(self) -> QImage:
        """The picture as it is on the screen, with its whole caption."""
        self._busy.hide()
        once = self._once
        self.say_once(())
        self.fold.hide()  # not part of a picture
        image = self.grab(QRect(QPoint(0, 0), self.size())).toImage()
        self.say_once(once)
        self.fold.refresh()
        return image

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
        if self._still:
            self._due = True
            return
        self._places.resized()
        self._label()
        for label in (self._title, self._caption):
            label.forget()
        self._settle_stage()

    def left_out(self) -> tuple[str, ...]:
        """What a figure of this size has no room for, in words; after it was painted on paper."""
        each = (words for w in self._widgets.values() if hasattr(w, "left_out") for words in w.left_out())
        caption = ["caption shortened"] if self._caption.folds and not self._caption.isHidden() else []
        return (*dict.fromkeys(each), *caption)

    @property
    def _settles(self) -> bool:
        """Whether words and picture are fitted to each other: on a stage, unless something stands still or they are at it."""
        return self._theme.stage and not self._frozen and not self._settling

    def _settle_stage(self) -> None:
        """On a stage the picture takes what the words leave, and the words say what has no room; whatever was shown before."""
        if self._still:
            self._due = True
        if self._still or not self._settles:
            return
        self._settling = self._hopes = True
        try:
            self._label()
            if not self._holds:  # a film keeps the most room that its frames have had
                for label in (self._title, self._caption):
                    label.forget()
                self._places.forget()
            for _ in range(PASSES):
                before = self._places.notes, self.room_for_marks()
                self._places.resized()
                self._activate()
                self._hopes = False
                self._label()
                if (self._places.notes, self.room_for_marks()) == before:
                    break
        finally:
            self._settling = self._hopes = False

    def _activate(self) -> None:
        """Give the marks their room now: only then do they know what of them has none."""
        layout = self.layout()
        if layout is not None and any(isinstance(widget, PaintedMark | XYPlot) for widget in self._widgets.values()):
            layout.activate()
            for widget in self._widgets.values():
                if isinstance(widget, PaintedMark) and widget.isVisible():
                    widget.catch_up()

    def set_ratio(self, ratio: float) -> None:
        """Device pixels per px, for a scaled painter."""
        for widget in self._widgets.values():
            if hasattr(widget, "set_ratio"):
                widget.set_ratio(ratio)

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
        title += 0 if self._letter is None else self._letter.sizeHint().width() + GRID
        return max([title, *(w.least_width() for w in self._widgets.values())]) + 2 * GRID

    def lay_out_for_paper(self, width: int, height: int | None = None) -> int:
        """Give every mark the height it asks for at this width; the height of the whole.

        `height`: marks share it as on the screen; returned is the least height in which nothing is lost.
        """
        self._label()
        self._places.paper.give_heights(width, share=height is not None)
        layout = self.layout()
        assert layout is not None
        layout.activate()
        high = layout.totalHeightForWidth(width) if height is None else layout.minimumHeightForWidth(width)
        return max(high, layout.totalMinimumSize().height())
