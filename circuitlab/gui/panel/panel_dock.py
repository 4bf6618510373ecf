"""The dock of a registered panel: its title bar, its controls and its menu, around the view that a feed fills.

What is in a dock is made when it is first seen or asked for: a window has some thirty, of which five are in front when it opens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from PySide6.QtCore import QPoint, Qt, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDockWidget, QVBoxLayout, QWidget

from circuitlab.draw.view.figure_view import FigureView
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import Panel
from circuitlab.figures.marks import Hit
from circuitlab.gui.panel.controls import Controls
from circuitlab.gui.panel.feed import Feed
from circuitlab.gui.panel.panel_actions import PanelActions
from circuitlab.gui.panel.title_bar import LEAST, TitleBar
from circuitlab.gui.panel.token_search import TokenSearch
from circuitlab.gui.panel.why_button import WhyButton
from circuitlab.gui.widgets.room import Room
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.state_commands import StateCommands
from circuitlab.session_files.session import Note
from circuitlab.state.state import State
from circuitlab.story.zoom import Part


def on_screen(dock: QDockWidget) -> bool:
    """Whether a dock can be seen. Qt counts one behind a tab as visible, but gives it no visible region."""
    return dock.isVisible() and not dock.visibleRegion().isEmpty()


class PanelDock(QDockWidget):
    """The dock of one panel. While it is hidden it sends no requests. `opens(name)`: bring that panel to the front;
    `sweeps(panel)`: what it asks is to be asked over other training steps and prompts; `tables()`: a sweep's tables are wanted.
    """

    opens = Signal(str)
    sweeps = Signal(object)
    tables = Signal()

    def __init__(self, panel: Panel, context: AppContext, state_commands: StateCommands, parent: QWidget | None = None) -> None:
        super().__init__(panel.title, parent)
        self.context, self.state_commands = context, state_commands
        self.setObjectName(f"dock.{panel.name}")
        self.setAllowedAreas(Qt.DockWidgetArea.AllDockWidgetAreas)
        self.visibilityChanged.connect(self._visibility_changed)
        context.notes.changed.connect(self._notes_changed)
        self._quiet = self._used = False  # as of `hush` and `show_used`, for what is not made yet
        self._hold(panel)

    def _hold(self, panel: Panel) -> None:
        """Be the dock of a panel, still empty: as large as it needs to be when it is filled, so that tabs need not grow."""
        self.panel, self.filled = panel, False
        self._zoom: tuple[Mapping[str, Part], bool] | None = None  # what is to be seen of a figure that has no view yet
        bar = QWidget(self)
        high = QVBoxLayout(bar)
        high.setContentsMargins(0, 0, 0, 0)
        high.addSpacing(self.context.theme.px(LEAST))
        self.setTitleBarWidget(bar)
        self.setWidget(Room(self))

    def fill(self) -> None:
        """Make what is in the dock, once."""
        if self.filled:
            return
        self.filled, places = True, (self.widget(), self.titleBarWidget())
        body = None if self.panel.writes is None else QWidget(self)  # one that writes to the State shows all its controls, above
        room = Room(self if body is None else body)
        self._view = FigureView(parent=room)
        room.hold(self._view)
        self._feed = Feed(self.panel, self.context, self._view, lambda: self.shown, self)
        WhyButton(self._feed, self.state_commands)
        self._feed.quiet = self._quiet
        self._actions_menu = PanelActions(self, self)
        self._lay_out(body, room)
        for place in places:
            place.deleteLater()
        self._connect()
        self._notes_changed()
        self._bar.show_used(self._used)
        self._bar.refresh()
        if self._zoom is not None:
            self._feed.zoom.show(*self._zoom)

    @property
    def view(self) -> FigureView:
        """The view of the panel's figure."""
        self.fill()
        return self._view

    @property
    def feed(self) -> Feed:
        """What fills the view."""
        self.fill()
        return self._feed

    @property
    def actions_menu(self) -> PanelActions:
        """The menu behind ⋯."""
        self.fill()
        return self._actions_menu

    @property
    def controls(self) -> Controls:
        """The panel's settings."""
        self.fill()
        return self._controls

    @property
    def search(self) -> TokenSearch:
        """The search of a panel that `searches_tokens`."""
        self.fill()
        return self._search

    @property
    def bar(self) -> TitleBar:
        """Title, controls and buttons."""
        self.fill()
        return self._bar

    def _make_controls(self, parent: QWidget) -> Controls:
        self._controls = Controls(self.panel.view, parent, wraps=self.panel.writes is not None)
        if self.panel.searches_tokens:
            self._search = TokenSearch(self.context, self._controls)
            self._search.chosen.connect(self._token_chosen)
            self._controls.layout().addWidget(self._search)  # type: ignore[union-attr]
        return self._controls

    def _lay_out(self, body: QWidget | None, room: Room) -> None:
        if body is None:
            self.setWidget(room)
            self._bar = TitleBar(self, self.context, self._make_controls, self.actions_menu)
            return
        box = QVBoxLayout(body)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(4)
        controls = self._make_controls(body)
        controls.setContentsMargins(4, 0, 4, 0)
        box.addWidget(controls)
        box.addWidget(room, 1)
        self.setWidget(body)
        self._bar = TitleBar(self, self.context, None, self.actions_menu)

    def _connect(self) -> None:
        self.feed.refreshing.connect(self._show_controls)
        self.feed.opens.connect(self.opens)
        self.controls.changed.connect(self._controls_changed)
        self.view.context_requested.connect(self._open_menu)
        self.actions_menu.sweep_wanted.connect(self._sweep)
        self.actions_menu.tables_wanted.connect(self.tables)

    @property
    def shown(self) -> bool:
        """Whether it is on the screen and not behind a tab."""
        return on_screen(self)

    def hush(self, quiet: bool) -> None:
        """While docks are rearranged send no requests; then catch up with what has changed meanwhile."""
        self._quiet = quiet
        if self.filled or (self.shown and not quiet):
            self.feed.hush(quiet)

    def seen(self) -> dict[str, Part]:
        """The parts of its figure's marks that are not shown whole, by mark (`PanelZoom.words`)."""
        return self._feed.zoom.words() if self.filled else {} if self._zoom is None else dict(self._zoom[0])

    def see(self, words: Mapping[str, Part], at_once: bool = True) -> None:
        """Show these parts of its figure once it is drawn (`PanelZoom.show`)."""
        if self.filled:
            self._feed.zoom.show(words, at_once)
        else:
            self._zoom = words, at_once

    def see_whole(self) -> None:
        """Show the whole of its figure."""
        if self.filled:
            self._view.reset_view()
        else:
            self._zoom = None

    def show_used(self, used: bool) -> None:
        """Mark the dock that keyboard commands act on (`TitleBar.show_used`)."""
        self._used = used
        if self.filled:
            self._bar.show_used(used)

    @Slot(bool)
    def _visibility_changed(self, visible: bool) -> None:
        if visible and not self._quiet and (self.filled or self.isVisible()):
            self.feed.catch_up()

    def showEvent(self, event: QShowEvent) -> None:
        """Refresh when it is shown for the first time, or after a change while it was hidden."""
        super().showEvent(event)
        if self.shown:
            self.feed.catch_up()

    def take_keyboard(self) -> None:
        """Give the figure the keyboard focus, not the controls."""
        self.view.take_keyboard()

    def refresh(self) -> None:
        """Send the requests of the present State and draw the answers that are available."""
        self.feed.refresh()

    @property
    def waiting(self) -> bool:
        """Whether an answer to a present request is still outstanding."""
        return self.filled and self._feed.waiting

    @Slot(object)
    def _show_controls(self, state: State) -> None:
        self.controls.show_view(self.panel.controls(state), self.context.facts())

    @Slot()
    def _notes_changed(self) -> None:
        """Show a note on the panel itself at the title and the menu's button."""
        if not self.filled:
            return
        note = self.context.notes.find(Note("", panel=self.panel.name))
        self._bar.show_note("" if note is None else f"your note: {note.text}")

    @Slot(object)
    def _controls_changed(self, view: object) -> None:
        context, before = self.context, self.context.target_state
        try:
            state = self.panel.controlled(before, view)
        except CircuitLabError as error:  # an impossible value is taken back, and the status line gives the reason
            self.controls.show_view(self.panel.controls(before), context.facts())
            context.message.emit(" · ".join(w for w in (error.what, error.expected, error.remedy) if w))
            return
        view_before = self.panel.controls(before)
        changes = [f.name for f in fields(view_before) if getattr(view, f.name) != getattr(view_before, f.name)]
        burst = ".".join(("view", self.panel.name, *changes, str(self.controls.burst)))
        context.show(state, f"{self.panel.title}: {', '.join(changes)}".replace("_", " "), burst)

    @Slot()
    def _sweep(self) -> None:
        self.sweeps.emit(self.panel)

    @Slot(int)
    def _token_chosen(self, token: int) -> None:
        self.feed.picked(Hit("search", (token,)))

    @Slot(object, QPoint)
    def _open_menu(self, hit: Hit | None, where: QPoint) -> None:
        self.actions_menu.aim(hit)
        self.actions_menu.popup(where)
