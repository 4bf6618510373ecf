"""Where the docks are: in an arrangement, one panel alone, as remembered, and the way back."""

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
from circuitlab.gui.places.kept_layout import Placed, keep, kept, place_on_screen
from circuitlab.gui.places.last_used import LastUsed
from circuitlab.gui.work.app_context import AppContext

VERSION = 5  # of what saveState holds: a layout of another version is not restored
LEFT, RIGHT = Qt.DockWidgetArea.LeftDockWidgetArea, Qt.DockWidgetArea.RightDockWidgetArea
BARS = 190  # px at text size 1 of the bars and a short prompt: what is typed must not move the docks
USUAL = QSize(1280, 800)  # of a window that is not on the screen yet
ASIDE, ASIDE_WIDTH = "lessons", 360  # px: the dock that can have a column of its own, whatever the arrangement of the others


class Layout(QObject):
    """The docks of a window, arranged.

    The prompt is as high as its text, until somebody draws at its edge; from then on as high as that. `current` is the dock that
    a command without a pointer means.
    """

    def __init__(self, window: QMainWindow, docks: Mapping[str, QDockWidget], context: AppContext) -> None:
        super().__init__(window)
        self.window, self.docks, self.context = window, docks, context
        self.sizes = DockSizes(window, docks)
        self.maximised = ""
        self._before: Placed | None = None
        self._coming: Sizes | None = None  # sizes to give once Qt has laid the docks out
        self.name, self.declared = "Explore", ARRANGEMENTS["Explore"]
        self.fitted = self.declared
        self.used = LastUsed(window, docks, self.sizes)
        self.used.changed.connect(self._show_used)
        self._moved = self._placing = False  # whether docks stand elsewhere than arranged, by hand; while they are arranged
        self._drawn = 0  # px of the prompt by hand, 0: as high as its text
        self._window_height = 0
        self._settling = self._timer(self._settle)
        self._keeping = self._timer(self._keep_prompt)
        self.aside = False
        window.installEventFilter(self)
        for dock in docks.values():
            dock.installEventFilter(self)
            dock.dockLocationChanged.connect(self._somewhere_else)
            dock.topLevelChanged.connect(self._somewhere_else)
        context.theme_changed.connect(self._keep_prompt)
        if isinstance(prompt := docks["prompt"], PromptDock):
            prompt.height_wanted.connect(self.keep_prompt)

    def _timer(self, act: Callable[[], object]) -> QTimer:
        made = QTimer(self)
        made.setSingleShot(True)
        made.timeout.connect(act)
        return made

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Qt gives all the height of a larger window to what stands on top: the prompt keeps its own."""
        if event.type() == QEvent.Type.Resize:
            if watched is self.window:
                self._keeping.start(0)
            elif watched is self.docks["prompt"] and self.window.height() == self._window_height and self._by_hand():
                self._drawn = self.docks["prompt"].height()
        return False

    @Slot()
    def _somewhere_else(self, *_: object) -> None:
        self._moved = self._moved or not self._placing

    @Slot()
    def _refit(self, *_: object) -> None:
        """Another room, or another text size, may ask for more tabs, or fewer; a layout made by hand stays."""
        named = {one for stack in self.fitted.stacks() for one in stack.tabs if one in self._named()}
        shown = {name for name, dock in self._columns().items() if dock.isVisible() and name != "prompt"}
        as_placed = self._window_height and not self._moved and not self.maximised and named == shown
        if as_placed and self._arrangement().columns != self.fitted.columns:
            seen = self.sizes.seen()
            self.place(self.declared)
            for stack in self.fitted.stacks():
                for name in [one for one in stack.tabs if one in seen][:1]:
                    self.docks[name].raise_()  # what was looked at stays in front

    def _named(self) -> set[str]:
        return {"prompt", *(one for stack in self.declared.stacks() for one in stack.tabs)}

    @Slot(str)
    def _show_used(self, name: str) -> None:
        for one, dock in self.docks.items():
            if isinstance(bar := dock.titleBarWidget(), TitleBar):
                bar.show_used(one == name)

    def _by_hand(self) -> bool:
        pressed = QGuiApplication.mouseButtons() & Qt.MouseButton.LeftButton
        return bool(pressed) and not self._settling.isActive() and not self.maximised

    # -- the panel that is meant ----------------------------------------------------------------------------------------

    @property
    def current(self) -> QDockWidget:
        """The dock that was last used, while it can be seen; else the largest one that can."""
        return self.used.dock

    @property
    def current_panel(self) -> PanelDock:
        """The panel that was last used, while it can be seen; else the largest one that can, the attention where none is."""
        return self.used.panel

    def step(self, by: int) -> None:
        """The keyboard to the next dock that can be seen, as one reads: by columns, from the top."""
        seen = self.sizes.seen()
        places = {name: d.mapTo(self.window, QPoint()) for name, d in seen.items() if not d.isFloating()}
        names = sorted(places, key=lambda name: (places[name].x(), places[name].y()))
        now = next((i for i, name in enumerate(names) if seen[name].isAncestorOf(self.window.focusWidget() or self.window)), None)
        if names:
            self.go_to(names[(now + by) % len(names)] if now is not None else names[0 if by > 0 else -1])

    # -- heights ----------------------------------------------------------------------------------------------------------

    @Slot()
    def keep_prompt(self) -> None:
        """Its text is of other lines, or a bar is about to come or go: the columns below give or take the height."""
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
                layout.activate()  # with the bar, or without: what there is to share
            self._give_prompt()

    def _give_prompt(self) -> None:
        prompt = self.docks["prompt"]
        wanted = prompt.ask_height() if isinstance(prompt, PromptDock) else prompt.sizeHint().height()
        self.sizes.give_prompt(self._drawn or wanted, (ASIDE,) if self.aside else ())

    # -- arrangements -----------------------------------------------------------------------------------------------------

    def _columns(self) -> dict[str, QDockWidget]:
        """The docks that arrangements place, and the prompt."""
        return {name: dock for name, dock in self.docks.items() if not (self.aside and name == ASIDE)}

    def put_aside(self) -> None:
        """Give the lessons the right-hand side from top to bottom, until `aside` is False and docks are placed again."""
        self.aside = True
        dock = self.docks[ASIDE]
        dock.setFloating(False)
        self.window.removeDockWidget(dock)
        self.window.addDockWidget(RIGHT, dock)
        dock.show()

    def arrange(self, name: str = "Explore") -> None:
        """As one of the arrangements has it."""
        self.place(ARRANGEMENTS[name])

    def place(self, declared: Arrangement) -> None:
        """Put every dock where an arrangement has it, the prompt on top; what it does not name is hidden, and has a home."""
        window, d = self.window, self._columns()
        self.name, self.declared, self.maximised = declared.name, declared, ""
        self._before = self._coming = None
        self._drawn, self._moved, self._placing = 0, False, True
        window.setTabPosition(Qt.DockWidgetArea.AllDockWidgetAreas, QTabWidget.TabPosition.North)
        window.setDocumentMode(True)
        window.setCentralWidget(None)  # type: ignore[arg-type]
        window.setCorner(Qt.Corner.TopLeftCorner, TOP)
        window.setCorner(Qt.Corner.TopRightCorner, RIGHT)
        self._quieten(window.isVisible())
        for dock in d.values():
            dock.setFloating(False)
            window.removeDockWidget(dock)
        self.fitted = arrangement = self._arrangement()
        self._add(arrangement)
        named = self._named()
        for one, dock in d.items():
            dock.setVisible(one in named)
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
        """The prompt, then column by column, and the tabs of each stack."""
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
            for one in stack.tabs[1:]:
                window.tabifyDockWidget(d[stack.tabs[0]], d[one])

    def _quieten(self, quiet: bool) -> None:
        for dock in self.docks.values():
            if isinstance(dock, PanelDock):
                dock.quiet = quiet

    @Slot()
    def _settle(self) -> None:
        """Once Qt has laid the docks out: what each gets of the room there is, and titles only where no tab says the same."""
        self._quieten(False)
        if self.window.focusWidget() is None or not isinstance(self.window.focusWidget(), QPlainTextEdit):
            self.window.setFocus()  # where a hidden dock had it, Qt hands it to the first button
        for dock in self.docks.values():
            bar = dock.titleBarWidget()
            if isinstance(bar, TitleBar):
                bar.refresh()
        coming, self._coming = self._coming, None
        if self.maximised:
            return
        if coming is not None:
            self.sizes.put(coming)
        else:
            self.proportions()
        self._give_prompt()
        self._keeping.start(0)  # once more: Qt has not moved anything yet
        if coming is None:
            QTimer.singleShot(0, self._share_heights)  # of what the prompt has left

    def _arrangement(self) -> Arrangement:
        """What is declared, with a home for every dock, as tabs where there is little room; a lesson keeps its column."""
        areas = {name: panel.area for name, panel in panels().items()}
        others = {name: "left" for name in self._columns() if name not in areas and name != "prompt"}
        return self.declared.fitted(*self._room()).placed(areas | others).of(self._columns())

    def _room(self) -> tuple[int, int]:
        """px at text size 1 for what stands below the prompt."""
        scale = self.context.settings["text_scale"]
        size = self.window.size() if self.window.isVisible() else self.window.size().expandedTo(USUAL)
        width = size.width() - (ASIDE_WIDTH if self.aside else 0)
        return round(width / scale), round(size.height() / scale) - BARS

    def proportions(self) -> None:
        """Shares of the width."""
        columns = [(width, self.docks[stacks[0].tabs[0]]) for width, stacks in self.fitted.columns]
        aside = {self.docks[ASIDE]: ASIDE_WIDTH} if self.aside and not self.docks[ASIDE].isFloating() else {}
        self.sizes.share_widths(columns, aside)

    @Slot()
    def _share_heights(self) -> None:
        for _, stacks in self.fitted.columns:
            self.sizes.share_heights(stacks)

    def redock(self) -> None:
        """Floating panels come back."""
        for dock in self.docks.values():
            dock.setFloating(False)

    def reset(self) -> None:
        """As the arrangement has it."""
        self.place(self.declared)

    # -- one panel --------------------------------------------------------------------------------------------------------

    def toggle_maximised(self, dock: QWidget | None = None) -> None:
        """One panel alone, or all again. Without one: the one that was last used."""
        if self.maximised:
            self.maximised = ""
            if self._before is not None:
                self.come_back(self._before)
            return
        chosen = dock if isinstance(dock, QDockWidget) else self.current
        self._before = self.placed()
        self.used.use(chosen.objectName().removeprefix("dock."))
        self.maximised = chosen.objectName()
        chosen.show()
        for other in self.docks.values():
            other.setVisible(other is chosen)
        self._settling.start(0)

    def go_to(self, name: str) -> None:
        """Show a dock, in front of its tabs, with the keyboard."""
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

    # -- there and back ---------------------------------------------------------------------------------------------------

    def placed(self) -> Placed:
        """The layout as it is, to come back to."""
        if self.maximised and self._before is not None:
            return self._before
        return Placed(self.window.saveState(VERSION), self.sizes.read(), self.declared, self._moved, self._drawn)

    def come_back(self, placed: Placed) -> bool:
        """To a layout as it was; whether Qt knows it."""
        self.maximised, self._before = "", None
        self.name, self.declared = placed.declared.name, placed.declared
        self.fitted = self._arrangement()
        self._placing = True
        known = self.window.restoreState(placed.state, VERSION)
        self._placing, self._moved, self._drawn = False, placed.moved, placed.drawn
        if known:
            self._coming = placed.sizes
            self._settling.start(0)
        return known

    def restore(self) -> bool:
        """As it was when the window was last closed, on a screen that is still there; whether anything was kept."""
        place_on_screen(self.window)
        known = kept(self.declared, self.sizes.read())
        if known is not None:
            self.come_back(known)
        return known is not None

    def keep(self) -> None:
        """Remember it for the next start."""
        keep(self.window, self.placed())
