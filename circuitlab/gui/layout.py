"""Where the docks are: the arrangement "Explore", one panel alone, what is remembered, and the way back."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QByteArray, QObject, Qt
from PySide6.QtWidgets import QDockWidget, QMainWindow, QTabWidget, QWidget

from circuitlab.figures.panel import panels
from circuitlab.gui.settings import stored

VERSION = 2  # of what saveState holds: a layout of another version is not restored
LEFT, RIGHT, TOP = (
    Qt.DockWidgetArea.LeftDockWidgetArea,
    Qt.DockWidgetArea.RightDockWidgetArea,
    Qt.DockWidgetArea.TopDockWidgetArea,
)
HOME = {"left": "heads", "centre": "predictions", "right": "predictions", "bottom": "heads"}
PLACED = ("overview", "attention", "predictions", "heads", "model")


class Layout(QObject):
    """The docks of a window, arranged."""

    def __init__(self, window: QMainWindow, docks: Mapping[str, QDockWidget]) -> None:
        super().__init__(window)
        self.window, self.docks = window, docks
        self.maximised = ""
        self._before, self._default = QByteArray(), QByteArray()

    def arrange(self) -> None:
        """Explore: prompt on top, heads left, attention in the middle, predictions right."""
        window, d = self.window, self.docks
        window.setTabPosition(Qt.DockWidgetArea.AllDockWidgetAreas, QTabWidget.TabPosition.North)
        window.setDocumentMode(True)
        window.setCentralWidget(None)  # type: ignore[arg-type]
        window.setCorner(Qt.Corner.TopLeftCorner, TOP)
        window.setCorner(Qt.Corner.TopRightCorner, TOP)
        window.addDockWidget(TOP, d["prompt"])
        window.addDockWidget(LEFT, d["overview"])
        window.splitDockWidget(d["overview"], d["attention"], Qt.Orientation.Horizontal)
        window.splitDockWidget(d["attention"], d["predictions"], Qt.Orientation.Horizontal)
        window.splitDockWidget(d["overview"], d["heads"], Qt.Orientation.Vertical)
        for name in ("model", "jobs", "log"):
            window.tabifyDockWidget(d["heads"], d[name])
        for name, panel in panels().items():
            if name not in PLACED:
                window.tabifyDockWidget(d[HOME[panel.area]], d[name])
        for dock in d.values():
            dock.setFloating(False)
            dock.show()
        d["heads"].raise_()
        d["predictions"].raise_()
        self.proportions()
        self._default = window.saveState(VERSION)

    def proportions(self) -> None:
        """Sizes for 1280 × 800; a larger window shares out the rest."""
        window, d = self.window, self.docks
        across, down = Qt.Orientation.Horizontal, Qt.Orientation.Vertical
        window.resizeDocks([d["overview"], d["attention"], d["predictions"]], [416, 524, 330], across)
        window.resizeDocks([d["overview"], d["heads"]], [300, 270], down)
        window.resizeDocks([d["prompt"], d["attention"]], [140, 570], down)

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
        """As at the first start."""
        self.maximised = ""
        self.redock()
        self.window.restoreState(self._default, VERSION)
        self.proportions()

    def go_to(self, name: str) -> None:
        """Show a dock, in front of its tabs, with the keyboard."""
        dock = self.docks[name]
        if self.maximised and self.maximised != dock.objectName():
            self.toggle_maximised()
        dock.show()
        dock.raise_()
        inside = dock.widget()
        (inside if inside is not None else dock).setFocus()

    def restore(self) -> None:
        """As it was when the window was last closed, on a screen that is still there."""
        kept = stored()
        geometry, state = kept.value("geometry"), kept.value("layout")
        if isinstance(geometry, QByteArray):
            self.window.restoreGeometry(geometry)
        if isinstance(state, QByteArray):
            self.window.restoreState(state, VERSION)
        screens = [s.availableGeometry() for s in self.window.screen().virtualSiblings()]
        if not any(s.intersects(self.window.frameGeometry()) for s in screens):
            self.window.move(self.window.screen().availableGeometry().topLeft())

    def keep(self) -> None:
        """Remember it for the next start."""
        kept = stored()
        kept.setValue("geometry", self.window.saveGeometry())
        kept.setValue("layout", self.window.saveState(VERSION))
