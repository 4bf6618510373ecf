"""The layout of the docks: in an arrangement, with one panel maximised, or restored as it was saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from PySide6.QtCore import QEvent, QObject, QPoint, QSize, Qt, QTimer, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDockWidget, QMainWindow, QPlainTextEdit, QTabWidget, QWidget

from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.docks.prompt import PromptDock
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.panel.title_bar import TitleBar
from circuitlab.gui.places.arrangements import ARRANGEMENTS, Arrangement
from circuitlab.gui.places.dock_sizes import ACROSS, DOWN, TOP, DockSizes, Sizes
from circuitlab.gui.places.last_used import LastUsed
from circuitlab.gui.places.saved_layout import SavedLayout
from circuitlab.gui.places.zooms import Zooms
from circuitlab.gui.work.app_context import AppContext

VERSION = 5  # of the data of saveState: a layout of another version is not restored
LEFT, RIGHT = Qt.DockWidgetArea.LeftDockWidgetArea, Qt.DockWidgetArea.RightDockWidgetArea
BARS = 190  # px at text size 1 of the bars and a short prompt; a constant, so that typing does not move the docks
USUAL = QSize(1280, 800)  # assumed of a window that is not on the screen yet
ASIDE, ASIDE_WIDTH = "lessons", 360  # the dock that can have a column of its own, whatever the arrangement, and its width in px


class Layout(QObject):
    """The layout of a window's docks.

    The prompt is as high as its text, until the user drags its edge; from then on it keeps that height. `current` is the dock
    that keyboard commands act on.
    """

    def __init__(self, window: QMainWindow, docks: Mapping[str, QDockWidget], context: AppContext) -> None:
        super().__init__(window)
        self.window, self.docks, self.context = window, docks, context
        self.sizes, self.zooms = DockSizes(window, docks), Zooms(docks)
        self.maximised = ""
        self._before: SavedLayout | None = None
        self._pending_sizes: Sizes | None = None  # to apply once Qt has laid the docks out
        self.name, self.declared = "Explore", ARRANGEMENTS["Explore"]
        self.fitted = self.declared
        self.used = LastUsed(window, docks, self.sizes)
        self.used.changed.connect(self._show_used)
        self._moved = self._placing = False  # docks have been moved by hand; docks are being arranged
        self._prompt_height = 0  # px, where the user has set it; 0: as high as its text
        self._window_height = 0
        self._settling = self._timer(self._settle)
        self._keeping = self._timer(self._keep_prompt)
        self.aside = False
        window.installEventFilter(self)
        for dock in docks.values():
            self._watch(dock)
        context.theme_changed.connect(self._keep_prompt)
        if isinstance(prompt := docks["prompt"], PromptDock):
            prompt.height_changed.connect(self.keep_prompt)

    def _watch(self, dock: QDockWidget) -> None:
        dock.installEventFilter(self)
        dock.dockLocationChanged.connect(self._dock_moved)
        dock.topLevelChanged.connect(self._dock_moved)

    def add_dock(self, dock: QDockWidget) -> None:
        """Take a dock that is new among `docks`, hidden until the arrangement or a layout places it."""
        self._watch(dock)
        self.used.watch(dock)
        self.window.addDockWidget(RIGHT, dock)
        dock.hide()

    def _timer(self, act: Callable[[], object]) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.timeout.connect(act)
        return timer

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Keep the prompt's height on a resize: Qt would give it all the height that a window gains."""
        if event.type() == QEvent.Type.Resize:
            if watched is self.window:
                self._keeping.start(0)
            elif watched is self.docks["prompt"] and self.window.height() == self._window_height and self._dragged_by_hand():
                self._prompt_height = self.docks["prompt"].height()
        return False

    @Slot()
    def _dock_moved(self, *_: object) -> None:
        self._moved = self._moved or not self._placing

    @Slot()
    def _refit(self, *_: object) -> None:
        """Fit the arrangement to a new window size or text size, with more tabs or fewer; a layout changed by hand stays."""
        named = {name for stack in self.fitted.stacks() for name in stack.tabs if name in self._named()}
        visible = {name for name, dock in self._columns().items() if dock.isVisible() and name != "prompt"}
        as_placed = self._window_height and not self._moved and not self.maximised and named == visible
        if as_placed and self._arrangement().columns != self.fitted.columns:
            front = self.sizes.in_front()
            self.place(self.declared)
            for stack in self.fitted.stacks():
                for name in [tab for tab in stack.tabs if tab in front][:1]:
                    self.docks[name].raise_()  # a dock that was in front stays in front

    def _named(self) -> set[str]:
        return {"prompt", *(name for stack in self.declared.stacks() for name in stack.tabs)}

    @Slot(str)
    def _show_used(self, name: str) -> None:
        for dock_name, dock in self.docks.items():
            if isinstance(marked := dock if isinstance(dock, PanelDock) else dock.titleBarWidget(), PanelDock | TitleBar):
                marked.show_used(dock_name == name)

    def _dragged_by_hand(self) -> bool:
        pressed = QGuiApplication.mouseButtons() & Qt.MouseButton.LeftButton
        return bool(pressed) and not self._settling.isActive() and not self.maximised

    # -- the current panel ----------------------------------------------------------------------------------------------

    @property
    def current(self) -> QDockWidget:
        """The last used dock if it is visible, otherwise the largest visible one."""
        return self.used.dock

    @property
    def current_panel(self) -> PanelDock:
        """The last used panel if it is visible, otherwise the largest visible one; Attention if none is."""
        return self.used.panel

    def step(self, by: int) -> None:
        """Move the keyboard focus `by` visible docks, in reading order: by columns, from the top."""
        front = self.sizes.in_front()
        places = {name: d.mapTo(self.window, QPoint()) for name, d in front.items() if not d.isFloating()}
        names = sorted(places, key=lambda name: (places[name].x(), places[name].y()))
        focus = self.window.focusWidget() or self.window
        now = next((i for i, name in enumerate(names) if front[name].isAncestorOf(focus)), None)
        if names:
            self.go_to(names[(now + by) % len(names)] if now is not None else names[0 if by > 0 else -1])

    # -- heights ----------------------------------------------------------------------------------------------------------

    @Slot()
    def keep_prompt(self) -> None:
        """Give the prompt its height after its text or a bar has changed; the columns below take up the difference."""
        if self._window_height and not self.maximised:
            self._keeping.start(0)

    @Slot()
    def _keep_prompt(self, *_: object) -> None:
        if not self.window.isVisible():
            return
        first, self._window_height = not self._window_height, self.window.height()
        self._refit()
        if first:
            self._settling.start(0)
        if not self.maximised and not self._settling.isActive():
            if (layout := self.window.layout()) is not None:
                layout.activate()  # so that the height to share is up to date, with or without a bar
            self._set_prompt_height()

    def _set_prompt_height(self) -> None:
        prompt = self.docks["prompt"]
        height = prompt.announce_height() if isinstance(prompt, PromptDock) else prompt.sizeHint().height()
        self.sizes.set_prompt_height(self._prompt_height or height, (ASIDE,) if self.aside else ())

    # -- arrangements -----------------------------------------------------------------------------------------------------

    def _columns(self) -> dict[str, QDockWidget]:
        """The docks that arrangements place, and the prompt."""
        return {name: dock for name, dock in self.docks.items() if not (self.aside and name == ASIDE)}

    def put_aside(self) -> None:
        """Give the lessons the full height on the right, until `aside` is False and the docks are placed again."""
        self.aside = True
        dock = self.docks[ASIDE]
        dock.setFloating(False)
        self.window.removeDockWidget(dock)
        self.window.addDockWidget(RIGHT, dock)
        dock.show()

    def arrange(self, name: str = "Explore") -> None:
        """Place the docks in one of the arrangements."""
        self.place(ARRANGEMENTS[name])

    def place(self, declared: Arrangement) -> None:
        """Place every dock as an arrangement declares, the prompt on top; docks it does not name are hidden in their home."""
        window, d = self.window, self._columns()
        self.name, self.declared, self.maximised = declared.name, declared, ""
        self._before = self._pending_sizes = None
        self._prompt_height, self._moved, self._placing = 0, False, True
        window.setTabPosition(Qt.DockWidgetArea.AllDockWidgetAreas, QTabWidget.TabPosition.North)
        window.setDocumentMode(True)
        window.setCentralWidget(None)  # type: ignore[arg-type]
        window.setCorner(Qt.Corner.TopLeftCorner, TOP)
        window.setCorner(Qt.Corner.TopRightCorner, RIGHT)
        self._set_quiet(window.isVisible())
        for dock in d.values():
            dock.setFloating(False)
            window.removeDockWidget(dock)
        self.fitted = arrangement = self._arrangement()
        self._add(arrangement)
        named = self._named()
        for name, dock in d.items():
            dock.setVisible(name in named)
        for stack in arrangement.stacks():
            d[stack.tabs[0]].raise_()
        self._placing = False
        self.proportions()
        if window.isVisible():
            for stack in arrangement.stacks():
                front = d[stack.tabs[0]]
                if isinstance(front, PanelDock):
                    front.refresh()
        self._settling.start(0)

    def _add(self, arrangement: Arrangement) -> None:
        """Add the prompt, then the columns one by one, and the tabs of each stack."""
        window, d = self.window, self.docks
        window.addDockWidget(TOP, d["prompt"])
        heads = [d[stacks[0].tabs[0]] for _, stacks in arrangement.columns]
        window.addDockWidget(LEFT, heads[0])
        for before, after in pairwise(heads):
            window.splitDockWidget(before, after, ACROSS)
        for _, stacks in arrangement.columns:
            for above, below in pairwise(stacks):
                window.splitDockWidget(d[above.tabs[0]], d[below.tabs[0]], DOWN)
        for stack in arrangement.stacks():
            for name in stack.tabs[1:]:
                window.tabifyDockWidget(d[stack.tabs[0]], d[name])

    def _set_quiet(self, quiet: bool) -> None:
        for dock in self.docks.values():
            if isinstance(dock, PanelDock):
                dock.hush(quiet)

    @Slot()
    def _settle(self) -> None:
        """Once Qt has laid the docks out: size them, and hide the titles that a tab repeats."""
        self._set_quiet(False)
        if self.window.focusWidget() is None or not isinstance(self.window.focusWidget(), QPlainTextEdit):
            self.window.setFocus()  # Qt gives the focus of a hidden dock to the first button
        for dock in self.docks.values():
            bar = dock.titleBarWidget()
            if isinstance(bar, TitleBar):
                bar.refresh()
        pending, self._pending_sizes = self._pending_sizes, None
        if self.maximised:
            return
        if pending is not None:
            self.sizes.restore(pending)
        else:
            self.proportions()
        self._set_prompt_height()
        self._keeping.start(0)  # again later: Qt has not moved anything yet
        if pending is None:
            QTimer.singleShot(0, self, self._share_heights)  # of the height below the prompt

    def _arrangement(self) -> Arrangement:
        """The declared arrangement fitted to the window, with a home for every dock; a lesson keeps its column."""
        areas = {name: panel.area for name, panel in panels().items()}
        others = {name: "left" for name in self._columns() if name not in areas and name != "prompt"}
        return self.declared.fitted(*self._room()).with_homes(areas | others).only(self._columns())

    def _room(self) -> tuple[int, int]:
        """(width, height) in px at text size 1 that is left below the prompt."""
        scale = self.context.settings["text_scale"]
        size = self.window.size() if self.window.isVisible() else self.window.size().expandedTo(USUAL)
        width = size.width() - (ASIDE_WIDTH if self.aside else 0)
        return round(width / scale), round(size.height() / scale) - BARS

    def proportions(self) -> None:
        """Share the width between the columns."""
        columns = [(width, self.docks[stacks[0].tabs[0]]) for width, stacks in self.fitted.columns]
        aside = {self.docks[ASIDE]: ASIDE_WIDTH} if self.aside and not self.docks[ASIDE].isFloating() else {}
        self.sizes.share_widths(columns, aside)

    @Slot()
    def _share_heights(self) -> None:
        for _, stacks in self.fitted.columns:
            self.sizes.share_heights(stacks)

    def redock(self) -> None:
        """Dock all floating panels again."""
        for dock in self.docks.values():
            dock.setFloating(False)

    def reset(self) -> None:
        """Place the docks as the arrangement declares."""
        self.place(self.declared)

    # -- one panel --------------------------------------------------------------------------------------------------------

    def toggle_maximised(self, dock: QWidget | None = None) -> None:
        """Show one dock alone (by default the current one), or all again."""
        if self.maximised:
            self.maximised = ""
            if self._before is not None:
                self.restore_layout(self._before)
            return
        chosen = dock if isinstance(dock, QDockWidget) else self.current
        self._before = self.current_layout()
        self.used.use(chosen.objectName().removeprefix("dock."))
        self.maximised = chosen.objectName()
        chosen.show()
        for other in self.docks.values():
            other.setVisible(other is chosen)
        self._settling.start(0)

    def go_to(self, name: str) -> None:
        """Show a dock in front of its tabs and give it the keyboard focus."""
        dock = self.docks[name]
        if self.maximised and self.maximised != dock.objectName():
            self.toggle_maximised()
        dock.show()
        dock.raise_()
        inside = dock.widget()
        place = next((w for w in (dock, inside) if hasattr(w, "take_keyboard")), None)
        if place is not None:
            place.take_keyboard()  # type: ignore[union-attr]
        elif inside is not None:
            first = next((w for w in inside.findChildren(QWidget) if w.focusPolicy() & Qt.FocusPolicy.TabFocus), inside)
            (inside if inside.focusPolicy() & Qt.FocusPolicy.TabFocus else first).setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.used.use(name)

    # -- save and restore -------------------------------------------------------------------------------------------------

    def current_layout(self) -> SavedLayout:
        """The present layout; while a panel is maximised, the one to return to."""
        if self.maximised and self._before is not None:
            return self._before
        return SavedLayout(self.window.saveState(VERSION), self.sizes.read(), self.declared, self._moved, self._prompt_height)

    def restore_layout(self, layout: SavedLayout) -> bool:
        """Restore a layout. Returns whether Qt accepts its state."""
        self.maximised, self._before = "", None
        self._placing = True
        if layout.declared != self.declared:
            for dock in self.docks.values():  # otherwise Qt leaves the tab bars of the other arrangement in the window
                self.window.removeDockWidget(dock)
            if (room := self.window.layout()) is not None:
                room.activate()
        self.name, self.declared = layout.declared.name, layout.declared
        self.fitted = self._arrangement()
        accepted = self.window.restoreState(layout.state, VERSION)
        self._placing, self._moved, self._prompt_height = False, layout.moved, layout.prompt_height
        if accepted:
            self._pending_sizes = layout.sizes
            self._settling.start(0)
        return accepted
