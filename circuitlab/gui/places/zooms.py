"""The visible parts of every figure of a window, as the words of a step or a session, and the way back."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from PySide6.QtWidgets import QDockWidget

from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.story.zoom import Part, Parts, name_of, of_panel


class Zooms:
    """Words about panels that are not here are kept, and given again."""

    def __init__(self, docks: Mapping[str, QDockWidget]) -> None:
        self._docks = docks
        self._unknown: dict[str, Part] = {}

    def _panels(self) -> dict[str, PanelDock]:
        return {name: dock for name, dock in self._docks.items() if isinstance(dock, PanelDock)}

    def words(self, of: Collection[str] | None = None) -> dict[str, Part]:
        """The parts of marks that are not shown whole. `of`: those of these panels alone, and the unknown ones."""
        chosen = {name: dock for name, dock in self._panels().items() if of is None or name in of}
        here = {name_of(panel, mark): part for panel, dock in chosen.items() for mark, part in dock.seen().items()}
        return {**here, **self._unknown}

    def show(self, words: Parts, at_once: bool = True) -> None:
        """Show these parts, and every other figure whole, each once it is drawn (`PanelZoom.show`)."""
        docks = self._panels()
        self._unknown = {name: part for name, part in words.items() if name.partition("/")[0] not in docks}
        for name, dock in docks.items():
            dock.see(of_panel(words, name), at_once)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The names of the words that are about no panel of this version."""
        return tuple(self._unknown)
