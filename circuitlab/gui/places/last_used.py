"""The dock that keyboard commands act on: the one last clicked, anywhere on it, or last shown by a key."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QEvent, QObject, QPoint, QTimer, Signal, Slot
from PySide6.QtGui import QMouseEvent, QWindow
from PySide6.QtWidgets import QApplication, QDockWidget, QMainWindow, QTabBar, QWidget

from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.places.dock_sizes import DockSizes


class LastUsed(QObject):
    """The last used dock of one window. `changed(name)`: commands act on another dock from now on.

    Mouse presses are watched at the native window, since controls, tabs and buttons do not pass them on to their dock.
    """

    changed = Signal(str)

    def __init__(self, window: QMainWindow, docks: Mapping[str, QDockWidget], sizes: DockSizes) -> None:
        super().__init__(window)
        self.window, self.docks, self.sizes = window, docks, sizes
        self._name = self._panel = "attention"
        self._elsewhere = ""  # the dock that had the keyboard when another one was used
        self._announced = ""
        self._after = QTimer(self)  # after a press is handled: a tab that closes passes the keyboard focus to an arbitrary dock
        self._after.setSingleShot(True)
        self._after.timeout.connect(self._settled)
        self._announcing = QTimer(self)
        self._announcing.setSingleShot(True)
        self._announcing.timeout.connect(self._announce)
        window.installEventFilter(self)
        for dock in docks.values():
            self.watch(dock)
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        application.focusChanged.connect(self._announce_later)

    def watch(self, dock: QDockWidget) -> None:
        """Notice when a dock is used."""
        dock.installEventFilter(self)
        dock.visibilityChanged.connect(self._announce_later)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """A mouse press selects the dock under it. A floating dock has a native window of its own."""
        if event.type() == QEvent.Type.MouseButtonPress and isinstance(event, QMouseEvent):
            if isinstance(watched, QDockWidget):
                self._pressed(watched)
            elif isinstance(watched, QWindow):
                self._pressed(self._under(watched, event.position().toPoint()))
        elif event.type() == QEvent.Type.Show and isinstance(watched, QWidget) and watched.isWindow():
            watched.windowHandle().installEventFilter(self)
        return False

    def _under(self, handle: QWindow, at: QPoint) -> QDockWidget | None:
        """The dock at a point of a native window: the one that holds the widget there, or whose tab it is."""
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
        """Make this the dock that commands act on, wherever the keyboard focus is."""
        self._name, self._elsewhere = name, self._of_keyboard()
        self._after.start(0)
        self._announce_later()

    @Slot()
    def _settled(self) -> None:
        self._elsewhere = self._of_keyboard()
        self._announce()

    def _of_keyboard(self) -> str:
        """The dock with the keyboard focus; "" if no dock has it."""
        focus = self.window.focusWidget()
        while focus is not None and not (isinstance(focus, QDockWidget) and focus in self.docks.values()):
            focus = focus.parentWidget()
        return "" if focus is None else focus.objectName().removeprefix("dock.")

    @property
    def dock(self) -> QDockWidget:
        """The last used dock if it is visible, otherwise the largest visible one."""
        if not self._after.isActive() and (focused := self._of_keyboard()) not in ("", self._elsewhere):
            self._name, self._elsewhere = focused, ""
        front, last = self.sizes.in_front(), self.docks[self._name]
        if last.isFloating() and last.isVisible():
            return last
        return front.get(self._name) or max(front.values(), key=_area, default=self.docks["attention"])

    @property
    def panel(self) -> PanelDock:
        """The last used panel if it is visible, otherwise the largest visible one; Attention if none is."""
        if isinstance(now := self.dock, PanelDock):
            self._panel = now.panel.name
            return now
        shown = {n: d for n, d in self.sizes.in_front().items() if isinstance(d, PanelDock)}
        last = self.docks[self._panel]
        if last.isFloating() and last.isVisible():
            shown[self._panel] = last  # pyright: ignore[reportArgumentType]
        dock = shown.get(self._panel) or max(shown.values(), key=_area, default=self.docks["attention"])
        assert isinstance(dock, PanelDock)
        return dock

    @Slot()
    def _announce_later(self, *_: object) -> None:
        """Check, once events are handled, whether commands now act on another dock."""
        self._announcing.start(0)

    @Slot()
    def _announce(self) -> None:
        _ = self.panel  # remembers the panel that is now in use
        name = self.dock.objectName().removeprefix("dock.")
        if name != self._announced:
            self._announced = name
            self.changed.emit(name)


def _area(dock: QDockWidget) -> int:
    return dock.width() * dock.height()
