"""What stories need of the window that they arrange."""

from __future__ import annotations

from typing import Protocol

from PySide6.QtWidgets import QDockWidget, QWidget

from circuitlab.gui.checkpoints.bar import CheckpointBar
from circuitlab.gui.places.layout import Layout
from circuitlab.gui.work.app_context import AppContext
from circuitlab.story.setup import Setup


class Host(Protocol):
    """The window, as stories see it. `layout_words()`: the words of the present layout. `checkpoints`: made after them."""

    context: AppContext
    remember: bool
    docks: dict[str, QDockWidget]
    layout_of_docks: Layout
    checkpoints: CheckpointBar

    def toggle_maximised(self, dock: QWidget | None = None) -> None: ...
    def commit_typing(self) -> None: ...
    def layout_words(self) -> Setup: ...
