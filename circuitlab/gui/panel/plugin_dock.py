"""The dock of a plug-in's panel: it says whose it is, imports it when it is shown first, and then is that panel's dock."""

from __future__ import annotations

import threading
from contextlib import suppress

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QWidget
from shiboken6 import delete

from circuitlab.errors import CircuitLabError, reason
from circuitlab.figures.contracts.panel import Panel, find_panel, in_contract
from circuitlab.figures.contracts.plugin_panels import stand_in
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.state_commands import StateCommands
from circuitlab.plugins import Addition


class PluginDock(PanelDock):
    """See the module. The import runs on a thread of its own that ends with the process: the window does not wait for it."""

    imported = Signal(object)  # the panel, or the error that names the plug-in

    def __init__(
        self, addition: Addition, context: AppContext, state_commands: StateCommands, parent: QWidget | None = None
    ) -> None:
        self.addition, self._asked = addition, False
        super().__init__(self._stand_in("is imported"), context, state_commands, parent)
        self.imported.connect(self._imported, Qt.ConnectionType.QueuedConnection)

    def _stand_in(self, what: str) -> Panel:
        plugin = str(self.addition.plugin)
        return in_contract(stand_in(self.addition.name, plugin, f"This panel is of the plug-in {plugin}, which {what}"))

    def showEvent(self, event: QShowEvent) -> None:
        """Import the plug-in when it is shown for the first time."""
        super().showEvent(event)
        if not self._asked:
            self._asked = True
            threading.Thread(target=self._import, name=f"import of {self.addition.plugin}", daemon=True).start()

    def _import(self) -> None:
        result: object
        try:
            result = find_panel(self.addition.name)
        except CircuitLabError as error:
            result = error
        with suppress(RuntimeError):  # the window has been closed meanwhile
            self.imported.emit(result)

    @Slot(object)
    def _imported(self, found: object) -> None:
        """Become the panel's dock, or say why there is none."""
        if isinstance(found, CircuitLabError):
            self.context.message.emit(reason(found))
            why = " ".join(filter(None, (f"is not there. {found.what}", f"({found.got})" if found.got else "", found.remedy)))
            return self._replace(self._stand_in(why))
        assert isinstance(found, Panel)
        self._replace(found)

    def _replace(self, panel: Panel) -> None:
        seen = self.seen()  # of a session's words about the panel, which waits for it
        old = (*((self.feed, self.actions_menu) if self.filled else ()), self.titleBarWidget(), self.widget())
        self.setTitleBarWidget(None)  # type: ignore[arg-type]
        for part in old:
            delete(part)
        self.setWindowTitle(panel.title)
        self._hold(panel)
        self.see(seen)
        if self.shown:
            self.feed.catch_up()
