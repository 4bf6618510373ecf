"""Where the docks are: in an arrangement, one panel alone, as remembered, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from PySide6.QtCore import QByteArray, QEvent, QObject, Qt, QTimer, Slot
from PySide6.QtWidgets import QDockWidget, QMainWindow, QPlainTextEdit, QTabBar, QTabWidget, QWidget

from circuitlab.figures.panel import panels
from circuitlab.gui.arrangements import ARRANGEMENTS, Arrangement
from circuitlab.gui.panel_dock import PanelDock
from circuitlab.gui.settings import stored
from circuitlab.gui.title_bar import TitleBar

VERSION = 4  # of what saveState holds: a layout of another version is not restored
LEFT, TOP = Qt.DockWidgetArea.LeftDockWidgetArea, Qt.DockWidgetArea.TopDockWidgetArea
RIGHT = Qt.DockWidgetArea.RightDockWidgetArea
ASIDE, ASIDE_WIDTH = "lessons", 360  # px: the dock that can have a column of its own, whatever the arrangement of the others
PROMPT = 140  # px: a few lines
ACROSS, DOWN = Qt.Orientation.Horizontal, Qt.Orientation.Vertical


class Layout(QObject):
    """The docks of a window, arranged."""

    def __init__(self, window: QMainWindow, docks: Mapping[str, QDockWidget]) -> None:
        super().__init__(window)
        self.window, self.docks = window, docks
        self.maximised = ""
        self._before = QByteArray()
        self.name, self.declared = "Explore", ARRANGEMENTS["Explore"]
        self._restored = False
        self._window_height = self._prompt_height = 0  # 0: not yet on the screen
        self._later = QTimer(self)
        self._later.setSingleShot(True)
        self._later.timeout.connect(self._keep_prompt)
        self._bars = QTimer(self)
        self._bars.setSingleShot(True)
        self._bars.timeout.connect(self._same_prompt)
        self._same_height = 0
        self.aside = False
        window.installEventFilter(self)
        docks["prompt"].installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Qt gives all the height of a larger window to what stands on top: the prompt keeps its own."""
        if event.type() == QEvent.Type.Resize:
            if watched is self.window:
                self._later.start(0)
            elif self.window.height() == self._window_height:  # drawn at by hand, or arranged
                self._prompt_height = self.docks["prompt"].height()
        return False

    @Slot()
    def _keep_prompt(self) -> None:
        prompt, grown = self.docks["prompt"], self.window.height() - self._window_height
        first, self._window_height = not self._window_height, self.window.height()
        if first:
            if not self._restored:
                self.proportions()
                self._settle()
            self._prompt_height = prompt.height()
            return
        if grown and not self.maximised:
            self._give_prompt(self._prompt_height)

    @Slot()
    def keep_prompt(self) -> None:
        """A bar is about to come or go: the columns below give or take its height."""
        if self._prompt_height and not self.maximised:
            self._same_height = self._prompt_height
            self._bars.start(0)

    @Slot()
    def _same_prompt(self) -> None:
        if (layout := self.window.layout()) is not None:
            layout.activate()  # with the bar, or without: what there is to share
        self._give_prompt(self._same_height)

    @Slot()
    def _low_prompt(self) -> None:
        self._give_prompt(PROMPT)
        QTimer.singleShot(0, self._share_heights)  # of what the prompt has left

    def _give_prompt(self, height: int) -> None:
        """Make the prompt so high, where it stands on top; the columns below get the rest."""
        prompt = self.docks["prompt"]
        on_top = self.window.dockWidgetArea(prompt) == TOP and not prompt.isFloating() and prompt.isVisible()
        seen = [d for d in self._columns().values() if not d.visibleRegion().isEmpty() and not d.isFloating()]
        below = max((d for d in seen if d is not prompt), key=lambda d: d.height(), default=None)
        if on_top and below is not None:
            room = prompt.height() + self._with_tabs(below)
            self.window.resizeDocks([prompt, below], [height, room - height], DOWN)

    def _with_tabs(self, dock: QDockWidget) -> int:
        """px of height of a dock and its tabs: what Qt means when it is asked to make docks so high."""
        tabs = [t.height() for t in self.window.findChildren(QTabBar) if t.isVisible()]
        return dock.height() + (max(tabs, default=0) if self.window.tabifiedDockWidgets(dock) else 0)

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
        window.setTabPosition(Qt.DockWidgetArea.AllDockWidgetAreas, QTabWidget.TabPosition.North)
        window.setDocumentMode(True)
        window.setCentralWidget(None)  # type: ignore[arg-type]
        window.setCorner(Qt.Corner.TopLeftCorner, TOP)
        window.setCorner(Qt.Corner.TopRightCorner, RIGHT)
        self._quieten(window.isVisible())
        for dock in d.values():
            dock.setFloating(False)
            window.removeDockWidget(dock)
        arrangement = self._arrangement()
        window.addDockWidget(TOP, d["prompt"])
        before: QDockWidget | None = None
        for _, stacks in arrangement.columns:
            first = d[stacks[0].tabs[0]]
            if before is None:
                window.addDockWidget(LEFT, first)
            else:
                window.splitDockWidget(before, first, ACROSS)
            before = first
        for _, stacks in arrangement.columns:
            for above, below in pairwise(stacks):
                window.splitDockWidget(d[above.tabs[0]], d[below.tabs[0]], DOWN)
        for stack in arrangement.stacks():
            for one in stack.tabs[1:]:
                window.tabifyDockWidget(d[stack.tabs[0]], d[one])
        named = {"prompt", *(one for stack in declared.stacks() for one in stack.tabs)}
        for one, dock in d.items():
            dock.setVisible(one in named)
        for stack in arrangement.stacks():
            d[stack.tabs[0]].raise_()
        self.proportions()
        if window.isVisible():
            for stack in arrangement.stacks():
                front = d[stack.tabs[0]]
                if isinstance(front, PanelDock):
                    front.refresh()
        QTimer.singleShot(0, self._settle)

    def _quieten(self, quiet: bool) -> None:
        for dock in self.docks.values():
            if isinstance(dock, PanelDock):
                dock.quiet = quiet

    @Slot()
    def _settle(self) -> None:
        """Once Qt has laid the docks out: shares of the heights there are, and titles only where no tab says the same."""
        self._quieten(False)
        if self.window.focusWidget() is None or not isinstance(self.window.focusWidget(), QPlainTextEdit):
            self.window.setFocus()  # where a hidden dock had it, Qt hands it to the first button
        for dock in self.docks.values():
            bar = dock.titleBarWidget()
            if isinstance(bar, TitleBar):
                bar.refresh()  # behind a tab it asks for height by the width in front, which is known by now
        self._share_heights()
        QTimer.singleShot(0, self._low_prompt)

    def _arrangement(self) -> Arrangement:
        areas = {name: panel.area for name, panel in panels().items()}
        others = {name: "left" for name in self._columns() if name not in areas and name != "prompt"}
        return self.declared.placed(areas | others).of(self._columns())  # a lesson keeps its column

    def proportions(self) -> None:
        """Shares of the width, and a prompt of some lines."""
        window, d = self.window, self.docks
        columns = self._arrangement().columns
        front = [d[stacks[0].tabs[0]] for _, stacks in columns]
        whole = sum(width for width, _ in columns)
        aside = {d[ASIDE]: ASIDE_WIDTH} if self.aside and not d[ASIDE].isFloating() else {}
        room = window.width() - sum(aside.values())
        window.resizeDocks([*front, *aside], [*(room * width // whole for width, _ in columns), *aside.values()], ACROSS)
        window.resizeDocks([d["prompt"], front[-1]], [PROMPT, max(570, window.height() - 230)], DOWN)

    @Slot()
    def _share_heights(self) -> None:
        for _, stacks in self._arrangement().columns:
            docks = [self.docks[stack.tabs[0]] for stack in stacks]
            room, whole = sum(map(self._with_tabs, docks)), sum(stack.share for stack in stacks)
            if len(docks) > 1:
                self.window.resizeDocks(docks, [room * stack.share // whole for stack in stacks], DOWN)

    def toggle_maximised(self, dock: QWidget | None = None) -> None:
        """One panel alone, or all again. Without one: the panel that has the keyboard, else the attention."""
        if self.maximised:
            self.maximised = ""
            self.window.restoreState(self._before, VERSION)
            return
        focus = dock or self.window.focusWidget()
        while focus is not None and not isinstance(focus, QDockWidget):
            focus = focus.parentWidget()
        chosen = focus if isinstance(focus, QDockWidget) else self.docks["attention"]
        self._before = self.window.saveState(VERSION)
        self.maximised = chosen.objectName()
        chosen.show()
        for other in self.docks.values():
            other.setVisible(other is chosen)

    def redock(self) -> None:
        """Floating panels come back."""
        for dock in self.docks.values():
            dock.setFloating(False)

    def reset(self) -> None:
        """As the arrangement has it."""
        self.place(self.declared)

    def go_to(self, name: str) -> None:
        """Show a dock, in front of its tabs, with the keyboard."""
        dock = self.docks[name]
        if self.maximised and self.maximised != dock.objectName():
            self.toggle_maximised()
        dock.show()
        dock.raise_()
        inside = dock.widget()
        (inside if inside is not None else dock).setFocus()

    def restore(self) -> bool:
        """As it was when the window was last closed, on a screen that is still there; whether anything was kept."""
        kept = stored()
        geometry, state = kept.value("geometry"), kept.value("layout")
        if isinstance(geometry, QByteArray):
            self.window.restoreGeometry(geometry)
        if isinstance(state, QByteArray):
            self._restored = self.window.restoreState(state, VERSION)
        screens = [s.availableGeometry() for s in self.window.screen().virtualSiblings()]
        if not any(s.intersects(self.window.frameGeometry()) for s in screens):
            self.window.move(self.window.screen().availableGeometry().topLeft())
        return isinstance(state, QByteArray)

    def keep(self) -> None:
        """Remember it for the next start."""
        kept = stored()
        kept.setValue("geometry", self.window.saveGeometry())
        kept.setValue("layout", self.window.saveState(VERSION))
