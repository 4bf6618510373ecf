"""The Story dock: the session's own story and the lessons as lists, or the page of the one that is walked through.

It arranges the window as each step specifies.
"""

from __future__ import annotations

import logging

from PySide6.QtCore import QEvent, QObject, Qt, Signal, Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QDockWidget, QMenu, QSizePolicy, QStackedWidget, QVBoxLayout, QWidget

from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.draw.look.style_rules import set_sheet
from circuitlab.draw.look.theme import Theme
from circuitlab.errors import BadInput
from circuitlab.gui.lessons.host import Host
from circuitlab.gui.lessons.layout import arrangement_for, beside
from circuitlab.gui.lessons.links import Links
from circuitlab.gui.lessons.listing import LessonList
from circuitlab.gui.lessons.note_actions import NoteActions
from circuitlab.gui.lessons.own_steps import OwnSteps
from circuitlab.gui.lessons.own_story import OwnStory
from circuitlab.gui.lessons.page import LessonPage
from circuitlab.gui.lessons.ring import Ring
from circuitlab.gui.lessons.rows import SIDE
from circuitlab.gui.lessons.session_part import SessionPart
from circuitlab.gui.lessons.step_film import StepFilm
from circuitlab.gui.lessons.tour import Tour
from circuitlab.gui.panel.panel_dock import on_screen
from circuitlab.gui.panel.title_bar import TitleBar
from circuitlab.gui.places.arrangements import Arrangement
from circuitlab.gui.places.saved_layout import SavedLayout
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.lessons.lesson import files, lessons, read, titles
from circuitlab.story.setup import Setup
from circuitlab.story.story import Story
from circuitlab.story.zoom import Parts

log = logging.getLogger("circuitlab.lessons")
NARROWEST = 280  # px
NONE = "There are no lessons. Lessons are Markdown files in resources/lessons, or in the lessons folder beside your settings."


class LessonsDock(QDockWidget):
    """The dock. `window` is its parent, `host` what it arranges: the same object in the application.

    `model_wanted(name)`: a step asks for a model of the catalogue.
    """

    model_wanted = Signal(str)

    def __init__(self, window: QWidget, host: Host) -> None:
        super().__init__("Story", window)
        self.setObjectName("dock.lessons")
        self.main, self.context = host, host.context
        self.tour = Tour(self.context, host.remember, self)
        self.own = OwnStory(self.context, self)
        self.own_steps = OwnSteps(self.tour, self.own, host, self)
        self.film = StepFilm(self.tour, host, self)
        self.notes = NoteActions(host, window, self)
        self.ring = Ring(self.context, window)
        self.links = Links(host, self.tour, self.ring, self)
        self._before: SavedLayout | None = None
        self._zoom_before: Parts = {}
        self._filled = False
        self.pages = QStackedWidget(self)
        self.pages.setMinimumWidth(NARROWEST)
        self.session = SessionPart(self.context, self)
        self.lessons_title = PlainLabel("Lessons", self)
        self.problem = PlainLabel(self)
        self.list = LessonList(self.context, self.tour.places, self)
        self.page = LessonPage(self.context, self.tour, self.own, self.film, self)
        self._lay_out()
        self._connect()

    def _lay_out(self) -> None:
        front = self.front = QWidget(self)
        front.setObjectName("front")
        front.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        front.installEventFilter(self)
        box = QVBoxLayout(front)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        self.problem.setWordWrap(True)
        self.problem.setProperty("role", "warning")
        self.problem.setContentsMargins(16, 8, 16, 8)
        self.problem.hide()
        self.lessons_title.setProperty("role", "title")
        heading = QVBoxLayout()
        heading.setContentsMargins(SIDE, 10, SIDE, 4)
        heading.addWidget(self.lessons_title)
        box.addWidget(self.session)
        box.addLayout(heading)
        box.addWidget(self.problem)
        box.addWidget(self.list, 1)
        self.pages.addWidget(front)
        self.pages.addWidget(self.page)
        self.setWidget(self.pages)
        self.bar = TitleBar(self, self.context)
        self.page.chain_stops()

    def _connect(self) -> None:
        self._reading = WorkSlot(self, finished=self._lessons_read)
        self.list.chosen.connect(self.begin)
        self.links.lesson_wanted.connect(self.begin_named)
        self.page.followed.connect(self.links.follow)
        self.page.model_wanted.connect(self.model_wanted)
        self.tour.changed.connect(self._turn)
        self.tour.setting.connect(self._make_room)
        self.tour.shown.connect(self._arrange)
        self.tour.left.connect(self.put_back)
        self.visibilityChanged.connect(self._visibility_changed)
        self.context.theme_changed.connect(self._theme)
        self.context.document.work_changed.connect(self._work_changed)
        self.session.keep_wanted.connect(self.own_steps.keep_view)
        self.session.note_wanted.connect(self.notes.write)
        self.session.steps.chosen.connect(self.begin_own)
        self.session.notes.chosen.connect(self.notes.show)
        self.session.notes.edited.connect(self.notes.edit)
        self.session.notes.deleted.connect(self.notes.delete)
        self.page.editor.take_wanted.connect(self.own_steps.take_view)
        self.page.editor.move_wanted.connect(self.own_steps.move)
        self.page.editor.delete_wanted.connect(self.own_steps.delete)
        self.page.editor.film_chosen.connect(self.own_steps.set_film)
        self._theme(self.context.theme)
        self._work_changed()
        self._turn()

    # -- the list -------------------------------------------------------------------------------------------------------

    @Slot(bool)
    def _visibility_changed(self, visible: bool) -> None:
        if visible and not self._filled and not self.context.runner.is_busy(self._reading):
            self.context.runner.do(self._reading, "Read the lessons", lambda job: lessons())

    @Slot()
    def _lessons_read(self) -> None:
        if not self._filled:
            self.fill()  # their files are parsed by now

    @Slot(object)
    def _theme(self, theme: Theme) -> None:
        set_sheet(self.front, f"QWidget#front {{ background: {theme.background}; }}")
        self.list.viewport().update()
        self.session.fit(self.front.height())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Steps and notes get a part of the height."""
        if watched is self.front and event.type() == QEvent.Type.Resize:
            self.session.fit(self.front.height())
        return False

    def fill(self) -> None:
        """Read the files again: new lessons are listed, files with errors are named."""
        readable, errors = lessons()
        self._filled = True
        self.list.fill(readable)
        problems = "\n".join(error.what for error in errors)
        self.problem.setText(problems or ("" if readable else NONE))
        self.problem.setVisible(bool(self.problem.text()))

    def fill_menu(self, menu: QMenu) -> list[QAction]:
        """One action per lesson, for the menu and the palette."""
        actions = []
        for name, title in titles():
            action = QAction(f"Lesson: {title}".replace("&", "&&"), menu)
            action.setObjectName(f"lesson.{name}")
            action.setData(name)
            action.triggered.connect(self._picked)
            menu.addAction(action)
            actions.append(action)
        return actions

    @Slot()
    def _picked(self) -> None:
        action = self.sender()
        if isinstance(action, QAction):
            self.begin_named(str(action.data()))

    @Slot(str)
    def begin_named(self, name: str) -> None:
        """Begin a lesson by the name of its file; if it cannot be read, the list says why."""
        path = next((one for one in files() if one.stem == name), None)
        try:
            lesson = None if path is None else read(path)
        except BadInput:
            lesson = None
        if lesson is not None:
            self.begin(lesson)
        else:
            self.open()
            self.fill()

    @Slot(object)
    def begin(self, lesson: Story, number: int | None = None) -> None:
        """Begin a story at a step; by default a lesson where the user left it."""
        layout = self.main.layout_of_docks
        if self._before is None:
            if layout.maximised:
                self.main.toggle_maximised()
            self._before, self._zoom_before = layout.current_layout(), layout.zooms.words()
            # hide panels before the lesson's column is added: three columns and this one are wider than a small screen
            setup = lesson.setup(self.tour.first_step(lesson) if number is None else number)
            arrangement = self._arrangement_for(setup) or beside(("attention",))
            self._keep_only({name for stack in arrangement.stacks() for name in stack.tabs})
            layout.put_aside()
            layout.place(arrangement)
        self.open()
        self.tour.start(lesson, number)

    def open(self) -> None:
        """Show the dock in front and give it the keyboard: the arrow keys choose a step or a lesson, or scroll its text."""
        self.show()
        self.raise_()
        entries = self.session.steps if self.own.story.steps else self.list
        (entries if self.tour.lesson is None else self.page.text).setFocus()
        self._visibility_changed(True)

    @Slot()
    def _turn(self) -> None:
        inside = self.tour.lesson is not None
        if not inside and self.pages.currentIndex() == 1:
            self.fill()
        for page, shown in ((self.front, not inside), (self.page, inside)):  # what is not shown asks for no room
            policy = QSizePolicy.Policy.Preferred if shown else QSizePolicy.Policy.Ignored
            page.setSizePolicy(policy, policy)
        self.pages.setCurrentIndex(1 if inside else 0)
        self.pages.setMinimumWidth(max(NARROWEST, self.page.minimumSizeHint().width() if inside else 0))

    @property
    def layout_before(self) -> SavedLayout | None:
        """The layout from before the lesson; None outside of lessons."""
        return self._before

    @property
    def zoom_before(self) -> Parts:
        """What was seen of figures before the lesson."""
        return self._zoom_before

    @property
    def waiting(self) -> bool:
        """Whether a step is being set up or kept, or a number is outstanding."""
        return self.tour.waiting or self.own.waiting

    # -- the window -----------------------------------------------------------------------------------------------------

    def _arrangement_for(self, setup: Setup) -> Arrangement | None:
        return arrangement_for(setup, self.main.docks)

    @Slot(object)
    def _make_room(self, setup: Setup) -> None:
        """Hide the panels that the step does not show, so that they send no more requests."""
        arrangement = self._arrangement_for(setup)
        if arrangement is not None and self.main.layout_of_docks.declared != arrangement:
            self._keep_only({name for stack in arrangement.stacks() for name in stack.tabs})

    def _keep_only(self, names: set[str]) -> None:
        for name, dock in self.main.docks.items():
            if name not in names and name not in ("prompt", "lessons"):
                dock.hide()

    @Slot(object, bool)
    def _arrange(self, setup: Setup, again: bool) -> None:
        layout, arrangement = self.main.layout_of_docks, self._arrangement_for(setup)
        layout.zooms.show(setup.zoom)
        if names := layout.zooms.unknown:
            self.context.message.emit(f"Not known to this version, and kept: what is seen of {', '.join(names)}.")
        if arrangement is None:
            return
        shown = [self.main.docks[name] for name in setup.show if name in self.main.docks]
        if again or layout.declared != arrangement or not all(map(on_screen, shown)):
            layout.place(arrangement)
        if shown and shown[-1].objectName() != "dock.prompt":
            self.ring.around(shown[-1])

    @Slot(bool)
    def put_back(self, stay: bool = False) -> None:
        """Restore the docks as they were before the story, unless they are to `stay`; a visible list stays open."""
        if self._before is None:
            return
        before, self._before = self._before, None
        layout, was_visible = self.main.layout_of_docks, self.isVisible()
        layout.aside = False
        if stay:
            return
        self._keep_only(set())
        layout.restore_layout(before)
        # where the window closes during a lesson, the figures are still those of the lesson
        layout.zooms.show(self._zoom_before, at_once=self.tour.lesson is None)
        if was_visible:
            self.open()

    # -- the session's own story ------------------------------------------------------------------------------------------

    @Slot()
    def _work_changed(self) -> None:
        work = self.context.document.work
        self.session.fill(work)
        self.tour.follow(work.story)

    @Slot(int)
    def begin_own(self, number: int) -> None:
        """Walk through the session's own story, from this step on."""
        self.begin(self.own.story, number)
