"""The menu bar of a window: its commands, the recent sessions and models, a lesson and a panel an entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QDockWidget, QMainWindow, QMenu

from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.lessons.dock import LessonsDock
from circuitlab.gui.places.layout import Layout
from circuitlab.gui.sessions.controller import SessionController
from circuitlab.gui.shell.command import MENUS, Command, CommandAction
from circuitlab.gui.shell.opening import Opening


class Menus(QObject):
    """`actions`: the commands and the ways to the panels, as palette and shortcut sheet list them; `lessons`: an action a lesson.

    An action is enabled for as long as no menu is open, whatever its command says: see `enable`.
    """

    def __init__(
        self,
        window: QMainWindow,
        commands: Sequence[Command[Any]],
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
        shown = self._menus["View"].addMenu("Panels")
        for name, dock in docks.items():
            shown.addAction(dock.toggleViewAction())
            dock.toggleViewAction().triggered.connect(self._shown)
            self._add_way(name, dock)

    def _menu(self, command: Command[Any]) -> QMenu:
        """Where it stands; a submenu comes with its first command."""
        menu = self._menus[command.menu]
        if not command.submenu:
            return menu
        if command.submenu not in self._menus:
            self._menus[command.submenu] = menu.addMenu(command.submenu)
        return self._menus[command.submenu]

    def _add(self, menu: QMenu, command: Command[Any]) -> None:
        action = CommandAction(command, self._window)
        if command.separator:
            menu.addSeparator()
        menu.addAction(action)
        self._window.addAction(action)
        self.actions.append(action)
        if command.name == "open":
            self._recent = menu.addMenu("Open recent")
            self._recent.aboutToShow.connect(self._fill_recent)

    def _add_way(self, name: str, dock: QDockWidget) -> None:
        """“Go to” a dock, by its panel's shortcut."""
        go = QAction(f"Go to {dock.windowTitle()}", self._window)
        go.setObjectName(f"goto.{name}")
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
        """Before menu or palette: what can be run, and what undo would take back."""
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
    def _shown(self, on: bool) -> None:
        """A panel that is brought up is the one in use."""
        name = next((n for n, d in self._docks.items() if d.toggleViewAction() is self.sender()), "")
        if on and name:
            self._layout_of_docks.go_to(name)

    @Slot()
    def _go_to(self) -> None:
        action = self.sender()
        if isinstance(action, QAction):
            self._layout_of_docks.go_to(str(action.data()))
