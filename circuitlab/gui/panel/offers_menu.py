"""The “Intervene, measure” menu: what can be ablated, patched or measured at the item under the pointer."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from circuitlab.figures.marks import Hit
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.state_commands import StateCommands
from circuitlab.state.cuts import offers
from circuitlab.state.gestures import entry_taken, menu_state
from circuitlab.state.state import State


class OffersMenu(QMenu):
    """`pick(state, hit)`: the State after a click on the item. The entry that is chosen goes to `state_commands`.

    Call `aim(hit)` before it is shown, with the item under the pointer, or with None for the selection.
    """

    def __init__(
        self, context: AppContext, pick: Callable[[State, Hit], State], state_commands: StateCommands, parent: QMenu
    ) -> None:
        super().__init__("Intervene, measure", parent)
        self.context, self._pick, self._state_commands = context, pick, state_commands
        self.hit: Hit | None = None  # the item under the pointer
        self._hit_of_entries: Hit | None = None
        self.aboutToShow.connect(self.fill)

    def aim(self, hit: Hit | None) -> None:
        """Set the item that the entries are about."""
        self.hit = hit
        self.fill()

    @Slot()
    def forget(self) -> None:
        """Forget the item: opened from a button, the menu is about the selection."""
        self.hit = None

    @Slot()
    def fill(self) -> None:
        """List the interventions and measurements that are possible now."""
        self._hit_of_entries = self.hit
        self.clear()
        for title in self._offers(self.hit):
            action = self.addAction(title.replace("&", "&&"))
            action.setData(title)
            action.triggered.connect(self._take)

    def _offers(self, hit: Hit | None) -> dict[str, State]:
        """The offers for an item, or with None for the selection: by title the State after each. The selection stays."""
        state = self.context.document.recorded
        facts = self.context.facts(state.model)
        aimed = state if hit is None else menu_state(state, lambda before: self._pick(before, hit))
        return {o.title: entry_taken(state, aimed, o.state) for o in offers(aimed, facts.config, facts.token_text)}

    @Slot()
    def _take(self) -> None:
        """Apply the chosen entry to the present State: while the menu was open, the model or the prompt may have changed."""
        action = self.sender()
        if not isinstance(action, QAction):
            return
        title = str(action.data())
        after = self._offers(self._hit_of_entries).get(title)
        if after is None:
            self.context.message.emit("Not done: the entry was for what the window showed before.")
        else:
            self._state_commands.accept_offer(after, title)
