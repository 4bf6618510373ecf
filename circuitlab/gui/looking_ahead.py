"""What is likely to be asked next, the heads beside the chosen one, is computed while nothing else is."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtWidgets import QDockWidget

from circuitlab.engine.request import Request
from circuitlab.figures.panel import Why
from circuitlab.gui.bench import Bench
from circuitlab.gui.panel_dock import PanelDock
from circuitlab.model.subject import Head

PAUSE = 250  # ms without a change
STEPS = ((0, 1), (0, -1), (1, 0), (-1, 0))


class LookingAhead(QObject):
    """Waits until the document rests, then hands the runner what the visible panels would ask for one step away."""

    def __init__(self, bench: Bench, docks: Mapping[str, QDockWidget], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.bench, self.docks = bench, docks
        self.timer = QTimer(self)
        self.timer.setSingleShot(True)
        self.timer.setInterval(PAUSE)
        self.timer.timeout.connect(self.look)
        bench.document.changed.connect(self._changed)

    @Slot(object, object)
    def _changed(self, old: object, new: object) -> None:
        self.timer.start()

    def requests(self) -> tuple[Request, ...]:
        """One step to each side, each request once."""
        state = self.bench.document.state
        if self.bench.engine.store.peek(state.model) is None or len(state.selection.heads) != 1:
            return ()
        facts, now = self.bench.facts(), state.selection.head
        found: dict[Request, None] = {}
        for layers, heads in STEPS:
            head = Head((now.layer + layers) % facts.config.n_layers, (now.head + heads) % facts.config.n_heads)
            beside = state.select(heads=(head,))
            for dock in self.docks.values():
                if isinstance(dock, PanelDock) and dock.shown:
                    wanted = dock.panel.requests(beside, facts)
                    found |= {} if isinstance(wanted, Why) else dict.fromkeys(wanted.values())
        return tuple(found)

    @Slot()
    def look(self) -> None:
        """Ask for them, with the lowest rank."""
        if not self.bench.runner.busy:
            self.bench.runner.prefetch(self.requests())

    def stop(self) -> None:
        """No more."""
        self.timer.stop()
