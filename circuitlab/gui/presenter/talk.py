"""One talk: the stage on its screen, the speaker's view over the window, the clock, and what both show of a step."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal, Slot
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QDockWidget, QMainWindow

from circuitlab.draw.look.theme import Theme
from circuitlab.figures.contracts.panel import panels
from circuitlab.figures.marks import joined
from circuitlab.gui.panel.note_dialog import title_of
from circuitlab.gui.presenter.clock import TalkClock
from circuitlab.gui.presenter.next_picture import ShownFigure, page_picture, reduced
from circuitlab.gui.presenter.options import TalkOptions
from circuitlab.gui.presenter.peek import Peek
from circuitlab.gui.presenter.screens import Screens
from circuitlab.gui.presenter.speaker_view import Notes, Shown, SpeakerView, notes_markdown
from circuitlab.gui.presenter.stage import Stage
from circuitlab.gui.presenter.stage_views import pictures_of, rows_of
from circuitlab.gui.presenter.step_words import UNTITLED
from circuitlab.gui.work.app_context import AppContext
from circuitlab.report.held_figures import held_figure, held_titles
from circuitlab.report.numbers import held_numbers
from circuitlab.state.state import State
from circuitlab.story.resolver import Ready
from circuitlab.story.setup import Setup
from circuitlab.story.text import fill_text
from circuitlab.story.zoom import of_panel

AFTER = 400  # ms between two small pictures, and from a step to its first ones: no key waits for them
WINDOWED = 1280, 720  # px of a stage in a window
NOT_READY = "Not prepared: its picture is there once it has been computed."


class Talk(QObject):
    """`ended()`: the stage has been closed. `ready_line()`: whether all steps are ready, in one line."""

    ended = Signal()

    def __init__(
        self, window: QMainWindow, context: AppContext, stage: Stage, options: TalkOptions, ready_line: Callable[[], str]
    ) -> None:
        super().__init__(window)
        self.window, self.stage, self.options, self._ready_line = window, stage, options, ready_line
        self.clock = TalkClock(options.minutes, self)
        self.screens = Screens(stage, window, self)
        self.view = SpeakerView(window, context.theme, self.clock, stage.key)
        self.peek = Peek(stage)
        stage.lay_below(self.peek)
        self._pictures: dict[tuple[int, object, object], QImage] = {}  # by step, size of the stage and room
        self._put_away: list[QDockWidget] = []
        self._drawing = QTimer(self)
        self._drawing.setSingleShot(True)
        self._drawing.timeout.connect(self._draw)
        stage.acts |= {"aside": self._peek, "time": self.clock.pause_or_resume}
        stage.page.dark = options.dark
        stage.page.theme_changed.connect(self._set_stage_theme)
        stage.step_changed.connect(self._stepped)
        stage.tour.changed.connect(self.refresh)  # another step, or the same one now that it is set up
        stage.tour.value_changed.connect(self.refresh)
        stage.turned.connect(self.refresh)
        stage.swap_wanted.connect(self.screens.swap)
        stage.ended.connect(self._stage_closed)
        stage.aids.changed.connect(self.refresh)
        stage.context.document.changed.connect(self._draw_later)
        stage.film.changed.connect(self._film_changed)
        context.theme_changed.connect(self.view.set_theme)
        self.view.turned.connect(self._turned)
        self.view.swap_wanted.connect(self.screens.swap)
        self.view.end_wanted.connect(stage.end)
        self.screens.changed.connect(self._screens_changed)
        self._set_stage_theme(stage.page.theme)

    def begin(self) -> None:
        """Show the stage with the step to begin with, and start the clock."""
        self.stage.resize(*WINDOWED)
        self.stage.go(min(self.options.first, self.stage.count - 1))
        self.screens.show(self.options.screen, self.options.windowed)
        self.clock.start()
        self.refresh()

    @Slot()
    def _screens_changed(self) -> None:
        self._tell_state()
        self.view.setVisible(self.screens.two)
        if self.screens.two:
            self._put_floating_away()
            self.peek.put_away()
            self.view.raise_()

    def _peek(self) -> None:
        """Show the note on the stage, or hide it: only where the speaker has no screen to read it from."""
        if not self.screens.two:
            self.peek.toggle()

    def _put_floating_away(self) -> None:
        """Panels that float would lie over the notes."""
        for dock in self.window.findChildren(QDockWidget):
            if dock.isFloating() and dock.isVisible():
                self._put_away.append(dock)
                dock.hide()

    @Slot(object)
    def _set_stage_theme(self, theme: Theme) -> None:
        self.peek.set_dark(theme.dark)

    @Slot(int)
    def _turned(self, by: int) -> None:
        self.stage.acts["on" if by > 0 else "back"]()

    # -- what the speaker sees ----------------------------------------------------------------------------------------------

    @Slot()
    def refresh(self, *_: object) -> None:
        """Show the notes of the present step, and what comes after it."""
        stage, steps = self.stage, self.stage.story.steps
        number, step = stage.index, stage.step
        ready = stage.tour.ready
        aside = fill_text(step.aside, {} if ready is None else ready.words, stage.tour.value_texts)
        notes = () if ready is None else self._notes(number, ready)
        after = Shown(steps[number + 1].title or UNTITLED) if number + 1 < stage.count else None
        now = Shown(step.title or UNTITLED, aside, stage.public_line(), notes)
        self.view.show_step(number + 1, stage.count, now, after, stage.seen != number)
        self.peek.show_notes(notes_markdown(aside, notes))
        self._tell_state()
        self._draw_later()

    @Slot()
    def _film_changed(self) -> None:
        self._tell_state()
        self._draw_later()

    def _tell_state(self) -> None:
        """Say what the audience sees; with one screen small on it, and which step is behind it."""
        stage = self.stage
        self.peek.cover(bool(stage.aids.curtain.colour))
        place = lambda number: f"{number + 1} / {stage.count}"
        over = f"{stage.aids.state}, {place(stage.seen)}" if stage.frozen else stage.aids.state
        film = "film held" if stage.film.paused else ""
        self.view.show_state("" if stage.frozen else stage.picture_words, joined(film, over))
        stage.aids.still.say(f"frozen · {place(stage.index)}" if stage.frozen and not self.screens.two else "")

    def _notes(self, number: int, ready: Ready) -> Notes:
        """The session's notes on what a step shows."""
        notes = self.stage.context.notes.shown_by(ready.state, pictures_of(self.stage.story.setup(number))[0])
        return [(title_of(note), note.text) for note in notes]

    @Slot(int)
    def _stepped(self, number: int) -> None:
        """While somebody walks through steps nothing is drawn small."""
        self._drawing.start(AFTER)

    @Slot()
    def _draw_later(self, *_: object) -> None:
        """Once for all that changes from now on: what comes faster, as a film does, does not put it off."""
        if not self._drawing.isActive():
            self._drawing.start(AFTER)

    @Slot()
    def _draw(self) -> None:
        """Draw what is on the stage, and what comes next once the present step is there or plays its film."""
        if self.view.isHidden():
            return
        self.view.show_ready(self._ready_line())
        self._draw_stage()
        if self.stage.waiting:
            self._draw_later()
        undrawn = self.view.picture.image.isNull()
        if undrawn if self.stage.film.running else not self.stage.waiting:
            self._draw_next(self.stage.index + (self.stage.seen == self.stage.index))

    def _draw_stage(self) -> None:
        self.view.show_stage(reduced(self.stage.grab().toImage(), self.view.mirror.room()))

    def _draw_next(self, number: int) -> None:
        if number >= self.stage.count:
            return
        ready = self.stage.tour.prepared.get(number)
        image = QImage() if ready is None else self._picture(number, ready)
        self.view.picture.show_image(image, NOT_READY if image.isNull() else "")

    def _picture(self, number: int, ready: Ready) -> QImage:
        """The page of a step as it will be on the stage: of its size, with the figures of held answers, reduced."""
        stage, room = self.stage, self.view.picture.room()
        key = number, stage.page.size().toTuple(), room.toTuple()
        if key not in self._pictures:
            setup = stage.story.setup(number)
            rows = [[self._held(name, ready.beginning, setup) for name in row] for row in rows_of(pictures_of(setup)[0])]
            figures = [figure for row in rows for figure, *_ in row if figure.grid]
            words = stage.words_of(number, ready, ready.beginning, figures, held_numbers(stage.context.engine, ready))
            image = page_picture(words, rows, stage.page.size(), room, stage.page.dark)
            if not all(figure.grid for row in rows for figure, *_ in row):
                return image  # more of it may be there later
            self._pictures[key] = image
        return self._pictures[key]

    def _held(self, name: str, state: State, setup: Setup) -> ShownFigure:
        """A panel in a State, from answers that are there, as the step shows it."""
        context, panel = self.stage.context, panels()[name]
        figure = held_figure(context.engine, panel, state)
        if figure.grid:
            figure = figure.with_caption(*context.remarks_on(state))
        return figure, held_titles(context.engine, panel, state, figure.title), of_panel(setup.zoom, name)

    # -- the end --------------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Close the stage."""
        self.stage.end()

    @Slot()
    def _stage_closed(self) -> None:
        """Give the window back as it was."""
        self._drawing.stop()
        self.clock.stop()
        self.view.hide()
        self.view.deleteLater()
        if self.window.isVisible():
            self.screens.stop()
            for dock in self._put_away:
                dock.show()
            self.window.activateWindow()
        self.stage.deleteLater()
        self.ended.emit()
