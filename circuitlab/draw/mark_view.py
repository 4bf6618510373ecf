"""The contract of a mark's realisation: a widget that shows one mark, gives back hits, and redraws only what changed."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QWidget

from circuitlab.draw.theme import LIGHT, Theme
from circuitlab.figures.marks import Hit


class MarkView(QWidget):
    """Base of all mark views. `picked` gives a Hit, `hovered` a Hit with its readout, `context` a Hit or None and a position."""

    picked = Signal(object)
    hovered = Signal(object, str)
    context = Signal(object, QPoint)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme: Theme = LIGHT
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def show_mark(self, mark: Any) -> None:
        """Show a mark; what is identical to the last one is left alone."""
        raise NotImplementedError

    def set_theme(self, theme: Theme) -> None:
        """Take the colours of a theme."""
        self.theme = theme

    def reset_view(self) -> None:
        """Show everything again after zooming."""

    def leave(self, name: str) -> None:
        """Tell that nothing is under the pointer any more."""
        self.hovered.emit(Hit(name, (), "leave"), "")


def gesture_of(modifiers: Qt.KeyboardModifier, double: bool = False) -> str:
    """The name of a click."""
    if double:
        return "double-click"
    return "shift-click" if modifiers & Qt.KeyboardModifier.ShiftModifier else "click"
