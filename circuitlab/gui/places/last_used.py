"""Which dock a command without a pointer means: the one that was last clicked, wherever on it, or brought up by a key."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QEvent, QObject, QPoint, QTimer, Signal, Slot
from PySide6.QtGui import QMouseEvent, QWindow
from PySide6.QtWidgets import QApplication, QDockWidget, QMainWindow, QTabBar, QWidget

from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.places.dock_sizes import DockSizes


class LastUsed(QObject):
    """Of one window. `changed(name)`: another dock is meant from now on.

    Presses are seen where they reach the window of the desktop: controls, tabs and buttons keep them from the docks that they
    stand on.
    """

    changed = Signal(str)

    def __init__(self, window: QMainWindow, docks: Mapping[str, QDockWidget], sizes: DockSizes) -> None:
        super().__init__(window)
        self.window, self.docks, self.sizes = window, docks, sizes
        self._name = self._panel = "attention"
        self._elsewhere = ""  # the dock that had the keyboard when another one was used
        self._told = ""
        self._after = QTimer(self)  # a press has been dealt with: a tab that goes hands the keyboard to anybody
        self._after.setSingleShot(True)
        self._after.timeout.connect(self._settled)
        self._telling = QTimer(self)
        self._telling.setSingleShot(True)
        self._telling.timeout.connect(self._tell)
        window.installEventFilter(self)
        for dock in docks.values():
            dock.installEventFilter(self)
            dock.visibilityChanged.connect(self._look)
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        application.focusChanged.connect(self._look)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """A press means the dock it is on; a dock of its own has a window of its own."""
        if event.type() == QEvent.Type.MouseButtonPress and isinstance(event, QMouseEvent):
            if isinstance(watched, QDockWidget):
                self._pressed(watched)
            elif isinstance(watched, QWindow):
                self._pressed(self._under(watched, event.position().toPoint()))
        elif event.type() == QEvent.Type.Show and isinstance(watched, QWidget) and watched.isWindow():
            watched.windowHandle().installEventFilter(self)
        return False

    def _under(self, handle: QWindow, at: QPoint) -> QDockWidget | None:
        """The dock at a place of a window: whatever stands on it, or its tab."""
        top = next((w for w in (self.window, *self.docks.values()) if w.isWindow() and w.windowHandle() is handle), None)
        widget = None if top is None else top.childAt(at) or top
        while widget is not None and not isinstance(widget, QDockWidget):
            if isinstance(widget, QTabBar) and widget.parentWidget() is self.window:
                title = widget.tabText(widget.tabAt(widget.mapFrom(self.window, at)))
                return next((d for d in self.docks.values() if d.windowTitle() == title), None)
            widget = widget.parentWidget()
        return widget

    def _pressed(self, dock: QDockWidget | None) -> None:
        if dock is not None and dock in self.docks.values():
            self.use(dock.objectName().removeprefix("dock."))

    def use(self, name: str) -> None:
        """This dock is meant from now on, whoever has the keyboard."""
        self._name, self._elsewhere = name, self._of_keyboard()
        self._after.start(0)
        self._look()

    @Slot()
    def _settled(self) -> None:
        self._elsewhere = self._of_keyboard()
        self._tell()

    def _of_keyboard(self) -> str:
        """The dock that has the keyboard; "" where that is elsewhere."""
        focus = self.window.focusWidget()
        while focus is not None and not (isinstance(focus, QDockWidget) and focus in self.docks.values()):
            focus = focus.parentWidget()
        return "" if focus is None else focus.objectName().removeprefix("dock.")

    @property
    def dock(self) -> QDockWidget:
        """The dock that was last used, while it can be seen; else the largest one that can."""
        if not self._after.isActive() and (focused := self._of_keyboard()) not in ("", self._elsewhere):
            self._name, self._elsewhere = focused, ""
        seen, last = self.sizes.seen(), self.docks[self._name]
        if last.isFloating() and last.isVisible():
            return last
        return seen.get(self._name) or max(seen.values(), key=_area, default=self.docks["attention"])

    @property
    def panel(self) -> PanelDock:
        """The panel that was last used, while it can be seen; else the largest one that can, the attention where none is."""
        if isinstance(now := self.dock, PanelDock):
            self._panel = now.panel.name
            return now
        shown = {n: d for n, d in self.sizes.seen().items() if isinstance(d, PanelDock)}
        last = self.docks[self._panel]
        if last.isFloating() and last.isVisible():
            shown[self._panel] = last  # pyright: ignore[reportArgumentType]
        found = shown.get(self._panel) or max(shown.values(), key=_area, default=self.docks["attention"])
        assert isinstance(found, PanelDock)
        return found

    @Slot()
    def _look(self, *_: object) -> None:
        """Something has happened after which another dock may be meant."""
        self._telling.start(0)

    @Slot()
    def _tell(self) -> None:
        _ = self.panel  # remembered while it is the one in use
        name = self.dock.objectName().removeprefix("dock.")
        if name != self._told:
            self._told = name
            self.changed.emit(name)


def _area(dock: QDockWidget) -> int:
    return dock.width() * dock.height()
