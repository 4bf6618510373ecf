"""Lessons: the list, or the page of the one that is walked; what a step says is done to the window here."""

from __future__ import annotations

import logging
from typing import Protocol

from PySide6.QtCore import QUrl, Slot
from PySide6.QtGui import QAction, QDesktopServices
from PySide6.QtWidgets import QDockWidget, QMenu, QStackedWidget, QVBoxLayout, QWidget

from circuitlab.draw.look.plain_text import PlainLabel, confirmed
from circuitlab.draw.look.theme import Theme
from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.gui.lessons.layout import arrangement_of, beside
from circuitlab.gui.lessons.listing import LessonList
from circuitlab.gui.lessons.page import LessonPage
from circuitlab.gui.lessons.ring import Ring
from circuitlab.gui.lessons.tour import Tour
from circuitlab.gui.panel.panel_dock import on_screen
from circuitlab.gui.panel.title_bar import TitleBar
from circuitlab.gui.places.arrangements import Arrangement
from circuitlab.gui.places.kept_layout import Placed
from circuitlab.gui.places.layout import Layout
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.lessons.lesson import Lesson, files, lessons, read, titles
from circuitlab.lessons.step import Setup
from circuitlab.model.subject import Head

log = logging.getLogger("circuitlab.lessons")
NONE = "There is no lesson. Lessons are Markdown files in resources/lessons, or in lessons of the settings’ folder."


class Host(Protocol):
    """What lessons need of the window that they set."""

    context: AppContext
    remember: bool
    docks: dict[str, QDockWidget]
    layout_of_docks: Layout

    def toggle_maximised(self, dock: QWidget | None = None) -> None: ...


class LessonsDock(QDockWidget):
    """See the module. `window` is its parent, `host` what it sets: the same object in the application."""

    def __init__(self, window: QWidget, host: Host) -> None:
        super().__init__("Lessons", window)
        self.setObjectName("dock.lessons")
        self.main, self.context = host, host.context
        self.tour = Tour(self.context, host.remember, self)
        self.ring = Ring(self.context, window)
        self._before: Placed | None = None
        self._filled = False
        self.pages = QStackedWidget(self)
        self.pages.setMinimumWidth(280)
        self.list = LessonList(self.context, self.tour.places, self)
        self.problem = PlainLabel(self)
        self.page = LessonPage(self.context, self.tour, self)
        self._lay_out()
        self._connect()

    def _lay_out(self) -> None:
        front = QWidget(self)
        box = QVBoxLayout(front)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        self.problem.setWordWrap(True)
        self.problem.setProperty("role", "warning")
        self.problem.setContentsMargins(16, 8, 16, 8)
        self.problem.hide()
        box.addWidget(self.problem)
        box.addWidget(self.list, 1)
        self.pages.addWidget(front)
        self.pages.addWidget(self.page)
        self.setWidget(self.pages)
        self.bar = TitleBar(self, self.context)

    def _connect(self) -> None:
        self._reading = WorkSlot(self, finished=self._come)
        self.list.wanted.connect(self.begin)
        self.page.followed.connect(self.follow)
        self.tour.changed.connect(self._turn)
        self.tour.setting.connect(self._make_room)
        self.tour.shown.connect(self._arrange)
        self.tour.left.connect(self.put_back)
        self.visibilityChanged.connect(self._seen)
        self.context.theme_changed.connect(self._theme)

    # -- the list -------------------------------------------------------------------------------------------------------

    @Slot(bool)
    def _seen(self, visible: bool) -> None:
        if visible and not self._filled and not self.context.runner.is_busy(self._reading):
            self.context.runner.do(self._reading, "Read the lessons", lambda job: lessons())

    @Slot()
    def _come(self) -> None:
        if not self._filled:
            self.fill()  # they have been parsed by now

    @Slot(object)
    def _theme(self, theme: Theme) -> None:
        self.list.viewport().update()

    def fill(self) -> None:
        """Read the files again: one that was added is there, one that is wrong is named."""
        found, failed = lessons()
        self._filled = True
        self.list.fill(found)
        said = "\n".join(error.what for error in failed)
        self.problem.setText(said or ("" if found else NONE))
        self.problem.setVisible(bool(self.problem.text()))

    def fill_menu(self, menu: QMenu) -> list[QAction]:
        """An entry a lesson, for the menu and the palette."""
        made = []
        for name, title in titles():
            action = QAction(f"Lesson: {title}".replace("&", "&&"), menu)
            action.setObjectName(f"lesson.{name}")
            action.setData(name)
            action.triggered.connect(self._picked)
            menu.addAction(action)
            made.append(action)
        return made

    @Slot()
    def _picked(self) -> None:
        action = self.sender()
        if isinstance(action, QAction):
            self.begin_named(str(action.data()))

    def begin_named(self, name: str) -> None:
        """By the name of its file; where it cannot be read, the list says why."""
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
    def begin(self, lesson: Lesson) -> None:
        """Walk it, from where it was left."""
        layout = self.main.layout_of_docks
        if self._before is None:
            if layout.maximised:
                self.main.toggle_maximised()
            self._before = layout.placed()
            # first the room, then the column: three columns and this one are wider than a small screen
            setup = lesson.setup(self.tour.places.step(lesson))
            wanted = self._wanted(setup) or beside(("attention",))
            self._keep_only({name for stack in wanted.stacks() for name in stack.tabs})
            layout.put_aside()
            layout.place(wanted)
        self.open()
        self.tour.start(lesson)

    def open(self) -> None:
        """Into the window, in front, with the keyboard: the arrows choose a lesson, or scroll its text."""
        self.show()
        self.raise_()
        (self.list if self.tour.lesson is None else self.page.text).setFocus()
        self._seen(True)

    @Slot()
    def _turn(self) -> None:
        inside = self.tour.lesson is not None
        if not inside and self.pages.currentIndex() == 1:
            self.fill()
        self.pages.setCurrentIndex(1 if inside else 0)

    @property
    def waiting(self) -> bool:
        """Whether a step is being set up or a number is still to come."""
        return self.tour.waiting

    # -- the window -----------------------------------------------------------------------------------------------------

    def _wanted(self, setup: Setup) -> Arrangement | None:
        return arrangement_of(setup.arrange, tuple(n for n in setup.show if n in self.main.docks))

    @Slot(object)
    def _make_room(self, setup: Setup) -> None:
        """What will not be shown asks for nothing any more."""
        wanted = self._wanted(setup)
        if wanted is not None and self.main.layout_of_docks.declared != wanted:
            self._keep_only({name for stack in wanted.stacks() for name in stack.tabs})

    def _keep_only(self, names: set[str]) -> None:
        for name, dock in self.main.docks.items():
            if name not in names and name not in ("prompt", "lessons"):
                dock.hide()

    @Slot(object, bool)
    def _arrange(self, setup: Setup, again: bool) -> None:
        layout, wanted = self.main.layout_of_docks, self._wanted(setup)
        if wanted is None:
            return
        shown = [self.main.docks[name] for name in setup.show if name in self.main.docks]
        if again or layout.declared != wanted or not all(map(on_screen, shown)):
            layout.place(wanted)
        if shown and shown[-1].objectName() != "dock.prompt":
            self.ring.around(shown[-1])

    @Slot()
    def put_back(self) -> None:
        """The docks as they were before the lesson; the list stays where it is."""
        if self._before is None:
            return
        before, self._before = self._before, None
        layout, seen = self.main.layout_of_docks, self.isVisible()
        layout.aside = False
        self._keep_only(set())
        layout.come_back(before)
        if seen:
            self.open()

    # -- links ----------------------------------------------------------------------------------------------------------

    @Slot(str, str)
    def follow(self, kind: str, where: str) -> None:
        """A link of the text."""
        try:
            self._follow(kind, where)
        except (CircuitLabError, ValueError) as error:
            self.context.message.emit(str(error).partition("\n")[0])

    def _follow(self, kind: str, where: str) -> None:
        if kind == "panel" and where in self.main.docks:
            self.main.layout_of_docks.go_to(where)
            self.ring.around(self.main.docks[where])
        elif kind == "head":
            self._select(Head.parse(where))
        elif kind == "checkpoint":
            self.tour.to_checkpoint(int(where))
        elif kind == "lesson":
            self.begin_named(where)
        elif kind == "value":
            self.context.message.emit(self.tour.tips.get(where, "").replace("\n", " · "))
        elif kind in ("http", "https"):
            self._leave_for(QUrl(f"{kind}:{where}"))

    def _select(self, head: Head) -> None:
        config, state = self.context.facts().config, self.context.document.recorded
        if head.layer < config.n_layers and head.head < config.n_heads:
            self.context.apply(state.with_heads(head), f"select {head}")
        else:
            self.context.message.emit(f"{self.context.name_of(state.model)} has no head {head}.")

    def _leave_for(self, url: QUrl) -> None:
        question = f"Open this page in the browser?\n\n{url.toString()}"
        if confirmed(self, "Open a page", question):
            QDesktopServices.openUrl(url)
