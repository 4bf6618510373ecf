"""The sessions that were opened or saved last, and their place in the menu."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from circuitlab.draw.look.plain_text import tip_of
from circuitlab.gui.work.settings import settings_file

MOST = 8
KEY = "recent-sessions"


class RecentSessions(QObject):
    """`chosen(Path)`: one of them, in a menu. `remember` False: there are none."""

    chosen = Signal(object)

    def __init__(self, remember: bool, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.remember = remember

    def paths(self) -> list[Path]:
        """Newest first; a file may be gone."""
        value: Any = settings_file().value(KEY, []) if self.remember else []
        return [Path(value)] if isinstance(value, str) else [Path(str(one)) for one in value or ()]

    def add(self, path: Path) -> None:
        """Put a session at the top of the list."""
        if self.remember:
            rest = [str(one) for one in self.paths() if one != path]
            settings_file().setValue(KEY, [str(path), *rest][:MOST])

    def fill(self, menu: QMenu) -> None:
        """Put them at the top of a menu."""
        paths, first = self.paths(), next(iter(menu.actions()), None)
        if not paths:
            return
        entries = [QAction("Sessions", menu)]
        entries[0].setSeparator(True)
        for path in paths:
            entry = QAction(path.stem.replace("&", "&&"), menu)
            entry.setToolTip(tip_of(str(path)))
            entry.setData(str(path))
            entry.triggered.connect(self._chosen)
            entries.append(entry)
        menu.insertActions(first, entries) if first is not None else menu.addActions(entries)

    @Slot()
    def _chosen(self) -> None:
        action = self.sender()
        if isinstance(action, QAction):
            self.chosen.emit(Path(str(action.data())))
