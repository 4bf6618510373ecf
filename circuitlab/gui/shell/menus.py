"""The menu bar of a window: its commands, the recent sessions and models, the lessons and the panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QDockWidget, QMainWindow, QMenu

from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.lessons.dock import LessonsDock
from circuitlab.gui.places.layout import Layout
from circuitlab.gui.sessions.controller import SessionController
from circuitlab.gui.shell.command import GOES_TO, MENUS, AnyCommand, CommandAction
from circuitlab.gui.shell.opening import Opening


class Menus(QObject):
    """`actions`: the commands and “Go to” each dock, as the palette and the shortcut sheet list them; `lessons`: one per lesson.

    While no menu is open every action is enabled, whatever its command says: see `enable`.
    """

    def __init__(
        self,
        window: QMainWindow,
        commands: Sequence[AnyCommand],
        docks: Mapping[str, QDockWidget],
        lessons: LessonsDock,
        layout_of_docks: Layout,
        opening: Opening,
        sessions: SessionController,
    ) -> None:
        super().__init__(window)
        self._window, self._docks, self._layout_of_docks, self._opening = window, docks, layout_of_docks, opening
        self._sessions = sessions
        self._menus: dict[str, QMenu] = {name: window.menuBar().addMenu(f"&{name}") for name in MENUS}
        self.actions: list[QAction] = []
        for menu in list(self._menus.values()):
            menu.aboutToShow.connect(self.refresh)
            menu.aboutToHide.connect(self.enable)
        for command in commands:
            self._add(self._menu(command), command)
        self.lessons = lessons.fill_menu(self._menus["Help"].addMenu("Lesson"))
        self._panels_menu = self._menus["View"].addMenu("Panels")
        for name, dock in docks.items():
            self.add_dock(name, dock)

    def add_dock(self, name: str, dock: QDockWidget) -> None:
        """Show or hide a dock, and go to it."""
        self._panels_menu.addAction(dock.toggleViewAction())
        dock.toggleViewAction().triggered.connect(self._dock_toggled)
        self._add_go_to(name, dock)

    def _menu(self, command: AnyCommand) -> QMenu:
        """The menu of a command; a submenu is created with its first command."""
        menu = self._menus[command.menu]
        if not command.submenu:
            return menu
        if command.submenu not in self._menus:
            self._menus[command.submenu] = menu.addMenu(command.submenu)
        return self._menus[command.submenu]

    def _add(self, menu: QMenu, command: AnyCommand) -> None:
        action = CommandAction(command, self._window)
        if command.separator:
            menu.addSeparator()
        menu.addAction(action)
        if command.tip:
            menu.setToolTipsVisible(True)
        self._window.addAction(action)
        self.actions.append(action)
        if command.name == "open":
            self._recent = menu.addMenu("Open recent")
            self._recent.aboutToShow.connect(self._fill_recent)

    def _add_go_to(self, name: str, dock: QDockWidget) -> None:
        """Add “Go to” a dock, with its panel's shortcut."""
        go = QAction(f"Go to {dock.windowTitle()}", self._window)
        go.setObjectName(f"goto.{name}")
        go.setProperty(GOES_TO, dock.windowTitle())
        panel = panels().get(name)
        if panel is not None and panel.shortcut:
            go.setShortcut(panel.shortcut)
        go.setData(name)
        go.triggered.connect(self._go_to)
        self._window.addAction(go)
        self._menus["Go"].addAction(go)
        self.actions.append(go)

    @Slot()
    def refresh(self) -> None:
        """Update, before a menu or the palette opens, what can be run and what undo and redo would do."""
        document = self._opening.context.document
        labels = {"undo": document.undo_label, "redo": document.redo_label}
        for action in self.actions:
            if isinstance(action, CommandAction):
                action.refresh()
                action.setText(f"{action.command.title} {labels.get(action.command.name, '')}".strip())

    @Slot()
    def enable(self) -> None:
        """Enable all actions when a menu closes: a disabled action would swallow its shortcut; running it checks again."""
        for action in self.actions:
            action.setEnabled(True)

    @Slot()
    def _fill_recent(self) -> None:
        self._opening.fill(self._recent)
        self._sessions.recent.fill(self._recent)

    @Slot(bool)
    def _dock_toggled(self, on: bool) -> None:
        """Go to a dock that has been shown, so that it becomes the current one."""
        name = next((n for n, d in self._docks.items() if d.toggleViewAction() is self.sender()), "")
        if on and name:
            self._layout_of_docks.go_to(name)

    @Slot()
    def _go_to(self) -> None:
        action = self.sender()
        if isinstance(action, QAction):
            self._layout_of_docks.go_to(str(action.data()))
